"""Benchmarks: each prints a table of ratios measured in one run, and can write its figures as JSON."""
