"""What a shell offers for a value: names that are known without large libraries.

Where nothing here begins as the word does, bash, zsh and fish offer files themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from hoplite.dataset_names import EMBEDDED, NAMES

# Of modules that take time to import; tests/cli/test_completion.py compares them with those.
BENCHMARKS = (
    *("spmm", "spmm-reddit", "scaling", "epoch", "many", "hyper", "family-epoch"),
    *("paper-times", "command", "serve", "grid"),
    *("large-hops", "large-store", "large-budget", "large-train", "large-update", "large-cost"),
)
GRIDS = ("paper", "reduced", "quick", "published", "usual")
PROTOCOLS = ("validation", "test")
DTYPES = ("float32", "float16", "bfloat16")
PROBLEMS = (
    *("few", *EMBEDDED, *(f"{name}-public" for name in EMBEDDED)),
    *("sixty", *(f"{name}-60" for name in EMBEDDED), "large", "amazon_photo", "amazon_photo-60"),
    *("amazon_computers", "amazon_computers-60", "even", *(f"{name}-even" for name in EMBEDDED)),
    *(
        "amazon_photo-even",
        "amazon_computers-even",
        "heterophilous",
        "texas",
        "cornell",
        "wisconsin",
    ),
    *("actor", "chameleon_filtered", "squirrel_filtered", "imbalanced", "minesweeper", "tolokers"),
)
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
