"""Nothing lost: twenty updates of every method from a stored state give the stored losses and first moments.

They are compiled as users compile them.
"""

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.algos.problem import OPTIMISED

TOOLS = str(Path(__file__).parents[2] / "tools")
CASES = ("qpensieve", "qpensieve-robust", "mosac", "sac", "hybrid-sac", "cnder", "envelope", "pgmorl", "pfa")


@pytest.fixture
def golden(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(TOOLS)
    monkeypatch.delitem(sys.modules, "golden", raising=False)
    return __import__("golden")


@pytest.mark.parametrize("case", CASES)
def test_updates_are_as_stored(case: str, golden: Any):
    assert set(CASES) == set(golden.ALGOS)
    problems, notes = golden.check([case], OPTIMISED)
    assert problems == [], notes
