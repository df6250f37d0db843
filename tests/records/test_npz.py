"""Arrays are read only where their headers say what was expected, and no more than that."""

import re
import tracemalloc
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jaxtyping import Float64, Int64

from qpensieve.records.files import (
    Expected,
    Header,
    headers_of,
    load_record,
    read_header,
    read_npz,
    save_record,
)

MEGABYTE = 1 << 20


def npy(descr: str, shape: object, data: bytes = b"", version: int = 1) -> bytes:
    """A .npy file that says whatever it likes."""
    header = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    length = len(header).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + length + header + data


def write_zip(path: Path, entries: Mapping[str, bytes], kind: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return path


def peak(function) -> int:
    """Bytes that a call takes at most."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def refused(path: Path, **how) -> str:
    """Why a file is refused; hardly any memory is taken for it."""
    said = []

    def read() -> None:
        with pytest.raises(ValueError, match=r"is not a file of the arrays expected") as caught:
            read_npz(path, **how)
        said.append(str(caught.value))

    assert peak(read) < 4 * MEGABYTE
    return said[0]


def test_arrays_come_back(tmp_path: Path):
    arrays = {"a": np.arange(6.0).reshape(2, 3), "b": np.array("text"), "c": np.zeros((0, 4), np.int8)}
    np.savez(tmp_path / "x.npz", allow_pickle=True, **arrays)
    found = read_npz(tmp_path / "x.npz")
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
    assert read_npz(tmp_path / "x.npz", names=["b", "z"]).keys() == {"b"}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (npy("<f8", "(1000000000000,)"), r"an array says float64 \(1000000000000,\), 8,000,000,000,000 bytes"),
        (npy("<f8", "(3,)", b"\0" * 23), "24 bytes, but has 23"),
        (npy("<f8", "(3,)", b"\0" * 25), "24 bytes, but has 25"),
        (npy("<f8", "(-3, -1)", b"\0" * 24), "none that this program writes"),
        (npy("<f8", "3", b"\0" * 24), "shape is not valid"),
        (npy("<f8", "(3.0,)", b"\0" * 24), "shape is not valid"),
        (npy("|V0", "(1000000000000,)"), "none that this program writes"),
        (npy("<U0", "(1000000000000,)"), "none that this program writes"),
        (npy("<M8[s]", "(1,)", b"\0" * 8), "none that this program writes"),
        (npy("|O", "(1,)", b"cos\nabort\n(tR."), "Object arrays cannot be loaded"),
        (npy("<f8", "(" * 5000), ""),
        (npy("<f8", "[" * 9000), ""),
        (npy("<f8", "(3,)", b"\0" * 24, version=2), r"version \(2, 0\)"),
        (b"\x93NUMPY\x02\0\xff\xff\xff\xff" + b" " * 8 * MEGABYTE, r"version \(2, 0\)"),
        (b"\x93NUMPY\x01\0", ""),
        (b"", ""),
        (b"cos\nsystem\n(S'touch ran'\ntR.", "magic string"),
    ],
)
def test_a_header_that_lies_is_refused_before_anything_is_read(content: bytes, reason: str, tmp_path: Path):
    assert re.search(reason, refused(write_zip(tmp_path / "x.npz", {"a.npy": content})))


def test_a_bomb_is_refused_from_its_directory(tmp_path: Path):
    zeros = npy("<f8", f"({8 * MEGABYTE},)") + bytes(64 * MEGABYTE)
    path = write_zip(tmp_path / "x.npz", {"a.npy": zeros})
    assert path.stat().st_size < MEGABYTE // 8
    assert "its arrays would take 67,108,864 bytes" in refused(path)
    assert "but 1,000 is the most" in refused(path, most=1000)
    assert read_npz(path, most=64 * MEGABYTE)["a"].nbytes == 64 * MEGABYTE


def test_many_arrays_count_together_and_those_not_asked_for_not_at_all(tmp_path: Path):
    zeros = npy("<f8", f"({MEGABYTE},)") + bytes(8 * MEGABYTE)
    path = write_zip(tmp_path / "x.npz", {f"{i}.npy": zeros for i in range(8)} | {"a.npy": npy("<f8", "()", bytes(8))})
    assert "67,108,872 bytes" in refused(path, most=60 * MEGABYTE)
    assert peak(lambda: read_npz(path, names=["a"])) < MEGABYTE


@pytest.mark.parametrize(
    ("entries", "kind"),
    [
        ({"a.npy": npy("<f8", "()", bytes(8)), "b.txt": b"text"}, zipfile.ZIP_STORED),
        ({"a.npy": npy("<f8", "()", bytes(8))}, zipfile.ZIP_LZMA),
        ({"a.npy": npy("<f8", "()", bytes(8))}, zipfile.ZIP_BZIP2),
    ],
)
def test_what_numpy_does_not_write_is_refused(entries: dict[str, bytes], kind: int, tmp_path: Path):
    refused(write_zip(tmp_path / "x.npz", entries, kind))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_is_there_twice_is_refused(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        for _ in range(2):
            archive.writestr("a.npy", npy("<f8", "()", bytes(8)))
    assert "there twice" in refused(tmp_path / "x.npz")


def test_a_damaged_byte_never_gives_other_numbers(tmp_path: Path):
    path = tmp_path / "x.npz"
    np.savez(path, allow_pickle=False, a=np.arange(4.0), b=np.ones(2))
    content = path.read_bytes()
    for place in range(0, len(content), 3):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x11]) + content[place + 1 :])
        try:
            found = read_npz(path)
        except ValueError:
            continue
        np.testing.assert_array_equal(found.get("a", np.arange(4.0)), np.arange(4.0))
        np.testing.assert_array_equal(found.get("b", np.ones(2)), np.ones(2))


class TestHeaderOfOneArray:
    def test_read_header_says_what_the_file_holds(self, tmp_path: Path):
        np.save(tmp_path / "x.npy", np.zeros((2, 3), np.float32))
        assert read_header(tmp_path / "x.npy") == Header((2, 3), np.dtype("<f4"))

    @pytest.mark.parametrize(
        "content",
        [
            npy("<f4", "(1000000000000, 9)"),
            npy("<f4", "(2, 3)", bytes(23)),
            npy("|O", "(1,)", bytes(8)),
            b"PK\x03\x04",
            b"",
        ],
    )
    def test_read_header_refuses_what_does_not_fit_the_file(self, content: bytes, tmp_path: Path):
        (tmp_path / "x.npy").write_bytes(content)
        with pytest.raises(ValueError, match=r"x\.npy is not a file of a plain array"):
            read_header(tmp_path / "x.npy")


class TestExpected:
    LIKE = headers_of({"state.w": np.zeros((2, 3)), "lanes/t": np.zeros((1, 2)), "counters": np.zeros(2, np.int64)})
    EXPECTED = Expected(LIKE, growing=("lanes/",), free=("log/",))

    @pytest.mark.parametrize(
        ("change", "problems"),
        [
            ({}, []),
            ({"lanes/t": np.zeros((9, 2))}, []),
            ({"log/loss": np.zeros(5)}, []),
            ({"state.w": np.zeros((3, 2))}, ["leaf state.w has shape (3, 2), not (2, 3)"]),
            ({"state.w": np.zeros((2, 3), np.float32)}, ["leaf state.w has dtype float32, not float64"]),
            ({"state.w": None}, ["leaf state.w is missing"]),
            ({"lanes/t": np.zeros(9)}, ["leaf lanes/t is float64 (9,), not like (1, 2)"]),
            ({"lanes/t": np.zeros((9, 2), np.int64)}, ["leaf lanes/t is int64 (9, 2), not like (1, 2)"]),
            ({"more": np.zeros(1), "counters": None}, ["leaf counters is missing", "unexpected leaf more"]),
        ],
    )
    def test_expected_arrays_name_what_differs(self, change: dict, problems: list[str]):
        arrays = {"state.w": np.zeros((2, 3)), "lanes/t": np.zeros((4, 2)), "counters": np.zeros(2, np.int64)} | change
        found = headers_of({name: array for name, array in arrays.items() if array is not None})
        assert self.EXPECTED.problems(found) == problems


@dataclass(frozen=True, eq=False)
class Table:
    steps: Int64[np.ndarray, " t"]
    rows: Float64[np.ndarray, "t d"]
    corner: Float64[np.ndarray, " d"] | None = None


@pytest.mark.parametrize("corner", [None, np.ones(3)])
def test_a_record_comes_back(corner: np.ndarray | None, tmp_path: Path):
    save_record(tmp_path / "x.npz", Table(np.arange(2), np.ones((2, 3)), corner))
    found = load_record(tmp_path / "x.npz", Table)
    np.testing.assert_array_equal(found.rows, np.ones((2, 3)))
    assert (found.corner is None) == (corner is None)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"rows": np.ones((3, 3))}, "rows has 3 along its axis 't', other arrays have 2"),
        ({"corner": np.ones(2)}, "corner has 2 along its axis 'd', other arrays have 3"),
        ({"rows": np.ones(3)}, r"rows must be \[t, d\], got shape \(3,\)"),
        ({"rows": np.ones((2, 3), np.int8)}, "rows must be float64, got int8"),
        ({"steps": None}, "array steps is missing"),
    ],
)
def test_a_record_that_does_not_fit_its_annotations_is_refused(change: Any, complaint: str, tmp_path: Path):
    arrays = {"steps": np.arange(2), "rows": np.ones((2, 3))} | change
    np.savez(tmp_path / "x.npz", **{name: array for name, array in arrays.items() if array is not None})
    with pytest.raises(ValueError, match=complaint):
        load_record(tmp_path / "x.npz", Table)
