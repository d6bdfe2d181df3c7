"""Arrays, CSR matrices and neighbour lists from pickles that strangers wrote.

A pickle is a program for a small stack machine: it may name any function and call it. Here it runs
on a machine of our own, which knows only the instructions that Planetoid's files need and never
imports a name. The few names in these files are answered with stand-ins defined below, which check
what they are given and then build the array themselves; every other name is refused. So neither
Python's nor NumPy's unpickling sees the file's contents, and whatever is wrong with them is an
explicit refusal.
"""

from __future__ import annotations

import math
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from hoplite.errors import DatasetError
from hoplite.files import read_regular
from hoplite.sparse_checks import check_csr

# More than any Planetoid file has: the largest, NELL's, have 50 MB and 800,000 instructions.
MOST_BYTES = 1 << 28
MOST_INSTRUCTIONS = 1_500_000  # a few microseconds each
MOST_NESTED = 8  # tuples within tuples; arrays are described with two
MOST_WAITING = 10_000  # values on the stack; pickles of long lists are written 1,000 at a time
MOST_ROWS, MOST_AXES = 2**31 - 1, 8
TOO_LARGE = "it is larger or nested more deeply than any such file"
COPIES = 4  # of its own bytes that a file may have made, by using the same bytes again


def read_pickle(path: Path) -> Any:
    """The NumPy array, SciPy CSR array, dict or list in a pickle; anything else is refused."""
    try:
        data = read_regular(path, MOST_BYTES)
    except OSError as error:
        raise DatasetError(f"{path} cannot be opened: {error.strerror or error}.") from error
    try:
        value = _Machine(data).run()
    except _Refused as refusal:
        raise DatasetError(
            f"{path} is refused: {refusal}; only NumPy arrays, SciPy CSR matrices and lists of "
            "neighbours are read from pickles."
        ) from refusal
    except ValueError as error:  # from pickletools, and for values that contradict each other
        reason = (str(error).splitlines() or [""])[0].rstrip(".")
        raise DatasetError(
            f"{path} is truncated or damaged ({reason}); download it again."
        ) from error
    return value.value if isinstance(value, (_Array, _Csr)) else value


class _Refused(Exception):
    """The pickle asks for something that no Planetoid file needs."""


class _Dtype:
    """Stand-in for ``numpy.dtype``: plain numbers only."""

    __slots__ = ("dtype",)
    _CODES = frozenset(["b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"])

    def __init__(self, code: object, align: object = 0, copy: object = 0) -> None:
        if not isinstance(code, str) or code not in self._CODES:
            raise _Refused(f"it holds an array of type {_shown(code)}")
        self.dtype = np.dtype(code)

    def build(self, state: object) -> None:
        if not isinstance(state, tuple) or len(state) < 5 or state[2:5] != (None, None, None):
            raise _Refused("it holds an array with a structured type")
        if not isinstance(state[1], str) or state[1] not in ("<", ">", "|", "="):
            raise _Refused(f"it holds an array with byte order {_shown(state[1])}")
        self.dtype = self.dtype.newbyteorder(state[1])  # pyright: ignore[reportArgumentType]


class _Array:
    """Stand-in for ``numpy.ndarray``: filled from the raw bytes once they fit the shape."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = np.empty(0)

    def build(self, state: object) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise _Refused("it describes an array in an unknown way")
        _, shape, dtype, fortran, data = state
        shape = _shape(shape)
        if isinstance(data, str):  # Python 2's byte strings arrive as latin1 text
            data = data.encode("latin1")
        if not isinstance(dtype, _Dtype) or not isinstance(data, bytes):
            raise _Refused("it holds an array of objects")
        if len(data) != math.prod(shape) * dtype.dtype.itemsize:
            raise ValueError(f"an array of shape {shape} has {len(data):,} bytes")
        flat = np.frombuffer(data, dtype.dtype)
        array = flat.reshape(shape, order="F" if fortran else "C")
        self.value = array.astype(dtype.dtype.newbyteorder("="), order="C")


class _Csr:
    """Stand-in for ``scipy.sparse.csr_matrix``: accepted once its index arrays are consistent."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = sp.csr_array((0, 0))

    def build(self, state: object) -> None:
        if not isinstance(state, dict):
            raise _Refused("it describes a matrix in an unknown way")
        rows, columns = _shape(state.get("_shape"), length=2)
        data, indices, indptr = (_vector(state.get(key)) for key in ("data", "indices", "indptr"))
        check_csr(indptr, indices, data, (rows, columns))
        self.value = sp.csr_array((data, indices, indptr), shape=(rows, columns))


def _shape(shape: object, length: int | None = None) -> tuple[int, ...]:
    if (
        not isinstance(shape, tuple)
        or len(shape) > MOST_AXES
        or not all(type(size) is int and 0 <= size <= MOST_ROWS for size in shape)
        or (length is not None and len(shape) != length)
    ):
        raise _Refused(f"it gives the shape {_shown(shape)}")
    return shape


def _vector(array: object) -> np.ndarray:
    if not isinstance(array, _Array) or array.value.ndim != 1:
        raise _Refused("it builds a matrix from something else than flat arrays")
    return array.value


def _shown(value: object) -> str:
    """A value in a message: only what is short, and not what is nested a million times."""
    plain = value is None or (isinstance(value, str | bytes | int) and len(str(value)) < 50)
    return repr(value) if plain else f"a {type(value).__name__}"


# What a pickle may name; each is called with the machine, and with the arguments that it is given.
def _ndarray(*_: object) -> None:
    raise _Refused("it calls a type that is only to be named")


def _list(*_: object) -> None:
    raise _Refused("it calls a type that is only to be named")


def _dtype(machine: _Machine, *arguments: object) -> _Dtype:
    if not 1 <= len(arguments) <= 3:
        raise _Refused("it makes a type in an unknown way")
    return _Dtype(*arguments)


def _reconstruct(machine: _Machine, *arguments: object) -> _Array:
    if len(arguments) != 3 or arguments[0] is not _ndarray or arguments[2] not in ("b", b"b"):
        raise _Refused("it starts an array in an unknown way")
    if _shape(arguments[1]) != (0,):
        raise _Refused("it starts an array in an unknown way")
    return _Array()


def _defaultdict(machine: _Machine, *arguments: object) -> dict:
    if arguments != (_list,):
        raise _Refused("it builds a defaultdict of something else than lists")
    return {}


def _encode(machine: _Machine, *arguments: object) -> bytes:
    """How Python 3 writes bytes for Python 2: as text, to be encoded."""
    if len(arguments) != 2 or arguments[1] != "latin1" or not isinstance(arguments[0], str):
        raise _Refused("it encodes text in an unknown way")
    machine.count(len(arguments[0]))
    return arguments[0].encode("latin1")


def _bytes(machine: _Machine, *arguments: object) -> bytes:
    if arguments:
        raise _Refused("it makes bytes in an unknown way")
    return b""


def _csr(machine: _Machine, *arguments: object) -> _Csr:
    if arguments:
        raise _Refused("it makes a matrix in an unknown way")
    return _Csr()


# Old and new homes of the same few names; NumPy and SciPy moved them over the years.
_NAMES: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "ndarray"): _ndarray,
    ("numpy", "dtype"): _dtype,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("scipy.sparse.csr", "csr_matrix"): _csr,
    ("scipy.sparse._csr", "csr_matrix"): _csr,
    ("collections", "defaultdict"): _defaultdict,
    ("_codecs", "encode"): _encode,
    ("__builtin__", "bytes"): _bytes,
    ("__builtin__", "list"): _list,
    ("builtins", "list"): _list,
}
_MARK = object()


class _Machine:
    """Runs the instructions of one pickle; :class:`_Refused` or ``ValueError`` for any misuse."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._left = COPIES * len(data) + 1000

    def run(self) -> Any:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(self._data)):
            if count >= MOST_INSTRUCTIONS or len(self._stack) > MOST_WAITING:
                raise _Refused(TOO_LARGE)
            name = opcode.name
            if name in _PLAIN:
                self._stack.append(argument)
            elif name in _CONSTANTS:
                self._stack.append(_CONSTANTS[name])
            elif name in _STEPS:
                _STEPS[name](self, argument)
            elif name == "STOP":
                return self._pop()
            elif name not in _IDLE:
                raise _Refused(f"it uses the pickle instruction {name}")
        raise ValueError("it has no end")

    def count(self, size: int) -> None:
        """Note bytes that are made: the same text may be used again and again."""
        self._left -= size
        if self._left < 0:
            raise _Refused("it unfolds to far more than its size")

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def _pop(self) -> Any:
        if not self._stack or self._stack[-1] is _MARK:
            raise ValueError("an instruction lacks its arguments")
        return self._stack.pop()

    def _pop_marked(self) -> list[Any]:
        values = []
        while self._stack and self._stack[-1] is not _MARK:
            values.append(self._stack.pop())
        if not self._stack:
            raise ValueError("a mark is missing")
        self._stack.pop()
        return values[::-1]

    def _top(self, kind: Any, what: str) -> Any:
        if not self._stack or not isinstance(self._stack[-1], kind):
            raise _Refused(f"it adds to something else than a {what}")
        return self._stack[-1]

    def global_(self, argument: str) -> None:
        self._name(*argument.split(" ", 1))

    def stack_global(self, argument: object) -> None:
        name, module = self._pop(), self._pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise _Refused("it names something by no text")
        self._name(module, name)

    def _name(self, module: str, name: str) -> None:
        if (module, name) not in _NAMES:
            raise _Refused(f"it names {module}.{name}")
        self._stack.append(_NAMES[module, name])

    def reduce(self, argument: object) -> None:
        arguments, function = self._pop(), self._pop()
        if not callable(function) or not isinstance(arguments, tuple):
            raise _Refused("it calls something that is no function")
        self._stack.append(function(self, *arguments))

    def newobj(self, argument: object) -> None:
        arguments, kind = self._pop(), self._pop()
        if kind is not _csr or arguments != ():
            raise _Refused("it makes an object of an unknown type")
        self._stack.append(_Csr())

    def build(self, argument: object) -> None:
        state = self._pop()
        value = self._top((_Array, _Csr, _Dtype), "array")
        if isinstance(value, _Array) and isinstance(state, tuple) and state:
            self.count(len(state[-1]) if isinstance(state[-1], str | bytes) else 0)
        value.build(state)

    def memoize(self, argument: int | None) -> None:
        slot = len(self._memo) if argument is None else argument
        if not self._stack or self._stack[-1] is _MARK:
            raise ValueError("an instruction lacks its arguments")
        self._memo[slot] = self._stack[-1]

    def get(self, argument: int) -> None:
        if argument not in self._memo:
            raise ValueError(f"memo slot {argument} is empty")
        self._stack.append(self._memo[argument])

    def tuple_of(self, count: int) -> None:
        made = tuple([self._pop() for _ in range(count)][::-1])
        inner: Any = made
        for _ in range(MOST_NESTED):
            if not isinstance(inner, tuple) or not inner:
                break
            inner = inner[0]
        else:
            raise _Refused(TOO_LARGE)
        self._stack.append(made)

    def tuple_(self, argument: object) -> None:
        self._stack.append(tuple(self._pop_marked()))

    def append(self, argument: object) -> None:
        value = self._pop()
        self._top(list, "list").append(value)

    def appends(self, argument: object) -> None:
        values = self._pop_marked()
        self._top(list, "list").extend(values)

    def setitem(self, argument: object) -> None:
        value, key = self._pop(), self._pop()
        self._set_items([key, value])

    def setitems(self, argument: object) -> None:
        self._set_items(self._pop_marked())

    def _set_items(self, pairs: list[Any]) -> None:
        if len(pairs) % 2 or not all(type(key) in (int, str) for key in pairs[::2]):
            raise _Refused("it maps something else than numbers and texts")
        self._top(dict, "dict").update(zip(pairs[::2], pairs[1::2], strict=True))


# The instructions that pickles of arrays, matrices and neighbour lists consist of. Missing on
# purpose: persistent ids, extension codes, instances by class name, sets, out-of-band buffers.
# fmt: off
_PLAIN = frozenset([
    "BININT", "BININT1", "BININT2", "LONG1", "SHORT_BINSTRING", "BINSTRING", "SHORT_BINUNICODE",
    "BINUNICODE", "SHORT_BINBYTES", "BINBYTES",
])
# fmt: on
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": (), "MARK": _MARK}
_IDLE = frozenset(["PROTO", "FRAME"])
_STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    "GLOBAL": _Machine.global_,
    "STACK_GLOBAL": _Machine.stack_global,
    "REDUCE": _Machine.reduce,
    "NEWOBJ": _Machine.newobj,
    "BUILD": _Machine.build,
    "BINPUT": _Machine.memoize,
    "LONG_BINPUT": _Machine.memoize,
    "MEMOIZE": _Machine.memoize,
    "BINGET": _Machine.get,
    "LONG_BINGET": _Machine.get,
    "EMPTY_LIST": lambda machine, _: machine.push([]),
    "EMPTY_DICT": lambda machine, _: machine.push({}),
    "TUPLE": _Machine.tuple_,
    "TUPLE1": lambda machine, _: machine.tuple_of(1),
    "TUPLE2": lambda machine, _: machine.tuple_of(2),
    "TUPLE3": lambda machine, _: machine.tuple_of(3),
    "APPEND": _Machine.append,
    "APPENDS": _Machine.appends,
    "SETITEM": _Machine.setitem,
    "SETITEMS": _Machine.setitems,
}
