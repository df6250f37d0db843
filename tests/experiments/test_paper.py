"""The catalogue against what the paper says: which runs each table and figure needs, and its printed numbers."""

from collections import Counter

from qpensieve import settings
from qpensieve.config import RunConfig, check, with_schedule
from qpensieve.envs import DOMAINS
from qpensieve.experiments.paper import ARTEFACTS, POPULATION_SETTINGS
from qpensieve.experiments.plan import Wanted, scaled

RUNS = list(dict.fromkeys(wanted for artefact in ARTEFACTS.values() for wanted in artefact.cells.values()))
TABLE_1, SIZES, INTERVALS = (ARTEFACTS[name] for name in ("table1", "buffer-size", "push-interval"))
LONG = {
    **dict.fromkeys(("HalfCheetah2d", "Ant2d", "Ant3d", "Hopper3d"), 15_000_000),
    **dict.fromkeys(("LunarLander4d", "LunarLander5d", "Hopper5d"), 7_500_000),
    **dict.fromkeys(("DST2d", "Hopper2d", "Walker2d"), 4_500_000),
}


def test_shared_runs_are_made_once_and_equal_configurations_have_one_name():
    assert len(RUNS) == len({wanted.name for wanted in RUNS}) == 79
    places = Counter(wanted for artefact in ARTEFACTS.values() for wanted in artefact.cells.values())
    assert places[Wanted("Ant2d")] == 6  # table 1, size 4, growth, HV over training, fronts by size, curves
    configs: dict[RunConfig, str] = {}
    for wanted in RUNS:
        assert configs.setdefault(wanted.config(), wanted.name) == wanted.name


def test_table_1_has_ten_domains_and_pfa_for_two_objectives():
    assert TABLE_1.rows == list(DOMAINS)
    assert TABLE_1.columns == [
        *("PFA 1.5M", "PFA long", "PGMORL 1.5M", "PGMORL long", "CN-DER", "Q-Pensieve", "MO-SAC")
    ]
    with_pfa = {domain for domain, column in TABLE_1.cells if column == "PFA 1.5M"}
    assert with_pfa == {domain.id for domain in DOMAINS.values() if len(domain.objectives) == 2}
    assert len(TABLE_1.cells) == 10 * 5 + 5 * 2


def test_table_1_has_the_papers_steps_and_seeds():
    for (domain, column), wanted in TABLE_1.cells.items():
        config = wanted.config()
        assert config.domain == domain
        assert config.steps == (LONG[domain] if column.endswith("long") else 1_500_000)
        assert config.method.is_population or config.seeds == 5
        if column.endswith("long"):
            factor = LONG[domain] // 1_500_000
            assert scaled(config, "paper", steps=100_000).steps == 100_000 * factor


def test_the_interval_study_has_two_snapshots_because_its_column_of_1000_is_that_of_size_2():
    ut = lambda artefact, column: artefact.printed.scores["Ant2d", column]["UT"]
    assert ut(INTERVALS, "interval 1000") == ut(SIZES, "size 2")
    assert INTERVALS.cells["Ant2d", "interval 1000"] == SIZES.cells["Ant2d", "size 2"]
    flat = [settings.flat(wanted.config()) for wanted in INTERVALS.cells.values()]
    assert [one["push_period"] for one in flat] == [500, 1000, 1500, 2000]
    assert {one["num_snapshots"] for one in flat} == {2}
    assert SIZES.cells["Ant2d", "size 4"] == TABLE_1.cells["Ant2d", "Q-Pensieve"]
    assert ut(SIZES, "size 4") == ut(TABLE_1, "Q-Pensieve")


def test_every_place_of_table_1_but_ours_is_printed_and_printed_places_exist():
    assert TABLE_1.printed.scores.keys() == {place for place in TABLE_1.cells if place[1] != "MO-SAC"}
    assert all(set(scores) == {"HV", "UT", "ED"} for scores in TABLE_1.printed.scores.values())
    for artefact in ARTEFACTS.values():
        assert artefact.printed.scores.keys() <= artefact.cells.keys()


def test_the_settings_of_populations_are_those_of_our_presets():
    for domain, row in POPULATION_SETTINGS.items():
        ours = settings.flat(Wanted(domain, "pgmorl").config())
        names = ("warmup_iterations", "generation_iterations", "num_buffers", "buffer_size", "num_candidates")
        assert (ours["steps"], *[ours[name] for name in names]) == tuple(row[1:7])
        assert -ours["sparsity_weight"] == row[7]


def test_every_run_can_run_at_every_scale():
    """`smoke` is checked where the whole paper is planned."""
    for config in (wanted.config() for wanted in RUNS):
        assert scaled(config, "paper") == config
        for one in (config, scaled(config, "short")):
            check(with_schedule(one))


def test_scales_divide_what_counts_steps_and_keep_what_tells_runs_apart():
    short = settings.flat(scaled(Wanted("Ant2d").config(), "short"))
    counted = ("steps", "random_steps", "push_after", "push_period", "hidden")
    assert [short[name] for name in counted] == [150_000, 1_000, 2_000, 100, 256]
    smoke = lambda artefact, name: [settings.flat(scaled(w.config(), "smoke"))[name] for w in artefact.cells.values()]
    assert smoke(INTERVALS, "push_period") == [50, 100, 150, 200]
    assert smoke(SIZES, "num_snapshots") == [0, 2, 4, 6]
    assert scaled(Wanted("DST2d").config(), "paper", steps=100_010).steps == 100_000  # whole blocks
