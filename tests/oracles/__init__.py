"""Slow versions that read like their definitions, to hold the fast ones against."""
