"""Where workers run: this machine, a Ray cluster, Slurm. None of them holds anything that the folders do not."""
