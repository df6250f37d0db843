"""Every table and figure of the paper, as data: which runs, and how they are shown."""

from qpensieve.experiments.plan import Artefact, Wanted
from qpensieve.experiments.printed import CRITIC_PREFERENCES, TABLES, Place

FACTORS = {
    "DST2d": 3,
    "LunarLander4d": 5,
    "LunarLander5d": 5,
    "HalfCheetah2d": 10,
    "Hopper2d": 3,
    "Hopper3d": 10,
    "Hopper5d": 5,
    "Ant2d": 10,
    "Ant3d": 10,
    "Walker2d": 3,
}
"""Domain, in the order of the paper's table -> how many times as many steps PGMORL and PFA also get."""
STEPS = 1_500_000
TWO_OBJECTIVES = ("DST2d", "HalfCheetah2d", "Hopper2d", "Ant2d", "Walker2d")
CURVES = ("Hopper2d", "Ant2d", "HalfCheetah2d", "Walker2d", "Ant3d", "Hopper3d", "LunarLander4d")
"""Domains whose learning curves the paper shows."""
VANILLA = (("num_snapshots", 0),)
"""Q-Pensieve without its buffer."""


def _table_1() -> Artefact:
    cells: dict[Place, Wanted] = {}
    for domain, factor in FACTORS.items():
        if domain in TWO_OBJECTIVES:
            cells[domain, "PFA 1.5M"] = Wanted(domain, "pfa", steps=STEPS)
            cells[domain, "PFA long"] = Wanted(domain, "pfa", steps=STEPS * factor)
        cells[domain, "PGMORL 1.5M"] = Wanted(domain, "pgmorl", steps=STEPS)
        cells[domain, "PGMORL long"] = Wanted(domain, "pgmorl", steps=STEPS * factor)
        cells[domain, "CN-DER"] = Wanted(domain, "cnder")
        cells[domain, "Q-Pensieve"] = Wanted(domain)
        cells[domain, "MO-SAC"] = Wanted(domain, "mosac")
    return Artefact(
        "table1",
        "Ten domains, all methods: HV, UT, and ED against MO-SAC",
        "Table 1",
        "scores",
        cells,
        metrics=("HV", "UT", "ED"),
        reference="MO-SAC",
        printed=TABLES["table1"],
        notes=(
            "long: 1.5M steps times 10 (HalfCheetah2d, Ant2d, Ant3d, Hopper3d), 5 (LunarLander4d, LunarLander5d, "
            "Hopper5d) or 3 (DST2d, Hopper2d, Walker2d).",
            "ED: share of test preferences where a method scores more than MO-SAC of the same seed.",
            "Ant2d, Ant3d: the paper's observations have 111 numbers, ours 27; and Ant's physics changed in MuJoCo 4.",
        ),
    )


def _envelope() -> Artefact:
    cells = {(domain, "Envelope DQN"): Wanted(domain, "envelope") for domain in ("DST2d", "Hopper3d")}
    cells |= {(domain, "Q-Pensieve"): Wanted(domain) for domain in ("DST2d", "Hopper3d")}
    return Artefact(
        "envelope",
        "Envelope DQN over binned actions against Q-Pensieve",
        "appendix, comparison with Envelope Q-learning",
        "scores",
        cells,
        reference="Q-Pensieve",
        printed=TABLES["envelope"],
        notes=("Hopper3d: for Q-Pensieve the paper prints its numbers of Hopper2d (HV 13.31e5, UT 4.08e2).",),
    )


def _buffer_size() -> Artefact:
    return Artefact(
        "buffer-size",
        "Q-Pensieve on Ant2d by the size of its Q replay buffer",
        "appendix, empirical study",
        "scores",
        {("Ant2d", column): _with_snapshots("Ant2d", column) for column in TABLES["buffer-size"].columns},
        reference="without buffer",
        printed=TABLES["buffer-size"],
    )


def _interval() -> Artefact:
    cells: dict[Place, Wanted] = {}
    for column in TABLES["push-interval"].columns:
        period = int(column.split()[1])
        changed = () if period == 1000 else (("push_period", period),)
        cells["Ant2d", column] = Wanted("Ant2d", settings=(("num_snapshots", 2), *changed))
    return Artefact(
        "push-interval",
        "Q-Pensieve on Ant2d by the number of updates between two snapshots",
        "appendix, empirical study",
        "scores",
        cells,
        reference="interval 1000",
        printed=TABLES["push-interval"],
        notes=("Two snapshots: the paper's column for 1000 is its column for size 2.",),
    )


def _with_snapshots(domain: str, column: str) -> Wanted:
    """Q-Pensieve with a buffer of the size that a column names; 4 is the preset's own."""
    size = 0 if column == "without buffer" else int(column.split()[1])
    return Wanted(domain, settings=() if size == 4 else (("num_snapshots", size),))


def _critic(domain: str) -> Artefact:
    return Artefact(
        f"critic-{domain.lower()}",
        f"How far the critic is from the true values on {domain}, over training",
        "appendix, model generalization",
        "critic",
        {(domain, "Q-Pensieve"): Wanted(domain)},
        preferences=CRITIC_PREFERENCES,
        notes=("The paper does not say from which states and actions it measures, nor whether values are soft.",),
        critic=True,
    )


def _sac_fronts() -> Artefact:
    cells: dict[Place, Wanted] = {}
    for domain in ("Hopper2d", "HalfCheetah2d", "DST2d"):
        cells[domain, "Q-Pensieve"] = Wanted(domain)
        cells[domain, "19 SACs"] = Wanted(domain, "sac", seeds=1)
    title = "Return vectors of Q-Pensieve and of 19 single-objective SACs"
    return Artefact("sac-fronts", title, "figure of return vectors", "fronts", cells)


def _hybrid() -> Artefact:
    cases = {"DST2d": ("0.9,0.1", "0.8,0.2"), "HalfCheetah2d": ("0.5,0.5", "0.6,0.4")}
    cells: dict[Place, Wanted] = {}
    for domain, preferences in cases.items():
        cells[domain, "SAC"] = Wanted(domain, "sac", (("preferences", preferences),))
        cells[domain, "hybrid SAC"] = Wanted(domain, "hybrid-sac")
    title = "SAC for one preference, alone and with Q-Pensieve's snapshots"
    return Artefact("hybrid", title, "figure of hybrid SAC", "single-curves", cells)


def _growth() -> Artefact:
    return Artefact(
        "growth",
        "Return vectors over training under three preferences, with and without the buffer",
        "figures of return vectors at different training stages",
        "growth",
        _with_and_without(("Hopper2d", "Ant2d", "Walker2d")),
        preferences=((0.5, 0.5), (0.9, 0.1), (0.1, 0.9)),
    )


def _hv_training() -> Artefact:
    cells = _with_and_without(("Ant2d", "Walker2d"))
    title = "HV over training, with and without the buffer"
    return Artefact("hv-training", title, "figure of HV at training stages", "score-curves", cells, metrics=("HV",))


def _with_and_without(domains: tuple[str, ...]) -> dict[Place, Wanted]:
    cells: dict[Place, Wanted] = {}
    for domain in domains:
        cells[domain, "Q-Pensieve"] = Wanted(domain)
        cells[domain, "Vanilla"] = Wanted(domain, settings=VANILLA)
    return cells


def _buffer_fronts() -> Artefact:
    cells = {
        (d, column): _with_snapshots(d, column)
        for d in ("Ant2d", "Hopper2d")
        for column in TABLES["buffer-size"].columns
    }
    title = "Return vectors of Q-Pensieve by the size of its buffer"
    return Artefact("buffer-fronts", title, "figure of buffer sizes", "fronts", cells)


def _curves() -> Artefact:
    cells: dict[Place, Wanted] = {}
    for domain in CURVES:
        cells[domain, "Q-Pensieve"] = Wanted(domain)
        cells[domain, "CN-DER"] = Wanted(domain, "cnder")
        if domain in TWO_OBJECTIVES:
            cells[domain, "PFA"] = Wanted(domain, "pfa", steps=STEPS)
    return Artefact(
        "curves",
        "Learning curves of seven domains at the printed preferences",
        "appendix, comparison of learning curves",
        "learning-curves",
        cells,
        notes=("Ant3d: the paper's captions name 0.1,0.1,0.8 twice; the fourth is taken to be 0.8,0.1,0.1.",),
    )


_TABLE = (
    _table_1(),
    _envelope(),
    _buffer_size(),
    _interval(),
    _critic("Hopper2d"),
    _critic("HalfCheetah2d"),
    _sac_fronts(),
    _hybrid(),
    _growth(),
    _hv_training(),
    _buffer_fronts(),
    _curves(),
    Artefact("settings", "Hyperparameters of Q-Pensieve: ours beside the paper's", "appendix, table", "settings"),
    Artefact(
        "settings-populations", "Hyperparameters of PGMORL and PFA: ours beside the paper's", "appendix", "settings"
    ),
)
ARTEFACTS: dict[str, Artefact] = {artefact.name: artefact for artefact in _TABLE}
"""Name -> table or figure, in the order shown to people."""
