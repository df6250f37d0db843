"""Runs: the loops that collect, learn, evaluate, log and resume."""
