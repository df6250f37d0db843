r"""Bursts in training logs: when, how hard, how long, and how often per million seed-steps, with exact intervals.

    python3 tools/bursts.py runs/*/ --list --json bursts.json

A burst is what happens when critics run away: the policy follows them, its entropy falls far below the target, the
critic loss is many times what it was, values grow. For every run (a folder with config.json and metrics.jsonl) and seed
this counts, from `--after` to `--until`:

- alarms: entropy more than `--depth` |A| below its target. Alarms closer than `--merge` steps are one event;
- hard ones: alarms whose loss reached `HARD` times the median of the rows before;
- value events: rows with mean lam . Q above `VALUE` times and a loss above `HARD` times the medians of the rows before,
  merged in the same way;
- bin events: entropy in one fifth of lam1 more than `BIN_DEPTH` |A| below the median of its rows before, where bins are
  logged: the mean of entropy misses what happens under few preferences. Events of several bins count one by one;
- onsets: bin events of a seed, joined where less than `--merge` steps are between the end of one and the next,
  whatever the bin;
- losses of UT: short evaluations below half of the best so far, once until UT is back;
- time in alarm: share of rows whose lowest bin is more than |A| below the target (the alarm `bin` of a run).

Where a seed has an agent for each preference (sac, hybrid-sac), agents are counted, and their steps are seed-steps; UT
is that of their seed, once.

Rows before are `WINDOW` rows of the log. The rate's interval is the exact one of Poisson counts (Garwood), 95 %.
"""

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ACTIONS = {"DST2d": 2, "HalfCheetah2d": 6, "Hopper2d": 3, "Hopper3d": 3, "Hopper5d": 3, "Walker2d": 6} | {
    "Ant2d": 8,
    "Ant3d": 8,
    "LunarLander4d": 2,
    "LunarLander5d": 2,
}
HARD, VALUE, WINDOW = 4.0, 1.3, 50
BIN_DEPTH = 0.5
PAPER_UPDATES = 1_500_000
"""`WHOLE_RUN` of algos/mosac.py, again: this program runs where there is only NumPy."""
BINS = tuple(f"entropy_bin_{number}" for number in range(1, 6))
AFTERMATH = 100_000
"""Steps after an onset in which UT, values and temperature are looked at."""


class Log:
    """The log of a run: what was trained, rows of training and short evaluations, [row, seed] each."""

    def __init__(self, folder: Path, until: float = math.inf):
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        rows = [row for line in lines if line.endswith("}") and (row := json.loads(line)).get("step", 0) <= until]
        self.name, self.config = folder.name, json.loads((folder / "config.json").read_text())
        trained = [row for row in rows if row["event"] == "train"]
        evaluated = [row for row in rows if row["event"] == "evaluation"]
        self.steps = np.array([row["step"] for row in trained])
        self.values = {
            name: np.array([row[name] for row in trained])
            for name in ("entropy", "critic_loss", "q", "temperature", "snapshot_share", *BINS)
            if trained and name in trained[0]
        }
        self.ut_steps = np.array([row["step"] for row in evaluated])
        self.ut = np.array([row["ut_short"] for row in evaluated]).reshape(len(evaluated), -1 if evaluated else 0)
        if not trained:
            raise SystemExit(f"{folder} has no row of training up to step {until:,.0f}")

    @property
    def num_seeds(self) -> int:
        """Columns of the log: seeds, or their agents."""
        return self.values["entropy"].shape[1]

    def row(self, column: int) -> int:
        """Return the row of the seed of a column, as evaluations count seeds."""
        return column * self.config["seeds"] // self.num_seeds

    def number(self, column: int) -> int:
        """Return the number of that seed."""
        return self.config["first_seed"] + self.row(column)

    @property
    def action_size(self) -> int:
        domain = self.config["domain"]
        if domain not in ACTIONS:
            raise SystemExit(f"{self.name}: the size of an action must be known, but {domain} is not in ACTIONS")
        return ACTIONS[domain]

    @property
    def target(self) -> np.ndarray:
        """Entropy that the policy aims at, row by row."""
        agent = self.config["agent"]
        sac = agent.get("pensieve", agent).get("sac", agent)
        start, end = sac.get("target_entropy", -1.0), sac.get("target_entropy_end")
        if end is None:
            return np.full(len(self.steps), start * self.action_size)
        updates = (self.steps - self.config["random_steps"]) * self.config["updates_per_step"]
        done = np.clip(updates / (sac["anneal_updates"] or PAPER_UPDATES), 0.0, 1.0)
        return self.action_size * (start + (end - start) * done)

    def seed_steps(self, after: int) -> int:
        """Return the steps of all seeds from `after` on."""
        return self.num_seeds * max(0, int(self.steps[-1]) - after)


def medians_before(values: np.ndarray) -> np.ndarray:
    """Return the median of up to `WINDOW` values before each value; the first value stays."""
    return np.array([np.median(values[max(0, i - WINDOW) : i]) if i else values[0] for i in range(len(values))])


def merged(steps: np.ndarray, is_on: np.ndarray, merge: int) -> list[tuple[int, int]]:
    """Return the first and last row of each event."""
    events: list[tuple[int, int]] = []
    for row in np.flatnonzero(is_on).tolist():
        if events and steps[row] - steps[events[-1][1]] < merge:
            events[-1] = (events[-1][0], row)
        else:
            events.append((row, row))
    return events


def find_alarms(log: Log, seed: int, given: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the events of one seed in which entropy falls too far, each with its effects."""
    entropy = log.values["entropy"][:, seed]
    is_on = (entropy < log.target - log.action_size * given.depth) & (log.steps > given.after)
    return [describe(log, seed, *ends) for ends in merged(log.steps, is_on, given.merge)]


def describe(log: Log, seed: int, first: int, last: int) -> dict[str, Any]:
    """Return the effects of an event from row `first` to `last` on loss, values, temperature, snapshots and UT."""
    of = {name: values[:, seed] for name, values in log.values.items()}
    usual = lambda name: float(np.median(of[name][max(0, first - WINDOW) : max(1, first)]))
    until = int(np.searchsorted(log.steps, log.steps[last] + 20_000, side="right"))
    near = slice(max(0, first - 3), until)
    calm = [k for k in range(last + 1, len(log.steps)) if of["critic_loss"][k] <= 2 * usual("critic_loss")]
    end = int(log.steps[calm[0]]) if calm else None
    event: dict[str, Any] = {"seed": log.number(seed), "onset": int(log.steps[first])}
    event |= {"last alarm": int(log.steps[last]), "over at": end}
    event["entropy"] = round(float(of["entropy"][near].min()), 2)
    event["loss before"] = round(usual("critic_loss"), 3)
    event["loss ratio"] = round(float(of["critic_loss"][near].max()) / usual("critic_loss"), 2)
    event["q before"] = round(usual("q"), 1)
    event["q ratio"] = round(float(of["q"][near].max() / max(usual("q"), 1e-9)), 2)
    event["temperature ratio"] = round(float(of["temperature"][near].max()) / usual("temperature"), 2)
    if "snapshot_share" in of:
        event["snapshots before"] = round(usual("snapshot_share"), 2)
        event["snapshots least"] = round(float(of["snapshot_share"][near].min()), 2)
    if len(log.ut):
        onset = log.steps[first]
        before = log.ut[log.ut_steps <= onset, log.row(seed)]
        after = log.ut[(log.ut_steps > onset) & (log.ut_steps <= log.steps[last] + AFTERMATH), log.row(seed)]
        event["UT before"] = round(float(before[-1]), 1) if len(before) else None
        event["UT after"] = round(float(after.min()), 1) if len(after) else None
    return event


def find_value_events(log: Log, seed: int, given: argparse.Namespace) -> list[int]:
    """Return the onsets of values and loss far above their medians."""
    q, loss = log.values["q"][:, seed], log.values["critic_loss"][:, seed]
    is_on = (q > VALUE * np.abs(medians_before(q))) & (loss > HARD * medians_before(loss)) & (log.steps > given.after)
    return [int(log.steps[first]) for first, _ in merged(log.steps, is_on, given.merge)]


def find_bin_events(log: Log, seed: int, given: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the events of one seed in single fifths of lam1; none if fifths are not logged."""
    found = []
    for name in (name for name in BINS if name in log.values):
        entropy = log.values[name][:, seed]
        is_on = (entropy < medians_before(entropy) - BIN_DEPTH * log.action_size) & (log.steps > given.after)
        for first, last in merged(log.steps, is_on, given.merge):
            event = {"seed": log.number(seed), "bin": int(name[-1])}
            event |= {"onset": int(log.steps[first]), "last": int(log.steps[last])}
            found.append(event | {"entropy": round(float(entropy[first : last + 1].min()), 1)})
    return found


def joined(in_bins: list[dict[str, Any]], merge: int) -> list[tuple[int, int]]:
    """Return (seed, step) of bin events that begin at least `merge` steps after the earlier events of their seed."""
    found: list[tuple[int, int]] = []
    ends: dict[int, int] = {}
    for seed, onset, last in sorted((event["seed"], event["onset"], event["last"]) for event in in_bins):
        if seed not in ends or onset - ends[seed] >= merge:
            found.append((seed, onset))
        ends[seed] = max(last, ends.get(seed, last))
    return found


def time_in_alarm(log: Log, given: argparse.Namespace) -> float | None:
    """Return the share of rows of all seeds in which a bin has collapsed."""
    bins = [log.values[name] for name in BINS if name in log.values]
    if not bins:
        return None
    is_on = np.min(bins, axis=0) < (log.target - log.action_size)[:, None]
    return round(float(is_on[log.steps > given.after].mean()), 5)


def find_ut_losses(log: Log, row: int, given: argparse.Namespace) -> list[int]:
    """Return the steps after `--after` at which a seed's UT falls below half of its best so far.

    Runs with more evaluations have more of them: compare runs over the same steps.
    """
    found, best, is_low = [], 0.0, False
    for step, ut in zip(log.ut_steps.tolist(), log.ut[:, row].tolist() if len(log.ut) else [], strict=True):
        was_low, is_low = is_low, best > 0 and ut < best / 2
        if is_low and not was_low and step > given.after:
            found.append(step)
        best = max(best, ut)
    return found


def at_most(count: int, mean: float) -> float:
    """Return the probability of at most `count` events if `mean` are expected."""
    return sum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(count + 1)) if mean else 1.0


def root(falling: Callable[[float], float], high: float) -> float:
    """Return the zero of a falling function between 0 and `high`."""
    low = 0.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return (low + high) / 2


def interval(count: int, level: float = 0.95) -> tuple[float, float]:
    """Return the exact interval of a Poisson mean for a count."""
    tail, most = (1 - level) / 2, 10.0 * count + 20
    lower = root(lambda mean: at_most(count - 1, mean) - (1 - tail), most) if count else 0.0
    return lower, root(lambda mean: at_most(count, mean) - tail, most)


def rate(count: int, seed_steps: int) -> dict[str, Any]:
    """Return the events per million seed-steps, with the interval."""
    million = max(seed_steps, 1) / 1e6
    low, high = interval(count)
    return {"events": count, "per million": round(count / million, 2)} | {
        "interval": [round(low / million, 2), round(high / million, 2)]
    }


def study(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Return all results of one run."""
    log = Log(folder, given.until)
    seeds, seed_steps = range(log.num_seeds), log.seed_steps(given.after)
    alarms = [event for seed in seeds for event in find_alarms(log, seed, given)]
    hard = [event for event in alarms if event["loss ratio"] >= HARD]
    values: dict[int, list[int]] = {}
    for seed in seeds:
        if onsets := find_value_events(log, seed, given):
            values.setdefault(log.number(seed), []).extend(onsets)
    in_bins = [event for seed in seeds for event in find_bin_events(log, seed, given)]
    starts = joined(in_bins, given.merge)
    first, rows = log.config["first_seed"], range(log.config["seeds"])
    losses = {first + row: found for row in rows if (found := find_ut_losses(log, row, given))}
    counted = lambda found: rate(sum(map(len, found.values())), seed_steps)
    return {
        "run": log.name,
        "domain": log.config["domain"],
        "algo": log.config["algo"],
        "seeds": log.num_seeds,
        "steps": int(log.steps[-1]),
        "million seed-steps": round(seed_steps / 1e6, 3),
        "alarms": rate(len(alarms), seed_steps) | {"seeds": len({event["seed"] for event in alarms})},
        "hard": rate(len(hard), seed_steps) | {"seeds": len({event["seed"] for event in hard})},
        "value events": counted(values) | {"onsets": values},
        "bin events": rate(len(in_bins), seed_steps)
        | {"seeds": len({event["seed"] for event in in_bins}), "events of bins": in_bins},
        "onsets": rate(len(starts), seed_steps) | {"seeds": len({seed for seed, _ in starts})},
        "losses of UT": counted(losses) | {"steps": losses},
        "time in alarm": time_in_alarm(log, given),
        "evaluations": int((log.ut_steps > given.after).sum()),
        "UT": [round(float(x), 1) for x in log.ut[-1]] if len(log.ut) else None,
        "events": sorted(alarms, key=lambda event: event["onset"]),
    }


def show(found: dict[str, Any], with_events: bool) -> None:
    words = [f"{found['run']:26} {found['steps']:>9,} x {found['seeds']:<3} {found['million seed-steps']:7.2f}M"]
    for name in ("alarms", "hard", "value events", "bin events", "onsets", "losses of UT"):
        count, (low, high) = found[name], found[name]["interval"]
        words.append(f"{name} {count['events']} = {count['per million']:.2f}/M [{low:.2f}, {high:.2f}]")
    words.append(f"of {found['evaluations']} evaluations of each seed")
    if found["time in alarm"] is not None:
        words.append(f"time in alarm {100 * found['time in alarm']:.2f} %")
    print("  ".join(words))
    for event in found["events"] if with_events else []:
        print("   ", ", ".join(f"{name} {value}" for name, value in event.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--after", type=int, default=20_000, help="steps left out: random actions, first learning")
    parser.add_argument("--until", type=float, default=math.inf, help="the last step that counts")
    parser.add_argument("--depth", type=float, default=0.15, help="entropy so far below its target is an alarm, in |A|")
    parser.add_argument("--merge", type=int, default=20_000, help="steps between alarms of two events, at least")
    parser.add_argument("--list", action="store_true", help="every event")
    parser.add_argument("--json", type=Path, help="write all of it there")
    given = parser.parse_args()
    found = [study(folder, given) for folder in given.runs]
    for one in found:
        show(one, given.list)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
