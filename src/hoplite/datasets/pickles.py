"""Arrays, CSR matrices and neighbour lists from pickles that strangers wrote.

A pickle is a program: it may name any function and call it. Here no name it contains is ever
imported. The few names that Planetoid's files need are answered with inert stand-ins defined
below, which check what they are given and then build the array themselves; every other name is
refused. So neither code nor NumPy's own unpickling sees the file's contents.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from hoplite.errors import DatasetError
from hoplite.sparse_checks import check_csr


def read_pickle(path: Path) -> Any:
    """The NumPy array, SciPy CSR array, dict or list in a pickle; anything else is refused."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DatasetError(f"{path} cannot be opened: {error.strerror or error}.") from error
    try:
        _check_opcodes(data)
        value = _Unpickler(io.BytesIO(data), encoding="latin1").load()
    except _Refused as refusal:
        raise DatasetError(
            f"{path} is refused: {refusal}; only NumPy arrays, SciPy CSR matrices and lists of "
            "neighbours are read from pickles."
        ) from refusal
    except Exception as error:  # bytes that are no pickle can make unpickling raise anything
        reason = (str(error).splitlines() or [""])[0].rstrip(".") or type(error).__name__
        raise DatasetError(
            f"{path} is truncated or damaged ({reason}); download it again."
        ) from error
    return value.value if isinstance(value, (_Array, _Csr)) else value


class _Refused(Exception):
    """The pickle asks for something that no Planetoid file needs."""


# The instructions that pickles of arrays, matrices and neighbour lists consist of. Missing on
# purpose: persistent ids, extension codes, instances by class name, sets, out-of-band buffers.
# fmt: off
_OPCODES = frozenset([
    "PROTO", "FRAME", "STOP", "GLOBAL", "STACK_GLOBAL", "REDUCE", "NEWOBJ", "BUILD", "MARK",
    "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "SHORT_BINSTRING",
    "BINSTRING", "SHORT_BINUNICODE", "BINUNICODE", "SHORT_BINBYTES", "BINBYTES", "EMPTY_TUPLE",
    "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_LIST", "APPEND", "APPENDS", "EMPTY_DICT",
    "SETITEM", "SETITEMS", "BINPUT", "LONG_BINPUT", "MEMOIZE", "BINGET", "LONG_BINGET",
])
# fmt: on
_MOST_TUPLES = 1000


def _check_opcodes(data: bytes) -> None:
    """Refuse foreign instructions and those that exhaust memory or stack before they run."""
    tuples = 0
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name not in _OPCODES:
            raise _Refused(f"it uses the pickle instruction {opcode.name}")
        # The memo is a table as long as its highest slot, so a slot beyond the file's length
        # only serves to fill memory.
        if opcode.name == "LONG_BINPUT" and isinstance(argument, int) and argument > len(data):
            raise _Refused(f"it uses memo slot {argument}")
        # Tuples in tuples in tuples overflow the C stack when the outermost is hashed.
        tuples += opcode.name.startswith("TUPLE")
        if tuples > _MOST_TUPLES:
            raise _Refused(f"it holds more than {_MOST_TUPLES:,} tuples")


class _Dtype:
    """Stand-in for ``numpy.dtype``: plain numbers only."""

    __slots__ = ("dtype",)
    _CODES = frozenset(["b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"])

    def __init__(self, code: object, align: object = 0, copy: object = 0) -> None:
        if not isinstance(code, str) or code not in self._CODES:
            raise _Refused(f"it holds an array of type {code!r}")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, tuple) or len(state) < 5 or state[2:5] != (None, None, None):
            raise _Refused("it holds an array with a structured type")
        if state[1] not in ("<", ">", "|", "="):
            raise _Refused(f"it holds an array with byte order {state[1]!r}")
        self.dtype = self.dtype.newbyteorder(state[1])


class _Array:
    """Stand-in for ``numpy.ndarray``: filled from the raw bytes once they fit the shape."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = np.empty(0)

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise _Refused("it describes an array in an unknown way")
        _, shape, dtype, fortran, data = state
        if isinstance(data, str):  # Python 2's byte strings arrive as latin1 text
            data = data.encode("latin1")
        if not isinstance(dtype, _Dtype) or not isinstance(data, bytes):
            raise _Refused("it holds an array of objects")
        if len(data) != math.prod(_shape(shape)) * dtype.dtype.itemsize:
            raise ValueError(f"an array of shape {shape} has {len(data):,} bytes")
        flat = np.frombuffer(data, dtype.dtype)
        array = flat.reshape(shape, order="F" if fortran else "C")
        self.value = array.astype(dtype.dtype.newbyteorder("="), order="C")


class _Csr:
    """Stand-in for ``scipy.sparse.csr_matrix``: accepted once its index arrays are consistent."""

    __slots__ = ("value",)
    value: sp.csr_array

    def __new__(cls) -> _Csr:  # not __init__: NEWOBJ skips that
        matrix = super().__new__(cls)
        matrix.value = sp.csr_array((0, 0))
        return matrix

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, dict):
            raise _Refused("it describes a matrix in an unknown way")
        rows, columns = _shape(state["_shape"], length=2)
        data, indices, indptr = (_vector(state[key]) for key in ("data", "indices", "indptr"))
        check_csr(indptr, indices, data, (rows, columns))
        self.value = sp.csr_array((data, indices, indptr), shape=(rows, columns))


def _shape(shape: object, length: int | None = None) -> tuple[int, ...]:
    if not isinstance(shape, tuple) or not all(type(s) is int and s >= 0 for s in shape):
        raise _Refused(f"it gives the shape {shape!r}")
    if length is not None and len(shape) != length:
        raise _Refused(f"it gives the shape {shape!r}")
    return shape


def _vector(array: object) -> np.ndarray:
    if not isinstance(array, _Array) or array.value.ndim != 1:
        raise _Refused("it builds a matrix from something else than flat arrays")
    return array.value


class _Name:
    """What a pickle gets for a name: it may be called or passed on, but not looked into."""

    __slots__ = ("_call",)

    def __init__(self, call: Any) -> None:
        self._call = call

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)

    def __setstate__(self, state: object) -> None:
        # Without this, BUILD would set attributes here and so change later reads.
        raise _Refused("it changes a function")


def _not_callable(*arguments: object) -> None:
    raise _Refused("it calls a type that is only to be named")


_NDARRAY = _Name(_not_callable)
_LIST = _Name(_not_callable)


def _reconstruct(kind: object, shape: object, code: object) -> _Array:
    if kind is not _NDARRAY or shape != (0,) or code not in ("b", b"b"):
        raise _Refused("it starts an array in an unknown way")
    return _Array()


def _defaultdict(factory: object) -> dict:
    if factory is not _LIST:
        raise _Refused("it builds a defaultdict of something else than lists")
    return {}


# Old and new homes of the same few names; NumPy and SciPy moved them over the years.
_NAMES: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _Name(_Dtype),
    ("numpy.core.multiarray", "_reconstruct"): _Name(_reconstruct),
    ("numpy._core.multiarray", "_reconstruct"): _Name(_reconstruct),
    ("scipy.sparse.csr", "csr_matrix"): _Csr,  # NEWOBJ demands a class
    ("scipy.sparse._csr", "csr_matrix"): _Csr,
    ("collections", "defaultdict"): _Name(_defaultdict),
    ("__builtin__", "list"): _LIST,
    ("builtins", "list"): _LIST,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        try:
            return _NAMES[module_name, global_name]
        except KeyError:
            raise _Refused(f"it names {module_name}.{global_name}") from None

    def persistent_load(self, pid: object) -> Any:
        raise _Refused("it refers to objects outside the file")
