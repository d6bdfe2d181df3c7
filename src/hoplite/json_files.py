"""JSON files with a schema and a checksum: what is read is what was written, or an error.

The schema is a type: a dataclass whose fields say what they hold, such as
``Annotated[int, Meta(ge=0, le=MOST_NODES)]``; msgspec checks it while it reads. NaN and infinity
are no JSON and are neither written nor read.

A file is one object. Its last key ``checksum`` is the CRC-32 of the other keys, sorted and without
white space, so a file may be formatted anew but not edited. Files without it were written before
there was one, and are taken as they are.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import zlib
from typing import Any, TypeVar

import msgspec

from hoplite.files import atomic_write_text, read_regular

CHECKSUM = "checksum"
MOST_BYTES = 1 << 28  # 256 MB: far more than any of these files needs
Kind = TypeVar("Kind")


def write_json(path: str | os.PathLike[str], content: Any, indent: int | None = 1) -> None:
    """Write a dict or dataclass of plain values atomically, with its checksum."""
    atomic_write_text(path, to_json(content, indent))


def to_json(content: Any, indent: int | None = 1) -> str:
    """``content``, a dict or dataclass of plain values, as the text of such a file.

    ValueError if it could not be read again: numbers that are not finite, text that is no Unicode.
    """
    if dataclasses.is_dataclass(content) and not isinstance(content, type):
        content = dataclasses.asdict(content)
    plain = json.loads(json.dumps(content, allow_nan=False))  # keys are text, tuples are lists
    json.dumps(plain, ensure_ascii=False).encode("utf-8")  # no half of a surrogate pair
    return json.dumps({**plain, CHECKSUM: _checksum(plain)}, indent=indent) + "\n"


def read_json(path: str | os.PathLike[str], kind: type[Kind], most: int = MOST_BYTES) -> Kind:
    """The file ``path`` as a ``kind``; OSError if it cannot be read, ValueError if it is damaged.

    The ValueError's text is a phrase that tells what is wrong, such as ``Expected `int`, got
    `float` - at `$.nodes` ``.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_json(f"{folder}/a.json", {"nodes": 3})
    ...     read_json(f"{folder}/a.json", dict[str, int])
    {'nodes': 3}
    """
    return parse_json(read_regular(path, most), kind)


def parse_json(text: bytes, kind: type[Kind]) -> Kind:
    """The bytes of such a file as a ``kind``; ValueError if they are damaged."""
    try:
        content = msgspec.json.decode(text)
        if not isinstance(content, dict):
            raise ValueError("it is not one object")
        checksum = content.pop(CHECKSUM, None)
        found = msgspec.convert(content, kind)
        if checksum is not None and checksum != _checksum(content):
            raise ValueError("its content does not fit its checksum")
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return found


def without_nan(value: Any) -> Any:
    """Plain values with None for the numbers that JSON does not have, tuples as lists.

    >>> without_nan({"loss": (1.0, float("inf"))})
    {'loss': [1.0, None]}
    """
    if isinstance(value, dict):
        return {key: without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _checksum(content: dict[str, Any]) -> int:
    plain = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return zlib.crc32(plain.encode("ascii"))
