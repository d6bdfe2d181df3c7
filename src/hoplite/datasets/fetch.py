"""Public archives: downloaded so that an interruption loses nothing, checked, and unpacked."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import http.client
import os
import shutil
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from hoplite.datasets.reddit import FILES, reddit_folders
from hoplite.errors import DatasetError, check_choice
from hoplite.files import atomic_write

CHUNK = 1 << 20
TIMEOUT = 60.0  # seconds without a byte
UNPACKING = 0.9  # the share of the progress at which the download is complete

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Archive:
    """A zip file on the web, the files wanted from it, and the SHA-256 of the whole."""

    name: str
    url: str
    sha256: str
    members: tuple[str, ...]


ARCHIVES = {
    "reddit": Archive(
        "reddit",
        "https://data.dgl.ai/dataset/reddit.zip",
        "9a16353c28f8ddd07148fc5ac9b57b818d7911ea0fbe9052d66d49fc32b372bf",
        FILES,
    )
}


def fetch(
    name: str, folder: str | os.PathLike[str] | None = None, *, progress: Progress | None = None
) -> Path:
    """Download a public dataset (``"reddit"``, 1.4 GB) and return the folder that holds it.

    Without ``folder`` it goes where :func:`hoplite.load` looks for it: ``$HOPLITE_DATA/reddit`` if
    that variable is set, else the user's cache. Calling it again after any interruption goes on
    where it stopped; if the files are there already, nothing is done. ``progress`` is called with
    what is being done and the share that is complete.
    """
    check_choice("fetch", name, ARCHIVES)
    place = reddit_folders()[0] if folder is None else Path(folder)
    fetch_archive(ARCHIVES[name], place, progress=progress)
    return place


def fetch_archive(archive: Archive, folder: Path, *, progress: Progress | None = None) -> None:
    """Download ``archive`` and unpack its wanted members into ``folder``.

    The bytes gather in ``NAME.zip.part``; when their SHA-256 is right, the members are unpacked,
    each under its final name only when it is complete, and the part is removed.
    """
    if all((folder / member).is_file() for member in archive.members):
        return
    if folder.exists() and not folder.is_dir():
        raise DatasetError(f"{folder} is a file; give a folder.")
    report = progress or (lambda what, share: None)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f"{archive.name}.zip.part"
        with part.open("a+b") as file:
            _lock(file, part)
            _Download(archive, file, report).run()
            file.flush()
            os.fsync(file.fileno())
            _unpack(archive, file, part, folder, report)
            part.unlink()
    except OSError as error:
        raise DatasetError(
            f"{folder} cannot be written: {error.strerror or error}; "
            "what has arrived is kept, so call again to go on."
        ) from error


def _lock(file: BinaryIO, part: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise DatasetError(
            f"{part} is being downloaded by another process; wait for it."
        ) from error


class _Download:
    """The bytes of an archive, appended to a file that may hold the first of them already."""

    def __init__(self, archive: Archive, file: BinaryIO, report: Progress) -> None:
        self.archive, self.file, self.report = archive, file, report
        self.size: int | None = None
        self.sum, self.have = hashlib.sha256(), 0

    def run(self) -> None:
        self.file.seek(0)
        while chunk := self.file.read(CHUNK):
            self._count(chunk)
        most = -1
        while self.sum.hexdigest() != self.archive.sha256:
            if self.have == self.size:
                self._refuse()
            if self.have <= most:
                raise DatasetError(
                    f"{self.archive.url} broke off after {self.have:,} of {self._total()} bytes; "
                    "call again to go on."
                )
            most = self.have
            self._attempt()

    def _attempt(self) -> None:
        """Ask for what is missing and append what comes."""
        with self._answer() as answer:
            if answer is None:  # there is nothing behind what we have
                self.size = self.have
                return
            if answer.status != http.client.PARTIAL_CONTENT:
                self._restart()
            length = answer.length
            self.size = None if length is None else self.have + length
            while chunk := _read(answer):
                self.file.write(chunk)
                self._count(chunk)
            if length is None:  # then the end of the connection is the end of the archive
                self.size = self.have

    @contextlib.contextmanager
    def _answer(self) -> Iterator[http.client.HTTPResponse | None]:
        url = self.archive.url
        headers = {"User-Agent": "hoplite"}
        if self.have:
            headers["Range"] = f"bytes={self.have}-"
        try:
            opened = urllib.request.urlopen(
                urllib.request.Request(url, headers=headers), timeout=TIMEOUT
            )
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE and self.have:
                yield None
                return
            raise DatasetError(
                f"{url} answered {error.code} ({error.reason}); if it has moved, download "
                f"{' and '.join(self.archive.members)} elsewhere and give their folder."
            ) from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            told = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
            raise DatasetError(
                f"{url} cannot be reached ({told}); check the network and call again"
                f"{' to go on' if self.have else ''}."
            ) from error
        with opened as answer:
            place = answer.headers.get("Content-Range", "")
            if answer.status == http.client.PARTIAL_CONTENT and not place.startswith(
                f"bytes {self.have}-"
            ):
                raise DatasetError(
                    f"{url} sent the range {place!r} when asked for the bytes from {self.have:,}; "
                    "call again later."
                )
            yield answer

    def _count(self, chunk: bytes) -> None:
        self.sum.update(chunk)
        self.have += len(chunk)
        share = UNPACKING * self.have / self.size if self.size else 0.0
        what = f"{self.archive.name}: {self.have / 1e6:,.0f} of {self._total(1e6)} MB"
        self.report(what, min(share, UNPACKING))

    def _total(self, unit: float = 1) -> str:
        return "an unknown number of" if self.size is None else f"{self.size / unit:,.0f}"

    def _restart(self) -> None:
        """Begin again: the server cannot send the rest only."""
        self.file.truncate(0)
        self.file.seek(0)
        self.sum, self.have = hashlib.sha256(), 0

    def _refuse(self) -> None:
        found, length = self.sum.hexdigest(), self.have
        self._restart()
        raise DatasetError(
            f"{self.archive.url} gave {length:,} bytes with SHA-256 {found}, not "
            f"{self.archive.sha256}; they were removed, call again to download them anew."
        )


def _read(answer: http.client.HTTPResponse) -> bytes:
    """The next bytes; none at the end, be it the right one or a broken connection."""
    try:
        return answer.read1(CHUNK)  # at once, so that a slow line loses little when it breaks
    except http.client.IncompleteRead as error:
        return error.partial
    except (OSError, http.client.HTTPException):
        return b""


def _unpack(archive: Archive, file: BinaryIO, part: Path, folder: Path, report: Progress) -> None:
    """The wanted members, by their exact names, so that no path in the archive is followed."""
    report(f"{archive.name}: unpacking", UNPACKING)
    try:
        with zipfile.ZipFile(file) as members:
            for name in archive.members:
                with members.open(name) as source, atomic_write(folder / name) as target:
                    shutil.copyfileobj(source, target, CHUNK)  # the end compares the checksum
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, RuntimeError) as error:
        part.unlink()
        reason = str(error.args[0] if error.args else error).rstrip(".")
        raise DatasetError(
            f"{archive.url} is no sound zip file with {' and '.join(archive.members)} ({reason}); "
            "it was removed, call again to download it anew."
        ) from error
