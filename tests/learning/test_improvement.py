"""The fast improvement value against the plain one: same value, same gradient, same winner.

Tests share one problem and so one compiled program for each form: which critics exist is an input.
"""

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.plain import batch_value
from qpensieve.learning import improvement
from qpensieve.learning.improvement import Eligible, best_value
from qpensieve.learning.nets import Critic
from tests.algos.problem import OPTIMISED, once, random_like
from tests.oracles.mosac import scores, twins_of
from tests.rounding import assert_same_to_rounding

OBS, ACT, D, HIDDEN, BATCH = 5, 3, 3, 16, 12
NUM_CRITICS, NUM_PREFS = 5, 4


@cache
def _problem(num_critics: int = NUM_CRITICS, num_prefs: int = NUM_PREFS) -> tuple[Any, ...]:
    """Critics, preferences, states and actions."""
    make = jax.vmap(jax.vmap(lambda key: Critic(OBS, ACT, D, HIDDEN, key=key)))
    like = jax.eval_shape(make, jax.eval_shape(lambda: jax.random.split(jax.random.key(0), (num_critics, 2))))
    stream = np.random.default_rng(num_critics)
    prefs = stream.dirichlet(np.ones(D), num_prefs).astype(np.float32)
    s, a = (stream.normal(size=(BATCH, size)).astype(np.float32) for size in (OBS, ACT))
    return random_like(like, 0), *jax.device_put((prefs, s, a))


def _graded(value_of: Any, options: Any = None) -> Any:
    """(critics, filled, prefs, s, a) -> value, winner, and the gradient of a weighted sum by all real arguments."""
    weights = jnp.arange(1.0, BATCH + 1)

    def total(given: Any, filled: Any) -> Any:
        critics, prefs, s, a = given
        value, winner = value_of(critics, filled, prefs, s, a)
        return jnp.sum(weights * value), (value, winner)

    both = jax.jit(jax.grad(total, has_aux=True), compiler_options=options)

    def of(critics: Any, filled: Any, prefs: Any, s: Any, a: Any) -> Any:
        gradients, (value, winner) = both((critics, prefs, s, a), jnp.asarray(filled))
        return np.asarray(value), winner, gradients

    return of


def _fast_value(margin: float | None, critics: Any, filled: Any, *rest: Any) -> Any:
    return best_value(critics, Eligible(filled, margin), *rest)


@cache
def _fast(margin: float | None = None) -> Any:
    return _graded(partial(_fast_value, margin))


@cache
def _plain() -> Any:
    return _graded(lambda *given: (batch_value(*given), None))


def _assert_alike(problem: Any, filled: Any, fast: Any, plain: Any) -> None:
    critics, *rest = problem
    value, _, gradients = fast(critics, filled, *rest)
    expected, _, theirs = plain(critics, filled, *rest)
    assert_same_to_rounding((value, gradients[3]), (expected, theirs[3]))
    assert np.abs(gradients[3]).min() > 0


ALL = (True,) * NUM_CRITICS


@pytest.mark.parametrize("filled", [ALL, (False, True, False, True, True), (False,) * 4 + (True,)])
def test_fast_and_plain_form_agree_in_value_and_gradient(filled: Any):
    _assert_alike(_problem(), filled, _fast(), _plain())


@pytest.mark.parametrize(("num_critics", "num_prefs"), [(1, 1), (3, 1)])
def test_they_agree_for_one_critic_and_one_preference_too(num_critics: int, num_prefs: int):
    _assert_alike(_problem(num_critics, num_prefs), (True,) * num_critics, _fast(), _plain())


def test_the_form_of_accelerators_agrees_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    _assert_alike(_problem(), ALL, _graded(partial(_fast_value, None)), _plain())


def test_compiled_as_users_do_fast_and_plain_form_agree():
    _assert_alike(_problem(), ALL, _graded(partial(_fast_value, None), OPTIMISED), _plain())


@pytest.mark.parametrize("tile", [1, 5])
def test_rows_in_tiles_pass_through_their_own_network(tile: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(improvement, "TILE", tile)
    generator = np.random.default_rng(tile)
    x, weights = (generator.normal(size=size).astype(np.float32) for size in ((BATCH, 6), (4, 5, 6)))
    through = once(improvement.in_tiles)
    for net in (generator.choice([0, 2, 3], BATCH), np.full(BATCH, 3), np.arange(BATCH) % 4):
        expected = np.stack([weights[n] @ row for n, row in zip(net, x, strict=True)])
        np.testing.assert_allclose(through(x, weights, net.astype(np.int32)), expected, rtol=1e-5, atol=1e-5)


def _grid() -> np.ndarray:
    """Values [critic, twin, preference, sample] by the loops."""
    critics, prefs, s, a = _problem()
    wide = [np.asarray(x, np.float64) for x in (prefs, s, a)]
    twins = [twins_of(critics, k) for k in range(NUM_CRITICS)]
    return np.stack([scores(twins, wide[0], wide[1][i], wide[2][i]) for i in range(BATCH)], axis=-1)


@pytest.mark.parametrize("filled", [ALL, (False, True, False, True, True)])
def test_the_winner_is_the_argmax_of_the_grid_of_critics_that_exist(filled: Any):
    critics, *rest = _problem()
    _, winner, _ = _fast()(critics, filled, *rest)
    grid = np.where(np.array(filled)[:, None, None, None], _grid(), -np.inf)
    # Where two values are equal to rounding, either may win.
    won = grid[winner.critic, winner.twin, winner.preference, np.arange(BATCH)]
    np.testing.assert_allclose(won, grid.min(axis=1).max(axis=(0, 1)), rtol=1e-4, atol=1e-5)


def test_only_the_action_receives_a_gradient():
    critics, *rest = _problem()
    _, _, gradients = _fast()(critics, ALL, *rest)
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(gradients[:3]))


def test_no_candidate_beyond_the_margin_is_climbed():
    critics, *rest = _problem()
    every = _grid().min(axis=1)
    own = every[-1, 0]
    margin = float(np.median(every.max(axis=(0, 1)) - own) / np.abs(own).mean())  # half of the samples are beyond
    cap = own + margin * np.abs(own).mean()
    value, winner, _ = _fast(margin)(critics, ALL, *rest)
    is_own = (np.arange(NUM_CRITICS)[:, None] == NUM_CRITICS - 1) & (np.arange(NUM_PREFS) == 0)
    allowed = np.where((every <= cap) | is_own[..., None], every, -np.inf)
    np.testing.assert_allclose(value, allowed.max(axis=(0, 1)), rtol=1e-4, atol=1e-5)
    won = allowed[winner.critic, winner.preference, np.arange(BATCH)]
    np.testing.assert_allclose(won, value, rtol=1e-4, atol=1e-5)
    beyond = every.max(axis=(0, 1)) > cap
    assert 0 < beyond.sum() < BATCH
    np.testing.assert_array_equal(_fast()(critics, ALL, *rest)[0] > value + 1e-4, beyond)
    # The own value counts even with a margin that no value keeps.
    value, winner, _ = _fast(-10.0)(critics, ALL, *rest)
    np.testing.assert_allclose(value, own, rtol=1e-4, atol=1e-5)
    expected = [[NUM_CRITICS - 1] * BATCH, [0] * BATCH]
    np.testing.assert_array_equal(np.stack([winner.critic, winner.preference]), expected)
