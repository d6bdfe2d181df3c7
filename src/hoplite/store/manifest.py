"""manifest.json: what a hop store holds, of which graph, and how it is cut into blocks."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from hoplite.bases import find_basis
from hoplite.config import MOST_HOPS
from hoplite.errors import StoreError, check_choice
from hoplite.files import read_regular
from hoplite.json_files import MOST_BYTES, parse_json, write_json
from hoplite.operators import SYMMETRIC
from hoplite.preparation import Preparation

FORMAT = "hoplite hop store 1"
FILE = "manifest.json"
DTYPES = ("float32", "float16", "bfloat16")
MOST_FILES = 4_000_000  # blocks of a store
Count = Annotated[int, Meta(ge=0, le=2**48)]
Checksum = Annotated[int, Meta(ge=0, lt=2**32)]
Size = Annotated[float, Meta(ge=0)]


@dataclass(frozen=True)
class HopError:
    """What half precision costs in one hop."""

    hop: Count
    max_abs: Size
    relative: Size  # Frobenius


@dataclass(frozen=True)
class Manifest:
    """The description of a store; two runs of the same work write the same one.

    ``panels`` are the column ranges; ``error`` has, for half precision and once all is done, a
    record per hop.
    """

    name: str
    graph: str  # SHA-256 of the adjacency
    features: str  # SHA-256 of X
    nodes: Count
    entries: Count  # of the adjacency
    longest_row: Count
    columns: Count
    hops: Annotated[int, Meta(ge=0, le=MOST_HOPS)]
    operator: str
    basis: str
    dtype: str
    rows_per_block: Annotated[int, Meta(ge=1, le=2**48)]
    panels: tuple[tuple[Count, Count], ...]
    class_names: tuple[Any, ...] = ()  # text; earlier versions kept numbers as they were
    feature_names: tuple[Any, ...] | None = None
    labels_crc32: Checksum = 0
    split_crc32: Checksum | None = None  # older stores have none
    split_note: str = ""
    ids_crc32: Checksum | None = None  # None: the nodes have no ids, or the store is older
    integer_ids: bool = False
    error: tuple[HopError, ...] = ()
    preparation: Preparation | None = None  # of the columns of tables, if they were
    loop_weight: Annotated[float, Meta(gt=0)] = 1.0  # of the self-loops in S
    added: tuple[str, ...] = ()  # SHA-256 of the tables whose nodes and edges came later

    def __post_init__(self) -> None:
        """ValueError, which reading takes for damage, if the values contradict each other."""
        for field in ("class_names", "feature_names"):
            names = getattr(self, field)
            if names is not None:
                if not all(isinstance(name, str | int) for name in names):
                    raise ValueError(f"{field} are not all text")
                object.__setattr__(self, field, tuple(map(str, names)))
        for value, allowed in ((self.operator, SYMMETRIC), (self.dtype, DTYPES)):
            check_choice("a setting", value, allowed)
        basis = find_basis(self.basis, "a setting")
        basis.check_hops(self.hops)
        object.__setattr__(self, "basis", str(basis))
        edges = [0, *(stop for _, stop in self.panels)]
        if (
            tuple(itertools.pairwise(edges)) != tuple(self.panels)
            or edges[-1] != self.columns
            or any(first >= last for first, last in self.panels)
        ):
            raise ValueError(f"the panels do not cut {self.columns:,} columns")
        if self.feature_names is not None and len(self.feature_names) != self.columns:
            raise ValueError(f"{len(self.feature_names):,} names for {self.columns:,} columns")
        blocks = -(-self.nodes // self.rows_per_block) * (self.hops + 1) * len(self.panels)
        if blocks > MOST_FILES:
            raise ValueError(
                f"{self.hops:,} hops of {self.nodes:,} nodes would be {blocks:,} blocks, and at "
                f"most {MOST_FILES:,} are kept"
            )

    @cached_property
    def row_blocks(self) -> list[tuple[int, int]]:
        """The row ranges of the blocks."""
        step = self.rows_per_block
        return [(row, min(row + step, self.nodes)) for row in range(0, self.nodes, step)]

    def write(self, folder: Path) -> None:
        write_json(folder / FILE, {"format": FORMAT} | dataclasses.asdict(self))


@dataclass(frozen=True)
class _Format:
    format: str | None = None


def read_manifest(folder: Path) -> Manifest:
    """The manifest in ``folder``; StoreError if there is none, or it is damaged."""
    path = folder / FILE
    try:
        text = read_regular(path, MOST_BYTES)
        if parse_json(text, _Format).format == FORMAT:
            return parse_json(text, Manifest)
    except FileNotFoundError as error:
        raise StoreError(
            f"{folder} holds no hop store; make one with `hoplite propagate DATASET --out ...`."
        ) from error
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise StoreError(
            f"{path} is damaged ({error}); remove the folder {folder} and run `hoplite propagate` "
            "again."
        ) from error
    raise StoreError(
        f"{path} is no manifest of a hop store of this version ({FORMAT!r}); "
        "give the folder of a store, or another --out."
    )
