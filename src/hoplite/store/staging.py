"""What replaces files of a store is made in a sub-folder, whole, and moved in one go.

    STORE/.update/...        the new files, under the names that they will have
    STORE/.update/ready      written last: from here on the store is the new one

A kill before ``ready`` leaves the old store, and what was begun is removed by the next writer. A
kill after it leaves the new one: whoever opens the store first moves what has not been moved.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from hoplite.errors import StoreError
from hoplite.files import atomic_write_text, locked, sync_folder
from hoplite.store.errors import clear_disk_errors
from hoplite.store.manifest import FILE
from hoplite.store.operator_files import FOLDER as OPERATOR

LOCK, UPDATE, READY = ".lock", ".update", "ready"
GRAPH = "graph"  # tables that were imported


def begin(folder: Path) -> Path:
    """The empty folder for the new files of the store in ``folder``, which this process holds."""
    staged = folder / UPDATE
    shutil.rmtree(staged, ignore_errors=True)
    (staged / OPERATOR).mkdir(parents=True)
    return staged


def commit(folder: Path) -> None:
    """Let the new files replace the old ones, once all of them are on the disk."""
    atomic_write_text(folder / UPDATE / READY, "")
    _move(folder)


def is_moving(folder: Path) -> bool:
    """Whether the store is the new one, but not all of its files are in their places."""
    return (folder / UPDATE / READY).is_file()


def settle(folder: Path) -> None:
    """Finish an update that was killed; StoreError while another process is at it."""
    if not is_moving(folder):
        return
    with clear_disk_errors(folder), locked(folder / LOCK) as (_, ours):
        if ours is False:
            raise StoreError(f"another process is adding to {folder}; wait for it.")
        _move(folder)


def settle_claimed(folder: Path) -> None:
    """As :func:`settle` by who holds the folder, which also removes what was only begun."""
    if is_moving(folder):
        _move(folder)
    shutil.rmtree(folder / UPDATE, ignore_errors=True)


def _move(folder: Path) -> None:
    """Every step may be repeated: what is not there any more has been moved."""
    staged = folder / UPDATE
    shutil.rmtree(folder / GRAPH, ignore_errors=True)  # of the graph as it was
    if (staged / OPERATOR).is_dir():
        shutil.rmtree(folder / OPERATOR, ignore_errors=True)
        (staged / OPERATOR).rename(folder / OPERATOR)
    files = sorted(path for path in staged.rglob("*") if path.is_file())
    touched = {folder}
    for path in files:
        target = folder / path.relative_to(staged)
        if path.name not in (READY, FILE):
            target.parent.mkdir(parents=True, exist_ok=True)
            path.replace(target)
            touched.add(target.parent)
    for place in sorted(touched):
        sync_folder(place)
    if (staged / FILE).exists():
        (staged / FILE).replace(folder / FILE)
        sync_folder(folder)
    shutil.rmtree(staged)
