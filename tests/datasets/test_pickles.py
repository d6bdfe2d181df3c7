"""Pickles from strangers: what is admitted, and what is refused before it can act."""

from __future__ import annotations

import collections
import contextlib
import io
import os
import pickle
import struct

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from hoplite.datasets import pickles
from hoplite.datasets.pickles import read_pickle
from hoplite.errors import DatasetError


def load(data: bytes, folder):
    path = folder / "ind.evil.x"
    path.write_bytes(data)
    return read_pickle(path)


def glob(module: str, name: str) -> bytes:
    return b"c" + f"{module}\n{name}\n".encode()


RECONSTRUCT = glob("numpy.core.multiarray", "_reconstruct")
NDARRAY, DTYPE = glob("numpy", "ndarray"), glob("numpy", "dtype")
CSR = glob("scipy.sparse.csr", "csr_matrix")
START = RECONSTRUCT + b"(" + NDARRAY + b"(K\x00tU\x01btR"
FLOAT = DTYPE + b"(U\x02f4K\x00K\x01tR(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"


def array_bytes(shape: bytes, dtype: bytes, data: bytes) -> bytes:
    body = b"(K\x01" + shape + dtype + b"\x89T" + struct.pack("<i", len(data)) + data + b"t"
    return START + body + b"b"


@pytest.mark.parametrize(
    "value",
    [
        np.arange(6, dtype=np.int32).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(3, dtype=">i4"),
        np.array([True, False]),
        np.empty((0, 4), np.float32),
        {0: [1, 2], 1: []},
        collections.defaultdict(list, {0: [1], 1: [0]}),
    ],
)
def test_plain_data_is_read(value, tmp_path):
    for protocol in (2, 3, 4):
        result = load(pickle.dumps(value, protocol), tmp_path)
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(result, value)
            assert result.dtype.isnative
            assert result.dtype == value.dtype.newbyteorder("=")
        else:
            assert result == value
            assert type(result) is dict


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_csr_matrices_are_read(tmp_path, protocol):
    matrix = sp.csr_matrix(np.array([[0, 2, 0], [1, 0, 3]], np.float32))
    result = load(pickle.dumps(matrix, protocol), tmp_path)
    np.testing.assert_array_equal(result.toarray(), matrix.toarray())


def test_python_2_arrays_are_read(tmp_path):
    data = b"\x80\x02" + array_bytes(b"K\x02\x85", FLOAT, np.array([1, 2], "<f4").tobytes()) + b"."
    np.testing.assert_array_equal(load(data, tmp_path), np.array([1, 2], np.float32))


class Call:
    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (os.system, "posix.system|nt.system"),
        (eval, r"(builtins|__builtin__)\.eval"),
        (exec, r"(builtins|__builtin__)\.exec"),
        (getattr, r"(builtins|__builtin__)\.getattr"),
        (__import__, r"(builtins|__builtin__)\.__import__"),
        (np.load, "numpy.load"),
        (np.fromfile, "numpy.*fromfile"),
        (np.memmap, "numpy.memmap"),
        (np.save, "numpy.save"),
        (io.open, "io.open"),
        (collections.OrderedDict, "collections.OrderedDict"),
        (sp.load_npz, "scipy.*load_npz"),
        (bytearray, r"(builtins|__builtin__)\.bytearray"),
    ],
)
@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_calls_are_refused_by_name(function, named, protocol, tmp_path):
    witness = tmp_path / "witness"
    for value in (
        Call(function, f"touch {witness}"),
        {0: [Call(function, f"touch {witness}")]},
        [Call(function)],
    ):
        with pytest.raises(DatasetError, match=f"is refused: it names ({named})"):
            load(pickle.dumps(value, protocol), tmp_path)
    assert not witness.exists()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("os", "system"),
        ("__builtin__", "eval"),
        ("__builtin__", "object"),
        ("builtins", "type"),
        ("numpy", "array"),
        ("numpy", "ndarray.tofile"),
        ("numpy.core.multiarray", "fromfile"),
        ("numpy.core.multiarray", "scalar"),
        ("numpy.core.multiarray", "_reconstruct.__globals__"),
        ("scipy.sparse.csr", "csr_matrix.__init__"),
        ("scipy.sparse.csr", "np"),
        ("collections", "defaultdict.__class__"),
        ("copy_reg", "_reconstructor"),
        ("_codecs", "decode"),
        ("hoplite.datasets.pickles", "_NAMES"),
        ("hoplite.datasets.pickles", "Path"),
    ],
)
def test_only_exact_names_are_admitted(module, name, tmp_path):
    dotted = b"\x80\x04\x8c" + bytes([len(module)]) + module.encode()
    dotted += b"\x8c" + bytes([len(name)]) + name.encode() + b"\x93."
    for data in (b"\x80\x02" + glob(module, name) + b".", dotted):
        with pytest.raises(DatasetError, match=f"it names {module}.{name}"):
            load(data, tmp_path)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(glob("collections", "defaultdict") + NDARRAY + b"\x85R", id="factory"),
        pytest.param(NDARRAY + b"(K\x02tR", id="call ndarray"),
        pytest.param(glob("__builtin__", "list") + b")R", id="call list"),
        pytest.param(NDARRAY + b")\x81", id="new ndarray"),
        pytest.param(RECONSTRUCT + b"(" + CSR + b"(K\x00tU\x01btR", id="other kind"),
        pytest.param(RECONSTRUCT + b"(" + NDARRAY + b"(K\x09tU\x01btR", id="other shape"),
        pytest.param(RECONSTRUCT + b"(" + NDARRAY + b"(K\x00tU\x01OtR", id="objects"),
        pytest.param(DTYPE + b"(U\x01OK\x00K\x01tR", id="object dtype"),
        pytest.param(DTYPE + b"(U\x03V99K\x00K\x01tR", id="void dtype"),
        pytest.param(DTYPE + b"(]K\x00K\x01tR", id="list dtype"),
        pytest.param(RECONSTRUCT + b"}U\x04nameU\x01xsb", id="change a function"),
        pytest.param(RECONSTRUCT + b"N}U\x05_callNs\x86b", id="change its slots"),
        pytest.param(CSR + b"}U\x05valueNsb", id="change a class"),
        pytest.param(CSR + b"N}U\x0c__setstate__Ns\x86b", id="change its slots"),
        pytest.param(CSR + b")\x81}b", id="matrix without arrays"),
        pytest.param(CSR + b")\x81]b", id="matrix from a list"),
        pytest.param(CSR + b")\x81K\x01\x85b", id="matrix from a tuple"),
        pytest.param(START + b"(K\x01K\x02\x85" + FLOAT + b"\x89]tb", id="array of objects"),
        pytest.param(START + b"}b", id="array from a dict"),
        pytest.param(array_bytes(b"K\x09\x85", FLOAT, b"1234"), id="too few bytes"),
        pytest.param(array_bytes(b"J\xff\xff\xff\xff\x85", FLOAT, b"1234"), id="negative shape"),
        pytest.param(array_bytes(b"K\x01", FLOAT, b"1234"), id="shape is a number"),
        pytest.param(array_bytes(b"K\x01\x85", b"N", b"1234"), id="no dtype"),
    ],
)
def test_admitted_names_cannot_be_abused(body, tmp_path):
    with pytest.raises(DatasetError, match=r"ind\.evil\.x is (refused|truncated or damaged)"):
        load(b"\x80\x02" + body + b".", tmp_path)
    # and what is read afterwards is read as ever
    test_csr_matrices_are_read(tmp_path, 4)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"\x80\x02U\x01aQ.", "BINPERSID"),
        (b"Pabc\n.", "PERSID"),
        (b"\x82\x01.", "EXT1"),
        (b"(ios\nsystem\n.", "INST"),
        (b"(No.", "OBJ"),
        (b"\x80\x04\x8f.", "EMPTY_SET"),
        (b"\x80\x05\x97.", "NEXT_BUFFER"),
        (b"I1\n.", "INT"),
    ],
)
def test_foreign_instructions_are_refused(data, what, tmp_path):
    with pytest.raises(DatasetError, match=f"pickle instruction {what};"):
        load(data, tmp_path)


def test_memory_and_stack_are_not_exhausted(tmp_path):
    nested = b"\x80\x02})" + b"\x85" * 1_000_000 + b"Ns."
    for data in (b"\x80\x02Nr\xff\xff\xff\xff.", nested, b"\x80\x04B\xff\xff\xff\xff."):
        with contextlib.suppress(DatasetError):
            assert load(data, tmp_path) is None


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"]" * 2_000_000 + b"a" * 2_000_000, id="lists in lists"),
        pytest.param(b"(" * 2_000_000, id="marks"),
        pytest.param(b")" + b"\x85" * 9, id="tuples in tuples"),
        pytest.param(b"]" + b"q\x01h\x01]q\x01a" * 10_000 + b"a" * 10_000, id="through the memo"),
    ],
)
def test_nesting_is_refused_before_all_of_it_runs(body, tmp_path):
    with pytest.raises(DatasetError, match="nested more deeply than any such file"):
        load(b"\x80\x02" + body + b".", tmp_path)


def test_the_same_bytes_again_and_again(tmp_path):
    """A short program over one long text would fill any memory."""
    encode = glob("_codecs", "encode") + b"h\x01\x8c\x06latin1\x86Ra"
    text = b"X" + struct.pack("<I", 10_000) + b"a" * 10_000
    with pytest.raises(DatasetError, match="it unfolds to far more than its size"):
        load(b"\x80\x02]" + text + b"q\x01a" + encode * 40 + b".", tmp_path)


@pytest.mark.parametrize("limit", ["MOST_INSTRUCTIONS", "MOST_BYTES"])
def test_large_pickles_are_refused(limit, tmp_path, monkeypatch):
    monkeypatch.setattr(pickles, limit, 200)
    data = pickle.dumps({i: [i] for i in range(200)}, protocol=2)
    with pytest.raises(DatasetError, match=r"it is larger or nested|at most 200 are read"):
        load(data, tmp_path)


def test_a_pipe_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DatasetError, match="it is not a regular file"):
        read_pickle(tmp_path / "pipe")


@pytest.mark.parametrize(
    "change",
    [
        {"_shape": (2, 2)},
        {"_shape": (3, 3)},
        {"_shape": (2, 10**30)},
        {"indices": np.array([1, -1, 2], np.int32)},
        {"indices": np.array([1.0, 0.0, 2.0])},
        {"indptr": np.array([0, 4, 3], np.int32)},
        {"indptr": np.array([0, 1], np.int32)},
        {"indptr": np.array([1, 1, 3], np.int32)},
        {"indptr": np.empty(0, np.int32)},
        {"data": np.ones(2)},
        {"data": np.ones((3, 1))},
        {"data": [1, 2, 3]},
    ],
)
def test_matrices_that_would_be_read_out_of_bounds_are_refused(change, tmp_path):
    matrix = sp.csr_matrix(np.array([[0, 2, 0], [1, 0, 3]], np.float32))
    matrix.__dict__.update(change)
    with pytest.raises(DatasetError, match=r"is (refused|truncated or damaged)"):
        load(pickle.dumps(matrix, protocol=4), tmp_path)


def test_every_truncation_is_one_clear_error(tmp_path):
    data = pickle.dumps(sp.csr_matrix(np.eye(3)), protocol=4)
    for size in range(len(data)):
        with pytest.raises(DatasetError, match="truncated or damaged"):
            load(data[:size], tmp_path)


PIECES = [
    b"(", b")", b"]", b"}", b"N", b"K\x00", b"K\x01", b"t", b"\x85", b"\x86", b"R", b"b", b"\x81",
    b"s", b"u", b"a", b"e", b"q\x00", b"h\x00", b"U\x01b", b"U\x06_shape",
    RECONSTRUCT, NDARRAY, DTYPE, CSR, START, FLOAT, glob("collections", "defaultdict"),
    glob("__builtin__", "list"), glob("os", "system"), glob("__builtin__", "getattr"),
]  # fmt: skip


@given(body=st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join))
@examples(100)
def test_any_program_of_admitted_pieces_gives_data_or_a_dataset_error(body, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp()
    with contextlib.suppress(DatasetError):
        load(b"\x80\x02" + body + b".", folder)


@examples(50)
@given(data=st.binary(max_size=60))
def test_any_bytes_give_data_or_a_dataset_error(data, tmp_path_factory):
    with contextlib.suppress(DatasetError):
        load(data, tmp_path_factory.getbasetemp())


def test_missing_file(tmp_path):
    with pytest.raises(DatasetError, match="cannot be opened: No such file"):
        read_pickle(tmp_path / "none")
