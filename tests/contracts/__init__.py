"""Contracts with users: the command, `qpensieve.load` and the files of a run, whatever the code inside looks like."""
