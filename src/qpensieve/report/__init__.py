"""Tables and pictures of runs. Reads result files only, imports no algorithm."""
