"""What has become of the networks of a run: units that are silent, directions that are left, weights that have grown.

    python3 tools/networks.py runs/NAME

Reads the newest parameters that the run keeps (`--parameters-period`) of Q-Pensieve or MO-SAC. The policy acts for
`--steps` in eight lanes, with lam1 from 0.3 to 1, and networks are asked there. Per seed, of the policy and of each
twin of the critics:

- silent: share of units of a hidden layer whose mean activation is below 0.025 of the layer's;
- directions: how many principal components hold 99 % of the layer's variance, of `hidden`;
- growth: the length of each layer's weights over what it has in a new network.

Networks that learned for long from targets that move lose units and directions and grow; then a step of Adam, which has
a fixed length, turns them less and less.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from qpensieve.envs import make_lanes
from qpensieve.records.checkpoint import parameter_steps
from qpensieve.train.saved import SavedPolicies

SILENT = 0.025
LAYERS = ("first", "second", "last")
LAM1 = np.linspace(0.3, 1.0, 8)


def visited(policies: SavedPolicies, at: int, seed: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """States with preferences, and states with actions and preferences, of a seed's policy at a step of the run."""
    predictor = policies.predictor(at)
    rest = (1.0 - LAM1)[:, None] / (policies.spec.num_objectives - 1)
    lam = np.concatenate([LAM1[:, None], np.repeat(rest, policies.spec.num_objectives - 1, axis=1)], axis=1)
    lanes = make_lanes(policies.config.domain, len(lam), seed)
    obs, of_policy, of_critic = lanes.reset(), [], []
    for _ in range(steps):
        act = predictor.act(seed, obs.astype(np.float32), lam.astype(np.float32))
        of_policy.append(np.concatenate([obs, lam], axis=1))
        of_critic.append(np.concatenate([obs, act, lam], axis=1))
        lanes.step(act)
        obs = lanes.obs
    return np.concatenate(of_policy), np.concatenate(of_critic)


def look(layers: list[tuple[np.ndarray, np.ndarray]], x: np.ndarray) -> dict[str, Any]:
    """What is left of one network, asked at rows of x."""
    found: dict[str, Any] = {"silent": [], "directions": []}
    for weight, bias in layers[:2]:
        x = np.maximum(x @ weight + bias, 0.0)
        size = x.mean(axis=0)
        variance = np.linalg.svd(x - size, compute_uv=False) ** 2
        found["silent"].append(round(float((size < SILENT * size.mean()).mean()), 2))
        found["directions"].append(int((np.cumsum(variance) < 0.99 * variance.sum()).sum()) + 1)
    # A new layer is uniform within sqrt(6 / (inputs + outputs)); the mean of squares is a third of the bound's.
    new = [np.sqrt(2.0 * weight.size / sum(weight.shape)) for weight, _ in layers]
    lengths = [float(np.linalg.norm(weight)) for weight, _ in layers]
    return found | {"growth": [round(length / first, 1) for length, first in zip(lengths, new, strict=True)]}


def study(run: Path, steps: int) -> dict[str, Any]:
    policies = SavedPolicies(run)
    if policies.config.algo not in ("qpensieve", "mosac") or not parameter_steps(run):
        raise SystemExit(f"{run} must be a run of qpensieve or mosac that keeps parameters (--parameters-period)")
    step, path = list(parameter_steps(run).items())[-1]
    arrays = {name: array.astype(np.float64) for name, array in np.load(path).items() if array.dtype == np.float32}
    prefix = ".sac" if ".sac.actor.net.first.weight" in arrays else ""

    def layers(name: str, *place: int) -> list[tuple[np.ndarray, np.ndarray]]:
        of = lambda layer, part: arrays[f"{prefix}.{name}.net.{layer}.{part}"][place]
        return [(of(layer, "weight"), of(layer, "bias")) for layer in LAYERS]

    seeds = []
    for row, seed in enumerate(policies.config.seed_list):
        for_policy, for_critic = visited(policies, step, row, steps)
        twins = [look(layers("critic", row, twin), for_critic) for twin in range(2)]
        seeds.append({"seed": seed, "policy": look(layers("actor", row), for_policy), "critics": twins})
    return {"run": run.name, "step": step, "hidden": len(arrays[f"{prefix}.actor.net.second.bias"][0]), "seeds": seeds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--json", type=Path, help="write all of it there")
    parser.add_argument("--steps", type=int, default=300, help="steps of each of the eight lanes")
    given = parser.parse_args()
    found = study(given.run, given.steps)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{found['run']}, step {found['step']:,}, {found['hidden']} hidden units")
    for one in found["seeds"]:
        for name, net in (
            ("policy", one["policy"]),
            *((f"critic {i + 1}", net) for i, net in enumerate(one["critics"])),
        ):
            print(f"seed {one['seed']} {name:9}", json.dumps(net))


if __name__ == "__main__":
    main()
