"""Modules of the user: import them from the working folder, and find the line that raised an error."""

import contextlib
import importlib
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path

OURS = Path(__file__).parent
"""The folder of this package."""
INSTALLED = tuple({Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")})
"""Folders of packages that pip installs."""
NO_FILES = ("<frozen", "<@")
"""Beginnings of the file names of code without a file, such as Python's frozen modules."""
STANDARD = Path(sysconfig.get_path("stdlib"))
"""The folder of Python's own modules. It may contain folders of `INSTALLED`."""


@contextlib.contextmanager
def working_folder() -> Iterator[None]:
    """Let modules be found in the working folder within the block, after all other places.

    Commands that pip installs do not look there. Imports outside the block must not look there either, because a file
    of a received folder may have the name of a module that some library tries to import.
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


def place_of(error: BaseException) -> str:
    """Return where the user's code raised an error, such as ` (FILE, line 7, in step)`.

    If no line is the user's, return the last line of another package. If this package raised the error, return "".
    """
    is_below = lambda frame, *folders: any(Path(frame.filename).is_relative_to(folder) for folder in folders)
    is_standard = lambda frame: is_below(frame, STANDARD) and not is_below(frame, *INSTALLED)
    frames = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in frames if not (frame.filename.startswith(NO_FILES) or is_standard(frame))]
    if not frames or is_below(frames[-1], OURS):
        return ""
    last = ([frame for frame in frames if not is_below(frame, OURS, *INSTALLED)] or frames)[-1]
    return f" ({last.filename}, line {last.lineno}, in {last.name})"
