"""The benchmark of methods: a row each, MO-SAC first."""

import pytest

from benchmarks import methods, train


@pytest.mark.slow
def test_every_method_has_a_row_beside_mosacs(monkeypatch: pytest.MonkeyPatch):
    plain = methods._config
    small = {"hidden": 8, "batch_size": 8}
    monkeypatch.setattr(methods, "_config", lambda domain, algo: methods.override(plain(domain, algo), small))
    monkeypatch.setattr(methods, "CAPACITY", 200)
    said: list[str] = []
    rows = methods.run(methods.Settings(algos=("sac", "cnder"), seeds=(2,), block=2, repeats=1), said.append)
    assert [row["method"] for row in rows] == ["mosac", "sac", "cnder"]
    assert rows[0]["times MO-SAC's"] == 1.0
    assert all(row["agent-updates/s"] == pytest.approx(2e3 / row["ms/update"]) for row in rows)
    assert any("compiling cnder for 2 agent(s)" in line for line in said)


def test_an_unknown_method_is_named():
    settings = methods.Settings()
    object.__setattr__(settings, "algos", ("ppo",))  # past the checks of types, as a careless caller
    with pytest.raises(ValueError, match="'ppo': use qpensieve, mosac"):
        methods.run(settings, print)


def test_populations_are_timed_elsewhere():
    with pytest.raises(ValueError, match=r"pfa.*benchmarks collect"):
        methods.run(methods.Settings(algos=("pfa",)), print)
    with pytest.raises(ValueError, match=r"benchmarks collect.*pgmorl"):
        train.run(train.Settings(algo="pgmorl"), print)
