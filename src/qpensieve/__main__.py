"""`python -m qpensieve` is the command `qpensieve`."""

from qpensieve.start import main

if __name__ == "__main__":
    main()
