"""Populations of PPO policies: PGMORL and PFA."""
