"""The theorem as a program: exact soft policy iteration for every preference on finite MOMDPs (docs/theory.md)."""

from qpensieve.theory.coverage import SoftFront, coverage_set, trace_front
from qpensieve.theory.iteration import Iterate, Method, best_offer, improve, improve_naive, iterate, policy_gap
from qpensieve.theory.momdp import Momdp, RandomSpec, chain, random_momdp, two_armed
from qpensieve.theory.soft import backup, evaluate, evaluate_by_backups, soft_optimum, soft_policy
from qpensieve.theory.treasure import deep_sea_treasure, treasure_returns

__all__ = [
    "Iterate",
    "Method",
    "Momdp",
    "RandomSpec",
    "SoftFront",
    "backup",
    "best_offer",
    "chain",
    "coverage_set",
    "deep_sea_treasure",
    "evaluate",
    "evaluate_by_backups",
    "improve",
    "improve_naive",
    "iterate",
    "policy_gap",
    "random_momdp",
    "soft_optimum",
    "soft_policy",
    "trace_front",
    "treasure_returns",
    "two_armed",
]
