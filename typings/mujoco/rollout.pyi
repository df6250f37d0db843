# MuJoCo's Python module is compiled and ships no type stubs: whatever is looked up in it is Any.
from typing import Any

def __getattr__(name: str) -> Any: ...
