"""What a file format is to :func:`hoplite.load`, and which datasets have a name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hoplite.config import EMBEDDED, NAMES, REDDIT, REDDIT_LIKE  # noqa: F401 - of this room
from hoplite.errors import ConfigError
from hoplite.graph import Graph
from hoplite.preparation import TableOptions

MAX_SHOWN = 200  # letters of a name


@dataclass(frozen=True)
class Format:
    """A file format: one object in the file that reads it, one line in :mod:`hoplite.io.load`.

    Parameters
    ----------
    what : str
        What a path needs to be of the format, for messages: the files of a folder, or a suffix.
    recognises : callable
        Whether a path, which may not exist, is meant to be of the format; raises only OSError.
    read : callable
        ``read(path, seed, split, **options)`` returns the graph. ``seed`` is for a split that has
        to be drawn, ``split`` the number of one of several splits (None if it is not given).
        DatasetError if the file is damaged or incomplete.
    is_folder : bool, default False
        Whether it is a folder.
    splits : bool, default False
        Whether a file may have several splits.
    columns : bool, default False
        Whether nodes have named columns: then ``read`` also takes ``prepare`` and the options of
        tables.
    """

    what: str
    recognises: Callable[[Path], bool]
    read: Callable[..., Graph]
    is_folder: bool = False
    splits: bool = False
    columns: bool = False


def refuse_options(source: Any, options: dict[str, Any]) -> None:
    """Raise ConfigError if options of tables are given for a source that has no columns."""
    for name, value in TableOptions.only_for_tables(options).items():
        if value is not None:
            raise ConfigError(
                f"{name} is for node and edge tables, but {shortened(source)} is not a table; "
                "leave it out."
            )


def refuse_split(source: Any, split: int | None) -> None:
    """Raise ConfigError if ``split`` is given for a source that has at most one."""
    if split is not None:
        raise ConfigError(
            f"split is {split}, but {shortened(source)} does not have several splits; leave it out."
        )


def shortened(source: Any) -> str:
    """The name of a source, cut where it is too long for a message."""
    text = str(source)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
