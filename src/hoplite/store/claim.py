"""The folder of a store: one process at a time leads the work in it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from hoplite.errors import StoreError
from hoplite.files import LEFTOVER, lock, open_lock, remove_leftovers
from hoplite.store.manifest import FILE
from hoplite.store.staging import GRAPH, LOCK, settle_claimed

BEFORE_MANIFEST = {LOCK, GRAPH}


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Make ``folder``, hold it for this process, and remove what a killed one left half written."""
    if folder.exists() and not folder.is_dir():
        raise StoreError(f"{folder} is a file; give --out a folder.")
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / FILE).exists():
        _refuse_others(folder)
    with os.fdopen(open_lock(folder / LOCK), "r+b") as file:
        if lock(file.fileno(), wait=False) is False:  # tasks can bear company without locks
            raise StoreError(
                f"another process is working on {folder}; wait for it, or give another --out."
            )
        settle_claimed(folder)
        for place in (folder, folder / "operator", *folder.glob("hops/h*")):
            remove_leftovers(place)
        try:
            yield
        except BaseException:
            if made and [path.name for path in folder.iterdir()] == [LOCK]:  # nothing was begun
                with contextlib.suppress(PermissionError):  # Windows: it is open
                    (folder / LOCK).unlink()
                    folder.rmdir()
            raise


def _refuse_others(folder: Path) -> None:
    """A folder without a manifest must be new: blocks of unknown origin cannot be trusted."""
    for path in folder.iterdir():
        if path.name not in BEFORE_MANIFEST and not LEFTOVER.fullmatch(path.name):
            raise StoreError(
                f"{folder} holds {path.name!r} but no manifest of a hop store; "
                "give --out a new folder, or empty this one."
            )
