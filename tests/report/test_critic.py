"""Tables of L_critic: means over seeds, runs pooled, the paper's beside them."""

from dataclasses import replace
from pathlib import Path

import pytest

from qpensieve.records import critic_errors
from qpensieve.report import critic
from tests.records.test_critic_errors import make_errors, make_row


def test_a_run_is_shown_with_its_standard_error_and_the_papers_value():
    row = make_row(100_000, error=3.0, error_se=[0.3, 0.4])
    shown = critic.rows_of(make_errors(row, make_row(200_000)))
    assert shown[0]["L_critic"] == "4 +- 0.25"  # of 3 and 5; half of the root of 0.3^2 + 0.4^2
    assert shown[0]["L / |Q|"] == "100%"
    assert shown[0]["bias control"].startswith("-3 +- ")
    assert [one["paper"] for one in shown] == [23.74, "-"]
    text = critic.format_errors(make_errors(row))
    assert text.count("100,000, 0.1,0.9  ") == 2  # the table is wide: its first column is there twice
    assert "100,000, 0.1,0.9  4 +- 0.25" in text
    assert "Means over 2 seeds" in text


def test_another_domain_has_no_paper_column_and_scalar_critics_one_bias():
    shown = critic.rows_of(make_errors(make_row(), domain="DST2d", objectives=["lam . r"]))[0]
    assert "paper" not in shown
    assert [name for name in shown if name.startswith("bias")] == ["bias lam . r"]


def test_steps_stand_side_by_side_over_the_seeds_of_all_runs():
    first = make_errors(make_row(10_000, error=3.0), make_row(100_000, error=1.0))
    second = make_errors(make_row(10_000, error=11.0), make_row(10_000, error=90.0, actions="uniform"))
    table = critic.by_steps([first, second])
    assert [row["preference"] for row in table] == ["0.1,0.9", "0.3,0.7", "0.5,0.5", "0.7,0.3", "0.9,0.1"]
    assert table[0]["10k"] == "8 +- 4.12"  # 3, 5, 11, 13
    assert table[0]["100k"] == "2 +- 1"
    assert table[1]["10k"] == "-"
    assert [table[4][f"paper {step}"] for step in ("100k", "500k", "1M", "1.5M")] == [87.01, 46.95, 84.76, 31.96]
    assert critic.by_steps([second], actions="uniform")[0]["10k"] == "91 +- 1"


def test_runs_of_several_domains_make_no_table():
    with pytest.raises(ValueError, match="one domain, got DST2d, Hopper2d"):
        critic.by_steps([make_errors(make_row()), make_errors(make_row(), domain="DST2d")])


def test_a_folder_or_a_file_is_read(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match=r"holds no critic.json: measure it with 'qpensieve critic"):
        critic.read(tmp_path)
    errors = replace(make_errors(make_row()), seeds=[3, 4])
    critic_errors.add(tmp_path / "critic.json", errors)
    assert critic.read(tmp_path) == critic.read(tmp_path / "critic.json") == errors
