"""`python -m qpensieve` is the command `qpensieve`."""

from qpensieve.cli import main

if __name__ == "__main__":
    main()
