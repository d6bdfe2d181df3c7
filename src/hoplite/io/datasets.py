"""Named datasets: those in the package, Reddit, and random graphs of any size.

Reddit's posts (Hamilton et al., 2017) are in the two public files that graph libraries share, in
one archive, which is downloaded with a known hash and a size limit.
"""

from __future__ import annotations

import math
import os
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from hoplite.config import EMBEDDED, REDDIT, REDDIT_LIKE, check_number
from hoplite.errors import ConfigError, DatasetError, check_choice, first_line, plural
from hoplite.files import atomic_write
from hoplite.formatting import short
from hoplite.graph import Graph, Split
from hoplite.io.npz import open_npz, read_meta, read_npz
from hoplite.progress import steps_bar, watched

NODES_FILE = "reddit_data.npz"
GRAPH_FILE = "reddit_graph.npz"
FILES = (NODES_FILE, GRAPH_FILE)
CHUNK = 1 << 16
TIMEOUT = 60.0  # seconds without a byte
UNPACKING = 0.9  # the share of the progress at which the download is complete

Progress = Callable[[str, float], None]
_ADVICE = "get it with `hoplite datasets --fetch reddit`"
ROUNDS = 12  # draws by degree; then ends are drawn evenly, which always finds the free pairs
BATCH = 1 << 22
ROWS = 8192  # rows of features at a time, so that no second matrix of their size is made
REDDIT_SIZE = {"nodes": 232_965, "edges": 57_307_946, "features": 602, "classes": 41}
REDDIT_SPLIT = (153_431 / 232_965, 23_831 / 232_965)
LEAST_SCALE, MOST_SCALE = 0.005, 1000


@dataclass(frozen=True)
class DatasetInfo:
    """The sizes of a dataset, known without loading it."""

    name: str
    nodes: int
    edges: int
    features: int
    classes: int
    train: int
    val: int
    test: int


def named_dataset(name: str, seed: int = 0) -> Graph | None:
    """The dataset that is called ``name``; None if it is Reddit, which is not there yet.

    >>> named_dataset("cora")
    Graph(nodes=2708, edges=5278, features=1433, classes=7)
    """
    if name in EMBEDDED:
        return read_npz(embedded(name))
    if name.partition(":")[0] == REDDIT_LIKE:
        return reddit_like(_scale(name), seed=seed)
    folder = find_reddit()
    return None if folder is None else load_reddit(folder)


def available() -> list[DatasetInfo]:
    """List the datasets that are included in the package, with their sizes.

    Returns
    -------
    list of DatasetInfo
        With ``name``, ``nodes``, ``edges``, ``features``, ``classes`` and the sizes ``train``,
        ``val`` and ``test`` of the split.

    Examples
    --------
    >>> [info.name for info in available()]
    ['cora', 'citeseer', 'pubmed']
    """
    metas = {name: read_meta(embedded(name)) for name in EMBEDDED}
    return [
        DatasetInfo(name, meta.nodes, meta.edges, meta.features, meta.classes, **meta.split)
        for name, meta in metas.items()
    ]


def obtainable() -> list[DatasetInfo]:
    """List the named datasets that are not included: they are downloaded or generated.

    Returns
    -------
    list of DatasetInfo
        As for :func:`available`.

    Examples
    --------
    >>> [info.name for info in obtainable()]
    ['reddit', 'reddit-like']
    """
    split = {"train": 153_431, "val": 23_831, "test": 55_703}
    return [DatasetInfo(name, **REDDIT_SIZE, **split) for name in (REDDIT, REDDIT_LIKE)]


def _scale(name: str) -> float:
    """The number after ``reddit-like:``, or 1."""
    _, colon, text = name.partition(":")
    try:
        return float(text) if colon else 1.0
    except ValueError as error:
        raise DatasetError(
            f"dataset {short(name)!r} needs a number after the colon; use {REDDIT_LIKE}, or "
            f"{REDDIT_LIKE}:0.01 for a hundredth of its nodes and edges."
        ) from error


def embedded(name: str) -> Path:
    """The file of an embedded graph."""
    return Path(__file__).parent / "data" / f"{name}.npz"


def load_reddit(folder: str | Path) -> Graph:
    """Read Reddit, or any graph in the same format, from a folder.

    The folder contains two files:

    - ``reddit_data.npz`` with the arrays ``feature`` (n x d numbers), ``label`` (n integers) and
      ``node_types`` (n integers: 1 training, 2 validation, 3 test);
    - ``reddit_graph.npz``, an n x n SciPy sparse matrix in COO format, written by
      ``scipy.sparse.save_npz``. Every stored pair is an edge of weight 1: values and direction are
      ignored, repeated pairs count once, and the diagonal is dropped.

    Parameters
    ----------
    folder : path
        The folder with the two files.

    Returns
    -------
    Graph
        Its features are those of the file, as float32. In the public file each column already has
        mean 0 and standard deviation 1 over the training nodes.

    Notes
    -----
    With e stored pairs the peak memory is about 30 e + 4 n d bytes, most of it while the symmetry
    of the adjacency matrix is checked: 4.0 GB for Reddit, whose graph then takes 1.5 GB.

    Examples
    --------
    >>> import tempfile
    >>> import scipy.sparse as sp
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     arrays = {"feature": np.eye(3), "label": [0, 1, 0], "node_types": [1, 1, 3]}
    ...     np.savez(f"{folder}/reddit_data.npz", **arrays)
    ...     sp.save_npz(f"{folder}/reddit_graph.npz", sp.coo_array(np.eye(3, k=1)))
    ...     load_reddit(folder)
    Graph(nodes=3, edges=2, features=3, classes=2)
    """
    folder = Path(folder)
    with open_npz(folder / NODES_FILE, _ADVICE) as file:
        labels, parts = file.read("label", "iu", 1), file.read("node_types", "iu", 1)
        with np.errstate(over="ignore"):  # too large for float32: infinite, which Graph rejects
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
    """Download a public dataset (``"reddit"``, 1.4 GB).

    An interrupted download continues when you call this function again.

    Parameters
    ----------
    name : str
        Name of the dataset.
    folder : path, optional
        Where to write the files. By default where :func:`hoplite.load` looks for them:
        ``$HOPLITE_DATA/reddit`` if that variable is set, otherwise the user's cache.
    progress : bool or callable, default False
        True for a progress bar, or a function to call with the step and its share.

    Returns
    -------
    Path
        The folder with the files. If they exist, nothing is downloaded.

    Examples
    --------
    >>> folder = fetch("reddit", "data/reddit")  # doctest: +SKIP
    >>> graph = hoplite.load(folder)  # doctest: +SKIP
    """
    if name in EMBEDDED:
        raise ConfigError(f"is {name!r}, which comes with Hoplite; use it by its name.", "fetch")
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
        raise DatasetError(
            f"{archive.url} cannot be downloaded ({first_line(error)}); check the network "
            "connection and try again to resume."
        ) from error
    except (ValueError, KeyError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        shutil.rmtree(download, ignore_errors=True)
        raise DatasetError(
            f"{archive.url} does not have the expected SHA-256 checksum, or is not a zip file "
            f"with {' and '.join(archive.members)}; it was removed, so try again to download it."
        ) from error
    except OSError as error:
        raise DatasetError(
            f"{folder} cannot be written: {error.strerror or error}; the partial download is "
            "kept, so try again to resume."
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
                    raise ValueError("it is larger than expected")
                file.write(chunk)
                share = UNPACKING * min(size / total, 1)
                self.report(
                    f"{self.archive.name}: {size / 1e6:,.0f} of {total / 1e6:,.0f} MB", share
                )


def synthetic(
    nodes: int,
    edges: int,
    features: int,
    classes: int,
    *,
    homophily: float = 0.8,
    exponent: float = 3.0,
    max_degree: int | None = None,
    separation: float = 4.0,
    misfits: float = 0.0,
    skew: float = 0.0,
    split: Sequence[float] = (0.6, 0.2),
    seed: int = 0,
    name: str = "synthetic",
) -> Graph:
    """Generate a simple graph of degree-corrected communities with Gaussian features.

    Node i of class c_i has the features mu_{c_i} + noise. The noise is standard normal, and the
    class means are mu_c ~ N(0, separation^2 / (2 d) I), so that two of them are about
    ``separation`` apart. Expected degrees follow a power law. A share ``homophily`` of the edges
    connects nodes of the same class, and the ends of each edge are drawn in proportion to the
    expected degrees. Repeated edges are drawn again, so the graph has exactly ``edges`` edges. The
    same arguments give the same bits.

    Parameters
    ----------
    nodes, edges, features, classes : int
        Sizes; each edge is undirected and counted once.
    homophily : float, default 0.8
        Share of the edges within a class. At most half of the possible edges of a class are used,
        so the share is lower in small, dense graphs.
    exponent : float, default 3.0
        The density of the degrees is proportional to degree^-exponent; more than 2.
    max_degree : int, optional
        Largest expected degree; by default a tenth of the nodes, or ten times the mean degree.
    separation : float, default 4.0
        Distance of two class means, in standard deviations of the noise.
    misfits : float, default 0.0
        Share of the nodes whose edges are those of another class. Only their own features show
        their class.
    skew : float, default 0.0
        Class c (from 0) has a share of the nodes proportional to (c + 1)^-skew; 0 for equal shares.
    split : (float, float), default (0.6, 0.2)
        Shares of the training and validation nodes; the other nodes are test nodes. Every class has
        a training node.
    seed : int, default 0
        Seed of the whole graph.
    name : str, default "synthetic"
        Name of the graph in reports.

    Returns
    -------
    Graph

    Examples
    --------
    >>> graph = synthetic(100, 400, 8, 4, seed=1)
    >>> graph, graph.split.sizes()
    (Graph(nodes=100, edges=400, features=8, classes=4), {'train': 60, 'val': 20, 'test': 20})
    """
    sizes = {"nodes": nodes, "edges": edges, "features": features, "classes": classes}
    for argument, size in sizes.items():
        check_number(argument, size, 0 if argument == "edges" else 1, whole=True)
    for argument, value, most in (
        ("homophily", homophily, 1), ("misfits", misfits, 1), ("separation", separation, math.inf),
        ("skew", skew, math.inf),
    ):  # fmt: skip
        check_number(argument, value, 0, most)
    check_number("exponent", exponent, 2, open_ends="l")
    check_number("seed", seed, 0, whole=True)
    if classes > nodes:
        raise ConfigError(
            f"classes is {classes:,} but there are {plural(nodes, 'node')}; each class needs at "
            "least one node."
        )
    if max_degree is None:
        max_degree = min(max(nodes // 10, 20 * edges // nodes, 1), nodes)
    check_number("max_degree", max_degree, 1, whole=True)
    # Each part has its own stream, so that changing one leaves the others as they are.
    streams = np.random.default_rng(seed).spawn(5)
    labels = _labels(nodes, classes, skew, streams[0])
    degrees = power_law_degrees(nodes, edges, exponent, max_degree, streams[1])
    community = _communities(labels, classes, misfits, streams[2])
    room = edge_room(np.bincount(community, minlength=classes))
    if edges > room.sum():
        raise ConfigError(
            f"edges is {edges:,} but {plural(nodes, 'node')} allow at most {room.sum():,}, half of "
            "all pairs; use fewer edges or more nodes."
        )
    keys = draw_edges(community, degrees, edges, homophily, room, streams[3])
    adjacency = _adjacency(keys, nodes)
    del keys
    matrix = _features(labels, features, classes, separation, streams[4])
    parts = _split(labels, split, streams[0], seed)
    return Graph(
        adjacency,
        matrix,
        labels,
        split=parts,
        class_names=tuple(str(c) for c in range(classes)),
        name=name,
    )


def reddit_like(scale: float = 1.0, *, seed: int = 0) -> Graph:
    """Generate a synthetic graph with Reddit's mean degree and shares of the split.

    Nodes and edges are scaled; the 602 features, the 41 classes and the mean degree of 492 stay the
    same. Small graphs are therefore dense, have little room for edges within a class, and are
    harder to classify. At full size, smoothing models classify every node correctly except the 6 %
    of misfits: use the graph to measure time and memory, not to rank models.

    Parameters
    ----------
    scale : float, default 1.0
        Number of nodes and edges, relative to Reddit's.
    seed : int, default 0
        Seed of the whole graph.

    Returns
    -------
    Graph

    Examples
    --------
    >>> reddit_like(0.005)  # doctest: +SKIP
    Graph(nodes=1165, edges=286540, features=602, classes=41)
    """
    # Below the least scale half of all pairs would be edges.
    check_number("scale", scale, LEAST_SCALE, MOST_SCALE)
    nodes, edges = round(REDDIT_SIZE["nodes"] * scale), round(REDDIT_SIZE["edges"] * scale)
    return synthetic(
        nodes,
        edges,
        REDDIT_SIZE["features"],
        REDDIT_SIZE["classes"],
        homophily=0.85,
        exponent=2.9,
        separation=4.0,
        misfits=0.06,
        skew=0.5,
        split=REDDIT_SPLIT,
        seed=seed,
        name=REDDIT_LIKE if scale == 1 else f"{REDDIT_LIKE}:{scale:g}",
    )


def _labels(nodes: int, classes: int, skew: float, rng: np.random.Generator) -> np.ndarray:
    """One node for each class, the others by share, in random order."""
    shares = np.arange(1, classes + 1, dtype=np.float64) ** -skew
    ends = np.round(np.cumsum(shares) / shares.sum() * (nodes - classes)).astype(np.int64)
    counts = np.diff(ends, prepend=0) + 1
    return rng.permutation(np.repeat(np.arange(classes), counts))


def _communities(
    labels: np.ndarray, classes: int, misfits: float, rng: np.random.Generator
) -> np.ndarray:
    """The class whose edges each node has: its own, or for a misfit one of the others."""
    community = labels.copy()
    if classes > 1:
        chosen = rng.permutation(labels.size)[: round(misfits * labels.size)]
        shift = rng.integers(1, classes, chosen.size)
        community[chosen] = (labels[chosen] + shift) % classes
    return community


def _adjacency(keys: np.ndarray, nodes: int) -> sp.csr_array:
    """Keys i n + j with i < j, ascending, as a symmetric matrix of booleans."""
    index = np.int32 if max(nodes, 2 * keys.size) <= np.iinfo(np.int32).max else np.int64
    starts = np.searchsorted(keys, np.arange(nodes + 1) * nodes).astype(index)
    columns = np.empty(keys.size, index)
    np.remainder(keys, nodes, out=columns, casting="same_kind")
    upper = sp.csr_array((np.ones(keys.size, bool), columns, starts), shape=(nodes, nodes))
    return sp.csr_array(upper.maximum(upper.T))


def _features(
    labels: np.ndarray, features: int, classes: int, separation: float, rng: np.random.Generator
) -> np.ndarray:
    scale = np.float32(separation / math.sqrt(2 * features))
    means = scale * rng.standard_normal((classes, features), np.float32)
    matrix = np.empty((labels.size, features), np.float32)
    for start in range(0, labels.size, ROWS):
        rows = matrix[start : start + ROWS]
        rng.standard_normal(dtype=np.float32, out=rows)
        rows += means[labels[start : start + ROWS]]
    return matrix


def _split(
    labels: np.ndarray, shares: Sequence[float], rng: np.random.Generator, seed: int
) -> Split:
    parts = np.asarray(shares, np.float64)
    if parts.shape != (2,) or not (parts >= 0).all() or parts.sum() > 1 + 1e-9:
        raise ConfigError(
            f"split is {shares!r}; pass the shares of training and validation nodes, which must "
            "not add up to more than 1."
        )
    order = rng.permutation(labels.size)
    first = np.unique(labels[order], return_index=True)[1]  # one node of each class comes first
    order = np.concatenate([order[first], np.delete(order, first)])
    train = max(round(parts[0] * labels.size), first.size)
    val = train + round(parts[1] * labels.size)
    percent = "/".join(f"{100 * share:.4g}" for share in (*parts, 1 - parts.sum()))
    return Split(order[:train], order[train:val], order[val:], note=f"random {percent}", seed=seed)


# Edges of a degree-corrected community graph, drawn in memory that their keys alone determine.


def power_law_degrees(
    nodes: int, edges: int, exponent: float, most: int, rng: np.random.Generator
) -> np.ndarray:
    """Expected degrees with density ~ x^-exponent, at most ``most``, whose mean is 2 edges / nodes.

    x = (1 - u)^(-1 / (exponent - 1)) for u uniform in [0, 1), scaled; what is above ``most`` is
    cut and the others grow to make up for it.

    >>> degrees = power_law_degrees(1000, 5000, 2.5, 40, np.random.default_rng(0))
    >>> float(degrees.mean().round(6)), float(degrees.max())
    (10.0, 40.0)
    """
    degrees = (1 - rng.random(nodes)) ** (-1 / (exponent - 1))
    total = 2.0 * edges
    if total >= most * nodes:
        return np.full(nodes, total / nodes)
    if not total:
        return np.zeros(nodes)
    free = np.ones(nodes, bool)
    while True:
        degrees[free] *= (total - most * (nodes - free.sum())) / degrees[free].sum()
        above = free & (degrees > most)
        if not above.any():
            return degrees
        degrees[above] = most
        free &= ~above


def edge_room(sizes: np.ndarray) -> np.ndarray:
    """How many edges each community may have, and last those between them: half of all pairs.

    Beyond half, drawing until a free pair is found would take long.

    >>> edge_room(np.array([3, 4]))
    array([2, 3, 6])
    """
    sizes = sizes.astype(np.int64)
    pairs = sizes * (sizes - 1) // 2
    n = sizes.sum()
    return (np.append(pairs, n * (n - 1) // 2 - pairs.sum()) + 1) // 2


def draw_edges(
    community: np.ndarray,
    degrees: np.ndarray,
    edges: int,
    homophily: float,
    room: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Exactly ``edges`` different pairs i < j as ascending keys i n + j (int64).

    A share ``homophily`` of them lies within communities, shared out by the communities' degrees
    as far as there is ``room`` (:func:`edge_room`), the rest joins different ones. Both ends are
    drawn in proportion to ``degrees``.
    """
    n, groups = community.size, room.size - 1
    weights = np.bincount(community, degrees, groups)
    counts = _quotas(edges, homophily, weights, room)
    order = np.argsort(community, kind="stable")
    bounds = np.searchsorted(community[order], np.arange(groups + 1))
    keys = np.empty(edges, np.int64)
    filled = np.append(0, np.cumsum(counts))
    for group in range(groups + 1):
        if group < groups:
            members, apart = order[bounds[group] : bounds[group + 1]], None
        else:
            members, apart = np.arange(n), community
        keys[filled[group] : filled[group + 1]] = _draw_group(
            members, degrees[members], int(counts[group]), n, apart, rng
        )
    keys.sort()
    return keys


def _quotas(edges: int, homophily: float, weights: np.ndarray, room: np.ndarray) -> np.ndarray:
    """Edges per community and, last, between them; none above its room."""
    within = np.minimum(_shared_out(round(homophily * edges), weights), room[:-1])
    between = min(edges - int(within.sum()), int(room[-1]))
    left = edges - int(within.sum()) - between
    return np.append(within + _shared_out(left, room[:-1] - within), between)


def _shared_out(total: int, weights: np.ndarray) -> np.ndarray:
    """``total`` as integers in proportion to ``weights``; none exceeds its share by 1 or more."""
    if not weights.sum():
        return np.zeros(weights.size, np.int64)
    shares = total * (weights / weights.sum())
    counts = np.floor(shares).astype(np.int64)
    most = np.argsort(counts - shares, kind="stable")[: total - int(counts.sum())]
    counts[most] += 1
    return counts


def _draw_group(
    members: np.ndarray,
    degrees: np.ndarray,
    count: int,
    n: int,
    apart: np.ndarray | None,
    rng: np.random.Generator,
) -> np.ndarray:
    """``count`` different keys among ``members``; with ``apart``, of different communities."""

    def draw(number: int) -> np.ndarray:
        """Keys of ``number`` pairs but for loops and, with ``apart``, pairs of one community."""
        places = np.searchsorted(steps, rng.random((2, number)) * steps[-1], side="right")
        # u * total may round up to the total itself
        ends = members[np.minimum(places, members.size - 1)]
        low, high = np.sort(ends, axis=0)
        good = low != high if apart is None else apart[low] != apart[high]
        return (low * n + high)[good]

    keys = np.empty(0, np.int64)
    steps, rounds = np.cumsum(degrees), 0
    while keys.size < count:
        if rounds == ROUNDS or not steps[-1]:
            steps = np.arange(1.0, members.size + 1)
        rounds += 1
        missing = count - keys.size
        fresh = [draw(min(BATCH, missing - start)) for start in range(0, missing, BATCH)]
        keys = np.unique(np.concatenate([keys, *fresh]))
    return keys
