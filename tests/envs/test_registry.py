"""The tables of domains, and what `make_lanes` makes of its arguments."""

import gymnasium
import numpy as np
import pytest

from qpensieve.envs import DOMAINS, LaneOptions, find_domain, get_domain, make_lanes, make_simulator
from qpensieve.envs.registry import DISCRETE, spec_of
from tests.envs import foreign

# Written down from the facts, not from the code: id -> observation, action, objectives, steps, seconds a step.
TABLE = {
    "DST2d": (2, 2, ("treasure", "time"), 50, 0.2),
    "LunarLander4d": (8, 2, ("shaping", "result", "main power", "side power"), 2000, 0.02),
    "LunarLander5d": (8, 2, ("shaping", "result", "main power", "side power", "time"), 2000, 0.02),
    "HalfCheetah2d": (17, 6, ("forward", "control"), 1000, 0.05),
    "Hopper2d": (11, 3, ("forward", "control"), 1000, 0.008),
    "Hopper3d": (11, 3, ("forward", "height", "control"), 1000, 0.008),
    "Hopper5d": (11, 3, ("forward", "control thigh", "control leg", "control foot", "healthy"), 1000, 0.008),
    "Ant2d": (27, 8, ("forward", "control"), 1000, 0.05),
    "Ant3d": (27, 8, ("forward", "healthy", "control"), 1000, 0.05),
    "Walker2d": (17, 6, ("forward", "control"), 1000, 0.008),
}


def test_there_are_ten_domains_and_one_with_action_indices():
    assert list(DOMAINS) == list(TABLE)
    assert list(DISCRETE) == ["DeepSeaTreasure"]
    spec = get_domain("DeepSeaTreasure").spec
    assert (spec.id, spec.obs_size, spec.action_size, spec.num_actions) == ("DeepSeaTreasure", 2, 1, 4)
    assert (spec.objectives, spec.reference, spec.max_steps) == (("treasure", "time"), (0.0, -50.0), 100)
    gym_id = get_domain("DeepSeaTreasure").gym_id
    assert gym_id not in gymnasium.registry
    with pytest.raises(ValueError, match=f"unknown domain '{gym_id}'"):
        get_domain(gym_id)


@pytest.mark.parametrize("domain", TABLE)
def test_a_domain_has_the_sizes_objectives_and_limit_of_the_table(domain: str):
    obs, act, objectives, steps, seconds = TABLE[domain]
    row = get_domain(domain)
    assert (row.obs_size, row.action_size, row.objectives, row.max_steps) == (obs, act, objectives, steps)
    assert (row.gym_id, row.render_fps) == (f"qpensieve/{domain}-v0", round(1 / seconds))
    spec = row.spec
    assert (spec.id, spec.obs_size, spec.action_size, spec.objectives) == (domain, obs, act, objectives)
    assert (spec.max_steps, spec.num_actions) == (steps, None)
    lanes = make_lanes(domain, 2, seed=0)
    assert lanes.reset().shape == (2, obs)
    assert lanes.step(np.zeros((2, act))).reward.shape == (2, len(objectives))


@pytest.mark.parametrize(
    ("name", "near"),
    [("Hoper2d", "Hopper2d"), ("halfcheetah2d", "HalfCheetah2d"), ("deepseatresure", "DeepSeaTreasure")],
)
def test_an_unknown_domain_names_the_nearest(name: str, near: str):
    for look_up in (spec_of, lambda name: make_lanes(name, 1, 0)):
        with pytest.raises(ValueError, match=f"unknown domain '{name}'.*did you mean.*{near}.*The ten") as error:
            look_up(name)
        assert all(known in str(error.value) for known in (*DOMAINS, *DISCRETE))


@pytest.mark.parametrize("source", ["DST2d", "LunarLander4d", "Hopper2d", "DeepSeaTreasure", foreign.PointMass])
def test_options_that_a_source_cannot_have_are_refused(source):
    with pytest.raises(ValueError, match="num_threads must be at least 1, got 0"):
        make_lanes(source, 1, 0, LaneOptions(num_threads=0))
    with pytest.raises(ValueError, match=r"contact_forces must be False for .*: only Ant2d and Ant3d"):
        make_simulator(source, 1, LaneOptions(contact_forces=True))
    with pytest.raises(ValueError, match="num_lanes must be at least 1, got 0"):
        make_lanes(source, 0, 0)
    if source is not foreign.PointMass:
        with pytest.raises(ValueError, match=r"num_workers must be 0 for .*use num_threads"):
            make_lanes(source, 2, 0, LaneOptions(num_workers=2))


def test_a_domain_is_found_by_either_name_and_a_foreign_one_is_not():
    assert find_domain("Hopper2d") is find_domain("qpensieve/Hopper2d-v0") is DOMAINS["Hopper2d"]
    assert find_domain("DeepSeaTreasure") is DISCRETE["DeepSeaTreasure"]
    assert find_domain("CartPole-v1") is find_domain("module:factory") is None
