"""Train Q-Pensieve on Deep Sea Treasure, print its scores and the front, save the agent."""

import argparse

import qpensieve

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--domain", default="DST2d", help="`qpensieve domains` lists them")
parser.add_argument("--seeds", type=int, default=2, help="independent trainings, side by side")
parser.add_argument("--steps", type=int, default=20_000, help="environment steps of each seed")
parser.add_argument("--out", default="my-agent", help="folder to save the agent in")


def main() -> None:
    args = parser.parse_args()
    agent = qpensieve.QPensieve(args.domain, seeds=args.seeds, preset="quick")
    agent.learn(args.steps, progress_bar=True)

    scores = agent.evaluate()  # the full protocol: the whole test table, 10 episodes for each preference
    for seed in range(args.seeds):
        print(f"seed {seed}: UT {scores.ut[seed]:.2f}, best single row {scores.best_single[seed]:.2f}")

    preferences = qpensieve.preferences.test_table(agent.session.spec.num_objectives)
    means = agent.returns(preferences, episodes=1).mean(axis=2)  # seed, preference, objective
    print("front of seed 0:")
    for point in qpensieve.metrics.non_dominated(means[0]):
        print("  ", point.round(1))
    print("saved in", agent.save(args.out))


if __name__ == "__main__":
    main()
