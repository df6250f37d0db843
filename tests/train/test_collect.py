"""Acting in NumPy, and blocks of transitions packed for the replay."""

import jax.numpy as jnp
import numpy as np

from qpensieve.algos import mosac
from qpensieve.envs import DOMAINS, make_lanes
from qpensieve.learning.acting import GaussianPolicy
from qpensieve.learning.interface import Transition
from qpensieve.learning.streams import Purpose, generator
from qpensieve.preferences import draw_preferences
from qpensieve.replay.layout import RowLayout, layout_of
from qpensieve.train.collect import Collector, Episodes
from qpensieve.train.learner import make_learner

HIDDEN, SEEDS = 16, [3, 4, 5]


def algorithm_of(domain: str):
    return mosac.make(mosac.SacConfig(hidden=HIDDEN), DOMAINS[domain].spec)


def layout(domain: str) -> RowLayout:
    return layout_of(DOMAINS[domain].spec, algorithm_of(domain).behaviour)


def policy_and_learner(domain: str):
    learner = make_learner(algorithm_of(domain), layout(domain), 100)
    state = learner.init(jnp.array(SEEDS))
    return policy_of(np.asarray(learner.flat_actors(state)), domain), learner, state


def policy_of(flat: np.ndarray, domain: str = "DST2d") -> GaussianPolicy:
    spec = DOMAINS[domain].spec
    return GaussianPolicy(flat, (spec.obs_size + spec.num_objectives, HIDDEN, HIDDEN, 2 * spec.action_size), True)


class TestCollector:
    def collector(self, domain: str = "DST2d", block: int = 250) -> Collector:
        collector = Collector(make_lanes(domain, len(SEEDS), SEEDS), SEEDS, block, algorithm_of(domain).behaviour)
        collector.start()
        return collector

    def test_a_block_holds_what_happened_in_the_order_the_replay_takes_it_apart(self):
        collector, lanes = self.collector(), make_lanes("DST2d", len(SEEDS), SEEDS)
        block = Transition(*layout("DST2d").unpack(jnp.asarray(collector.collect(None, 0).rows)))
        obs, num_done = lanes.reset(), 0
        for k in range(250):
            step = lanes.step(np.asarray(block.a[:, k]))
            np.testing.assert_array_equal(block.s[:, k], obs)
            np.testing.assert_array_equal(block.r[:, k], step.reward.astype(np.float32))
            np.testing.assert_array_equal(block.s_next[:, k], step.last_obs)  # not the next episode's first
            np.testing.assert_array_equal(block.terminated[:, k], step.terminated)  # a time limit is no end
            obs, num_done = step.obs, num_done + step.done.sum()
        assert num_done > 3

    def test_random_actions_are_uniform_and_depend_on_seed_and_block_alone(self):
        collector = self.collector()
        blocks = [jnp.asarray(layout("DST2d").unpack(collector.collect(None, n).rows)[1]) for n in range(2)]
        for number, actions in enumerate(blocks):
            drawn = [generator(seed, Purpose.RANDOM_ACTION, number).uniform(-1.0, 1.0, (250, 2)) for seed in SEEDS]
            np.testing.assert_array_equal(actions, np.array(drawn, np.float32))
        assert float(jnp.abs(jnp.concatenate(blocks)).max()) > 0.99
        assert abs(float(jnp.mean(jnp.concatenate(blocks)))) < 0.05  # 3000 draws: standard error 0.011

    def test_a_block_names_the_preference_that_acted_also_where_an_episode_ends_in_it(self):
        policy, _, _ = policy_and_learner("DST2d")
        collector = self.collector()
        asked, explore = [], policy.explore

        def watch(obs: np.ndarray, lam: np.ndarray, noise: np.ndarray, step: int) -> np.ndarray:
            asked.append(lam[:, 0].copy())
            return explore(obs, lam, noise, step)

        for number in range(2):
            policy.explore = watch  # pyright: ignore[reportAttributeAccessIssue]
            block = collector.collect(policy, number)
            policy.explore = explore
            lam, acted = block.lam, np.stack(asked[-250:], axis=1)
            np.testing.assert_array_equal(lam, acted)
            changes = (lam[:, 1:] != lam[:, :-1]).any(axis=-1)
            np.testing.assert_array_equal(changes, block.done[:, :-1])
            assert changes.any(axis=1).all()
            assert len(np.unique(lam[:, 0], axis=0)) == len(SEEDS)


def test_past_preferences_are_those_of_earlier_episodes():
    episodes = Episodes([5, 9], 2, "uniform-sum")
    numbers = np.array([[0, 0, 0, 0, 0], [0, 0, 1, 7, 7]])
    past = episodes.past(numbers, number=3, num=200)
    known = np.array([episodes.preference(1, episode) for episode in range(8)])
    expected = draw_preferences(generator(9, Purpose.PREFERENCE, 4), 1, 2, "uniform-sum")[0]
    np.testing.assert_allclose(known[4], expected, rtol=1e-6)
    for row, number in zip(past[1], numbers[1].tolist(), strict=True):
        allowed = known[: max(number, 1)]  # in the first episode there is only its own
        drawn = {tuple(lam) for lam in row.tolist()}
        assert drawn == {tuple(lam) for lam in allowed.tolist()}
    np.testing.assert_array_equal(past, Episodes([5, 9], 2, "uniform-sum").past(numbers, number=3, num=200))
