"""Cells that are numbers, or spell them: numbers, truth values, dates, times of day."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyarrow import csv

from hoplite.datasets.table_reader import as_number, pc, text_scalar

DAY = 86_400  # seconds
UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}  # per second
_CSV = csv.ConvertOptions()
# What CSV files have in place of a number, a date or a time, such as NA; what is true, and false.
GAP_WORDS = frozenset(_CSV.null_values)
TRUE, FALSE = tuple(_CSV.true_values), tuple(_CSV.false_values)
DATE_TEXT = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}(:\d{2}(:\d{2}(\.\d{1,9})?)?)?(Z|[+-]\d{2}:?\d{2})?)?$"
DOTTED, AS_ISO = r"^(\d{2})\.(\d{2})\.(\d{4})\b", r"\3-\2-\1"  # day first, as nowhere else
LIKE_DATES = r"^(\d{1,2}[./-]\d{1,2}[./-]\d{2,4}|\d{4}[./]\d{1,2}[./]\d{1,2})\b"  # of some order
DATE_ALONE, ZONE = r"^[^T ]+$", r"(Z|[+-]\d{2}:?\d{2})$"
TIME_TEXT = r"^([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?$"


@functools.cache  # not at import: PyArrow imports pandas whenever it makes an array
def words(texts: frozenset[str] | tuple[str, ...]) -> pa.Array:
    """Texts as an array."""
    return pa.array(sorted(texts), pa.large_string())


def without_gaps(text: Any) -> Any:
    """Texts, with nothing for those that stand for a gap."""
    return pc.if_else(pc.is_in(text, value_set=words(GAP_WORDS)), text_scalar(None), text)


def is_number(kind: pa.DataType) -> bool:
    whole = pa.types.is_integer(kind) or pa.types.is_boolean(kind)
    return whole or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


@functools.cache  # PyArrow looks for pandas whenever it makes a scalar
def zero(kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(0).cast(kind)


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def is_temporal(kind: pa.DataType) -> bool:
    """Whether :func:`as_elapsed` makes numbers of it; intervals of months have no fixed length."""
    return pa.types.is_temporal(kind) and not pa.types.is_interval(kind)


def as_elapsed(column: Any) -> Any:
    """Days since 1970-01-01 (UTC) of dates and timestamps, seconds of times and durations.

    >>> as_elapsed(pa.array([36 * 3600], pa.timestamp("s"))).to_pylist()
    [1.5]
    >>> as_elapsed(pa.array([1500, None], pa.duration("ms"))).to_pylist()
    [1.5, None]
    """
    kind = column.type
    ticks: float = UNITS[getattr(kind, "unit", "ms")]  # date64 counts milliseconds
    if pa.types.is_date32(kind):
        ticks = 1
    elif pa.types.is_date64(kind) or pa.types.is_timestamp(kind):
        ticks *= DAY
    whole = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    return pc.divide(whole.cast(pa.float64(), safe=False), pa.scalar(float(ticks)))


# The ways to read text (large_string without surrounding white space, null for a gap) as numbers:
# float64, or None if a value cannot be read so. Whether a value can does not depend on the others.
Way = Callable[[pa.Array], "pa.Array | None"]


def spelled_numbers(text: pa.Array) -> pa.Array | None:
    """Numbers as Python spells them.

    >>> spelled_numbers(pa.array(["1e3", "+1", None])).to_pylist()
    [1000.0, 1.0, None]
    """
    try:
        return text.cast(pa.float64())
    except pa.ArrowInvalid:
        values = pc.unique(text).drop_null()
    numbers = []
    for value in values.to_pylist():
        numbers.append(as_number(value))
        if math.isnan(numbers[-1]) and value.lower().strip("+-") != "nan":
            return None
    return pa.array(numbers, pa.float64()).take(pc.index_in(text, value_set=values))


def spelled_truths(text: pa.Array) -> pa.Array | None:
    """True and false, in the spellings of Python, SQL and JSON, as 1 and 0."""
    true, false = (pc.is_in(text, value_set=words(texts)) for texts in (TRUE, FALSE))
    if not pc.all(pc.or_(pc.or_(true, false), text.is_null()), min_count=0).as_py():
        return None
    return pc.if_else(text.is_null(), pa.scalar(None, pa.float64()), true.cast(pa.float64()))


def spelled_dates(text: pa.Array) -> pa.Array | None:
    """Days since 1970-01-01 of dates and timestamps, in UTC unless they name a zone.

    They are 2020-12-31 or 31.12.2020; 12/11/2020 has two meanings, so it is none.

    >>> spelled_dates(pa.array(["1970-01-02 12:00", None, "02.01.1970"])).to_pylist()
    [1.5, None, 1.0]
    """
    text = pc.replace_substring_regex(text, DOTTED, AS_ISO)
    if not pc.all(pc.match_substring_regex(text, DATE_TEXT), min_count=0).as_py():
        return None
    alone, zoned = (pc.match_substring_regex(text, part) for part in (DATE_ALONE, ZONE))
    stamps = pc.replace_substring_regex(text, r"(\.\d{6})\d+", r"\1")
    end = pc.if_else(alone, "T00:00Z", pc.if_else(zoned, "", "Z"))
    try:
        whole = pc.binary_join_element_wise(stamps, end.cast(text.type), pa.scalar("", text.type))
        return as_elapsed(whole.cast(pa.timestamp("us", "UTC")))
    except pa.ArrowInvalid:  # such as the 30th of February
        return None


def spelled_times(text: pa.Array) -> pa.Array | None:
    """Seconds since midnight.

    >>> spelled_times(pa.array(["00:01:30", "12:00"])).to_pylist()
    [90.0, 43200.0]
    """
    if not pc.all(pc.match_substring_regex(text, TIME_TEXT), min_count=0).as_py():
        return None
    days = pa.scalar("1970-01-01", text.type)
    stamps = pc.binary_join_element_wise(days, text, pa.scalar("T", text.type))
    return stamps.cast(pa.timestamp("s")).cast(pa.int64()).cast(pa.float64())


def first_odd(way: Way, text: pa.Array) -> int:
    """The first row of ``text`` that cannot be read in this way; there is one."""
    low, high = 0, len(text)  # all before low can be read, not all before high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if way(text[low:middle]) is None else (middle, high)
    return low


WAYS: tuple[Way, ...] = (spelled_numbers, spelled_truths, spelled_dates, spelled_times)
