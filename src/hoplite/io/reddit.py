"""Reddit's posts (Hamilton et al., 2017) in the two public files that graph libraries share.

They are in one archive, downloaded with a known hash and a size limit.
"""

from __future__ import annotations

import os
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from hoplite.errors import DatasetError, check_choice
from hoplite.files import atomic_write
from hoplite.graph import Graph, Split
from hoplite.io.formats import REDDIT, Format
from hoplite.io.npz import open_npz
from hoplite.progress import steps_bar, watched

NODES_FILE = "reddit_data.npz"
GRAPH_FILE = "reddit_graph.npz"
FILES = (NODES_FILE, GRAPH_FILE)
CHUNK = 1 << 16
TIMEOUT = 60.0  # seconds without a byte
UNPACKING = 0.9  # the share of the progress at which the download is complete

Progress = Callable[[str, float], None]
_ADVICE = "get it with `hoplite datasets --fetch reddit`"


def load_reddit(folder: str | Path) -> Graph:
    """Read Reddit, or any graph in its format, from a folder.

    - ``reddit_data.npz``: ``feature`` (n x d numbers), ``label`` (n integers) and ``node_types``
      (n integers: 1 train, 2 validation, 3 test);
    - ``reddit_graph.npz``: a SciPy sparse matrix in COO form, n x n, as ``save_npz`` writes it.
      Every stored pair is an edge of weight 1: values and direction are ignored, repeated pairs
      count once, the diagonal is dropped.

    The features stay as they are in the file, as float32; in the public file each column already
    has mean 0 and standard deviation 1 over the training nodes. With e stored pairs the peak of
    memory is about 30 e + 4 n d bytes, most of it while the Graph checks its symmetry: 4.0 GB at
    Reddit's size, whose Graph itself has 1.5 GB.
    """
    folder = Path(folder)
    with open_npz(folder / NODES_FILE, _ADVICE) as file:
        labels, parts = file.read("label", "iu", 1), file.read("node_types", "iu", 1)
        with np.errstate(over="ignore"):  # beyond float32 is infinite, and refused as such
            features = file.read("feature", "fiu", 2).astype(np.float32, copy=False)
        n = len(features)
        if not n == len(labels) == len(parts):
            raise ValueError(f"there are {len(labels):,} labels, {len(parts):,} types, {n:,} rows")
        if not np.isin(parts, (1, 2, 3)).all():
            raise ValueError("node_types are not 1 (train), 2 (validation) and 3 (test)")
        split = Split(*(parts == part for part in (1, 2, 3)), note="public Reddit split (by day)")
    with open_npz(folder / GRAPH_FILE, _ADVICE) as file:
        form, shape = file.read("format", "SU", 0).item(), file.read("shape", "iu", 1).tolist()
        if form not in ("coo", b"coo") or shape != [n, n]:
            raise ValueError(f"it is a {form} matrix of {shape}, not a coo matrix of {[n, n]}")
        ends = (file.read("row", "iu", 1), file.read("col", "iu", 1))
        # booleans: a fourth of what float32 would need; SciPy checks the range of both ends
        arcs = sp.coo_array((np.ones(ends[0].size, bool), ends), shape=(n, n))
        del ends
        arcs = arcs.tocsr()
        return Graph(arcs.maximum(arcs.T), features, labels, split=split, name="reddit")


def has_reddit(folder: Path) -> bool:
    """Whether the folder holds one of the two files."""
    return any((folder / name).is_file() for name in FILES)


REDDIT_FILES = Format(
    f"Reddit's {NODES_FILE} and {GRAPH_FILE}",
    has_reddit,
    lambda path, *_: load_reddit(path),
    is_folder=True,
)


def reddit_folders() -> list[Path]:
    """Where ``load("reddit")`` looks: ``$HOPLITE_DATA/reddit``, then the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    roots = [os.environ.get("HOPLITE_DATA"), str(Path(cache) / "hoplite")]
    return [Path(root).expanduser() / "reddit" for root in roots if root]


def find_reddit() -> Path | None:
    """The first of :func:`reddit_folders` that holds Reddit."""
    return next((folder for folder in reddit_folders() if has_reddit(folder)), None)


@dataclass(frozen=True)
class Archive:
    """A zip file on the web, its SHA-256, the files wanted from it, and its maximum size."""

    name: str
    url: str
    sha256: str
    members: tuple[str, ...]
    max_bytes: int = 2 * 10**9


ARCHIVES = {
    REDDIT: Archive(
        REDDIT,
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

    Parameters
    ----------
    name : str
        The dataset.
    folder : path, optional
        Where the files go. By default where :func:`hoplite.load` looks for them:
        ``$HOPLITE_DATA/reddit`` if that variable is set, else the user's cache.
    progress : bool or callable, default False
        True for a progress bar; or a function of what is being done and the completed share.

    If the files exist, nothing is done. After an interruption, call it again: it continues.
    """
    check_choice("fetch", name, ARCHIVES)
    target = reddit_folders()[0] if folder is None else Path(folder)
    with watched(progress, steps_bar, f"fetching {name}") as report:
        fetch_archive(ARCHIVES[name], target, progress=report)
    return target


def fetch_archive(archive: Archive, folder: Path, *, progress: Progress | None = None) -> None:
    """Download ``archive`` and unpack its members into ``folder``, each completely or not at all.

    The bytes are collected in a folder ``NAME.download``, where the next call continues; they are
    removed if their hash is wrong.
    """
    download = folder / f"{archive.name}.download"
    if all((folder / member).is_file() for member in archive.members):
        shutil.rmtree(download, ignore_errors=True)
        return
    import pooch  # only now: it takes 0.2 s, and so does requests
    import requests

    pooch.get_logger().setLevel("WARNING")  # progress is reported here
    report = progress or (lambda what, share: None)
    try:
        download.mkdir(parents=True, exist_ok=True)
        path = pooch.retrieve(
            archive.url,
            f"sha256:{archive.sha256}",
            fname="complete.zip",
            path=download,
            downloader=_Downloader(archive, download / "part.zip", report),
        )
        report(f"{archive.name}: unpacking", UNPACKING)
        with zipfile.ZipFile(path) as members:
            for name in archive.members:  # by their names, so that no path in it is followed
                with members.open(name) as source, atomic_write(folder / name) as target:
                    shutil.copyfileobj(source, target, CHUNK)
        shutil.rmtree(download)
    except requests.RequestException as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise DatasetError(
            f"{archive.url} cannot be downloaded ({reason}); check the network and call again to "
            "continue."
        ) from error
    except (ValueError, KeyError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        shutil.rmtree(download, ignore_errors=True)
        raise DatasetError(
            f"{archive.url} does not have the known SHA-256, or is not a zip file with "
            f"{' and '.join(archive.members)}; it was removed; call again to download it."
        ) from error
    except OSError as error:
        raise DatasetError(
            f"{folder} cannot be written: {error.strerror or error}; what was downloaded is kept, "
            "so call again to continue."
        ) from error


@dataclass(frozen=True)
class _Downloader:
    """What pooch calls to download a file: resumes in ``part``, and stops at the maximum size."""

    archive: Archive
    part: Path
    report: Progress

    def __call__(self, url: str, output_file: str, pooch: object) -> None:
        import requests

        size = self.part.stat().st_size if self.part.exists() else 0
        headers = {"Range": f"bytes={size}-"} if size else {}
        with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
            complete = (
                size and response.status_code == requests.codes.requested_range_not_satisfiable
            )
            if not complete:
                response.raise_for_status()
                if response.status_code != requests.codes.partial_content:
                    size = 0
                self._append(response.iter_content(CHUNK), size, response.headers)
        self.part.replace(output_file)

    def _append(self, chunks: Iterable[bytes], size: int, headers: Mapping[str, str]) -> None:
        total = size + int(headers.get("Content-Length", 0)) or self.archive.max_bytes
        with self.part.open("ab") as file:
            file.truncate(size)
            for chunk in chunks:
                size += len(chunk)
                if size > self.archive.max_bytes:
                    file.truncate(0)
                    raise ValueError("it is larger than it can be")
                file.write(chunk)
                share = UNPACKING * min(size / total, 1)
                self.report(
                    f"{self.archive.name}: {size / 1e6:,.0f} of {total / 1e6:,.0f} MB", share
                )
