"""Q-Pensieve and MO-SAC on the same domain, the same seeds and the same test preferences."""

import argparse

import numpy as np

import qpensieve

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--domain", default="DST2d", help="`qpensieve domains` lists them")
parser.add_argument("--seeds", type=int, default=3, help="independent trainings of each method")
parser.add_argument("--steps", type=int, default=20_000, help="environment steps of each seed")


def main() -> None:
    args = parser.parse_args()
    reference = qpensieve.metrics.reference_point(args.domain)
    preferences = qpensieve.preferences.test_table(len(reference))
    returns = {}
    for method in (qpensieve.QPensieve, qpensieve.MOSAC):
        agent = method(args.domain, seeds=args.seeds, preset="quick")
        agent.learn(args.steps)
        returns[method.__name__] = means = agent.returns(preferences).mean(axis=2)  # seed, preference, objective
        ut = qpensieve.metrics.utility(means, preferences)
        hv = [qpensieve.metrics.hypervolume(points, reference) for points in means]
        print(f"{method.__name__:10} UT {np.round(ut, 2)}  HV {np.round(hv, 1)}  (one number for each seed)")

    # A tie is not a win: the two shares need not sum to 1.
    ours, theirs = returns["QPensieve"], returns["MOSAC"]
    print("ED of QPensieve over MOSAC:", qpensieve.metrics.episodic_dominance(ours, theirs, preferences))
    print("ED of MOSAC over QPensieve:", qpensieve.metrics.episodic_dominance(theirs, ours, preferences))


if __name__ == "__main__":
    main()
