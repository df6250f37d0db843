"""Tables of L_critic: means over seeds, runs pooled, the paper's beside them."""

from qpensieve.report import critic
from tests.records.test_critic_errors import make_errors, make_row


def test_a_run_is_shown_with_its_standard_error_and_the_papers_value():
    row = make_row(100_000, error=3.0, error_se=[0.3, 0.4])
    shown = critic.rows_of(make_errors(row, make_row(200_000)))
    assert shown[0]["L_critic"] == "4 +- 0.25"  # of 3 and 5; half of the root of 0.3^2 + 0.4^2
    assert shown[0]["L / |Q|"] == "100%"
    assert str(shown[0]["bias control"]).startswith("-3 +- ")
    assert [one["paper"] for one in shown] == [23.74, "-"]
    text = critic.format_errors(make_errors(row))
    assert text.count("100,000, 0.1,0.9  ") == 2  # the table is wide: its first column is there twice
    assert "100,000, 0.1,0.9  4 +- 0.25" in text
    assert "Means over 2 seeds" in text


def test_another_domain_has_no_paper_column_and_scalar_critics_one_bias():
    shown = critic.rows_of(make_errors(make_row(), domain="DST2d", objectives=["lam . r"]))[0]
    assert "paper" not in shown
    assert [name for name in shown if name.startswith("bias")] == ["bias lam . r"]
