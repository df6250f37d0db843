"""Environment steps per second of Stable-Baselines3's SAC and of the methods here, measured in turn.

SB3 brings torch, so it has an environment of its own: `--python` names its interpreter, where gymnasium, mujoco and
qpensieve can be imported too. It sees one scalar reward, the mean of the objectives, and makes one update a step.
"""

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median

from benchmarks.timing import interleave, seconds
from qpensieve.config import RunConfig, default_config, with_schedule
from qpensieve.console import Row
from qpensieve.errors import UserError
from qpensieve.train.trainer import Trainer

PEER = """
import sys, time
import gymnasium, numpy, torch, stable_baselines3
import qpensieve

class Scalar(gymnasium.Wrapper):
    def step(self, action):
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, float(numpy.mean(reward)), terminated, truncated, info

env = Scalar(gymnasium.make(sys.argv[1]))
model = stable_baselines3.SAC("MlpPolicy", env, learning_starts=100, device="cpu")
model.learn(int(sys.argv[2]))
print(stable_baselines3.__version__, torch.__version__, flush=True)
for line in sys.stdin:
    start = time.perf_counter()
    model.learn(int(line), reset_num_timesteps=False)
    print(time.perf_counter() - start, flush=True)
"""


@dataclass(frozen=True)
class Settings:
    """Settings of the benchmark.

    Attributes:
        python: Interpreter of an environment with stable_baselines3.
        domain: Domain to train on.
        runs: Methods of this package and their presets, as METHOD:PRESET.
        steps: Timed environment steps of each repeat.
        warm_up: Environment steps before, in which everything is compiled.
        repeats: How many times each is timed.
    """

    python: str
    domain: str = "HalfCheetah2d"
    runs: tuple[str, ...] = ("qpensieve:robust", "mosac:robust")
    steps: int = 1000
    warm_up: int = 500
    repeats: int = 5


def run(settings: Settings, progress: Callable[[str], None]) -> list[Row]:
    """Return a row for each: median of environment steps per second of one seed, and the ratio to SB3."""
    words = [settings.python, "-c", PEER, f"qpensieve/{settings.domain}-v0", str(settings.warm_up)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as peer:
        assert peer.stdin is not None
        assert peer.stdout is not None
        into, out = peer.stdin, peer.stdout
        versions = out.readline().split()
        if not versions:
            raise UserError(f"{settings.python} cannot run stable_baselines3 on {settings.domain}: see above")

        def of_peer() -> float:
            into.write(f"{settings.steps}\n")
            into.flush()
            return float(out.readline())

        names, parts, updates = [f"SB3 {versions[0]} (torch {versions[1]})"], [of_peer], [1.0]
        trainers: list[Trainer] = []
        for name in settings.runs:
            progress(f"sb3: {name}, compiling")
            config = make_config(settings, *name.split(":"))
            trainer = Trainer(config)
            trainers.append(trainer)
            advance(trainer, config.block + settings.warm_up)
            names.append(name)
            parts.append(lambda trainer=trainer: seconds(lambda: advance(trainer, trainer.step + settings.steps)))
            updates.append(config.updates_per_step)
        progress("sb3: measuring")
        taken = interleave(parts, settings.repeats)
        for trainer in trainers:
            trainer.close()
        into.close()
    rates = [settings.steps / median(times) for times in taken]
    return [
        {
            "run": name,
            "domain": settings.domain,
            "updates a step": per_step,
            "steps/s": rate,
            "of SB3": rate / rates[0],
            "slowest": settings.steps / max(times),
            "fastest": settings.steps / min(times),
        }
        for name, per_step, rate, times in zip(names, updates, rates, taken, strict=True)
    ]


def make_config(settings: Settings, method: str, preset: str) -> RunConfig:
    config = default_config(settings.domain, method, preset)
    steps = config.block * 2 + settings.warm_up + settings.steps * (settings.repeats + 1)
    return with_schedule(replace(config, seeds=1, steps=steps, random_steps=config.block))


def advance(trainer: Trainer, step: int) -> None:
    while trainer.step < step:
        trainer.advance()
    trainer.drain()
