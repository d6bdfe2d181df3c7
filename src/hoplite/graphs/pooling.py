"""From graphs to rows of numbers: the families of features that a linear map is trained on.

G graphs have n nodes in all, S is block-diagonal n x n, X n x d, P the G x n indicator of
membership, and D = diag(nodes of each graph). A family is Phi, G x width, in

    logits = Phi Theta + 1 b'

======== ==========================================================================================
hops     [P S^i X, D^-1 P S^i X] for i = 0..k, and log n_g
pool     hops, with the maximum and the standard deviation over the nodes of a graph
colours  Weisfeiler-Lehman: log(1 + nodes of each colour), rows of length 1
fourier  D^-1 P cos(Z W + 1 b'), Z = [S^i X]_i standardised, W and b random
======== ==========================================================================================

X without columns, or with ``structure``, is made of degrees: one-hot of the binned log degree, and
the local degree profile. Whatever is fitted (colours, scales, bins) comes from training graphs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp

from hoplite.config import Checked, choice_setting, number_setting
from hoplite.engine.polynomial import iterate
from hoplite.engine.propagation import Propagation
from hoplite.errors import GraphError, check_choice
from hoplite.graph import Graph
from hoplite.graphs.graph_set import GraphSet
from hoplite.operators import OPERATORS

STRUCTURE = ("auto", "none", "add")
BINS_PER_DOUBLING = 4  # bins per doubling of the degree
PROFILE = ("log degree", "log min", "log max", "log mean", "log deviation")
DOUBLINGS = 12  # doublings of a profile's entries that have their own bins
RECORD = np.dtype([("graph", np.int64), ("colour", np.uint64), ("number", np.int64)])


@dataclass(frozen=True)
class HopSettings(Checked):
    """Settings of families that read hop features."""

    hops: int = number_setting(3, "Number of hops.", 0, 100)
    operator: str = choice_setting("random_walk", "Operator of the hops.", OPERATORS)
    structure: str = choice_setting(
        "auto", "Degrees as features: auto (if there are no others), none or add.", STRUCTURE
    )
    profile_bins: int = number_setting(
        0, "Bins per doubling of min, max, mean and deviation of neighbours' degrees.", 0, 8
    )


class Pooling(ABC):
    """A family, fitted to training graphs.

    Parameters
    ----------
    settings : Settings
        Settings of the family.
    num_features : int
        d, the columns of X that it was fitted to.
    state : dict of ndarray
        What was fitted; it is saved with a model.
    """

    name: ClassVar[str]
    Settings: ClassVar[type[Checked]]
    arrays: ClassVar[dict[str, type[np.number]]]  # of the state, with their types
    steps: ClassVar[str] = "hop"  # what explanations call the rows of node_parts

    def __init__(self, settings: Any, num_features: int, state: Mapping[str, np.ndarray]) -> None:
        self.settings, self.num_features, self.state = settings, num_features, dict(state)

    @classmethod
    @abstractmethod
    def fit(cls, graphs: GraphSet, train: np.ndarray, settings: Any) -> Pooling:
        """Fit to the graphs ``train``, indices."""

    def check_state(self) -> None:  # noqa: B027
        """ValueError unless the arrays of a file fit each other and the settings."""

    @abstractmethod
    def features(self, graphs: GraphSet) -> np.ndarray | sp.csr_array:
        """Phi: (G, width)."""

    @abstractmethod
    def names(self, feature_names: list[str]) -> list[str]:
        """A name for each column of Phi."""

    def node_parts(self, graphs: GraphSet, theta: np.ndarray) -> np.ndarray | None:  # noqa: B027
        """Phi theta of a single graph by hop (or depth) and node: (steps, n); None if no sum.

        ``theta`` (width,) is a column of Theta, or the difference of two.
        """

    def places(self, graph: Graph) -> dict[str, str]:
        """Where in a graph some columns of Phi come from, by their names."""
        return {}

    def constant_part(self, amounts: np.ndarray) -> float:
        """What of ``amounts``, the parts of the columns, belongs to no node."""
        return 0.0


# ---------------------------------------------------------------------------- node inputs


def degree_profile(graph: Graph) -> np.ndarray:
    """log(1 + .) of the degree, and its min, max, mean and deviation over neighbours: (n, 5)."""
    degrees = np.diff(graph.adjacency.indptr).astype(np.float64)
    near, filled = degrees[graph.adjacency.indices], degrees > 0
    profile = np.zeros((len(degrees), 5))
    profile[:, 0] = degrees
    if filled.any():
        first, count = graph.adjacency.indptr[:-1][filled], degrees[filled]
        low, high = np.minimum.reduceat(near, first), np.maximum.reduceat(near, first)
        mean = np.add.reduceat(near, first) / count
        square = np.add.reduceat(near**2, first) / count
        deviation = np.sqrt(np.maximum(square - mean**2, 0))
        profile[filled, 1:] = np.column_stack([low, high, mean, deviation])
    return np.log1p(profile).astype(np.float32)


def degree_bins(graph: Graph) -> np.ndarray:
    """The bin of each node's degree, four for each doubling: (n,) integers."""
    degrees = np.diff(graph.adjacency.indptr)
    return np.floor(BINS_PER_DOUBLING * np.log2(1 + degrees)).astype(np.int64)


def training_blocks(
    graphs: GraphSet, train: np.ndarray, width: int = 1
) -> Iterator[tuple[Graph, np.ndarray]]:
    """Ranges of graphs, and which of their nodes are those of the graphs ``train``: bool (n,)."""
    training = np.isin(np.arange(len(graphs)), train)
    for part, block in graphs.blocks(width):
        yield block, np.repeat(training[part], graphs.sizes[part])


# ----------------------------------------------------------------------------------- hops


class HopPooling(Pooling):
    """What families of hop features share.

    The hops are those of the columns of the set, of the degrees, or of both. ``bins`` of the state
    are those of the degrees of training graphs; a degree outside counts to the next.
    """

    Settings = HopSettings
    arrays: ClassVar = {"bins": np.int64}

    @classmethod
    def fit(cls, graphs: GraphSet, train: np.ndarray, settings: Any) -> Self:
        bins = np.empty(0, np.int64)
        if settings.structure == "none" and not graphs.num_features:
            raise GraphError(f"{graphs.name} has no node features; set structure to auto.")
        if settings.structure == "add" or not graphs.num_features:
            blocks = training_blocks(graphs, train)
            own = [np.unique(degree_bins(block)[inside]) for block, inside in blocks]
            bins = np.unique(np.concatenate(own))
        return cls(settings, graphs.num_features, {"bins": bins})

    def node_features(self, block: Graph) -> np.ndarray | sp.csr_array:
        """X of a block: (n, d)."""
        bins, per_doubling = self.state["bins"], self.settings.profile_bins
        if not len(bins):
            return block.features
        place = np.searchsorted(bins, degree_bins(block)).clip(0, len(bins) - 1)
        profile = degree_profile(block)
        parts: list[Any] = [np.eye(len(bins), dtype=np.float32)[place], profile]
        if per_doubling:
            last = DOUBLINGS * per_doubling
            places = np.floor(profile[:, 1:] * (per_doubling / np.log(2))).astype(int)
            unit = np.eye(last + 1, dtype=np.float32)
            parts += [unit[column] for column in places.clip(0, last).T]
        return np.hstack([block.feature_rows(0, block.num_nodes), *parts])

    def node_feature_names(self, feature_names: list[str]) -> list[str]:
        """The names of the columns of X, from those of the set."""
        bins, per_doubling = self.state["bins"], self.settings.profile_bins
        if not len(bins):
            return feature_names
        low = np.ceil(2 ** (bins / BINS_PER_DOUBLING) - 1).astype(int)
        binned = range(DOUBLINGS * per_doubling + 1 if per_doubling else 0)
        profile = [f"{name} bin {b}" for name in PROFILE[1:] for b in binned]
        return [*feature_names, *(f"degree {d}+" for d in low), *PROFILE, *profile]

    @property
    def width(self) -> int:
        """d, with the columns of the degrees."""
        return len(self.node_feature_names([""] * self.num_features))

    def hop_blocks(self, graphs: GraphSet) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """Ranges of graphs, the offsets of their nodes (g + 1,), and their hops (k + 1, n, d)."""
        for part, block in graphs.blocks(self.width * (self.settings.hops + 1)):
            values = self.propagation(block).hop_features()
            offsets = graphs.offsets[part.start : part.stop + 1]
            yield part, offsets - offsets[0], values

    def propagation(self, block: Graph) -> Propagation:
        """The hops of a block, in double precision, in which sums over many nodes stay exact."""
        graph = block.with_features(self.node_features(block))
        return Propagation(graph, self.settings.operator, hops=self.settings.hops, dtype=np.float64)

    def features(self, graphs: GraphSet) -> np.ndarray:
        blocks = self.hop_blocks(graphs)
        return np.concatenate([self.pooled(values, offsets) for _, offsets, values in blocks])

    @abstractmethod
    def pooled(self, values: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Phi of some graphs from the hops of their nodes."""


class Hops(HopPooling):
    """Sums and means of the hops, and the logarithm of the number of nodes.

    Node u of graph g adds sum_i (1' S^i)_u x_u (Theta_i^sum + Theta_i^mean / n_g) to its logits.
    """

    name = "hops"

    def features(self, graphs: GraphSet) -> np.ndarray:
        key = (self.name, self.settings, self.state["bins"].tobytes())
        return graphs.cached(key, lambda: HopPooling.features(self, graphs))

    def pooled(self, values: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        sums, sizes = group_sums(values, offsets), np.diff(offsets)[:, None]
        means = sums / np.maximum(sizes, 1)
        return np.hstack([*sums, *means, np.log(np.maximum(sizes, 1))])

    def node_parts(self, graphs: GraphSet, theta: np.ndarray) -> np.ndarray | None:
        graph, hops = graphs.block(0, 1), self.settings.hops
        inputs: Any = self.node_features(graph)
        propagation, unit = self.propagation(graph), np.ones((graph.num_nodes, 1))
        reach = [*iterate(propagation.matrices[0].T, propagation.basis, unit, hops)]
        sums, means = theta[: 2 * (hops + 1) * self.width].reshape(2, hops + 1, self.width)
        maps = (sums + means / max(graph.num_nodes, 1)).T
        return np.hstack(reach).T * np.asarray(inputs.astype(np.float64) @ maps).T

    def constant_part(self, amounts: np.ndarray) -> float:
        return float(amounts[-1])

    def names(self, feature_names: list[str]) -> list[str]:
        return [*self._hop_names(feature_names, "sum", "mean"), "log nodes"]

    def _hop_names(self, feature_names: list[str], *pools: str) -> list[str]:
        own, hops = self.node_feature_names(feature_names), range(self.settings.hops + 1)
        return [f"{pool} of hop {i}: {name}" for pool in pools for i in hops for name in own]


class Pool(Hops):
    """Those of :class:`Hops`, with the maximum and the standard deviation of every hop."""

    name = "pool"

    def node_parts(self, graphs: GraphSet, theta: np.ndarray) -> np.ndarray | None:
        return None

    def pooled(self, values: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        first = super().pooled(values, offsets)
        sizes = np.diff(offsets)
        filled, count = sizes > 0, np.maximum(sizes, 1)[:, None]
        most = np.zeros((len(values), len(sizes), values.shape[2]))
        if filled.any():
            most[:, filled] = np.maximum.reduceat(values, offsets[:-1][filled], axis=1)
        means = group_sums(values, offsets) / count
        spread = values - np.repeat(means, sizes, axis=1)
        deviation = np.sqrt(group_sums(spread**2, offsets) / count)
        return np.hstack([first, *most, *deviation])

    def names(self, feature_names: list[str]) -> list[str]:
        more = self._hop_names(feature_names, "maximum", "deviation")
        return super().names(feature_names) + more


def group_sums(values: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The sums over the nodes of each graph, of (k + 1, n, d): float64 (k + 1, G, d)."""
    n = values.shape[1]
    members = sp.csr_array((np.ones(n), np.arange(n), offsets), shape=(len(offsets) - 1, n))
    return np.stack([members @ hop for hop in values.astype(np.float64, copy=False)])


@dataclass(frozen=True)
class FourierSettings(HopSettings):
    """Settings of random Fourier features."""

    count: int = number_setting(1024, "Number of random features.", 1, 1 << 16)
    frequency: float = number_setting(1.0, "Scale of the random weights.", 0, 100, open_ends="l")
    seed: int = number_setting(0, "Seed of the random weights.", 0, 2**63 - 1)


class Fourier(HopPooling):
    """Means over nodes of sqrt(2) cos(Z W + 1 b'), W ~ N(0, frequency^2 / width), b ~ U(0, 2 pi).

    It approximates the mean of a Gaussian kernel between the nodes of two graphs.
    """

    name = "fourier"
    Settings = FourierSettings
    arrays: ClassVar = {"bins": np.int64, "mean": np.float64, "deviation": np.float64}

    @classmethod
    def fit(cls, graphs: GraphSet, train: np.ndarray, settings: Any) -> Self:
        from sklearn.preprocessing import StandardScaler  # only now, as importing it takes time

        fitted = super().fit(graphs, train, settings)
        training, scaler = np.isin(np.arange(len(graphs)), train), StandardScaler()
        for part, offsets, values in fitted.hop_blocks(graphs):
            rows = np.hstack([*values])[np.repeat(training[part], np.diff(offsets))]
            if len(rows):
                scaler.partial_fit(rows)
        fitted.state |= {"mean": scaler.mean_, "deviation": scaler.scale_}
        return fitted

    def check_state(self) -> None:
        shape = ((self.settings.hops + 1) * self.width,)
        if not self.state["mean"].shape == self.state["deviation"].shape == shape:
            raise ValueError(f"its scales are not those of {shape[0]:,} columns")

    def pooled(self, values: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        waves = self.waves(np.hstack([*values]))
        return group_sums(waves[None], offsets)[0] / np.maximum(np.diff(offsets), 1)[:, None]

    def waves(self, rows: np.ndarray) -> np.ndarray:
        """sqrt(2) cos(Z W + 1 b') of rows of hops: (n, count)."""
        rng, count = np.random.default_rng(self.settings.seed), self.settings.count
        width = rows.shape[1]
        weights = rng.standard_normal((width, count)) * self.settings.frequency / np.sqrt(width)
        shift = rng.uniform(0, 2 * np.pi, count)
        scaled = ((rows - self.state["mean"]) / self.state["deviation"]).astype(np.float32)
        phases = scaled @ weights.astype(np.float32) + shift.astype(np.float32)
        return np.sqrt(np.float32(2)) * np.cos(phases)

    def node_parts(self, graphs: GraphSet, theta: np.ndarray) -> np.ndarray | None:
        ((_, _, values),) = self.hop_blocks(graphs)
        waves = self.waves(np.hstack([*values]))
        return (waves.astype(np.float64) @ theta / max(len(waves), 1))[None]

    def names(self, feature_names: list[str]) -> list[str]:
        return [f"wave {j}" for j in range(self.settings.count)]


# -------------------------------------------------------------------------------- colours


@dataclass(frozen=True)
class ColourSettings(Checked):
    """Settings of Weisfeiler-Lehman colours."""

    depth: int = number_setting(3, "Rounds of refinement of the colours.", 0, 100)


class Colours(Pooling):
    """How many nodes of each Weisfeiler-Lehman colour a graph has.

    c^0 is a node's tag, which is the pattern of its features that are 0 or 1 in all training
    graphs, or its degree if there are none, and c^{h+1} = hash(c^h, multiset of c^h of the
    neighbours). A hash has 64 bits and is the same in every process. The columns are the colours
    that at least two training graphs have; Phi_gc = log(1 + nodes of colour c in g), and a row has
    length 1.
    """

    name = "colours"
    Settings = ColourSettings
    arrays: ClassVar = {"tags": np.int64, "colours": np.uint64}
    steps = "depth"

    @classmethod
    def fit(cls, graphs: GraphSet, train: np.ndarray, settings: Any) -> Pooling:
        fitted = cls(settings, graphs.num_features, {"tags": _tag_columns(graphs, train)})
        counts = fitted.counts(graphs)
        inside = np.isin(counts.graph, train)
        colours, times = np.unique(counts.colour[inside], return_counts=True)
        fitted.state["colours"] = colours[times >= 2]
        if not fitted.state["colours"].size:
            raise GraphError(
                "no two training graphs share a colour; use the family hops, or a smaller depth."
            )
        return fitted

    def check_state(self) -> None:
        tags, colours = self.state["tags"], self.state["colours"]
        if not np.isin(tags, np.arange(self.num_features)).all():
            raise ValueError("its tags are columns that do not exist")
        if (colours[1:] <= colours[:-1]).any():
            raise ValueError("its colours are not sorted")

    def features(self, graphs: GraphSet) -> sp.csr_array:
        counts, colours = self.counts(graphs), self.state["colours"]
        place = np.searchsorted(colours, counts.colour)
        known = place < len(colours)
        known[known] = colours[place[known]] == counts.colour[known]
        values = np.log1p(counts.number[known])
        length = np.sqrt(np.bincount(counts.graph[known], values**2, minlength=len(graphs)))
        values = values / length[counts.graph[known]]
        entries = values.astype(np.float32), (counts.graph[known], place[known])
        return sp.csr_array(entries, shape=(len(graphs), len(colours)))

    def counts(self, graphs: GraphSet) -> np.recarray:
        """The colours of every depth in every graph; kept with the set."""
        depth, tags = self.settings.depth, self.state["tags"]
        key = ("colours", depth, tags.tobytes())
        return graphs.cached(key, lambda: colour_counts(graphs, depth, tags))

    def node_parts(self, graphs: GraphSet, theta: np.ndarray) -> np.ndarray | None:
        row, colours = self.features(graphs), self.state["colours"]
        amounts = np.zeros(len(colours))
        amounts[row.indices] = row.data * theta[row.indices]
        parts = []
        for colour in colours_of(graphs.block(0, 1), self.settings.depth, self.state["tags"]):
            _, own, count = np.unique(colour, return_inverse=True, return_counts=True)
            place = np.searchsorted(colours, colour).clip(0, len(colours) - 1)
            parts.append(np.where(colours[place] == colour, amounts[place] / count[own], 0.0))
        return np.stack(parts)

    def places(self, graph: Graph) -> dict[str, str]:
        """The depth of each colour, and the first node that has it."""
        ids = graph.node_ids or range(graph.num_nodes)
        rounds = enumerate(colours_of(graph, self.settings.depth, self.state["tags"]))
        return {
            f"colour {colour:016x}": f"depth {depth} at {ids[node]}"
            for depth, colours in rounds
            for colour, node in zip(*np.unique(colours, return_index=True), strict=True)
        }

    def names(self, feature_names: list[str]) -> list[str]:
        return [f"colour {colour:016x}" for colour in self.state["colours"].tolist()]


def colour_counts(graphs: GraphSet, depth: int, tags: np.ndarray) -> np.recarray:
    """Records (graph, colour, number of its nodes there), sorted by the first two at each depth."""
    records = []
    for part, block in graphs.blocks(depth + 1):
        owner = np.repeat(np.arange(part.start, part.stop), graphs.sizes[part])
        for colours in colours_of(block, depth, tags):
            names, codes = np.unique(colours, return_inverse=True)
            pairs, number = np.unique(owner * len(names) + codes, return_counts=True)
            graph, code = np.divmod(pairs, max(len(names), 1))
            records.append(np.rec.fromarrays([graph, names[code], number], dtype=RECORD))
    return np.concatenate(records).view(np.recarray)


def colours_of(block: Graph, depth: int, tags: np.ndarray) -> Iterator[np.ndarray]:
    """The colour of every node after 0, 1, .. depth rounds: uint64 (n,) each."""
    arcs = (block.adjacency != 0).astype(np.uint64)
    if tags.size:
        own: Any = block.features
        pattern = sp.csr_array(own[:, tags] != 0).astype(np.uint64)
        colour = _mixed(pattern @ _mixed(tags.astype(np.uint64)))
    else:
        colour = _mixed(np.diff(arcs.indptr).astype(np.uint64))
    yield colour
    for _ in range(depth):
        near = arcs @ _mixed(colour ^ np.uint64(0x2545F4914F6CDD1D))
        colour = _mixed(_mixed(colour) + near)
        yield colour


def _mixed(values: np.ndarray) -> np.ndarray:
    """SplitMix64 of each value."""
    z = values + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _tag_columns(graphs: GraphSet, train: np.ndarray) -> np.ndarray:
    """The columns of X that are 0 or 1 at all nodes of training graphs: indices."""
    binary = np.ones(graphs.num_features, bool)
    for block, inside in training_blocks(graphs, train, graphs.num_features):
        own: Any = block.features[np.flatnonzero(inside)]
        if sp.issparse(own):
            odd = own.tocoo()
            binary[np.unique(odd.col[(odd.data != 0) & (odd.data != 1)])] = False
        else:
            binary &= ((own == 0) | (own == 1)).all(axis=0)
    return np.flatnonzero(binary)


FAMILIES: dict[str, type[Pooling]] = {
    family.name: family for family in (Hops, Pool, Colours, Fourier)
}


def find_family(name: str) -> type[Pooling]:
    """The class of a family by its name."""
    return FAMILIES[check_choice("model", name, FAMILIES)]
