"""Public archives: downloaded so that an interruption loses nothing, checked, and unpacked."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import shutil
import urllib.error
import urllib.parse
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic as clock
from typing import Any, BinaryIO, NoReturn

from hoplite.datasets.reddit import FILES, reddit_folders
from hoplite.errors import DatasetError, check_choice
from hoplite.files import atomic_write, lock
from hoplite.progress import steps_bar, watched

CHUNK = 1 << 20
TIMEOUT = 60.0  # seconds without a byte
# In one call; another call goes on. A server that sends a byte at a time is not worth more.
MOST_REQUESTS, MOST_SECONDS = 100, 12 * 3600.0
UNPACKING = 0.9  # the share of the progress at which the download is complete

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Archive:
    """A zip file on the web, the files wanted from it, the whole's SHA-256 and largest size."""

    name: str
    url: str
    sha256: str
    members: tuple[str, ...]
    most_bytes: int = 2 * 10**9


ARCHIVES = {
    "reddit": Archive(
        "reddit",
        "https://data.dgl.ai/dataset/reddit.zip",
        "9a16353c28f8ddd07148fc5ac9b57b818d7911ea0fbe9052d66d49fc32b372bf",
        FILES,
    )
}


def fetch(
    name: str,
    folder: str | os.PathLike[str] | None = None,
    *,
    progress: bool | Progress | None = False,
) -> Path:
    """Download a public dataset (``"reddit"``, 1.4 GB) and return the folder that holds it.

    Without ``folder`` it goes where :func:`hoplite.load` looks for it: ``$HOPLITE_DATA/reddit`` if
    that variable is set, else the user's cache. Calling it again after any interruption goes on
    where it stopped; if the files are there already, nothing is done. ``progress`` is True for a
    bar, or called with what is being done and the share that is complete.
    """
    check_choice("fetch", name, ARCHIVES)
    place = reddit_folders()[0] if folder is None else Path(folder)
    with watched(progress, steps_bar, f"fetching {name}") as report:
        fetch_archive(ARCHIVES[name], place, progress=report)
    return place


def fetch_archive(archive: Archive, folder: Path, *, progress: Progress | None = None) -> None:
    """Download ``archive`` and unpack its wanted members into ``folder``.

    The bytes gather in ``NAME.zip.part``; when their SHA-256 is right, the members are unpacked,
    each under its final name only when it is complete, and the part is removed. What a killed call
    has left behind is removed by the next.
    """
    part = folder / f"{archive.name}.zip.part"
    complete = all((folder / member).is_file() for member in archive.members)
    if complete and not part.exists():
        return
    if folder.exists() and not folder.is_dir():
        raise DatasetError(f"{folder} is a file; give a folder.")
    report = progress or (lambda what, share: None)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with part.open("a+b") as file:
            _lock(file, part)
            _remove_leftovers(archive, folder)
            if not complete:
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
    if lock(file.fileno(), wait=False) is False:
        raise DatasetError(f"{part} is being downloaded by another process; wait for it.")


def _remove_leftovers(archive: Archive, folder: Path) -> None:
    """What ``atomic_write`` had begun when a call was killed; who has the lock is alone."""
    for member in archive.members:
        for path in folder.glob(f".{member}.*tmp"):
            path.unlink(missing_ok=True)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """To other web servers only, not to ``ftp:`` and the like."""

    def http_error_302(self, req: Any, fp: Any, code: Any, msg: Any, headers: Any) -> Any:
        target = headers.get("Location", "")
        try:
            place = urllib.parse.urljoin(req.full_url, target)
            if urllib.parse.urlsplit(place).scheme not in ("http", "https"):
                raise ValueError(f"it redirects to {target!r}")
            return super().http_error_302(req, fp, code, msg, headers)
        finally:
            fp.close()  # urllib leaves it open if the address is none

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


class _Download:
    """The bytes of an archive, appended to a file that may hold the first of them already."""

    def __init__(self, archive: Archive, file: BinaryIO, report: Progress) -> None:
        self.archive, self.file, self.report = archive, file, report
        self.part = Path(file.name).name
        self.size: int | None = None
        self.sum, self.have = hashlib.sha256(), 0

    def run(self) -> None:
        self.file.seek(0)
        while chunk := self.file.read(CHUNK):
            self._count(chunk)
        self._until, most = clock() + MOST_SECONDS, -1
        for _ in range(MOST_REQUESTS):
            if self.sum.hexdigest() == self.archive.sha256:
                return
            if self.have == self.size:
                self._refuse()
            if self.have <= most:
                self._give_up("broke off")
            most = self.have
            self._attempt()
        if self.sum.hexdigest() != self.archive.sha256:
            self._give_up(f"was asked {MOST_REQUESTS:,} times and broke off each time")

    def _attempt(self) -> None:
        """Ask for what is missing and append what comes."""
        with self._answer() as answer:
            if answer is None:  # there is nothing behind what we have
                self.size = self.have
                return
            # Without ranges the server starts again: what we have is compared and not written anew.
            place = self.have if answer.status == http.client.PARTIAL_CONTENT else 0
            length, before = answer.length, self.have
            total = None if length is None else place + length
            self._check_size(total or 0)
            broken = False
            while not broken:
                chunk, broken = _read(answer)
                if not chunk:
                    break
                known, place = self.have - place, place + len(chunk)
                if known > 0:
                    chunk = self._beyond(chunk, known, place)
                if self.have + len(chunk) > self.archive.most_bytes:
                    self.file.truncate(before)
                    self._check_size(self.have + len(chunk))
                if clock() > self._until:
                    self._give_up("is too slow and stopped")
                self.file.seek(0, os.SEEK_END)
                self.file.write(chunk)
                self.size = total
                self._count(chunk)
            # without a length the end of the connection is the end of the archive
            self.size = total if length is not None or broken else place

    def _beyond(self, chunk: bytes, known: int, end: int) -> bytes:
        """The part of a chunk that is new, if the ``known`` bytes before are those that we have."""
        self.file.seek(end - len(chunk))
        if self.file.read(min(known, len(chunk))) != chunk[:known]:
            raise DatasetError(
                f"{self.archive.url} answered with other bytes than the {self.have:,} that have "
                f"arrived; these are kept, so call again to go on (or first remove {self.part})."
            )
        return chunk[known:]

    def _check_size(self, size: int) -> None:
        if size > self.archive.most_bytes:
            raise DatasetError(
                f"{self.archive.url} sends {size:,} bytes or more and {self.archive.name} has at "
                f"most {self.archive.most_bytes:,}; check the network and call again later."
            )

    def _give_up(self, what: str) -> NoReturn:
        raise DatasetError(
            f"{self.archive.url} {what} after {self.have:,} of {self._total()} bytes; "
            "call again to go on."
        )

    @contextlib.contextmanager
    def _answer(self) -> Iterator[http.client.HTTPResponse | None]:
        url = self.archive.url
        headers = {"User-Agent": "hoplite"}
        if self.have:
            headers["Range"] = f"bytes={self.have}-"
        try:
            request = urllib.request.Request(url, headers=headers)
            opened = urllib.request.build_opener(_Redirects).open(request, timeout=TIMEOUT)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE and self.have:
                yield None
                return
            raise DatasetError(
                f"{url} answered {error.code} ({_line(error.reason)}); if it has moved, download "
                f"{' and '.join(self.archive.members)} elsewhere and give their folder."
            ) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            # ValueError: a redirect to an address that is none, or to another protocol
            reason = getattr(error, "reason", error)
            told = getattr(reason, "strerror", None) or _line(reason) or type(reason).__name__
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

    def _refuse(self) -> NoReturn:
        self.file.truncate(0)
        raise DatasetError(
            f"{self.archive.url} gave {self.have:,} bytes with SHA-256 {self.sum.hexdigest()}, not "
            f"{self.archive.sha256}; they were removed, call again to download them anew."
        )


def _line(reason: object) -> str:
    return (str(reason).splitlines() or [""])[0].rstrip(".")


def _read(answer: http.client.HTTPResponse) -> tuple[bytes, bool]:
    """The next bytes, none at the end, and whether the connection broke before that."""
    try:
        chunk = answer.read1(CHUNK)  # at once, so that a slow line loses little when it breaks
    except (OSError, http.client.HTTPException, ValueError):
        # what an IncompleteRead holds here is of the frame of a chunk and not of its content
        return b"", True
    # the last chunk of a transfer in chunks closes the answer; a cut gives no bytes, too
    return chunk, not chunk and bool(answer.chunked) and not answer.isclosed()


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
