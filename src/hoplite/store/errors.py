"""What can be wrong with a hop store, and the disk it lies on, in one sentence each."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from hoplite.errors import StoreError

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
PATHS = {errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.EROFS}
AGAIN = "run `hoplite propagate` again with the same dataset and --out {folder}"


class DamagedBlock(StoreError):
    """A block of the store does not hold what was written to it."""

    def __init__(self, folder: Path, block: str, what: str) -> None:
        self.block, self._parts = folder / block, (folder, block, what)
        again = AGAIN.format(folder=folder)
        super().__init__(f"block {block} of {folder} {what}; {again} to compute it anew.")

    def __reduce__(self) -> tuple[type, tuple[Path, str, str]]:
        return DamagedBlock, self._parts  # it travels between processes


@contextlib.contextmanager
def clear_disk_errors(folder: Path) -> Iterator[None]:
    """Within the block, a full disk or another failure of ``folder``'s disk is a StoreError."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            again = AGAIN.format(folder=folder)
            raise StoreError(
                f"there is no room left on the disk of {folder} ({error.strerror}); what is "
                f"finished stays: make room and {again}."
            ) from error
        named = f"{error.filename}: " if error.filename else ""
        where = "" if error.errno in PATHS else "; check its disk"
        raise StoreError(
            f"{folder} cannot be used: {named}{error.strerror or error}{where}."
        ) from error
