"""The errors and warnings that Hoplite raises on purpose; each message is one clear sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from inspect import BoundArguments, Signature
from typing import Any


class HopliteError(Exception):
    """Base of every error that Hoplite raises on purpose."""


class GraphError(HopliteError, ValueError):
    """A graph's adjacency, features, labels or split contradict each other."""


class ConfigError(HopliteError, ValueError):
    """An option has a value that it cannot have."""


class GridError(ConfigError):
    """A grid's file is damaged, or asks for what does not exist."""


class DatasetError(HopliteError):
    """A dataset cannot be found or read."""


class ModelFileError(HopliteError):
    """A model folder is incomplete, damaged, or belongs to another model or graph."""


class SearchError(HopliteError):
    """A search's file cannot be used: it is of other data, damaged, or not writable."""


class StoreError(HopliteError):
    """A hop store is incomplete, damaged, of another graph, or its disk is full."""


class ClusterError(HopliteError):
    """A Dask cluster cannot be reached, has no workers, or its workers cannot do the work."""


class HopliteWarning(UserWarning):
    """Something is suspicious but the work goes on."""


class IdleWarning(HopliteWarning):
    """A setting has no effect, as another one that it needs is not given."""


def require_extra(extra: str, what: str, *modules: str) -> None:
    """HopliteError unless the ``modules`` that ``what`` needs are installed: those of an extra.

    >>> require_extra("plot", "a page", "no_module")
    Traceback (most recent call last):
    hoplite.errors.HopliteError: a page needs no_module; run `pip install "hoplite-graph[plot]"`.
    """
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        names = " and ".join(missing)
        raise HopliteError(f'{what} needs {names}; run `pip install "hoplite-graph[{extra}]"`.')


_SHORTAGES = ("allocate memory", "bad_alloc", "failed to map segment", "can't start new thread")


def is_shortage(error: BaseException) -> bool:
    """Whether there was not enough memory: libraries tell that in many ways, also in the text.

    >>> is_shortage(MemoryError()), is_shortage(ImportError("x.so: failed to map segment"))
    (True, True)
    """
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(sign in text for sign in _SHORTAGES)


def plural(count: int, noun: str) -> str:
    """
    >>> plural(1, "run"), plural(945, "run")
    ('1 run', '945 runs')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def some_of(names: Iterable[str], most: int = 5) -> str:
    """The first few names, and that there are more.

    >>> some_of("ab"), some_of("abc", 2)
    ('a, b', 'a, b, ...')
    """
    names = list(names)
    return ", ".join([*names[:most], *(["..."] if len(names) > most else [])])


def nearest_hint(value: object, allowed: Iterable[str]) -> str:
    """Say which allowed name is near ``value``: ``" Did you mean 'lgc'?"`` or ``""``.

    Near is what a slip of the hand makes of it, two in 8 letters and three in 16, or its beginning,
    as "laplace" of "laplacian". A name that only shares letters is another one.

    >>> nearest_hint("lcg", ["sgc", "lgc"])
    " Did you mean 'lgc'?"
    >>> nearest_hint("amount", ["account"])
    ''
    """
    word, found = str(value).lower(), []
    for name in allowed:
        longer = max(len(word), len(name))
        most = 0 if longer < FEW_LETTERS else 1 + longer // 8
        slips = _slips(word, name.lower(), most)
        begins = word[: max(5, len(word) - 1)]
        if len(word) >= FEW_LETTERS and name.lower().startswith(begins):
            slips = min(slips, most)
        if slips <= most:
            found.append((slips, name))
    return f" Did you mean {min(found, key=lambda one: one[0])[1]!r}?" if found else ""


FEW_LETTERS = 3  # of fewer, one slip makes any other word
LONGEST = 100  # letters of a name that somebody types


def _slips(a: str, b: str, most: int) -> int:
    """How many letters were left out, added, changed or swapped with the next; at least ``most`` +
    1 if they are more: D[i, j] = min(D[i-1, j] + 1, D[i, j-1] + 1, D[i-1, j-1] + [a_i != b_j],
    D[i-2, j-2] + 1 if a_{i-1} a_i = b_j b_{j-1}).

    >>> _slips("lcg", "lgc", 3), _slips("amount", "account", 3), _slips("a", "quite other", 2)
    (1, 2, 3)
    """
    far = most + 1
    if abs(len(a) - len(b)) > most or max(len(a), len(b)) > LONGEST:
        return far
    before, row = [far] * (len(b) + 1), [min(j, far) for j in range(len(b) + 1)]
    for i, letter in enumerate(a, 1):
        before, last, row = row, before, [far] * (len(b) + 1)
        row[0] = min(i, far)
        for j in range(max(1, i - most), min(len(b), i + most) + 1):  # farther off are more slips
            other = b[j - 1]
            row[j] = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != other))
            if i > 1 and j > 1 and (letter, a[i - 2]) == (b[j - 2], other):
                row[j] = min(row[j], last[j - 2] + 1)
        if min(row) > most and min(before) > most:
            return far
    return min(row[-1], far)


def bound(
    who: str, signature: Signature, values: Iterable[Any], named: Mapping[str, Any]
) -> BoundArguments:
    """The arguments of a call; TypeError, as Python's, that names the nearest one if one is none.

    >>> from inspect import signature
    >>> bound("f", signature(lambda hops=1: 0), [], {"hop": 2})
    Traceback (most recent call last):
    TypeError: f: got an unexpected keyword argument 'hop'. Did you mean 'hops'?
    """
    try:
        return signature.bind(*values, **named)
    except TypeError as error:
        known = signature.parameters
        hints = [nearest_hint(name, known) for name in named if name not in known]
        raise TypeError(f"{who}: {error}.{max(hints, key=len, default='')}") from None


def check_choice(argument: str, value: str, allowed: Iterable[str]) -> str:
    """Return ``value`` if it is one of ``allowed``; otherwise name the nearest one in the error.

    >>> check_choice("model", "lgc", ["sgc", "lgc"])
    'lgc'
    >>> check_choice("monitor", "roc_auc", ["auc"])
    Traceback (most recent call last):
    hoplite.errors.ConfigError: monitor is 'roc_auc'; it must be one of auc. Did you mean 'auc'?
    """
    allowed = list(allowed)
    if value not in allowed:
        names = ", ".join(allowed)
        parts = str(value).lower().split("_")  # of roc_auc, which is called auc
        hint = nearest_hint(value, allowed) or next(
            (f" Did you mean {name!r}?" for name in allowed if name in parts), ""
        )
        raise ConfigError(f"{argument} is {value!r}; it must be one of {names}.{hint}")
    return value
