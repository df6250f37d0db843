"""Configuration: JSON there and back, presets, overrides, and settings that contradict each other."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qpensieve import config as configs
from qpensieve import settings
from qpensieve.algos import envelope
from qpensieve.algos.mosac import WHOLE_RUN
from qpensieve.algos.qpensieve import QPensieveConfig
from qpensieve.config import SCHEDULE, RunConfig, check, default_config, override

BURSTS = Path(__file__).parents[1] / "tools" / "bursts.py"


def test_missing_fields_are_named_where_they_have_no_default():
    values = configs.to_dict(default_config("DST2d"))
    for field in ("domain", "algo", "agent"):
        with pytest.raises(ValueError, match=f"field {field} is missing"):
            configs.from_dict({name: value for name, value in values.items() if name != field})
    del values["full_eval_period"]
    assert configs.from_dict(values) == default_config("DST2d")


class TestCheck:
    @pytest.mark.parametrize(
        ("changes", "complaint"),
        [
            ({"steps": 130}, "steps must be a multiple of block (50), got 130; the nearest is 150"),
            ({"eval_period": 75}, "eval_period must be a multiple of block (50), got 75"),
            ({"push_period": 120}, "push_period must be a multiple of block (50), got 120; the nearest is 100"),
            ({"block": 0}, "block must be at least 1, got 0"),
            ({"random_steps": 0}, "random_steps must be a whole number of 1 or more, or a share below 1, got 0"),
            ({"discount": 1.0}, "discount must be above 0 and below 1, got 1.0"),
            ({"first_seed": -1}, "first_seed must leave all seeds between 0 and 2147483647, got -1"),
            ({"first_seed": 2**31 - 1}, "first_seed must leave all seeds between 0 and 2147483647, got 2147483647"),
            ({"learning_rate_end": float("inf")}, "learning_rate_end must be above 0 and finite, got inf"),
            ({"tau": 3.0}, "tau must be above 0 and at most 1, got 3.0"),
            ({"pessimism": float("nan")}, "pessimism must be from 0.5 to 1, got nan"),
            ({"algo": "mosac"}, "agent must hold the settings of mosac, got a QPensieveConfig"),
            ({"anneal_updates": 100}, "anneal_updates needs target_entropy_end or learning_rate_end, got 100 alone"),
            ({"block": 0, "num_snapshots": -2}, "num_snapshots must be 0 or more, got -2"),  # all problems at once
        ],
    )
    def test_check_says_what_is_wrong_and_what_would_be_right(self, changes: dict[str, Any], complaint: str):
        with pytest.raises(ValueError, match="these settings cannot run") as refusal:
            check(override(default_config("DST2d"), changes))
        assert complaint in str(refusal.value)

    @pytest.mark.parametrize(
        ("name", "value"),
        [("target_entropy_end", -2.5), ("learning_rate_end", 1e-4), ("anneal_updates", 100)],
    )
    def test_the_helper_of_hybrid_sac_has_the_schedules_of_its_sac(self, name: str, value: float):
        changed = override(default_config("DST2d", "hybrid-sac"), {name: value})
        with pytest.raises(ValueError, match=f"{name} must be None for hybrid-sac"):
            check(changed)

    @pytest.mark.parametrize(
        ("algo", "changes", "complaint"),
        [
            (
                "qpensieve",
                {"push_period": 150},
                "push_period must be a multiple of block x updates_per_step (100), got",
            ),
            ("envelope", {}, "updates_per_step must be 1 for envelope, got 2"),
            ("cnder", {}, "updates_per_step must be 1 for cnder, got 2"),
            ("pgmorl", {}, "updates_per_step must be left out, got 2: pgmorl has no replay"),
        ],
    )
    def test_check_refuses_a_replay_ratio_that_does_not_fit(self, algo: str, changes: dict, complaint: str):
        with pytest.raises(ValueError, match="these settings cannot run") as refusal:
            check(override(default_config("DST2d", algo), {"updates_per_step": 2, **changes}))
        assert complaint in str(refusal.value)
        check(override(default_config("DST2d"), {"updates_per_step": 2}))


class TestPresets:
    def test_a_schedule_without_a_length_is_as_long_as_the_papers_run(self):
        steps = default_config("Ant2d").steps
        assert (WHOLE_RUN, envelope.EnvelopeConfig().anneal_length) == (steps, steps)
        (line,) = [one for one in BURSTS.read_text().splitlines() if one.startswith("PAPER_UPDATES = ")]
        assert int(line.split("=")[1]) == steps  # a program of NumPy alone cannot import it

    def test_the_preset_paper_has_the_papers_settings(self):
        config = default_config("Ant2d")
        assert (config.seeds, config.steps, config.random_steps, config.block) == (5, 1_500_000, 10_000, 50)
        assert config.replay_capacity == 1_000_000
        assert config.agent == QPensieveConfig()
        assert isinstance(config.agent, QPensieveConfig)
        sac = config.agent.sac
        assert (sac.hidden, sac.learning_rate, sac.discount, sac.tau, sac.batch_size) == (256, 3e-4, 0.99, 0.005, 256)
        assert (config.agent.num_preferences, config.agent.num_snapshots, config.agent.push_period) == (5, 4, 1000)

    @pytest.mark.parametrize(
        ("algo", "preset", "changes", "setting", "end"),
        [
            ("qpensieve", "robust", {}, "anneal_updates", 54_000),
            ("qpensieve", "robust", {"anneal_updates": 5_001}, "anneal_updates", 5_001),
            ("qpensieve", "paper", {}, "anneal_updates", None),
            ("envelope", "paper", {}, "anneal_steps", 30_000),
            ("envelope", "paper", {"anneal_steps": 7_000}, "anneal_steps", 7_000),
        ],
    )
    def test_schedules_end_with_the_run_unless_told_otherwise(
        self, algo: str, preset: str, changes: dict[str, Any], setting: str, end: int | None
    ):
        config = configs.with_schedule(override(default_config("DST2d", algo, preset), {"steps": 30_000} | changes))
        assert settings.flat(config)[setting] == end

    def test_the_preset_robust_is_the_papers_with_guards(self):
        robust, paper = default_config("Ant2d", preset="robust"), default_config("Ant2d")
        check(robust)
        ours, theirs = settings.flat(configs.with_schedule(robust).agent), settings.flat(paper.agent)
        assert {name for name in ours if ours[name] != theirs[name]} == {
            "anneal_updates",
            *("guards", "target_entropy_end", "learning_rate", "learning_rate_end", "pessimism"),
            *("num_preferences", "snapshots_per_update", "memory_updates"),
        }
        same = {"seeds": 5, "random_noise": "white", "updates_per_step": 1, "agent": paper.agent}
        assert replace(configs.with_schedule(robust), **same) == paper
        check(default_config("Ant2d", "mosac", "robust"))
        with pytest.raises(ValueError, match="preset robust is for qpensieve, mosac, got sac"):
            default_config("Ant2d", "sac", "robust")


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("extra",), {"seeds": 1}, "unknown field extra in the configuration"),
        (("agent", "discount"), 0.5, "discount appears twice in the configuration"),
        (("agent", "foo"), {"tau": 0.5}, "unknown field foo in the configuration"),
        (("agent", "sac"), 5, "sac must hold settings, got 5"),
        (("sedes",), 3, "unknown field sedes in the configuration; known: .*seeds"),
        (("agent", "sac", "gamma"), 0.9, "unknown field gamma .*discount"),
        (("algo",), "ddpg", "unknown algorithm 'ddpg': use qpensieve, mosac"),
    ],
)
def test_values_in_the_wrong_place_of_a_saved_configuration_are_refused(path: tuple[str, ...], value: Any, said: str):
    saved = configs.to_dict(default_config("DST2d"))
    part: Any = saved
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    with pytest.raises(ValueError, match=said):
        configs.from_dict(saved)


class TestSchedule:
    """What follows the length of a run, as `with_schedule` fills it in."""

    def test_the_papers_run_of_robust_has_the_papers_numbers(self):
        robust, paper = default_config("Ant2d", preset="robust"), default_config("Ant2d")
        planned, given = settings.flat(configs.with_schedule(robust)), settings.flat(paper)
        assert {name: planned[name] for name in SCHEDULE if name in planned} == {
            **{name: given[name] for name in SCHEDULE if name in given},
            "anneal_updates": 2 * (1_500_000 - 10_000),
            "memory_updates": 1_500_000 - 10_000,
        }

    @pytest.mark.parametrize("preset", ["robust", "quick"])
    @pytest.mark.parametrize("algo", ["qpensieve", "mosac"])
    @pytest.mark.parametrize("steps", [1_000, 20_000, 75_000, 300_000])
    def test_a_shorter_run_explores_learns_and_is_evaluated_in_proportion(self, preset: str, algo: str, steps: int):
        config = configs.with_schedule(override(default_config("Ant2d", algo, preset), {"steps": steps}))
        check(config)
        assert config.random_steps <= steps / (4 if preset == "quick" else 10)
        assert steps // config.eval_period >= 5
        assert steps // config.parameters_period >= 3
        assert (steps - config.random_steps) // config.log_period >= 10
        agent = settings.flat(config.agent)
        assert agent["anneal_updates"] == config.num_updates
        if algo == "qpensieve":
            assert (config.num_updates - agent["push_after"]) // agent["push_period"] >= 4

    def test_given_settings_are_not_scheduled(self):
        given = {"random_steps": 2_000, "eval_period": 7_000, "push_period": 300, "anneal_updates": 5_000}
        config = override(default_config("Ant2d", preset="robust"), {"steps": 30_000} | given)
        assert settings.flat(configs.with_schedule(config)).items() >= given.items()

    @pytest.mark.parametrize(("algo", "preset"), [("qpensieve", "paper"), ("cnder", "quick")])
    def test_other_presets_keep_their_numbers(self, algo: str, preset: str):
        config = default_config("Ant2d", algo, preset)
        shorter = configs.with_schedule(override(config, {"steps": 20_000}))
        assert shorter == replace(config, steps=20_000)

    def test_a_longer_run_anneals_over_all_of_it_and_keeps_the_rest(self):
        config = configs.with_schedule(override(default_config("Ant2d", preset="robust"), {"steps": 20_000}))
        longer = configs.lengthened(config, 60_000)
        assert longer == override(config, {"steps": 60_000, "anneal_updates": 116_000})
        assert configs.lengthened(longer, 20_000) == config
        shorter_line = override(config, {"anneal_updates": 5_000, "memory_updates": 2_000})
        assert configs.lengthened(shorter_line, 60_000) == replace(shorter_line, steps=60_000)

    def test_settings_that_cannot_run_are_left_to_the_check(self):
        for wrong in ({"block": 0}, {"steps": 130}, {"updates_per_step": 0}):
            config = override(default_config("Ant2d", preset="robust"), wrong)
            assert configs.with_schedule(config) == config
            with pytest.raises(ValueError, match="cannot run"):
                check(config)


@pytest.mark.parametrize(
    ("steps", "replay_capacity", "capacity"),
    [(1_500_000, 1_000_000, 1_000_000), (600, 1_000_000, 600), (600, 420, 400), (600, 10, 50)],
)
def test_the_replay_and_seeds_of_a_run(steps: int, replay_capacity: int, capacity: int):
    config = RunConfig("DST2d", steps=steps, replay_capacity=replay_capacity, seeds=3, first_seed=7)
    assert config.capacity == capacity
    assert config.seed_list == [7, 8, 9]


HELPERS = "guards, pessimism are used by the helper alone, not by the SAC of hybrid-sac"
CUT = "the replay holds 400 transitions, not 420: it is written in whole blocks of 50"


@pytest.mark.parametrize(
    ("algo", "changes", "said"),
    [
        ("hybrid-sac", {}, []),
        ("hybrid-sac", {"guards": True, "pessimism": 0.5, "tau": 0.1}, [HELPERS]),
        ("qpensieve", {"pessimism": 0.5}, []),
        ("qpensieve", {"replay_capacity": 420}, [CUT]),
        ("qpensieve", {"replay_capacity": 20}, [CUT.replace("400", "50").replace("420", "20")]),
        *(("qpensieve", {"replay_capacity": fits}, []) for fits in (400, 620)),
        *((algo, {"replay_capacity": 420}, []) for algo in ("cnder", "envelope", "pgmorl")),  # slot by slot, or none
    ],
)
def test_settings_that_do_less_than_they_promise_are_named(algo: str, changes: dict[str, Any], said: list[str]):
    assert configs.remarks(override(default_config("DST2d", algo), {"steps": 600} | changes)) == said


class TestRandomStepsAsAShare:
    @pytest.mark.parametrize(("share", "steps"), [(0.2, 4_000), (0.213, 4_250), (1e-9, 50), (5e3, 5_000)])
    def test_a_share_becomes_whole_blocks_of_the_run(self, share: float, steps: int):
        config = override(default_config("DST2d", preset="robust"), {"steps": 20_000, "random_steps": share})
        assert configs.with_schedule(config).random_steps == steps

    @pytest.mark.parametrize("wrong", [0.0, -0.5, 1.5, float("nan"), float("inf")])
    def test_other_numbers_are_refused(self, wrong: float):
        with pytest.raises(ValueError, match="random_steps must be a whole number of 1 or more, or a share below 1"):
            check(override(default_config("DST2d"), {"random_steps": wrong}))

    def test_quick_is_random_for_a_quarter_of_any_length(self):
        config = default_config("DST2d", preset="quick")
        assert [configs.with_schedule(replace(config, steps=n)).random_steps for n in (1_000, 120_000)] == [250, 30_000]
