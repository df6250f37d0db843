"""The numbers that the paper prints, for reports that set ours beside them. Facts only; nothing is computed here.

Each line is a domain, a score with its power of ten, and mean and standard deviation column by column.
"""

Printed = tuple[float, float | None]
Scores = dict[tuple[str, str], dict[str, Printed]]

TABLE_1_COLUMNS = ("PFA 1.5M", "PFA long", "PGMORL 1.5M", "PGMORL long", "CN-DER", "Q-Pensieve")
_TABLE_1 = """
DST2d         HV 2  | 7.43 3.68   | 8.67 1.49   | 8.10 1.57  | 8.13 1.61  | 5.36 4.71   | 10.21 1.40
DST2d         UT 0  | -9.27 6.03  | -6.86 6.06  | 4.90 0.44  | 5.02 0.35  | -5.10 15.73 | 7.31 0.91
DST2d         ED 0  | 0.13 0.11   | 0.10 0.08   | 0.25 0.18  | 0.28 0.18  | 0.21 0.17   | 0.54 0.11
LunarLander4d HV 8  | -           | -           | 0.32 0.11  | 0.38 0.11  | 1.50 0.60   | 2.10 0.10
LunarLander4d UT 1  | -           | -           | -0.26 0.27 | 1.10 0.50  | 3.60 2.90   | 5.10 0.30
LunarLander4d ED 0  | -           | -           | 0.02 0.01  | 0.04 0.04  | 0.21 0.12   | 0.49 0.05
LunarLander5d HV 11 | -           | -           | 1.81 0.20  | 1.87 0.42  | 8.64 0.15   | 9.48 1.84
LunarLander5d UT 1  | -           | -           | -2.77 0.68 | -4.38 1.02 | 0.56 0.42   | 1.07 0.24
LunarLander5d ED 0  | -           | -           | 0.05 0.02  | 0.05 0.02  | 0.49 0.01   | 0.52 0.02
HalfCheetah2d HV 7  | 0.73 0.19   | 1.31 0.26   | 0.53 0.17  | 0.28 0.29  | 2.08 0.54   | 3.82 0.27
HalfCheetah2d UT 3  | 0.31 0.20   | 1.02 0.40   | -0.28 0.94 | 0.09 0.17  | 5.09 3.57   | 5.61 0.31
HalfCheetah2d ED 0  | 0.08 0.10   | 0.10 0.06   | 0.01 0.00  | 0.11 0.05  | 0.02 0.01   | 0.54 0.08
Hopper2d      HV 6  | 0.49 0.46   | 1.01 0.62   | 0.63 0.48  | 1.31 0.48  | 0.56 0.16   | 1.33 0.20
Hopper2d      UT 2  | 2.89 1.93   | 3.50 1.85   | 1.94 2.46  | 3.70 1.78  | 1.42 1.00   | 4.08 1.10
Hopper2d      ED 0  | 0.31 0.17   | 0.41 0.10   | 0.31 0.25  | 0.31 0.11  | 0.04 0.03   | 0.43 0.09
Hopper3d      HV 9  | -           | -           | 0.29 0.37  | 0.91 1.39  | 3.70 0.81   | 9.56 0.60
Hopper3d      UT 3  | -           | -           | 0.19 0.16  | 0.31 0.26  | 0.72 0.16   | 1.39 0.15
Hopper3d      ED 0  | -           | -           | 0.02 0.03  | 0.03 0.03  | 0.07 0.03   | 0.55 0.08
Hopper5d      HV 13 | -           | -           | 0.63 0.11  | 0.43 0.09  | 3.42 0.93   | 7.24 0.31
Hopper5d      UT 2  | -           | -           | 1.48 0.28  | 1.63 0.21  | 1.76 0.43   | 3.37 0.65
Hopper5d      ED 0  | -           | -           | 0.18 0.07  | 0.14 0.05  | 0.21 0.05   | 0.52 0.05
Ant2d         HV 6  | 0.17 0.05   | 0.77 0.53   | 0.14 0.03  | 0.13 0.04  | 5.03 3.60   | 10.01 1.86
Ant2d         UT 2  | -0.06 0.01  | 0.14 0.14   | -0.21 0.15 | -0.18 0.38 | 3.68 2.34   | 14.04 3.03
Ant2d         ED 0  | 0.22 0.03   | 0.22 0.02   | 0.21 0.02  | 0.21 0.03  | 0.21 0.08   | 0.60 0.07
Ant3d         HV 8  | -           | -           | 0.41 0.48  | 0.68 0.62  | 13.00 4.11  | 21.87 1.07
Ant3d         UT 3  | -           | -           | 0.18 0.05  | 0.25 0.05  | 0.49 0.23   | 1.14 0.22
Ant3d         ED 0  | -           | -           | 0.02 0.02  | 0.03 0.03  | 0.28 0.14   | 0.56 0.07
Walker2d      HV 6  | 0.52 0.20   | 1.05 0.44   | 0.83 0.42  | 1.28 0.66  | 0.42 0.09   | 1.12 0.36
Walker2d      UT 2  | 0.23 0.13   | 0.95 0.55   | 0.38 0.24  | 1.20 0.67  | 3.17 0.53   | 6.37 1.42
Walker2d      ED 0  | 0.32 0.06   | 0.37 0.09   | 0.30 0.10  | 0.34 0.12  | 0.21 0.11   | 0.48 0.10
"""
ENVELOPE_COLUMNS = ("Envelope DQN", "Q-Pensieve")
_ENVELOPE = """
DST2d    HV 2 | 7.02 0.24  | 10.21 1.40
DST2d    UT 0 | 4.61 0.08  | 7.31 0.91
Hopper3d HV 5 | 0.43 0.21  | 13.31 2.03
Hopper3d UT 2 | -0.39 0.26 | 4.08 1.10
"""
BUFFER_COLUMNS = ("without buffer", "size 2", "size 4", "size 6")
_BUFFER = """
Ant2d HV 7 | 0.93 0.25 | 0.99 0.23  | 1.00 0.18  | 1.27 0.14
Ant2d UT 2 | 8.17 4.83 | 12.45 2.75 | 14.04 3.03 | 15.31 3.47
"""
INTERVAL_COLUMNS = ("interval 500", "interval 1000", "interval 1500", "interval 2000")
_INTERVAL = """
Ant2d HV 6 | 8.30 0.60 | 9.90 2.31  | 8.63 1.31  | 8.53 1.63
Ant2d UT 2 | 8.94 2.01 | 12.45 2.75 | 11.83 1.42 | 13.33 2.97
"""
CRITIC_PREFERENCES = ((0.1, 0.9), (0.3, 0.7), (0.5, 0.5), (0.7, 0.3), (0.9, 0.1))
"""Preferences of the tables of the critic's error; their numbers are in `report/critic.py`."""

SAC_SETTINGS = {
    "Optimizer": "Adam",
    "Learning Rate": "0.0003",
    "Discount Factor": "0.99",
    "Replay Buffer Size": "1000000",
    "Depth of Hidden Layers": "2",
    "Number of Hidden Units per Layer": "256",
    "Number of Samples per Minibatch": "256",
    "Nonlinearity": "ReLU",
    "Target Smoothing Coefficient": "0.005",
    "Target Update Interval": "1",
    "Gradient Steps": "1",
}
"""Hyperparameters of Q-Pensieve, as printed."""
POPULATION_COLUMNS = ("n", "total_steps", "m_w", "m_t", "P_num", "P_size", "n_weight", "sparsity")
POPULATION_SETTINGS: dict[str, tuple[float, ...]] = {
    "DST2d": (5, 1.5e6, 80, 20, 100, 2, 7, -1),
    "LunarLander4d": (35, 7.5e6, 40, 10, 400, 2, 7, -1e6),
    "LunarLander5d": (35, 7.5e6, 40, 10, 400, 2, 7, -1e6),
    "HalfCheetah2d": (5, 1.5e7, 80, 20, 100, 2, 7, -1),
    "Hopper2d": (5, 4.5e6, 200, 40, 100, 2, 7, -1),
    "Hopper3d": (15, 1.5e7, 200, 40, 200, 2, 7, -1e6),
    "Hopper5d": (35, 7.5e6, 200, 40, 400, 2, 7, -1e6),
    "Ant2d": (5, 1.5e7, 200, 40, 100, 2, 7, -1),
    "Ant3d": (15, 1.5e7, 200, 40, 200, 2, 7, -1e6),
    "Walker2d": (5, 4.5e6, 80, 20, 100, 2, 7, -1),
}
"""Hyperparameters of PGMORL and PFA, as printed."""


def _powers(*texts: str) -> dict[str, dict[str, int]]:
    """Score -> domain -> the power of ten that it is printed in."""
    heads = [line.split("|")[0].split() for text in texts for line in text.strip().splitlines()]
    return {score: {domain: int(power) for domain, of, power in heads if of == score} for _, score, _ in heads}


def _read(text: str, columns: tuple[str, ...]) -> Scores:
    found: Scores = {}
    for line in text.strip().splitlines():
        head, *fields = line.split("|")
        domain, metric, power = head.split()
        for column, numbers in zip(columns, fields, strict=True):
            if numbers.strip() == "-":
                continue
            mean, std = (float(f"{number}e{power}") for number in numbers.split())
            found.setdefault((domain, column), {})[metric] = (mean, std)
    return found


TABLE_1 = _read(_TABLE_1, TABLE_1_COLUMNS)
ENVELOPE = _read(_ENVELOPE, ENVELOPE_COLUMNS)
BUFFER = _read(_BUFFER, BUFFER_COLUMNS)
INTERVAL = _read(_INTERVAL, INTERVAL_COLUMNS)
POWERS = {"table1": _powers(_TABLE_1), "envelope": _powers(_ENVELOPE)}
POWERS |= {"buffer-size": _powers(_BUFFER), "push-interval": _powers(_INTERVAL)}
"""Name of a table -> score -> domain -> the power of ten that it is printed in."""
