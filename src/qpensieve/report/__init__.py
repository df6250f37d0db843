"""What a run gave: its table of evaluations, and pictures of it. Reads result files only, imports no algorithm."""
