r"""What noise costs on DST2d: the best boat whose every move is disturbed, by dynamic programming on a lattice.

    python3 tools/dst_noise.py -1 -2 -3

For each entropy per component of an action (Gaussian noise of that entropy, cut at moves of length 1) and each
preference of the short protocol: the mean move of every lattice point that maximises the expected discounted return,
and what the boat gets that makes these mean moves without noise, as evaluations do. Prints UT over the preferences and
for each of them treasure/steps, with the value of the start under noise. The last line has no noise.
"""

import argparse
import math
import sys

import numpy as np

from qpensieve.envs import deep_sea

FINE, DISCOUNT, SWEEPS, MAX_STEPS = 10, 0.99, 60, 50
SIZE = deep_sea.SIZE * FINE + 1
MOVES = np.arange(-FINE, FINE + 1)
"""In lattice units."""


def landings(sigma: float) -> np.ndarray:
    """[mean move, from, to]: probability along one axis; what would leave the sea stays."""
    edges = (np.arange(-FINE, FINE) + 0.5) / FINE
    below = lambda mean: np.array([0.5 * (1 + math.erf((edge - mean) / (sigma * math.sqrt(2)))) for edge in edges])
    result = np.zeros((len(MOVES), SIZE, SIZE), np.float32)
    for k, move in enumerate(MOVES):
        share = np.diff([0.0, *below(move / FINE), 1.0]) if sigma else (move == MOVES).astype(float)
        for start in range(SIZE):
            ends = start + MOVES
            np.add.at(result[k, start], np.where((ends >= 0) & (ends < SIZE), ends, start), share)
    return result


def best_moves(land: np.ndarray, touched: np.ndarray, lam: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """Values and numbers of the best mean moves, by value iteration."""
    value = np.zeros((SIZE, SIZE), np.float32)
    best = np.zeros((SIZE, SIZE), int)
    for _ in range(SWEEPS):
        after = np.where(touched != 0, lam[0] * touched, DISCOUNT * value).astype(np.float32)
        most = np.full_like(value, -np.inf)
        for k in range(len(MOVES)):
            rows = land[k] @ after
            for m in range(len(MOVES)):
                here = rows @ land[m].T
                is_better = here > most
                most, best = np.where(is_better, here, most), np.where(is_better, k * len(MOVES) + m, best)
        change, value = float(np.abs(most - lam[1] - value).max()), most - np.float32(lam[1])
        if change < 1e-3:
            break
    return value, best


def sail(best: np.ndarray, touched: np.ndarray) -> tuple[float, int]:
    """Treasure and steps of a boat without noise."""
    place = np.zeros(2, int)
    for step in range(MAX_STEPS):
        after = place + MOVES[np.array(divmod(int(best[*place]), len(MOVES)))]
        place = np.where((after >= 0) & (after < SIZE), after, place)
        if touched[*place] != 0:
            return float(touched[*place]), step + 1
    return 0.0, MAX_STEPS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("entropies", type=float, nargs="*", default=[-1.0, -2.0], help="per component of an action")
    line = np.arange(SIZE) / FINE
    points = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    touched = deep_sea.find(points).reshape(SIZE, SIZE)
    for entropy in [*parser.parse_args().entropies, -math.inf]:
        sigma = math.exp(entropy) / math.sqrt(2 * math.pi * math.e)
        land, total, shown = landings(sigma), 0.0, []
        for lam in [(x / 20, 1 - x / 20) for x in range(20)]:
            value, best = best_moves(land, touched, lam)
            treasure, steps = sail(best, touched)
            total += lam[0] * treasure - lam[1] * steps
            shown.append(f"{lam[0]:.2f}: {treasure:g}/{steps} ({value[0, 0]:.1f})")
        print(f"entropy {entropy:g}, noise {sigma:.3f}: UT {total / 20:.2f};", "  ".join(shown))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
