"""The theorem as a program: exact soft policy iteration for every preference on finite MOMDPs (docs/theory.md)."""
