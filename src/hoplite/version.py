"""The version of Hoplite, which stands in ``pyproject.toml``, and which source of it this is."""

from __future__ import annotations

import functools
import hashlib
from importlib import metadata
from pathlib import Path

VERSION = metadata.version("hoplite-graph")


@functools.cache
def source_hash() -> str:
    """12 hexadecimal digits of this package's Python files, in which two checkouts differ.

    The C++ core is not in it: the same source compiled on two machines gives other bytes.

    >>> len(source_hash())
    12
    """
    digest, folder = hashlib.sha256(), Path(__file__).parent
    for path in sorted(folder.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:12]


def build() -> str:
    """Version and source in one text: equal where the same code runs."""
    return f"{VERSION} (build {source_hash()})"
