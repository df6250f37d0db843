"""Policies for programs without qpensieve: one file of arrays, and a loader that needs NumPy alone."""

from qpensieve.deploy.policies import export_policy, write_loader, write_policy
from qpensieve.deploy.qpensieve_policy import load

__all__ = ["export_policy", "load", "write_loader", "write_policy"]
