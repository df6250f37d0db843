"""Does a candidate of eq. (11) keep its promise? Compares what it promises with Monte-Carlo returns of following it.

    python tools/promises.py Ant3d NOW.npz [OLDER.npz ...] --temperature 0.001 --out results/recipe/promises-Ant3d

Files hold networks of one run, the newest first: parameters/step_N.npz with `.sac.actor` and `.sac.critic`. In states
of the newest policy under lam an action a is drawn. The candidate (critic of file k, lam') promises min over twins of
lam . Q_k(s, a; lam'). To follow it is to take a and then the policy of file k under lam'. Returns are those of the
critics' target, with the entropy bonus, along lam. Both are given as gains over the candidate (newest, lam), so a kept
promise lies on the diagonal. It writes OUT.json and OUT.png.
"""

import argparse
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qpensieve.envs import LaneOptions, make_lanes
from qpensieve.envs.split_lanes import join_states, split_state
from qpensieve.learning.acting import LOG_STD_RANGE


@dataclass(frozen=True)
class Networks:
    """Policy and twin critics of one seed, in NumPy."""

    arrays: dict[str, np.ndarray]
    """Leaves below `.sac`, without the axis of seeds."""

    def layers(self, name: str, x: np.ndarray, twin: int | None = None) -> np.ndarray:
        """Apply a network to rows."""
        for layer in ("first", "second", "last"):
            weight, bias = (self.arrays[f"{name}.net.{layer}.{part}"] for part in ("weight", "bias"))
            x = x @ (weight if twin is None else weight[twin]) + (bias if twin is None else bias[twin])
            x = x if layer == "last" else np.maximum(x, 0)
        return x

    def act(self, s: np.ndarray, lam: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return sampled actions and their log probabilities."""
        mean, log_std = np.split(self.layers("actor", np.hstack([s, lam])), 2, axis=1)
        log_std = np.clip(log_std, *LOG_STD_RANGE)
        raw = mean + np.exp(log_std) * noise
        squashed = 2 * (np.log(2) - raw - np.logaddexp(0, -2 * raw))  # log of 1 - tanh(raw)^2
        return np.tanh(raw), (-0.5 * noise**2 - log_std - 0.5 * np.log(2 * np.pi) - squashed).sum(axis=1)

    def promise(self, s: np.ndarray, a: np.ndarray, asked: np.ndarray, lam: np.ndarray) -> np.ndarray:
        """Return min over twins of lam . Q(s, a; asked)."""
        x = np.hstack([s, a, asked])
        return np.min([(self.layers("critic", x, twin) * lam).sum(axis=1) for twin in (0, 1)], axis=0)


def load(path: Path) -> tuple[int, list[Networks]]:
    """Return the step of a file and the networks of every seed in it."""
    with np.load(path) as file:
        arrays = {name.removeprefix(".sac."): file[name] for name in file if re.match(r"\.sac\.(actor|critic)\.", name)}
    seeds = len(next(iter(arrays.values())))
    step = int(re.findall(r"step_0*(\d+)", path.name)[-1])
    return step, [Networks({name: value[i] for name, value in arrays.items()}) for i in range(seeds)]


@dataclass(frozen=True)
class Setting:
    """What is measured."""

    domain: str
    pairs: int
    rollouts: int
    discount: float
    temperature: float
    horizon: int


def visit(setting: Setting, now: Networks, lam: np.ndarray, random: np.random.Generator) -> tuple[Any, np.ndarray]:
    """Return states of the policy's own episodes, each at a random early step."""
    lanes = make_lanes(setting.domain, len(lam), int(random.integers(2**31)))
    total = lanes.spec.max_steps or 1000
    begins = total - random.integers(total, size=len(lam))  # a lane begins so late that all arrive together
    lanes.reset()
    for t in range(total):
        lanes.reset(begins == t)
        a, _ = now.act(lanes.obs, lam, random.normal(size=(len(lam), lanes.spec.action_size)))
        lanes.step(a)
    lanes.reset(begins == total)
    state, obs = lanes.state(), lanes.obs
    lanes.close()
    return state, obs


def follow(
    setting: Setting, saved: Any, first: np.ndarray, candidates: list[tuple[Networks, np.ndarray]], lam: np.ndarray
) -> np.ndarray:
    """Return lam . returns of every candidate from every state, [candidates, pairs, rollouts]."""
    pairs, times = len(lam), len(candidates) * setting.rollouts
    alone = split_state(saved, np.arange(pairs + 1))
    options = LaneOptions(autoreset=False, time_limit=False)
    lanes = make_lanes(setting.domain, pairs * times, 0, options)
    lanes.restore(join_states([one for _ in range(times) for one in alone]))
    rows = np.tile(lam, (times, 1))
    a, bonus = np.tile(first, (times, 1)), np.zeros(len(rows))
    total, random = np.zeros(len(rows)), np.random.default_rng(1)
    size = pairs * setting.rollouts
    for t in range(setting.horizon):
        running = lanes.running.copy()
        reward = lanes.step(a).reward
        total += setting.discount**t * np.where(running, (reward * rows).sum(axis=1) + bonus, 0)
        if not lanes.running.any():
            break
        noise = np.tile(random.normal(size=(size, a.shape[1])), (len(candidates), 1))  # the same for every candidate
        for i, (networks, asked) in enumerate(candidates):
            part = slice(i * size, (i + 1) * size)
            a[part], logp = networks.act(lanes.obs[part], np.tile(asked, (setting.rollouts, 1)), noise[part])
            bonus[part] = -setting.temperature * logp
    lanes.close()
    return total.reshape(len(candidates), setting.rollouts, pairs).swapaxes(1, 2)


def measure(setting: Setting, files: list[tuple[int, list[Networks]]], seed: int) -> Iterator[dict[str, Any]]:
    """Return one row for every candidate and state of a seed."""
    random = np.random.default_rng(seed)
    now = files[0][1][seed]
    dim = now.arrays["critic.net.last.bias"].shape[-1]
    lam, other = random.dirichlet(np.ones(dim), (2, setting.pairs))
    saved, s = visit(setting, now, lam, random)
    a, _ = now.act(s, lam, random.normal(size=(len(s), now.arrays["actor.net.last.bias"].shape[-1] // 2)))
    named = [(step, kind, seeds[seed], lam if kind == "own" else other) for step, seeds in files for kind in KINDS]
    promises = [networks.promise(s, a, asked, lam) for _, _, networks, asked in named]
    returns = follow(setting, saved, a, [entry[2:] for entry in named], lam)
    for (step, kind, _, _), promised, paid in zip(named, promises, returns, strict=True):
        for i in range(len(s)):
            yield {
                "seed": seed,
                "age": files[0][0] - step,
                "preference": kind,
                "pair": i,
                "own value": round(float(promises[0][i]), 4),
                "own return": round(float(returns[0][i].mean()), 4),
                "promised gain": round(float(promised[i] - promises[0][i]), 4),
                "gain": round(float(paid[i].mean() - returns[0][i].mean()), 4),
            }


KINDS = ("own", "fresh")
"""Whether a candidate is read under lam or under another preference."""


def summarize(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return for each age and kind how often it promises more, how much more, and the gain of following it."""
    found = []
    for age, kind in dict.fromkeys((row["age"], row["preference"]) for row in rows):
        part = [row for row in rows if (row["age"], row["preference"]) == (age, kind)]
        better = [row for row in part if row["promised gain"] > 0]
        gains = np.array([row["gain"] for row in better])
        found.append(
            {
                "age": age,
                "preference": kind,
                "pairs": len(part),
                "promises more": len(better) / len(part),
                "promised gain": float(np.mean([row["promised gain"] for row in better])) if better else None,
                "gain": float(gains.mean()) if better else None,
                "standard error": float(gains.std(ddof=1) / len(gains) ** 0.5) if len(better) > 1 else None,
                "kept": float(np.mean([row["gain"] >= row["promised gain"] for row in better])) if better else None,
            }
        )
    return found


def draw(rows: list[dict[str, Any]], title: str, path: Path) -> None:
    """Draw a panel for each candidate: gain over promised gain. Above the diagonal the gain was larger."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    kinds = [key for key in dict.fromkeys((row["age"], row["preference"]) for row in rows) if key != (0, "own")]
    figure, axes = pyplot.subplots(1, len(kinds), figsize=(3.2 * len(kinds), 3.4), sharey=True, squeeze=False)
    for axis, (age, kind) in zip(axes[0], kinds, strict=True):
        part = [row for row in rows if (row["age"], row["preference"]) == (age, kind)]
        promised, gained = (np.array([row[name] for row in part]) for name in ("promised gain", "gain"))
        more = promised > 0
        axis.scatter(promised[~more], gained[~more], s=8, color="0.75", label="promises less")
        axis.scatter(promised[more], gained[more], s=8, color="C0", label="promises more: may win")
        ends = np.array([min(promised.min(), 0), max(promised.max(), 0)])
        axis.plot(ends, ends, color="C3", lw=1, label="kept exactly")
        axis.axhline(0, color="0.3", lw=0.6)
        axis.set_title(f"{'current' if age == 0 else f'{age:,} steps old'}, {kind} preference", fontsize=9)
        axis.set_xlabel("promised gain")
    axes[0][0].set_ylabel("gain of following it")
    axes[0][0].legend(fontsize=7, frameon=False)
    figure.suptitle(title, fontsize=10)
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("domain")
    parser.add_argument("files", nargs="+", type=Path, help="networks of one run, the newest first")
    parser.add_argument("--out", type=Path, required=True, help="where to write, without suffix")
    parser.add_argument("--temperature", type=float, required=True, help="of the run at the newest file (see its log)")
    parser.add_argument("--discount", type=float, default=0.99)
    parser.add_argument("--pairs", type=int, default=40, help="states of each seed")
    parser.add_argument("--rollouts", type=int, default=2)
    parser.add_argument("--horizon", type=int, default=600, help="steps of a rollout")
    given = parser.parse_args()
    files = [load(path) for path in given.files]
    words = (given.domain, given.pairs, given.rollouts, given.discount, given.temperature, given.horizon)
    setting = Setting(*words)
    rows: list[dict[str, Any]] = []
    for seed in range(len(files[0][1])):
        rows += measure(setting, files, seed)
        print(f"seed {seed}: {len(rows)} rows", flush=True)
    found = summarize(rows)
    for row in found:
        print(row)
    texts = {"files": [path.name for path in given.files], **vars(setting), "summary": found, "rows": rows}
    given.out.with_suffix(".json").write_text(json.dumps(texts, indent=None, separators=(",", ":")) + "\n")
    draw(rows, given.domain, given.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
