"""The table and the summary.json that a run ends with."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qpensieve import config as configs
from qpensieve.config import default_config, override
from qpensieve.envs import get_domain
from qpensieve.envs.deep_sea import FRONT
from qpensieve.preferences import test_table
from qpensieve.records import calibration, evaluations
from qpensieve.records.calibration import Calibration
from qpensieve.records.evaluations import append_full, empty
from qpensieve.records.folder import CALIBRATION, EVALUATIONS
from qpensieve.report.summary import format_summary, summarize_run, write_summary
from qpensieve.train.evaluate import curve_preferences


def make_run(folder: Path, domain: str, *full: np.ndarray, reference: bool = True) -> Path:
    """A run folder as far as tables read it; `full` are full returns [seed, p, e, d], one per evaluation."""
    d = full[0].shape[-1] if full else 2
    point = np.array(get_domain(domain).spec.reference) if reference else None
    table = empty(full[0].shape[0] if full else 2, test_table(d)[::5], curve_preferences(d), test_table(d), point)
    for number, returns in enumerate(full, start=1):
        table = append_full(table, 1000 * number, returns)
    folder.mkdir(exist_ok=True)
    config = override(default_config(domain), {"seeds": table.num_seeds, "first_seed": 4})
    configs.save(config, folder / "config.json")
    evaluations.save(folder / EVALUATIONS, table)
    return folder


def obedient(num_seeds: int) -> np.ndarray:
    """Returns of policies that do, for every preference, the best that DST2d allows."""
    front = FRONT.points
    best = front[np.argmax(test_table(2) @ front.T, axis=1)]
    return np.broadcast_to(best[None, :, None], (num_seeds, 100, 10, 2)).copy()


class TestSummary:
    def test_the_summary_of_perfect_boats_equals_the_ceilings(self, tmp_path: Path):
        run = make_run(tmp_path, "DST2d", obedient(2))
        content = write_summary(run)
        assert json.loads((run / "summary.json").read_text()) == content
        assert (content["domain"], content["algo"], content["seeds"], content["step"]) == (
            *("DST2d", "qpensieve"),
            *([4, 5], 1000),
        )
        ceilings = content["dst"]["ceilings"]
        np.testing.assert_allclose(content["per_seed"]["UT"], ceilings["utility"])
        np.testing.assert_allclose(content["per_seed"]["best single row UT"], ceilings["best_single"])
        assert content["over_seeds"]["UT"]["mean"] == pytest.approx(ceilings["utility"])
        assert content["over_seeds"]["UT"]["std"] == pytest.approx(0.0)
        assert min(content["per_seed"]["corr lam1, obj 1"]) > 0.8
        assert ceilings["utility"] == pytest.approx(7.757, abs=1e-3)
        assert content["objectives"] == ["treasure", "time"]
        assert format_summary(content).split("--")[0].split()[-2:] == ["treasure", "time"]

    def test_the_summary_has_three_columns_of_ut_that_are_measured_apart(self, tmp_path: Path):
        """Asked, calibrated by the stored map, and the best row, from the same episodes of the evaluation."""
        run, lam = make_run(tmp_path, "DST2d", obedient(2)[:, ::-1]), test_table(2)
        backwards = np.stack([np.arange(99, -1, -1), np.arange(100)])
        known = Calibration(1000, [4, 5], lam, backwards, np.zeros((2, 100)), 98, np.array([700, 800]))
        calibration.save(run / CALIBRATION, known)
        content = write_summary(run)
        assert json.loads((run / "summary.json").read_text()) == content
        per_seed, ceiling = content["per_seed"], content["dst"]["ceilings"]["utility"]
        assert per_seed["UT calibrated"] == pytest.approx([ceiling, per_seed["UT"][1]])
        assert per_seed["UT best row"] == pytest.approx([ceiling, ceiling])
        assert per_seed["UT"][0] < ceiling
        assert content["calibration_steps_per_seed"] == [700, 800]
        text = format_summary(content)
        assert "750 more to calibrate" in text
        assert "qpensieve calibrate" not in text
        assert all(words in text.split("--")[0] for words in ("asked", "calibrated", "in-sample"))
        for other in (replace(known, step=900), replace(known, seeds=[4, 6])):  # of other policies
            calibration.save(run / CALIBRATION, other)
            assert "UT calibrated" not in summarize_run(run)["per_seed"]

    @pytest.mark.parametrize(
        ("returns", "is_no_gain", "is_calibrated"),
        [
            (obedient(2), False, False),
            (np.broadcast_to([0.7, -1.0], obedient(2).shape).copy(), True, False),
            (obedient(2)[:, ::-1], True, True),
        ],
        ids=["obeys", "same", "against"],
    )
    def test_the_summary_advises_to_train_longer_or_to_calibrate(
        self, returns: np.ndarray, is_no_gain: bool, is_calibrated: bool, tmp_path: Path
    ):
        text = format_summary(summarize_run(make_run(tmp_path, "qpensieve/DST2d-v0", returns)))
        assert ("Train longer" in text, "qpensieve calibrate" in text) == (is_no_gain, is_calibrated)
        assert "exact ceilings, full protocol: UT 7.757" in text

    def test_the_summary_compares_the_policy_with_its_best_row_on_other_episodes(self, tmp_path: Path):
        """Rows bring 1, but two of them 3 by luck in one half of their episodes: no row is better than another."""
        returns = np.ones((1, 100, 10, 2))
        returns[0, 0, ::2] = returns[0, 1, 1::2] = 3.0
        content = summarize_run(make_run(tmp_path / "a", "Hopper2d", returns))
        assert content["per_seed"]["best single row UT"] == [pytest.approx(1.0)]
        assert content["over_seeds"]["best single row UT"]["mean"] == pytest.approx(1.0)
        assert self.said(content) == (
            "Following the preference gives UT 1.02; always using the single best preference would give 1 "
            "(measured on other episodes)."
        )
        content = summarize_run(make_run(tmp_path / "b", "Hopper2d", returns[:, :, :1]))
        assert self.said(content) == (
            "Following the preference gives UT 1.02; always using the single best preference would give 3 "
            "(measured on the episodes that chose it). Train longer (more: docs/faq.md)."
        )

    def said(self, content: dict[str, Any]) -> str:
        """The sentence that compares, in one line."""
        text = " ".join(format_summary(content).split())
        text = text[text.index("Following the preference") :]
        return text.partition("HV is not")[0].partition("The best row")[0].strip()

    def test_the_summary_has_no_hypervolume_without_a_reference_point(self, tmp_path: Path):
        content = summarize_run(make_run(tmp_path, "Hopper2d", np.ones((1, 100, 10, 2)), reference=False))
        assert "HV" not in content["per_seed"]
        assert "HV" not in content["over_seeds"]
        assert "dst" not in content
        format_summary(content)

    def test_the_summary_without_a_full_evaluation_says_what_to_run(self, tmp_path: Path):
        run = make_run(tmp_path, "DST2d")
        with pytest.raises(ValueError, match=f"no full evaluation yet: run 'qpensieve evaluate {run}'"):
            write_summary(run)
        assert not (run / "summary.json").exists()


class TestTable:
    def test_the_table_shows_the_ceilings_and_the_treasures_of_dst2d(self, tmp_path: Path):
        returns = obedient(2)
        returns[1] = (0.7, -1.0)  # this one only ever takes the first
        content = summarize_run(make_run(tmp_path, "DST2d", returns - 1.0, returns))  # the newest counts
        assert (content["step"], content["dst"]["treasures"][1]) == (2000, [0.7])
        assert len(content["dst"]["treasures"][0]) > 3
        assert content["dst"]["front_share"][0] > content["dst"]["front_share"][1] > 0
        over, first = content["over_seeds"]["UT"], content["per_seed"]["UT"]
        assert (over["mean"], over["std"], over["num_seeds"]) == (np.mean(first), np.std(first), 2)
        text = format_summary(content)
        assert "exact ceilings, full protocol: UT 7.757 (one fixed trip 6.18), HV 1055.0" in text
        assert "seed 5: 12% of the front's treasures; ends at 0.7" in text

    def test_the_table_has_a_row_for_every_seed(self, tmp_path: Path):
        returns = np.random.default_rng(0).uniform(0, 4e4, (3, 100, 10, 4))
        lines = format_summary(summarize_run(make_run(tmp_path, "LunarLander4d", returns))).splitlines()
        assert lines[0] == "LunarLander4d, qpensieve, step 1,000, full protocol (100 preferences)"
        assert lines[1] == "1,000 environment steps per seed in all"
        rules = [i for i, line in enumerate(lines) if line.startswith("--")]
        assert len(rules) == 2  # what has no room beside the first columns stands below them
        blocks = [[line.split() for line in lines[rule + 1 : rule + 6]] for rule in rules]
        for block in blocks:
            assert [row[0] for row in block] == ["4", "5", "6", "mean", "std"]
        assert {len(one) + len(two) - 2 for one, two in zip(*blocks, strict=True)} == {5 + 4}
        assert blocks[0][3][5] == "-"  # a front's size has no mean
        assert max(map(len, lines)) < 80
