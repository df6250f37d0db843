"""Algorithms: pure functions bundled in `Algorithm`."""
