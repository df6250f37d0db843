"""Modules of the user: found in the working folder, too."""

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def working_folder() -> Iterator[None]:
    """Let modules be found in the working folder, after all other places, and only inside this block.

    A command that pip installs does not look there by itself. Other imports must not either: a file of a received
    folder may have the name of a module that some library looks for.
    """
    folder = os.getcwd()
    if folder in sys.path or "" in sys.path:
        yield
        return
    sys.path.append(folder)
    importlib.invalidate_caches()  # the file may be newer than what Python knows of the folder
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # the module may have removed it
            sys.path.remove(folder)
