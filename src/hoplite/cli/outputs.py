"""Files that commands write: one that is there is replaced if that is asked for, or is their own.

A command's own file is one that the very same command wrote before, in the same folder, and that
nobody has edited since. Pages tell that by a mark in their head, of the command and of all else in
them; of a table of runs the search keeps what it wrote. So the same line can be given again, and
nobody else's file is lost.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from hoplite.errors import ConfigError, HopliteError, check_choice
from hoplite.files import atomic_write_bytes, open_regular

HEAD_BYTES = 4096  # in which a mark stands
UNSAID = ("--overwrite", "--json")  # they change nothing of what is written
_UNSEALED = "0" * 16
_MARK = re.compile(
    rb"""(?:<meta name="hoplite" content="|<!-- hoplite )([0-9a-f]{16})-([0-9a-f]{16})(?:">| -->)"""
)

OverwriteOption = Annotated[
    bool, typer.Option("--overwrite", help="Replace a file that is there already.")
]


def mark(words: Sequence[str] | None = None) -> str:
    """16 hexadecimal digits of the command with these words, by default this one's, and its folder.

    Others follow, which :func:`seal` fills in.

    >>> mark(["report", "runs"]) == mark(["report", "runs", "--overwrite"]) != mark(["report", "x"])
    True
    """
    told = [word for word in (sys.argv[1:] if words is None else words) if word not in UNSAID]
    try:
        folder = str(Path.cwd())
    except OSError:  # it is gone
        folder = ""
    found = hashlib.sha256(os.fsencode("\0".join([folder, *told]))).hexdigest()[:16]
    return f"{found}-{_UNSEALED}"


def again(words: Sequence[str]) -> str:
    """The command line that writes the same file again, though it is there, in any folder.

    >>> again(["explain", "model", "--node", "a b", "--out", "why.html"])
    "hoplite explain model --node 'a b' --out why.html --overwrite"
    """
    place = words.index("--") if "--" in words else len(words)  # options stand before
    more = [] if "--overwrite" in words else ["--overwrite"]
    return shlex.join(["hoplite", *words[:place], *more, *words[place:]])


def seal(page: Path) -> None:
    """Write into the mark of a new page what all else in it is."""
    content = _read(page)
    found = _MARK.search(content[:HEAD_BYTES])
    if found is not None:
        atomic_write_bytes(page, _with_seal(content, found, _sealed(content, found)))


def is_marked(page: Path) -> bool:
    """Whether this very command wrote the page, and nobody has edited it since."""
    content = _read(page)
    found = _MARK.search(content[:HEAD_BYTES])
    if found is None or found[1].decode() != mark().split("-")[0]:
        return False
    return found[2] == _sealed(content, found)


def _sealed(content: bytes, found: re.Match[bytes]) -> bytes:
    """16 hexadecimal digits of a page but for this very place in its mark."""
    plain = _with_seal(content, found, _UNSEALED.encode())
    return hashlib.sha256(plain).hexdigest()[:16].encode()


def _with_seal(content: bytes, found: re.Match[bytes], seal: bytes) -> bytes:
    return content[: found.start(2)] + seal + content[found.end(2) :]


def _read(path: Path) -> bytes:
    """All bytes of a regular file; none of anything else."""
    try:
        with open_regular(path) as file:
            return file.read()
    except OSError:
        return b""


def digest(path: Path) -> str:
    """The SHA-256 of a regular file; empty for anything else."""
    try:
        with open_regular(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()  # pyright: ignore[reportArgumentType]
    except OSError:
        return ""


def check_new(path: Path, *, overwrite: bool, own: Callable[[Path], bool] | None = None) -> None:
    """HopliteError if something is at ``path`` that is neither ``own`` nor to be replaced."""
    if os.path.lexists(path) and path.exists() and not overwrite and not (own and own(path)):
        raise HopliteError(f"{path} is there already; replace it with --overwrite.")


def check_file(
    option: str,
    out: Path,
    endings: Iterable[str],
    *,
    overwrite: bool,
    own: Callable[[Path], bool] | None = None,
) -> None:
    """Before any work is done for it: whether ``out`` can be a file with one of the endings."""
    check_choice(f"the ending of {option}", out.suffix.lower(), endings)
    if not out.absolute().parent.is_dir() or out.is_dir():
        raise ConfigError(f"{option} {out} cannot be a file there; give one in an existing folder.")
    check_new(out, overwrite=overwrite, own=own)
    if not os.access(out.absolute().parent, os.W_OK | os.X_OK):
        raise HopliteError(f"{out} cannot be written: its folder is not writable.")


def check_page(out: Path, *, overwrite: bool) -> None:
    """Whether ``out`` can be an HTML page of this command's."""
    check_file("--out", out, (".html", ".htm"), overwrite=overwrite, own=is_marked)


def refuse_others(folder: Path, own: str, files: Sequence[str]) -> None:
    """HopliteError if ``folder`` has one of the ``files`` but not ``own``, beside which they are.

    A run that goes on has its own results there; without them these are somebody else's.
    """
    if not (folder / own).exists():
        for name in files:
            if os.path.lexists(folder / name):
                raise HopliteError(
                    f"{folder / name} is there already, but no {own} of a run beside it; give "
                    "another folder, so that it is not lost."
                )
