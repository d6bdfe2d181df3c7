"""manifest.json: what a hop store holds, of which graph, and how it is cut into blocks."""

from __future__ import annotations

import dataclasses
import itertools
import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from hoplite.config import BASES, OPERATORS
from hoplite.errors import StoreError
from hoplite.files import atomic_write_text

FORMAT = "hoplite hop store 1"
FILE = "manifest.json"
DTYPES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Manifest:
    """The description of a store; two runs of the same work write the same one.

    ``panels`` are the column ranges; ``error`` has, for half precision and once all is done, a
    record per hop: ``hop``, ``max_abs`` and ``relative`` (Frobenius).
    """

    name: str
    graph: str  # SHA-256 of the adjacency
    features: str  # SHA-256 of X
    nodes: int
    entries: int  # of the adjacency
    longest_row: int
    columns: int
    hops: int
    operator: str
    basis: str
    dtype: str
    rows_per_block: int
    panels: tuple[tuple[int, int], ...]
    class_names: tuple[str, ...] = ()
    feature_names: tuple[str, ...] | None = None
    labels_crc32: int = 0
    split_note: str = ""
    error: tuple[dict[str, float], ...] = field(default=())

    @cached_property
    def row_blocks(self) -> list[tuple[int, int]]:
        """The row ranges of the blocks."""
        step = self.rows_per_block
        return [(row, min(row + step, self.nodes)) for row in range(0, self.nodes, step)]

    def write(self, folder: Path) -> None:
        values = {"format": FORMAT} | dataclasses.asdict(self)
        atomic_write_text(folder / FILE, json.dumps(values, indent=1, allow_nan=False) + "\n")


def read_manifest(folder: Path) -> Manifest:
    """The manifest in ``folder``; StoreError if there is none, or it is damaged."""
    path = folder / FILE
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise StoreError(
            f"{folder} holds no hop store; make one with `hoplite propagate DATASET --out ...`."
        ) from error
    except (OSError, ValueError) as error:
        raise _damaged(path) from error
    if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
        raise StoreError(
            f"{path} is no manifest of a hop store of this version ({FORMAT!r}); "
            "give the folder of a store, or another --out."
        )
    try:
        return _checked(values)
    except (TypeError, ValueError, KeyError) as error:
        raise _damaged(path) from error


def _checked(values: dict[str, Any]) -> Manifest:
    values["panels"] = tuple((int(start), int(stop)) for start, stop in values["panels"])
    values["class_names"] = tuple(values["class_names"])
    values["error"] = tuple(values["error"])
    if values["feature_names"] is not None:
        values["feature_names"] = tuple(values["feature_names"])
    found = Manifest(**values)
    counts = (found.nodes, found.entries, found.longest_row, found.columns, found.hops)
    sound = all(type(count) is int and count >= 0 for count in counts)
    sound &= type(found.rows_per_block) is int and found.rows_per_block >= 1
    sound &= found.operator in OPERATORS and found.basis in BASES and found.dtype in DTYPES
    edges = [0, *(stop for _, stop in found.panels)]
    sound &= list(itertools.pairwise(edges)) == list(found.panels)
    sound &= edges[-1] == found.columns and all(a < b for a, b in found.panels)
    if not sound:
        raise ValueError("its values contradict each other")
    return found


def _damaged(path: Path) -> StoreError:
    return StoreError(
        f"{path} is damaged; remove the folder {path.parent} and run `hoplite propagate` again."
    )
