"""Every `mean +- deviation` of README.md is UT of a committed result, or a number that the paper prints."""

import json
import re
import tomllib

import numpy as np

from tests.docs.pages import ROOT

RESULTS = ROOT / "results" / "h200"
PAPER = ROOT / "src" / "qpensieve" / "experiments" / "paper.toml"
README = (ROOT / "README.md").read_text()
FIGURE = re.compile(r"(?P<mean>-?\d+(?:\.\d+)?) \+- (?P<deviation>\d+(?:\.\d+)?)")
STEPS = re.compile(r"at (\d[\d ]*000)")
DOMAINS = ("HalfCheetah2d", "DST2d", "Hopper2d", "Walker2d", "Ant2d")
ROBUST = {
    "HalfCheetah2d": ("robust-1.5M", "robust-seeds5-1.5M"),
    "DST2d": ("robust-500k", "robust-seeds5-500k"),
    "Hopper2d": ("robust-discount-0.995-300k", "robust-discount-0.995-seeds5-300k"),
    "Walker2d": ("robust-300k",),
}
COLUMNS = {
    "Q-Pensieve, paper's settings": dict.fromkeys(DOMAINS, ("qpensieve-1.5M",)),
    "MO-SAC, paper's settings": dict.fromkeys(DOMAINS, ("mosac-1.5M",)),
    "Q-Pensieve, `robust` (earlier form)": ROBUST,
}
"""Column of the table -> domain -> the files of its runs, without the domain."""


def rows() -> list[list[str]]:
    """The cells of README's only table: its head, then its rows."""
    lines = [line for line in README.splitlines() if line.startswith("|") and not line.startswith("|---")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def runs(domain: str, files: tuple[str, ...]) -> list[dict]:
    return [json.loads((RESULTS / f"{domain}-{file}.json").read_text()) for file in files]


def measured(found: list[dict]) -> tuple[float, float]:
    """Mean and standard deviation of UT over the seeds of all runs, at their ends."""
    ut = np.concatenate([run["full_protocol"][-1]["ut"] for run in found])
    return float(ut.mean()), float(ut.std())


def printed(domain: str) -> tuple[float, float]:
    """UT of Q-Pensieve in the paper's Table 1."""
    table = tomllib.loads(PAPER.read_text())["artefacts"]["table1"]["printed"]
    (row,) = [row for row in table["rows"] if row[:2] == [domain, "UT"]]
    mean, deviation = row[3 + table["columns"].index("Q-Pensieve")]
    return mean * 10 ** row[2], deviation * 10 ** row[2]


def shown(text: str) -> list[tuple[str, str]]:
    return [(found["mean"], found["deviation"]) for found in FIGURE.finditer(text)]


def rounded(values: tuple[float, float], like: tuple[str, str]) -> tuple[str, str]:
    """The values with the digits that the page shows."""
    mean, deviation = (f"{value:.{len(text.partition('.')[2])}f}" for value, text in zip(values, like, strict=True))
    return mean, deviation


def test_the_table_shows_the_committed_results():
    head, *body = rows()
    assert [row[0].split()[0] for row in body] == list(DOMAINS)
    for domain, row in zip(DOMAINS, body, strict=True):
        for column, cell in zip(head[1:], row[1:], strict=True):
            if column == "paper prints":
                expected, found = printed(domain), []
            elif (files := COLUMNS[column].get(domain)) is None:
                assert (domain, cell) == (domain, "not run")
                continue
            else:
                found = runs(domain, files)
                expected = measured(found)
            (figure,) = shown(cell)
            assert (domain, column, *figure) == (domain, column, *rounded(expected, figure))
            steps = STEPS.search(cell)
            for run in found:
                asked = 1_500_000 if steps is None else int(steps[1].replace(" ", ""))
                assert run["full_protocol"][-1]["step"] == run["config"]["steps"] == asked, (domain, column)
                discount = run["config"]["agent"].get("sac", run["config"]["agent"])["discount"]
                assert f"{discount:g}" == ("0.995" if "--discount 0.995" in cell else "0.99"), (domain, column)
            if found:
                assert sum(run["config"]["seeds"] for run in found) == (10 if "(ten" in cell else 5), (domain, column)


def test_the_text_shows_the_same():
    text = "\n".join(line for line in README.splitlines() if not line.startswith("|"))
    of_mosac = measured(runs("HalfCheetah2d", ("mosac-robust-1.5M",)))
    known = [measured(runs("HalfCheetah2d", ROBUST["HalfCheetah2d"])), printed("HalfCheetah2d"), of_mosac]
    assert shown(text)
    assert [one for one in shown(text) if one not in [rounded(values, one) for values in known]] == []


def test_the_ratios_to_mosac_are_those_of_the_third_round():
    """UT of `robust` over that of MO-SAC on the same seeds, at the last short evaluation."""
    found = re.findall(r"(\d\.\d\d) (?:of MO-SAC's UT )?on\s+(\w+\dd)\b", README)
    assert [domain for _, domain in found] == ["HalfCheetah2d", "Walker2d", "Ant3d"]
    for shown_ratio, domain in found:
        assert shown_ratio == f"{last_short(f'third-{domain}-h') / mosac_on(domain):.2f}"


def last_short(*names: str) -> float:
    folder = ROOT / "results" / "recipe"
    files = [json.loads((folder / f"{name}.json").read_text()) for name in names]
    return float(np.concatenate([run["short_protocol"][-1]["ut"] for run in files]).mean())


def mosac_on(domain: str) -> float:
    more = [name for name in (f"third-{domain}-mosac-more",) if (ROOT / "results" / "recipe" / f"{name}.json").exists()]
    return last_short(f"second-{domain}-mosac", *more)
