"""What a shell offers for a value: names that are known without large libraries.

Where nothing here begins as the word does, bash, zsh and fish offer files themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

GRIDS = ("paper", "reduced", "quick", "published", "usual")
PROTOCOLS = ("validation", "test")
DTYPES = ("float32", "float16", "bfloat16")
_PLAIN = re.compile(r"[\w.+-]+")  # no sign that a shell would have to quote
_GRAPHS = (".npz", ".graphml", ".mtx")

Complete = Callable[[str], list[str]]


def offered(names: Iterable[str]) -> Complete:
    """Those of ``names`` that begin as the word does.

    >>> offered(["sgc", "lgc"])("l")
    ['lgc']
    """
    known = list(names)

    def complete(incomplete: str) -> list[str]:
        return [name for name in known if name.startswith(incomplete)]

    return complete


def some_dataset(incomplete: str) -> list[str]:
    """The names of graphs, and the folders and files of graphs here that need no quotes."""
    from hoplite.io.formats import NAMES  # only now: PyArrow takes a while

    found = offered(NAMES)(incomplete)
    if not found:
        return []
    here = [
        path.name
        for path in sorted(Path().iterdir())
        if path.name.startswith(incomplete)
        and not path.name.startswith(".")
        and _PLAIN.fullmatch(path.name)
        and (path.suffix in _GRAPHS or path.is_dir())
    ]
    return [*found, *(name for name in here if name not in found)]
