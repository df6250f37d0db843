"""Evaluation: every (seed, preference, episode) a lane, deterministic, undiscounted, from fixed start states."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

from qpensieve.config import default_config, override
from qpensieve.envs import DOMAINS
from qpensieve.envs.base import SHORT_EPISODES
from qpensieve.preferences import test_table
from qpensieve.train import evaluate as evaluation
from qpensieve.train.evaluate import curve_preferences, evaluate, foreign_lanes, protocols
from qpensieve.train.loop import open_session
from qpensieve.train.session import play
from tests.train.kill_run import TINY
from tests.train.test_population import TINY as POPULATION

LAM = np.array([[0.0, 1.0], [0.3, 0.7], [1.0, 0.0]])
TWO, LAST = slice(0, 2), slice(2, 3)
POINTS = "tests.envs.foreign:PointMass"
MOSAC = {name: value for name, value in TINY.items() if not name.startswith(("push", "num_snap"))}
Act = Callable[[np.ndarray, np.ndarray], np.ndarray]


def linear_policy(domain: str, scale: float = 1.0) -> Act:
    """One fixed policy for all seeds that looks at observation and preference.

    It adds without BLAS, whose rounding of a row may depend on the number of rows.
    """
    spec = DOMAINS[domain].spec
    weights = scale * np.random.default_rng(5).standard_normal((spec.obs_size + spec.num_objectives, spec.action_size))
    return lambda obs, lam: np.tanh((np.concatenate([obs, lam], axis=2)[..., None] * weights).sum(axis=2))


def slow_return(domain: str, seed: int, row: int, lam: np.ndarray, act: Act) -> np.ndarray:
    """One episode through Gymnasium, step by step."""
    lane_seed = int(np.random.SeedSequence(seed, spawn_key=(104, row)).generate_state(1)[0])
    env = gymnasium.make(f"qpensieve/{domain}-v0")
    obs, _ = env.reset(seed=lane_seed)
    total, done = np.zeros(len(lam)), False
    while not done:
        action = act(obs[None, None], lam.astype(np.float32)[None, None])[0, 0]
        obs, reward, terminated, truncated, _ = env.step(action)
        total += np.asarray(reward)
        done = terminated or truncated
    env.close()
    return total


@pytest.mark.parametrize("domain", ["DST2d", "Hopper2d"])
def test_returns_are_those_of_a_slow_loop_over_gymnasium(domain: str):
    act = linear_policy(domain)
    returns = evaluate(domain, [2, 9], act, LAM, episodes=2)
    assert returns.shape == (2, 3, 2, 2)
    for s, seed in enumerate([2, 9]):
        for p in range(3):
            for e in range(2):
                expected = slow_return(domain, seed, 2 * p + e, LAM[p], act)
                np.testing.assert_allclose(returns[s, p, e], expected, rtol=1e-5, atol=1e-4)  # Gymnasium pays float32


def test_how_many_rows_a_policy_acts_on_does_not_depend_on_the_seeds():
    """Some BLAS kernels round a row by the number of rows, and evaluation workers play a few seeds each."""
    found = []
    for seeds in ([0, 1, 2], [1]):
        rows: list[int] = []

        def act(obs: np.ndarray, lam: np.ndarray, rows: list[int] = rows) -> np.ndarray:
            rows.append(obs.shape[1])
            return np.zeros((*obs.shape[:2], 2))

        evaluate("DST2d", seeds, act, np.tile(LAM, (50, 1)), episodes=2)
        found.append(set(rows))
    assert found[0] == found[1]


def test_start_states_differ_between_seeds_preferences_and_episodes_and_stay_between_evaluations():
    starts = []
    for scale in (1.0, 2.0):
        seen: list[np.ndarray] = []

        def act(obs: np.ndarray, lam: np.ndarray, seen: list[np.ndarray] = seen, scale: float = scale) -> np.ndarray:
            seen.append(obs.copy())
            return linear_policy("Hopper2d", scale)(obs, lam)

        evaluate("Hopper2d", [0, 1], act, LAM, episodes=2)
        starts.append(seen[0])
    np.testing.assert_array_equal(starts[0], starts[1])
    assert len(np.unique(starts[0].reshape(12, -1), axis=0)) == 12


def test_each_lane_acts_under_its_own_preference():
    seen = []

    def act(obs: np.ndarray, lam: np.ndarray) -> np.ndarray:
        seen.append(lam.copy())
        return np.zeros((*obs.shape[:2], 2))

    evaluate("DST2d", [0, 1], act, LAM, episodes=2)
    expected = np.repeat(LAM, 2, axis=0).astype(np.float32)
    assert all((lam == expected).all() for lam in seen)
    assert seen[0].shape == (2, 6, 2)


def test_returns_are_sums_without_discount():
    idle = evaluate("DST2d", [0], lambda obs, lam: np.zeros((*obs.shape[:2], 2)), LAM, episodes=1)
    np.testing.assert_array_equal(idle, np.broadcast_to([0.0, -50.0], (1, 3, 1, 2)))


def test_short_preferences_are_every_fifth_of_the_test_table():
    np.testing.assert_allclose(protocols(2).short[:, 0], np.arange(0, 100, 5) / 100)
    assert [len(protocols(d).short) for d in (2, 3, 4, 5)] == [20, 20, 20, 100]
    np.testing.assert_array_equal(protocols(4, stride=7).short, test_table(4)[::7])
    np.testing.assert_array_equal(protocols(4, full_stride=30).full, test_table(4)[::30])


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_short_evaluation_costs_no_more_than_twice_what_was_trained_since_the_last(domain: str):
    """More is for people to ask for; the numbers of steps are the most that there can be."""
    spec, config = DOMAINS[domain].spec, default_config(domain)
    on = protocols(spec.num_objectives, stride=config.eval_stride)
    assert len(on.short) == 20
    assert (len(on.short) + len(on.curve)) * SHORT_EPISODES * (spec.max_steps or 0) <= 2 * config.eval_period


def test_curve_preferences_of_two_three_and_four_objectives():
    assert curve_preferences(2).tolist() == [[0.1, 0.9], [0.5, 0.5], [0.9, 0.1]]
    assert sorted(curve_preferences(3)[1:].tolist()) == [[0.1, 0.1, 0.8], [0.1, 0.8, 0.1], [0.8, 0.1, 0.1]]
    np.testing.assert_allclose(curve_preferences(3)[0], 1 / 3)
    np.testing.assert_allclose(curve_preferences(4)[0], 0.25)
    np.testing.assert_allclose(curve_preferences(4)[1:], 0.05 + 0.8 * np.eye(4))


class TestParts:
    """Foreign environments are played a few preferences at a time."""

    @pytest.mark.parametrize(("at_once", "expected"), [(1, 4), (9, 8), (12, 12)])
    def test_as_many_lanes_as_whole_preferences_need(self, at_once: int, expected: int, monkeypatch: Any):
        monkeypatch.setattr(evaluation, "LANES_AT_ONCE", at_once)
        assert foreign_lanes(POINTS, 2, 2) == expected
        assert foreign_lanes("DST2d", 2, 2) == 0  # built-in domains are played at once

    @pytest.mark.parametrize("algo", ["mosac", "pgmorl"])
    def test_each_row_is_answered_as_if_all_were_played_at_once(self, algo: str, monkeypatch: pytest.MonkeyPatch):
        settings = MOSAC if algo == "mosac" else POPULATION
        session = open_session(override(default_config(POINTS, algo), settings))
        monkeypatch.setattr(evaluation, "LANES_AT_ONCE", 256)
        whole = play(session.predictor(), session.config, 0, LAM, 2)
        for at_once in (1, 9):
            monkeypatch.setattr(evaluation, "LANES_AT_ONCE", at_once)
            again = play(session.predictor(), session.config, 0, LAM, 2)
            np.testing.assert_allclose(again, whole, rtol=1e-4, atol=1e-4)
        session.close()
