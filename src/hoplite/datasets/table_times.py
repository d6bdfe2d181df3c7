"""Dates, timestamps, times of day and durations in tables, as numbers."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa

from hoplite.datasets.table_files import pc
from hoplite.errors import HopliteWarning

DAY = 86_400  # seconds
UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}  # per second
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?Z?)?", re.ASCII)


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


def is_date(text: str) -> bool:
    """Whether it is written like 2024-02-29 or 2024-02-29T12:30:05Z."""
    return _DATE.fullmatch(text) is not None


def spelled_dates(text: pa.Array) -> pa.ChunkedArray | None:
    """The numbers of the dates that a column of text spells; None if a value is no date.

    >>> spelled_dates(pa.array(["1970-01-02 12:00", None])).to_pylist()
    [1.5, None]
    """
    values = pc.unique(text).drop_null()
    if not len(values) or not all(is_date(value.as_py()) for value in values):
        return None
    try:
        stamps = pc.utf8_rtrim(text, "Z").cast(pa.timestamp("us"))
    except pa.ArrowInvalid:  # such as the 30th of February
        return None
    return pa.chunked_array([as_elapsed(stamps)])


def warn_about_times(name: str, path: Path) -> None:
    warnings.warn(
        f"column {name!r} of {path} holds dates or times; it becomes one number (days since "
        "1970-01-01, or the seconds of a time or duration), so scale it as other large numbers.",
        HopliteWarning,
        stacklevel=5,
    )
