"""How fast lanes step, compared with a Python loop over Gymnasium's environment of the same body, in the same run.

The third column is what the physics alone would allow: the same control steps from the same states and nothing else.
The last column is the share of a lane step that is not physics.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import gymnasium
import numpy as np

from benchmarks.timing import Row, interleave, seconds
from qpensieve.envs import LaneOptions, Lanes, get_domain, make_lanes
from qpensieve.envs.mujoco import MujocoSimulator, quiet_mujoco

GYM_BODIES = {
    "Hopper2d": ("Hopper-v4", {}),
    "HalfCheetah2d": ("HalfCheetah-v4", {}),
    "Walker2d": ("Walker2d-v4", {}),
    "Ant2d": ("Ant-v4", {}),
    "LunarLander4d": ("LunarLander-v3", {"continuous": True}),
    "DST2d": ("qpensieve/DST2d-v0", {}),
}
"""Domain -> the Gymnasium environment that the loop uses. DST2d has only our own environment of one lane."""
WANTED = {"Hopper2d": 2.0, "HalfCheetah2d": 1.5, "Walker2d": 1.5, "Ant2d": 1.5, "LunarLander4d": 1.5, "DST2d": 20.0}
FALL_STEPS = 60
"""Steps of free fall on which a bare LunarLander world is timed."""


@dataclass(frozen=True)
class Settings:
    """Settings of the benchmark.

    Attributes:
        lanes: How many lanes step together.
        steps: Lane steps per repeat (the loop takes as many single steps as there are lanes).
        repeats: Interleaved repeats; the median is shown.
        domains: Which domains.
        num_threads: Threads (LunarLander: processes) that share the lanes. None: as many as help.
    """

    lanes: int = 64
    steps: int = 100
    repeats: int = 5
    domains: tuple[str, ...] = tuple(GYM_BODIES)
    num_threads: int | None = None


def run(settings: Settings, progress: Callable[[str], None]) -> list[Row]:
    """Return one row per domain."""
    rows = []
    for domain in settings.domains:
        progress(f"lanes: {domain}")
        rows.append(_measure(domain, settings))
    return rows


def _measure(domain: str, settings: Settings) -> Row:
    env = gym_env(domain)
    lanes = make_lanes(domain, settings.lanes, 0, LaneOptions(num_threads=settings.num_threads))
    env.reset(seed=0)
    lanes.reset()
    size = lanes.spec.action_size
    actions = np.random.default_rng(0).uniform(-1, 1, (settings.steps, settings.lanes, size)).astype(np.float32)
    bare = bare_physics(domain, lanes, actions)
    parts = [lambda: _loop(env, actions), lambda: seconds(lambda: [lanes.step(a) for a in actions]), bare]
    for part in parts:  # warm up: threads, caches, first resets
        part()
    times = interleave(parts, settings.repeats)
    loop, lane, floor = (median(values) for values in times)
    ratio = median(a / b for a, b in zip(times[0], times[1], strict=True))
    steps = settings.steps * settings.lanes
    return {
        "domain": domain,
        "loop steps/s": steps / loop,
        "lanes steps/s": steps / lane,
        "ratio": ratio,
        "wanted": WANTED[domain],
        "bare physics allows": loop / floor if floor else None,
        "share around physics": 1 - floor / lane if floor else None,
    }


def gym_env(domain: str) -> gymnasium.Env:
    get_domain(domain)
    gym_id, kwargs = GYM_BODIES[domain]
    with warnings.catch_warnings(), quiet_mujoco():
        warnings.simplefilter("ignore")  # v4 is old but intended: its physics defines the domains
        try:
            return gymnasium.make(gym_id, **kwargs)
        except (ImportError, gymnasium.error.DependencyNotInstalled) as error:
            raise SystemExit(
                f"lanes compares with Gymnasium's {gym_id}, which cannot be made here ({error}); "
                "install what it needs: pip install 'qpensieve[dev]'"
            ) from error


def _loop(env: gymnasium.Env, actions: np.ndarray) -> float:
    flat = actions.reshape(-1, actions.shape[-1])

    def play() -> None:
        for action in flat:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

    return seconds(play)


def bare_physics(domain: str, lanes: Lanes, actions: np.ndarray) -> Callable[[], float]:
    """Return a timer of the physics alone, for the steps of `actions`. It returns 0 if there is no physics."""
    if domain.startswith("DST"):
        return lambda: 0.0
    if domain.startswith("LunarLander"):
        processes = getattr(lanes.simulator, "num_shares", 1)
        return lambda: _bare_lander(actions.shape[0] * actions.shape[1]) / processes
    simulator = lanes.simulator
    assert isinstance(simulator, MujocoSimulator)
    visited = []
    for action in actions:
        visited.append((simulator.state()["physics"], action.astype(np.float64)))
        lanes.step(action)
    return lambda: seconds(lambda: [simulator.run_physics(*pair) for pair in visited])


def _bare_lander(num_steps: int) -> float:
    from qpensieve.envs.lunar_lander import POSITION_ITERATIONS, STEP_SECONDS, VELOCITY_ITERATIONS, gym_lander

    env, total, done = gym_lander.LunarLander(continuous=True), 0.0, 0
    while done < num_steps:
        env.reset(seed=done)
        step = env.world.Step
        total += seconds(
            lambda step=step: [step(STEP_SECONDS, VELOCITY_ITERATIONS, POSITION_ITERATIONS) for _ in range(FALL_STEPS)]
        )
        done += FALL_STEPS
    return total * num_steps / done
