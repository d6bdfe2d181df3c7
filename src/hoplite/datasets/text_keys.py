"""Ids of any kind, in 16 bytes each: 64-bit keys of their texts, sorted, and the nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import numpy as np
import pyarrow as pa

from hoplite.errors import DatasetError

WORD = 8  # bytes hashed at a time
_MASKS = np.array([(1 << 8 * i) - 1 for i in range(WORD + 1)], np.uint64)
Hash = Callable[[pa.Array, int], np.ndarray]


def text_keys(text: pa.Array, salt: int = 0) -> np.ndarray:
    """A 64-bit hash of every text (``large_string``, no nulls), different for every salt.

    >>> a, b, c = text_keys(pa.array(["7", "node seven", "7"], pa.large_string()))
    >>> bool(a == c), bool(a == b)
    (True, False)
    """
    _, ends, content = text.buffers()
    count = len(text)
    if not count:
        return np.empty(0, np.uint64)
    offsets = np.frombuffer(ends, np.int64)[text.offset : text.offset + count + 1]
    starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
    plain = np.zeros(int(offsets[-1] - offsets[0]) + WORD, np.uint8)
    if content is not None:
        plain[:-WORD] = np.frombuffer(content, np.uint8)[offsets[0] : offsets[-1]]
    # every eight bytes of the text as a number, from whichever byte they start
    words = np.ndarray((plain.size - WORD + 1,), "<u8", plain, strides=(1,))
    keys = _mixed(lengths.astype(np.uint64) + np.uint64(salt * 2 + 1))
    at = 0
    active = np.flatnonzero(lengths > 0)
    while active.size:
        left = np.minimum(lengths[active] - at, WORD)
        word = words[starts[active] + at] & _MASKS[left]
        keys[active] = _mixed(keys[active] ^ word)
        at += WORD
        active = active[lengths[active] > at]
    return keys


def _mixed(values: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64: every bit of the input moves about half of the output's."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


class FindsIds(Protocol):
    """From the text of an id to the number of its node, -1 for an unknown one."""

    def find(self, text: pa.Array) -> np.ndarray: ...


class IdIndex:
    """From the text of an id to the number of its node.

    ``pieces()`` gives the ids of all nodes, in order, as often as it is called. Two nodes with the
    same id are an error; two ids with the same key, a matter of 2^-64 per pair, get another salt.
    An id that is not in the index is taken for one that is with probability nodes / 2^64.

    >>> index = IdIndex(lambda: [pa.array(["b", "a"], pa.large_string())], "nodes.csv")
    >>> index.find(pa.array(["a", "b", "c"], pa.large_string())).tolist()
    [1, 0, -1]
    """

    def __init__(
        self, pieces: Callable[[], Iterable[pa.Array]], path: object, hash_text: Hash = text_keys
    ) -> None:
        self._hash, self._salt = hash_text, -1
        clashing = np.zeros(1, np.int64)
        while clashing.size:
            self._salt += 1
            found = (self._hash(piece, self._salt) for piece in pieces())
            keys = np.concatenate([np.empty(0, np.uint64), *found])
            self._order = np.argsort(keys, kind="stable")
            self._keys = keys[self._order]
            same = np.flatnonzero(self._keys[1:] == self._keys[:-1])
            clashing = np.unique(self._order[np.concatenate([same, same + 1])])
            _refuse_twins(pieces, clashing, path)
        self.nodes = len(self._keys)

    def find(self, text: pa.Array) -> np.ndarray:
        """The node of every id, -1 for an unknown one."""
        if not self.nodes:
            return np.full(len(text), -1)
        keys = self._hash(text, self._salt)
        places = np.minimum(np.searchsorted(self._keys, keys), self.nodes - 1)
        return np.where(self._keys[places] == keys, self._order[places], -1)


def _refuse_twins(pieces: Callable[[], Iterable[pa.Array]], rows: np.ndarray, path: object) -> None:
    """DatasetError if two of these rows have the same id."""
    first: dict[str, int] = {}
    start = 0
    for piece in pieces() if rows.size else ():
        low, high = np.searchsorted(rows, [start, start + len(piece)])
        for row in rows[low:high].tolist():
            name = piece[row - start].as_py()
            if first.setdefault(name, row) != row:
                raise DatasetError(
                    f"{path} has the id {name!r} in data rows {first[name] + 1} and {row + 1}; "
                    "give each node one row."
                )
        start += len(piece)
