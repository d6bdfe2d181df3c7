"""What a file format is to :func:`hoplite.load`: one object, in the file that reads it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hoplite.graph import Graph


@dataclass(frozen=True)
class Format:
    """``what`` a path needs to be of the format, for messages: the files of a folder, or a suffix.

    ``recognises`` says whether a path, which may not exist, is meant to be of the format, and
    raises only OSError; ``read`` gets such a path, the seed of a split that has to be made, and
    which of several splits is wanted (None if nobody said). If what is there is damaged or
    incomplete it raises a DatasetError. Only formats with ``splits`` hold more than one. Where
    nodes have named ``columns`` it also gets ``prepare`` and the options of tables.
    """

    what: str
    recognises: Callable[[Path], bool]
    read: Callable[..., Graph]
    is_folder: bool = False
    splits: bool = False
    columns: bool = False
