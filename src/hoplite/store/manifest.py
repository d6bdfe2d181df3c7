"""manifest.json: what a hop store contains, of which graph, and how it is cut into blocks.

    STORE/manifest.json     replaced in one step: it decides which version of the data is valid
    STORE/v0/...            the data; an update builds the next version beside it
    STORE/graph/...         tables that were imported
    STORE/.lock             whoever writes to the store holds it

A kill at any moment leaves a manifest and the data that it names. The next writer removes all other
versions.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from hoplite.bases import find_basis
from hoplite.config import MAX_HOPS
from hoplite.errors import StoreError, check_choice
from hoplite.files import read_json, write_json
from hoplite.operators import SYMMETRIC
from hoplite.preparation import Preparation

FILE, LOCK, GRAPH = "manifest.json", ".lock", "graph"
DTYPES = ("float32", "float16", "bfloat16")
MAX_BLOCKS = 4_000_000
Count = Annotated[int, Meta(ge=0, le=2**48)]
Checksum = Annotated[int, Meta(ge=0, lt=2**32)]
Size = Annotated[float, Meta(ge=0)]


@dataclass(frozen=True)
class Manifest:
    """The description of a store; two runs of the same work write the same one.

    ``graph`` and ``features`` are SHA-256 of the adjacency and of X, ``panels`` the column ranges,
    ``loop_weight`` is that of the self-loops in S, and ``added`` has the SHA-256 of the tables
    whose nodes and edges came later.
    """

    name: str
    graph: str
    features: str
    nodes: Count
    entries: Count  # of the adjacency
    longest_row: Count
    columns: Count
    hops: Annotated[int, Meta(ge=0, le=MAX_HOPS)]
    operator: str
    basis: str
    dtype: str
    rows_per_block: Annotated[int, Meta(ge=1, le=2**48)]
    panels: tuple[tuple[Count, Count], ...]
    class_names: tuple[str, ...] = ()
    feature_names: tuple[str, ...] | None = None
    split_note: str = ""
    ids: Literal["text", "integers"] | None = None
    preparation: Preparation | None = None
    loop_weight: Annotated[float, Meta(gt=0)] = 1.0
    added: tuple[str, ...] = ()
    version: Count = 0
    format: Literal["hoplite hop store"] = "hoplite hop store"

    def __post_init__(self) -> None:
        """ValueError, which reading takes for damage, if the values contradict each other."""
        check_choice("operator", self.operator, SYMMETRIC)
        check_choice("dtype", self.dtype, DTYPES)
        basis = find_basis(self.basis)
        basis.check_hops(self.hops)
        object.__setattr__(self, "basis", str(basis))
        ends = [0, *(stop for _, stop in self.panels)]
        rising = all(first < last for first, last in self.panels)
        if [*itertools.pairwise(ends)] != [*self.panels] or ends[-1] != self.columns or not rising:
            raise ValueError(f"the panels do not cut {self.columns:,} columns")
        if self.feature_names is not None and len(self.feature_names) != self.columns:
            raise ValueError(f"{len(self.feature_names):,} names for {self.columns:,} columns")
        blocks = -(-self.nodes // self.rows_per_block) * (self.hops + 1) * len(self.panels)
        if blocks > MAX_BLOCKS:
            raise ValueError(f"{blocks:,} blocks are more than the maximum of {MAX_BLOCKS:,}")

    @cached_property
    def row_blocks(self) -> list[tuple[int, int]]:
        """The row ranges of the blocks."""
        step = self.rows_per_block
        return [(row, min(row + step, self.nodes)) for row in range(0, self.nodes, step)]

    @property
    def data(self) -> str:
        """The name of the folder with the data."""
        return f"v{self.version}"

    def write(self, folder: Path) -> None:
        """Make this the manifest of the store in ``folder``, in one step."""
        write_json(folder / FILE, self)


def read_manifest(folder: Path) -> Manifest:
    """The manifest in ``folder``; StoreError if there is none, or it is damaged."""
    path = folder / FILE
    try:
        return read_json(path, Manifest)
    except FileNotFoundError as error:
        raise StoreError(
            f"{folder} is not a hop store; make one with `hoplite propagate DATASET --out ...`."
        ) from error
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise StoreError(
            f"{path} is damaged or not a manifest ({error}); remove {folder} and run "
            "`hoplite propagate` again."
        ) from error
