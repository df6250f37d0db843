"""The catalogue against what the paper says: which runs each table and figure needs, and its printed numbers."""

from collections import Counter

import pytest

from qpensieve import settings
from qpensieve.config import RunConfig, check, resolve
from qpensieve.envs import DOMAINS
from qpensieve.experiments.paper import ARTEFACTS, FACTORS
from qpensieve.experiments.plan import SCALES, Wanted, scaled
from qpensieve.experiments.printed import POPULATION_SETTINGS, TABLES

RUNS = list(dict.fromkeys(wanted for artefact in ARTEFACTS.values() for wanted in artefact.cells.values()))


def runs_of(name: str) -> dict[tuple[str, str], Wanted]:
    return dict(ARTEFACTS[name].cells)


def test_runs_that_several_artefacts_share_are_made_once():
    assert len(RUNS) == 79
    assert len({wanted.name for wanted in RUNS}) == len(RUNS)
    places = Counter(wanted for artefact in ARTEFACTS.values() for wanted in artefact.cells.values())
    assert places[Wanted("Ant2d")] == 6  # table 1, size 4, growth, HV over training, fronts by size, curves


def test_equal_configurations_have_one_name():
    configs: dict[RunConfig, str] = {}
    for wanted in RUNS:
        assert configs.setdefault(wanted.config(), wanted.name) == wanted.name


class TestTable1:
    def test_has_ten_domains_and_leaves_out_pfa_where_there_are_more_than_two_objectives(self):
        table = ARTEFACTS["table1"]
        assert set(table.rows) == set(DOMAINS)
        with_pfa = {domain for domain, column in table.cells if column == "PFA 1.5M"}
        assert with_pfa == {domain.id for domain in DOMAINS.values() if len(domain.objectives) == 2}
        assert len(table.cells) == 10 * 5 + 5 * 2

    @pytest.mark.parametrize(
        ("domain", "steps"),
        [
            *[(domain, 15_000_000) for domain in ("HalfCheetah2d", "Ant2d", "Ant3d", "Hopper3d")],
            *[(domain, 7_500_000) for domain in ("LunarLander4d", "LunarLander5d", "Hopper5d")],
            *[(domain, 4_500_000) for domain in ("DST2d", "Hopper2d", "Walker2d")],
        ],
    )
    def test_gives_populations_the_printed_factor_of_steps(self, domain: str, steps: int):
        cells = runs_of("table1")
        assert cells[domain, "PGMORL long"].config().steps == steps
        assert cells[domain, "PGMORL 1.5M"].config().steps == 1_500_000

    def test_takes_the_paper_settings_of_everything_else(self):
        for (domain, column), wanted in runs_of("table1").items():
            config = wanted.config()
            assert config.domain == domain
            if not config.method.is_population:
                assert (config.steps, config.seeds) == (1_500_000, 5), column


def test_the_interval_study_has_two_snapshots_because_its_column_of_1000_is_that_of_size_2():
    assert (
        TABLES["push-interval"].scores["Ant2d", "interval 1000"]["UT"]
        == TABLES["buffer-size"].scores["Ant2d", "size 2"]["UT"]
    )
    intervals, sizes = runs_of("push-interval"), runs_of("buffer-size")
    assert intervals["Ant2d", "interval 1000"] == sizes["Ant2d", "size 2"]
    periods = [settings.flat(wanted.config())["push_period"] for wanted in intervals.values()]
    assert periods == [500, 1000, 1500, 2000]
    assert {settings.flat(wanted.config())["num_snapshots"] for wanted in intervals.values()} == {2}


def test_size_4_and_table_1_are_the_same_run_also_in_print():
    assert runs_of("buffer-size")["Ant2d", "size 4"] == runs_of("table1")["Ant2d", "Q-Pensieve"]
    assert TABLES["buffer-size"].scores["Ant2d", "size 4"]["UT"] == TABLES["table1"].scores["Ant2d", "Q-Pensieve"]["UT"]


def test_the_four_cases_of_hybrid_sac_are_two_runs_of_two_preferences():
    cells = runs_of("hybrid")
    assert {wanted.algo for wanted in cells.values()} == {"sac", "hybrid-sac"}
    assert cells["DST2d", "SAC"].config().agent.preferences == ("0.9,0.1", "0.8,0.2")


class TestPrinted:
    def test_numbers_carry_their_power_of_ten(self):
        assert TABLES["table1"].scores["Hopper5d", "Q-Pensieve"]["HV"] == (7.24e13, 0.31e13)
        assert TABLES["table1"].scores["DST2d", "CN-DER"]["UT"] == (-5.10, 15.73)
        assert TABLES["table1"].scores["Ant3d", "CN-DER"]["HV"] == (13.00e8, 4.11e8)

    def test_every_place_of_table_1_but_ours_is_printed(self):
        places = {place for place in runs_of("table1") if place[1] != "MO-SAC"}
        assert TABLES["table1"].scores.keys() == places
        assert all(set(scores) == {"HV", "UT", "ED"} for scores in TABLES["table1"].scores.values())

    def test_places_of_all_tables_exist(self):
        for artefact in ARTEFACTS.values():
            assert artefact.printed.scores.keys() <= artefact.cells.keys()

    def test_the_settings_of_populations_are_those_of_our_presets(self):
        for domain, row in POPULATION_SETTINGS.items():
            ours = settings.flat(Wanted(domain, "pgmorl").config())
            names = ("warmup_iterations", "generation_iterations", "num_buffers", "buffer_size", "num_candidates")
            assert (ours["steps"], *[ours[name] for name in names]) == tuple(row[1:7])
            assert -ours["sparsity_weight"] == row[7]


@pytest.mark.parametrize("wanted", RUNS, ids=lambda wanted: wanted.name)
def test_every_run_can_run_at_every_scale(wanted: Wanted):
    for scale in SCALES:
        check(resolve(scaled(wanted.config(), scale)))


class TestScales:
    def test_paper_changes_nothing(self):
        for wanted in RUNS:
            assert scaled(wanted.config(), "paper") == wanted.config()

    def test_short_divides_what_counts_steps(self):
        config = settings.flat(scaled(Wanted("Ant2d").config(), "short"))
        assert [config[name] for name in ("steps", "random_steps", "push_after", "push_period")] == [
            150_000,
            1_000,
            2_000,
            100,
        ]
        assert config["hidden"] == 256

    def test_smoke_keeps_what_tells_runs_apart(self):
        periods = [settings.flat(scaled(w.config(), "smoke"))["push_period"] for w in runs_of("push-interval").values()]
        assert periods == [50, 100, 150, 200]
        sizes = [settings.flat(scaled(w.config(), "smoke"))["num_snapshots"] for w in runs_of("buffer-size").values()]
        assert sizes == [0, 2, 4, 6]

    def test_steps_keep_the_ratio_of_longer_runs(self):
        for name, factor in FACTORS.items():
            long = runs_of("table1")[name, "PGMORL long"].config()
            assert scaled(long, "paper", steps=100_000).steps == 100_000 * factor
        assert scaled(Wanted("DST2d").config(), "paper", steps=100_010).steps == 100_000  # whole blocks
