"""A saved agent in a plain Gymnasium loop: one episode under a preference of your choice."""

import argparse

import gymnasium
import numpy as np

import qpensieve

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("agent", help="folder that `agent.save` wrote, or a run folder")
parser.add_argument("--env", default="qpensieve/DST2d-v0", help="Gymnasium id")
parser.add_argument("--preference", type=float, nargs="+", default=[0.5, 0.5], help="one number for each objective")
parser.add_argument("--episode-seed", type=int, default=0, help="seed of the episode")


def main() -> None:
    args = parser.parse_args()
    agent = qpensieve.load(args.agent)
    env = gymnasium.make(args.env)
    obs, _ = env.reset(seed=args.episode_seed)
    total, done = np.zeros(len(args.preference)), False
    while not done:
        action = agent.predict(obs, preference=args.preference)
        obs, reward, terminated, truncated, _ = env.step(action)
        total += reward
        done = terminated or truncated
    print("return of each objective:", total)


if __name__ == "__main__":
    main()
