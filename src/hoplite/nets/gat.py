"""The two-layer Graph Attention Network, a baseline.

    H = dropout(ELU(concat_h A_h dropout(X) W1_h + b1)),  logits = A H W2 + b2

A_h(i, j) = dropout(softmax over i's edges of LeakyReLU(target_h . z_i + source_h . z_j)), where z
is dropout(X) W1_h, or H W2 (Velickovic et al.). Edge weights are not used; every node has a loop.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from hoplite.config import number_setting
from hoplite.models.base import OF_FILTERS, Weights
from hoplite.models.settings import ModelConfig
from hoplite.nets.base import Network, Tensors, glorot
from hoplite.nets.gcn import MAX_UNITS, hidden_setting

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from hoplite.engine.dropout import Dropout
    from hoplite.nets.edge_sums import EdgeSums
    from hoplite.nets.view import GraphView
else:
    from hoplite.lazy import torch

SLOPE = 0.2  # of LeakyReLU below 0


class GAT(Network):
    """``heads`` attention heads of ``hidden`` units each, an ELU, and one head to the classes."""

    name = "gat"
    title = "GAT"
    idle = frozenset({"order", "output_dropout"}) | OF_FILTERS
    size = "{0.heads} heads of {0.hidden} hidden units"
    growth = "hidden"

    @dataclass(frozen=True)
    class Settings(ModelConfig):
        hidden: int = hidden_setting()
        heads: int = number_setting(8, "attention heads.", 1, MAX_UNITS)

    def __init__(
        self, config: ModelConfig, num_features: int, num_classes: int, relations: int = 1
    ) -> None:
        super().__init__(config, num_features, num_classes, relations)
        self._fields: WeakKeyDictionary[GraphView, _Field] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def initial(self, rng: np.random.Generator | None) -> Weights:
        heads, h, m = self.config.heads, self.config.hidden, self.num_classes
        return {
            "hidden_weight": glorot(self.num_features, heads * h, rng),
            "hidden_source": glorot(heads, h, rng),
            "hidden_target": glorot(heads, h, rng),
            "hidden_bias": np.zeros(heads * h, np.float32),
            "weight": glorot(heads * h, m, rng),
            "source": glorot(1, m, rng),
            "target": glorot(1, m, rng),
            "bias": np.zeros(m, np.float32),
        }

    def forward(self, weights: Tensors, view: GraphView, dropout: Dropout | None) -> Tensor:
        from hoplite.nets.view import drop

        w, field = weights, self._field(view)
        signal = field.view.inputs(w["hidden_weight"], dropout)
        signal = signal.view(-1, self.config.heads, self.config.hidden)
        hidden = field.first.attend(signal, w["hidden_source"], w["hidden_target"], dropout, 2)
        hidden = torch.nn.functional.elu(hidden.flatten(1) + w["hidden_bias"])
        signal = drop(hidden, dropout, 1, field.hidden) @ w["weight"]
        outputs = field.second.attend(
            signal.unsqueeze(1), w["source"], w["target"], dropout, 3
        ).squeeze(1)
        return outputs if field.rows is None else outputs.index_select(0, field.rows)

    def signal_columns(self) -> int:
        return max(self.config.heads * self.config.hidden, self.num_classes)

    def _field(self, view: GraphView) -> _Field:
        with self._lock:
            if view not in self._fields:
                self._fields[view] = _Field(view)
            return self._fields[view]


class _Field:
    """The nodes and edges that two layers need for a view's rows, counted anew from 0.

    Into the training nodes of Pubmed and their neighbours, 354 ``hidden`` ones, lead 4,481 of its
    108,365 edges, from 2,798 nodes. A layer's edges come with their numbers in the whole graph, by
    which dropout goes, and with the places of its targets among its sources; None is all.
    """

    def __init__(self, view: GraphView) -> None:
        edges = view.graph.edges
        self.hidden: np.ndarray | None = None
        self.rows: Tensor | None = None
        self.first = self.second = _Edges(edges)
        nodes = None
        if view.nodes is not None:
            rows = torch.tensor(view.nodes)
            last = rows.unique()
            self.second, hidden = _Edges.into(last, edges)
            self.first, sources = _Edges.into(hidden, edges)
            self.hidden, nodes = hidden.numpy(), sources.numpy()
            self.rows = torch.searchsorted(last, rows)
        self.view = view.graph.view(nodes)


@dataclass(frozen=True, eq=False)
class _Edges:
    """The edges into some nodes, by target."""

    ends: Tensor  # (2, e): source and target, each counted among its kind
    numbers: np.ndarray | None = None
    targets: Tensor | None = None  # which of the sources they are

    @classmethod
    def into(cls, targets: Tensor, edges: Tensor) -> tuple[_Edges, Tensor]:
        """The edges that lead into sorted nodes, and the sorted nodes that they come from."""
        numbers = torch.isin(edges[1], targets).nonzero().flatten()
        ends = edges[:, numbers]
        sources = ends[0].unique()  # with the targets, each of which has a loop
        places = zip((sources, targets), ends, strict=True)
        ends = torch.stack([torch.searchsorted(kind, nodes) for kind, nodes in places])
        return cls(ends, numbers.numpy(), torch.searchsorted(sources, targets)), sources

    @cached_property
    def sums(self) -> EdgeSums:
        from hoplite.nets.edge_sums import EdgeSums

        return EdgeSums(self.ends)

    def attend(
        self, signal: Tensor, source: Tensor, target: Tensor, dropout: Dropout | None, layer: int
    ) -> Tensor:
        """The sums of a signal (sources, heads, c), by its attention: (targets, heads, c).

        ``source`` and ``target`` (heads, c) are the weights of the scores.
        """
        from hoplite.nets.view import drop

        at_sources = (signal * source).sum(dim=2)  # (sources, heads)
        at_targets = (signal * target).sum(dim=2)
        if self.targets is not None:
            at_targets = at_targets.index_select(0, self.targets)
        scores = at_targets.index_select(0, self.ends[1]) + at_sources.index_select(0, self.ends[0])
        attention = self.sums.softmax(torch.nn.functional.leaky_relu(scores, SLOPE))
        return self.sums(signal, drop(attention, dropout, layer, self.numbers))
