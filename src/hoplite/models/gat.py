"""The two-layer Graph Attention Network, a baseline, with PyTorch Geometric's attention.

    H = dropout(ELU(concat_h A_h dropout(X) W1_h + b1)),  logits = A H W2 + b2

A_h(i, j) = dropout(softmax over i's edges of LeakyReLU(target_h . z_i + source_h . z_j)), where z
is dropout(X) W1_h, or H W2 (Velickovic et al.). Edge weights are not used; every node has a loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from hoplite.config import number_setting
from hoplite.errors import ConfigError
from hoplite.models.base import OF_FILTERS, Model, Weights, glorot
from hoplite.models.gcn import MOST_UNITS, hidden_setting
from hoplite.models.settings import ModelConfig

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from hoplite.propagation.dropout import Dropout
    from hoplite.propagation.edge_sums import EdgeSums
    from hoplite.propagation.engine import RowView
else:
    from hoplite.lazy import torch


class GAT(Model):
    """``heads`` attention heads of ``hidden`` units each, an ELU, and one head to the classes."""

    name = "gat"
    title = "GAT"
    idle = frozenset({"order", "output_dropout"}) | OF_FILTERS
    size = "{0.heads} heads of {0.hidden} hidden units"
    growth = "hidden"
    many_at_once = False  # nothing is gained but the memory of every run's messages

    @dataclass(frozen=True)
    class Settings(ModelConfig):
        hidden: int = hidden_setting()
        heads: int = number_setting(8, "attention heads.", 1, MOST_UNITS)

    def __init__(self, config: ModelConfig, num_features: int, num_classes: int) -> None:
        super().__init__(config, num_features, num_classes)
        self._fields: WeakKeyDictionary[RowView, _Field] = WeakKeyDictionary()

    def initial(self, generator: torch.Generator | None) -> Weights:
        heads, h, m = self.config.heads, self.config.hidden, self.num_classes
        return {
            "hidden_weight": glorot(self.num_features, heads * h, generator),
            "hidden_source": glorot(heads, h, generator),
            "hidden_target": glorot(heads, h, generator),
            "hidden_bias": torch.zeros(heads * h),
            "weight": glorot(heads * h, m, generator),
            "source": glorot(1, m, generator),
            "target": glorot(1, m, generator),
            "bias": torch.zeros(m),
        }

    def filtered(self, weights: Weights, view: RowView, dropout: Dropout | None) -> Tensor:
        field = self._fields.get(view)
        if field is None:
            field = self._fields[view] = _Field(view)
        inputs = field.view.inputs(weights["hidden_weight"], dropout)
        layers = [None if dropout is None else dropout.layer(i) for i in (1, 2, 3)]
        outputs = []
        for r in range(inputs.shape[1]):
            run = {name: value[r] for name, value in weights.items()}
            outputs.append(self._run(run, inputs[:, r], field, [_Drop(one, r) for one in layers]))
        return torch.stack(outputs, dim=1)

    def _run(self, w: Weights, inputs: Tensor, field: _Field, drops: list[_Drop]) -> Tensor:
        """One run, from its dropout(X) W1 to its outputs at the view's rows."""
        first, second = self._layers
        learned = {"att_src": w["hidden_source"][None], "att_dst": w["hidden_target"][None]}
        learned["bias"] = w["hidden_bias"]
        hidden = torch.nn.functional.elu(_attend(first, learned, inputs, field.first, drops[1]))
        signal = drops[0](hidden, field.hidden) @ w["weight"]
        learned = {"att_src": w["source"][None], "att_dst": w["target"][None]}
        outputs = _attend(second, learned, signal, field.second, drops[2])
        return outputs if field.rows is None else outputs.index_select(0, field.rows)

    @cached_property
    def _layers(self) -> tuple[Any, Any]:
        """Two GATConv without weights of their own, which take the product of inputs and W."""
        from hoplite.peers import find

        nn = find("torch_geometric.nn")
        if nn is None:
            raise ConfigError(
                'gat needs PyTorch Geometric; run `pip install "hoplite-graph[lab]"`.'
            )
        with torch.device("meta"):  # so that nothing is drawn from torch's own generator
            first = nn.GATConv(1, self.config.hidden, self.config.heads, add_self_loops=False)
            second = nn.GATConv(1, self.num_classes, bias=False, add_self_loops=False)
        first.lin = second.lin = torch.nn.Identity()
        return first, second


@dataclass(frozen=True)
class _Drop:
    """One run's dropout of a signal (rows, columns), whose rows have these numbers among all."""

    dropout: Dropout | None
    run: int

    def __call__(self, signal: Tensor, numbers: Tensor | None) -> Tensor:
        from hoplite.propagation.features import Features

        if self.dropout is None:
            return signal
        ones = torch.ones(signal.shape, dtype=signal.dtype)
        return signal * Features(ones, numbers).dense(self.dropout, self.run)


class _Field:
    """The nodes and edges that two layers need for a view's rows, counted anew from 0.

    Into the training nodes of Pubmed and their neighbours, 354 ``hidden`` ones, lead 4,481 of its
    108,365 edges, from 2,798 nodes. A layer's edges come with their numbers in the whole graph, by
    which dropout goes, and with the places of its targets among its sources; None is all.
    """

    def __init__(self, view: RowView) -> None:
        edges, rows = view.edges, view.nodes
        nodes = self.hidden = self.rows = None
        self.first = self.second = _Edges(edges)
        if rows is not None:
            last = rows.unique()
            self.second, self.hidden = _Edges.into(last, edges)
            self.first, nodes = _Edges.into(self.hidden, edges)
            self.rows = torch.searchsorted(last, rows)
        self.view = view.at(nodes)


@dataclass(frozen=True, eq=False)
class _Edges:
    """The edges into some nodes, by target."""

    ends: Tensor  # (2, e): source and target, each counted among its kind
    numbers: Tensor | None = None
    targets: Tensor | None = None  # which of the sources they are

    @classmethod
    def into(cls, targets: Tensor, edges: Tensor) -> tuple[_Edges, Tensor]:
        """The edges that lead into sorted nodes, and the sorted nodes that they come from."""
        numbers = torch.isin(edges[1], targets).nonzero().flatten()
        ends = edges[:, numbers]
        sources = ends[0].unique()  # with the targets, each of which has a loop
        places = zip((sources, targets), ends, strict=True)
        ends = torch.stack([torch.searchsorted(kind, nodes) for kind, nodes in places])
        return cls(ends, numbers, torch.searchsorted(sources, targets)), sources

    @cached_property
    def sums(self) -> EdgeSums:
        from hoplite.propagation.edge_sums import EdgeSums

        return EdgeSums(self.ends)


def _attend(layer: Any, learned: Weights, signal: Tensor, edges: _Edges, drop: _Drop) -> Tensor:
    """``layer`` with the ``learned`` weights, its attention dropped before it is used."""
    hook = layer.register_edge_update_forward_hook(
        lambda layer, inputs, attention: drop(attention, edges.numbers)
    )
    # its own sum keeps a message of every edge in memory
    layer.propagate = lambda ends, x, alpha, size: edges.sums(x[0], alpha)
    at_targets = signal if edges.targets is None else signal.index_select(0, edges.targets)
    try:
        return torch.func.functional_call(layer, learned, ((signal, at_targets), edges.ends))
    finally:
        hook.remove()
