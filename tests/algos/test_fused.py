"""Updates on fused kernels against the plain ones, in interpret mode: the same movement of every network."""

import warnings
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

from qpensieve.algos import fused, mosac, qpensieve
from qpensieve.learning.guards import MedianLength
from qpensieve.learning.interface import Transition
from qpensieve.learning.kernels import calls
from qpensieve.learning.kernels.calls import Tile
from qpensieve.learning.kernels.networks import Inputs
from qpensieve.learning.kernels.packing import Sizes, actor_layout, critic_layout, padded
from qpensieve.types import EnvSpec
from tests.algos.problem import assert_trees_close, assert_trees_equal, once

NETWORKS = ("actor", "critic", "target", "log_alpha")
LIMITS: dict[Any, float] = {"full": 1e-5, "half": 3e-2}
GUARDS: dict[str, dict[str, Any]] = {
    "guards": {"guards": True},
    "twins": {"pessimism": 0.7},
    "rate": {"learning_rate_end": 1e-4, "anneal_updates": 1002},  # a smaller end would leave little but rounding
    "aim": {"target_entropy_end": -3.0, "anneal_updates": 1002},
}
"""Settings that change what an update of a `Case` does."""


@dataclass(frozen=True)
class Case:
    """Sizes of an update; `filled`: how many snapshots each seed has; `guards`: names of `GUARDS`."""

    method: str = "qpensieve"
    hidden: int = 64
    batch: int = 64
    d: int = 2
    snapshots: int = 2
    preferences: int = 3
    filled: tuple[int, ...] = (2,)
    obs: int = 5
    act: int = 2
    guards: tuple[str, ...] = ()

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec("test", self.obs, self.act, tuple(map(str, range(self.d))), None, None)

    @property
    def config(self) -> qpensieve.QPensieveConfig:
        guards = [setting for name in self.guards for setting in GUARDS[name].items()]
        of: Any = lambda config: {name: value for name, value in guards if hasattr(config, name)}
        sac = mosac.SacConfig(hidden=self.hidden, batch_size=self.batch, discount=0.5, **of(mosac.SacConfig))
        sizes = {"num_preferences": self.preferences, "num_snapshots": self.snapshots}
        return qpensieve.QPensieveConfig(sac, **sizes, **of(qpensieve.QPensieveConfig))


# Problems are made by NumPy: JAX would compile a program for each operation and shape.
def _noisy(tree: Any, scale: float, seed: int) -> Any:
    generator = np.random.default_rng(seed)
    noise = lambda leaf: generator.normal(scale=scale, size=leaf.shape).astype(leaf.dtype)
    return jax.tree.map(lambda leaf: np.asarray(leaf) + noise(leaf), tree)


def _warm(optimizer: Any, seed: int) -> Any:
    """Adam's state as after a thousand steps."""
    if isinstance(optimizer[0], MedianLength):
        seeds = np.arange(len(optimizer[0].median), dtype=np.float32)
        # The first seed's gradients are shortened, the second has no median yet, others are not shortened.
        lengths = optimizer[0]._replace(median=np.where(seeds == 0, np.float32(-3.0), 10.0 * (seeds - 1)))
        return lengths, _warm(optimizer[1], seed)
    adam = optimizer[0]
    nu = jax.tree.map(lambda leaf: np.abs(leaf) + np.float32(1e-5), _noisy(adam.nu, 1e-5, seed))
    later = lambda part: part._replace(count=np.asarray(part.count) + 1000) if "count" in part._fields else part
    return later(adam._replace(mu=_noisy(adam.mu, 1e-3, seed + 1), nu=nu)), *map(later, optimizer[1:])


def _adam(optimizer: Any) -> Any:
    return _adam(optimizer[1]) if isinstance(optimizer[0], MedianLength) else optimizer[0]


def _states(case: Case) -> qpensieve.State:
    seeds = len(case.filled)
    init = once(jax.vmap(partial(qpensieve.init, case.config, case.spec)))
    states = init(jax.random.split(jax.random.key(0), seeds))
    sac, ring = states.sac, states.snapshots
    warm = mosac.Optimizers(*(_warm(state, 10 * i) for i, state in enumerate(vars(sac.optimizers).values())))
    nets = {name: _noisy(getattr(sac, name), 0.03, i) for i, name in enumerate(NETWORKS[:3])}
    nets["actor"].net.last.bias[:, case.act :] -= 2.8  # less entropy than the target
    large = nets["target"].net.last.bias  # about as large as bounded targets may be with this discount
    large += np.where(np.arange(case.d) % 2, -18, 14).astype(np.float32)
    large[:, 0] += np.where(np.arange(case.d) % 2, 2, -1).astype(np.float32)  # twins that differ
    log_alpha = np.asarray(sac.log_alpha)
    log_alpha = log_alpha - np.linspace(0.7, 0.9, log_alpha[0].size, dtype=np.float32).reshape(log_alpha[0].shape)
    changed = (*nets.values(), log_alpha, warm)
    sac = eqx.tree_at(lambda s: (s.actor, s.critic, s.target, s.log_alpha, s.optimizers), sac, changed)
    like = jax.tree.map(lambda slots, leaf: np.broadcast_to(leaf[:, None], slots.shape), ring.critics, sac.critic)
    filled = np.arange(case.snapshots) < np.array(case.filled)[:, None]
    of = lambda s: (s.sac, s.snapshots.critics, s.snapshots.filled)
    changed = eqx.tree_at(of, states, (sac, _noisy(like, 0.05, 7), filled))
    return jax.device_put(changed)


def _problem(case: Case, num: int) -> tuple[qpensieve.State, Transition, mosac.Draws]:
    generator, lead = np.random.default_rng(1), (len(case.filled), num, case.batch)
    normal = lambda size: generator.normal(size=(*lead, size)).astype(np.float32)
    s, a, r, s_next, end = map(normal, (case.obs, case.act, case.d, case.obs, 1))
    batch = Transition(*jax.device_put((s, np.tanh(a), r, s_next, (end[..., 0] > 1).astype(np.float32))))
    draw = jax.vmap(jax.vmap(partial(qpensieve.draw, case.config)))
    draws = once(lambda batch: draw(batch, jax.random.split(jax.random.key(1), lead[:2])))(batch)
    numbers = np.broadcast_to(1000 + np.arange(num, dtype=np.int32), lead[:2])  # as the counts of Adam
    return _states(case), batch, eqx.tree_at(lambda draws: draws.num_updates, draws, jax.device_put(numbers))


def _fused(case: Case, precision: Any) -> tuple[Any, Any]:
    """Plain step of one seed, and the fused block of all seeds."""
    if case.method == "mosac":
        step = partial(mosac.step, case.config.sac, loss=mosac.single_preference_loss)
        return step, partial(fused.learn_mosac, fused.plan_mosac(case.config.sac, case.spec, precision))
    plan = fused.plan_qpensieve(case.config, case.spec, precision)
    return partial(qpensieve.step, case.config), partial(fused.learn_qpensieve, plan)


def _plain(step: Any) -> Any:
    """The plain step of all seeds with the batches and draws of the k-th update."""
    at = lambda tree, k: jax.tree.map(lambda leaf: leaf[:, k], tree)
    return jax.jit(lambda states, batch, draws, k: jax.vmap(step)(states, at(batch, k), at(draws, k)))


@cache
def _solved(case: Case) -> tuple[Any, Transition, mosac.Draws, Any, Any]:
    """The problem of one update, and what the plain step makes of it."""
    states, batch, draws = _problem(case, num=1)
    before: Any = states.sac if case.method == "mosac" else states
    step, _ = _fused(case, "full")
    return before, batch, draws, *_plain(step)(before, batch, draws, 0)


def _distance(tree: Any, other: Any) -> float:
    pairs = zip(jax.tree.leaves(tree), jax.tree.leaves(other), strict=True)
    return float(np.sqrt(sum(np.sum(np.square(np.asarray(a) - np.asarray(b))) for a, b in pairs)))


def _with_precisions() -> list[Any]:
    """Every case in both precisions; guards in half precision are slow tests, as are the cases marked so."""
    all_of: list[Any] = []
    for marked in CASES:
        case, marks = (marked.values[0], list(marked.marks)) if hasattr(marked, "values") else (marked, [])
        all_of.append(pytest.param(case, "full", marks=marks))
        is_slow = bool(case.guards) and not marks
        all_of.append(pytest.param(case, "half", marks=[pytest.mark.slow] if is_slow else marks))
    return all_of


CASES = [
    Case(filled=(1, 2)),
    Case("mosac", d=3, snapshots=0, preferences=1, filled=(0, 0)),
    Case(filled=(1, 2), guards=tuple(GUARDS)),
    Case("mosac", hidden=96, d=3, snapshots=0, preferences=1, filled=(0, 0), guards=tuple(GUARDS)),
    *(pytest.param(Case(filled=(1, 2), guards=(guard,)), marks=pytest.mark.slow) for guard in GUARDS),
    pytest.param(Case(preferences=4, snapshots=0, filled=(0,), guards=("guards",)), marks=pytest.mark.slow),
    pytest.param(Case(filled=(1, 2), guards=("guards",)), marks=pytest.mark.slow),
    pytest.param(Case(hidden=128, d=5, snapshots=1, preferences=2, filled=(0,), obs=11, act=3), marks=pytest.mark.slow),
    pytest.param(Case(hidden=192, batch=192, d=4, snapshots=3, filled=(3,)), marks=pytest.mark.slow),
    pytest.param(Case(hidden=256, batch=256, snapshots=4, preferences=5, filled=(4, 2)), marks=pytest.mark.slow),
    pytest.param(
        Case(hidden=192, batch=192, d=4, snapshots=3, filled=(3, 1), guards=tuple(GUARDS)), marks=pytest.mark.slow
    ),
]


@pytest.mark.parametrize(("case", "precision"), _with_precisions(), ids=str)
def test_every_network_moves_as_in_the_plain_update(case: Case, precision: Any):
    before, batch, draws, expected, their_infos = _solved(case)
    _, block = _fused(case, precision)
    new, infos = jax.jit(block)(before, batch, draws)
    sac, their_sac, old = (getattr(state, "sac", state) for state in (new, expected, before))
    _assert_moved_alike(old, sac, their_sac, LIMITS[precision])
    for name, optimizer in vars(their_sac.optimizers).items():
        assert_trees_equal(_adam(getattr(sac.optimizers, name)).count, _adam(optimizer).count)
        assert_trees_close(getattr(sac.optimizers, name), optimizer, LIMITS[precision])
    np.testing.assert_array_equal(infos.pop("critic_loss_max"), infos["critic_loss"])  # of one update
    assert infos.keys() == their_infos.keys()
    assert_trees_close(infos, their_infos, 1e-4 if precision == "full" else 3e-2)


def _assert_moved_alike(before: Any, new: Any, expected: Any, limit: float) -> None:
    for name in NETWORKS:
        moved = _distance(getattr(expected, name), getattr(before, name))
        assert moved > 0
        assert _distance(getattr(new, name), getattr(expected, name)) <= limit * moved, name


PARTS = Tile(32, 32, part=16)
"""A cut of scoring with two chunks of the first layer and four parts of the second, for networks of 64 units."""


@pytest.mark.parametrize(
    ("precision", "cut"),
    [
        ("full", {"score": PARTS, "split": True, "score_new": PARTS, "split_new": False}),
        pytest.param(
            *("half", {"score": replace(PARTS, streams=True), "split": False, "climb": Tile(32, 16, streams=True)}),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["full", "half"],
)
def test_candidates_cut_by_parts_are_scored_as_in_the_plain_update(precision: Any, cut: dict[str, Any]):
    case = Case(filled=(1, 2))
    before, batch, draws, expected, their_infos = _solved(case)
    plan = fused.plan_qpensieve(case.config, case.spec, precision)
    plan = replace(plan, tiles=replace(fused.choose_tiles(2, precision), **cut))
    new, infos = jax.jit(partial(fused.learn_qpensieve, plan))(before, batch, draws)
    _assert_moved_alike(before.sac, new.sac, expected.sac, LIMITS[precision])
    assert_trees_close({name: infos[name] for name in their_infos}, their_infos, 1e-4 if precision == "full" else 3e-2)


@pytest.mark.slow
@pytest.mark.parametrize("guards", [(), ("guards", "rate")], ids=["free", "guarded"])
@pytest.mark.parametrize("seeds", [5, 50])
def test_cuts_for_more_seeds_give_the_plain_update_at_the_width_they_were_chosen_for(
    seeds: int, guards: tuple[str, ...]
):
    """Smaller networks shrink them, and few seeds have others: no case above runs them as they are."""
    case = Case(hidden=256, batch=256, snapshots=4, preferences=5, filled=(4, 2), guards=guards)
    before, batch, draws, expected, their_infos = _solved(case)
    plan = fused.plan_qpensieve(case.config, case.spec, "half")
    tiles = fused.choose_tiles(seeds, "half")
    assert fused.fit(tiles, plan.sizes) == tiles
    new, infos = jax.jit(partial(fused.learn_qpensieve, replace(plan, tiles=tiles)))(before, batch, draws)
    _assert_moved_alike(before.sac, new.sac, expected.sac, LIMITS["half"])
    assert_trees_close({name: infos[name] for name in their_infos}, their_infos, 3e-2)


@pytest.mark.slow
@pytest.mark.parametrize("guard", list(GUARDS))
def test_every_guard_changes_the_update_that_kernels_are_compared_with(guard: str):
    """Else the comparison above would not see whether kernels cover it."""
    before, _, _, free, _ = _solved(Case(filled=(1, 2)))
    guarded = _solved(Case(filled=(1, 2), guards=(guard,)))[3]
    parts = lambda state: (state.sac.actor, state.sac.critic, _adam(state.sac.optimizers.temperature).mu)
    triples = zip(parts(before), parts(free), parts(guarded), strict=True)
    assert any(_distance(new, plain) > 0.01 * _distance(plain, old) for old, plain, new in triples)


@pytest.mark.parametrize("guards", [(), tuple(GUARDS)], ids=["free", "guarded"])
def test_several_updates_in_a_block_follow_each_other(guards: tuple[str, ...]):
    """Three updates at once against three plain ones in turn; logged values are their means."""
    case = Case(filled=(2,), guards=guards)
    states, batch, draws = _problem(case, num=3)
    step, block = _fused(case, "full")
    new, infos = jax.jit(block)(states, batch, draws)
    expected, logged, plain = states, [], _plain(step)
    for k in range(3):
        expected, info = plain(expected, batch, draws, k)
        logged.append(jax.tree.map(np.asarray, info))
    for name in NETWORKS:
        theirs = getattr(expected.sac, name)
        moved = _distance(theirs, getattr(states.sac, name))
        assert _distance(getattr(new.sac, name), theirs) <= 1e-4 * moved
    largest = np.max([info["critic_loss"] for info in logged], axis=0)
    np.testing.assert_allclose(infos.pop("critic_loss_max"), largest, rtol=1e-4)
    assert_trees_close(infos, jax.tree.map(lambda *values: sum(values) / 3, *logged), 1e-4)
    assert_trees_equal(new.snapshots, states.snapshots)
    assert jax.tree.structure(new) == jax.tree.structure(states)
    assert_trees_close(new.loss_track, expected.loss_track, 1e-5)
    assert_trees_equal(new.sac.rewards, expected.sac.rewards)
    assert_trees_close(new.sac.optimizers, expected.sac.optimizers, 1e-4)


@pytest.mark.slow
def test_snapshots_climbed_beside_the_critics_step_or_after_it_give_the_same():
    case = Case(filled=(1, 0, 2))
    states, batch, draws = _problem(case, num=1)
    plan = fused.plan_qpensieve(case.config, case.spec, "full")
    tiles = fused.choose_tiles(1, "full")
    plans = [replace(plan, tiles=replace(tiles, climbs_beside=beside)) for beside in (True, False)]
    beside, after = (jax.jit(partial(fused.learn_qpensieve, one))(states, batch, draws) for one in plans)
    assert 0 < float(beside[1]["snapshot_share"][0]) < 1
    assert_trees_close(beside, after, 1e-6)


@pytest.mark.parametrize(("guards", "forms"), [((), (True, False)), (("guards",), (True,))])
def test_a_snapshot_equal_to_the_critic_wins_in_every_form(guards: tuple[str, ...], forms: tuple[bool, ...]):
    """The first of equals wins, as in the plain step, and snapshots come first."""
    case = Case(snapshots=1, filled=(1,), guards=guards)
    states, batch, draws = _problem(case, num=1)
    frozen = replace(case.config, sac=replace(case.config.sac, learning_rate=0.0))
    same = jax.device_put(jax.tree.map(lambda leaf: np.asarray(leaf)[:, None], states.sac.critic))
    states = eqx.tree_at(lambda s: s.snapshots.critics, states, same)
    plan = fused.plan_qpensieve(frozen, case.spec, "full")
    expected, _ = _plain(partial(qpensieve.step, frozen))(states, batch, draws, 0)
    gradients: Any = lambda state: state.sac.optimizers.actor[0].mu
    for beside in forms:
        tiles = replace(fused.choose_tiles(1, "full"), climbs_beside=beside)
        new, infos = jax.jit(partial(fused.learn_qpensieve, replace(plan, tiles=tiles)))(states, batch, draws)
        assert float(infos["snapshot_share"][0]) == 1.0
        assert_trees_close(gradients(new), gradients(expected), 1e-5)


def test_packing_and_unpacking_gives_the_same_bits_and_pads_with_zeros():
    case = Case(hidden=96, d=3, filled=(0, 0))
    sizes = Sizes(case.obs, case.act, case.d, case.hidden, case.batch, 2, 3)
    sac = _states(case).sac
    for layout, net in ((actor_layout(sizes), sac.actor), (critic_layout(sizes), sac.critic)):
        packed = jax.jit(layout.pack)(net.net)
        assert packed.w2.shape[1:] == (128, 128)
        assert_trees_equal(jax.jit(layout.unpack)(packed, net), net)
        size = lambda tree: sum(int(np.count_nonzero(leaf)) for leaf in jax.tree.leaves(tree))
        assert size(packed) == size(net)


@pytest.mark.parametrize(("size", "expected"), [(1, 16), (16, 16), (17, 32), (192, 256)])
def test_sizes_are_padded_to_powers_of_two(size: int, expected: int):
    assert padded(size) == expected


def test_inputs_of_many_columns_have_the_smallest_cuts_whatever_the_seeds():
    """Those of more seeds need more shared memory than a card has (105 observed numbers: 279 040 of 232 448 bytes)."""
    for columns, expected in ((64, (fused.FEW, fused.SOME, fused.MANY)), (128, (fused.FEW,) * 3)):
        assert tuple(fused.choose_tiles(seeds, "half", columns) for seeds in (1, 5, 50)) == expected
    wide = Case(obs=60, filled=(0,) * 5)
    plan = fused.plan_qpensieve(wide.config, wide.spec, "half")
    given: Any = Inputs(*[np.zeros((1, 5, 1, 1), np.float32), *[None] * 7])
    assert plan.sizes.columns == 64
    assert plan.tiles_for(given) == fused.fit(fused.SOME, plan.sizes)
    wide = replace(wide, obs=61)
    plan = fused.plan_qpensieve(wide.config, wide.spec, "half")
    assert plan.tiles_for(given) == fused.fit(fused.FEW, plan.sizes)


def test_tiles_shrink_to_batch_and_networks():
    sizes = Sizes(5, 2, 2, 64, 192, 2, 3)
    for seeds in (1, 5, 50):
        tiles = fused.fit(fused.choose_tiles(seeds, "half"), sizes)
        for name, tile in vars(tiles).items():
            if isinstance(tile, Tile):
                rows, units = (64, 192) if name in ("learn", "measure") else (192, 64)
                assert rows % tile.rows == 0
                assert units % tile.chunk == 0
    cut = fused.fit(replace(fused.SOME, score=Tile(64, 256, part=256)), sizes)
    assert cut.score.part == 64


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sac": mosac.SacConfig(hidden=100)}, "not 100"),
        ({"sac": mosac.SacConfig(hidden=512)}, "not 512"),
        ({"sac": mosac.SacConfig(batch_size=100)}, "not 100"),
        ({}, ""),
    ],
)
def test_settings_that_are_not_covered_are_named(change: dict[str, Any], words: str):
    assert words in fused.uncovered(replace(qpensieve.QPensieveConfig(), **change))
    assert bool(words) == bool(fused.uncovered(replace(qpensieve.QPensieveConfig(), **change)))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["qpensieve", "mosac"])
@pytest.mark.parametrize("guards", [(), tuple(GUARDS)], ids=["free", "guarded"])
def test_kernels_are_something_that_triton_takes(method: str, guards: tuple[str, ...], monkeypatch: pytest.MonkeyPatch):
    """Without a card: its compiler sees operations that it knows, on sizes that are powers of two."""
    monkeypatch.setattr(calls, "is_interpreted", lambda: False)
    pensieve = {"snapshots": 3, "preferences": 5} if method == "qpensieve" else {"snapshots": 0, "preferences": 1}
    case = Case(method, hidden=192, batch=192, d=3, filled=(0,) * 5, obs=11, act=3, guards=guards, **pensieve)
    states, batch, draws = _problem(case, num=1)
    _, block = _fused(case, "half")
    traced = jax.jit(block).trace(states.sac if method == "mosac" else states, batch, draws)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the backend is deprecated
        lowered = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert lowered.count("triton") >= (10 if method == "qpensieve" else 8)  # kernels
