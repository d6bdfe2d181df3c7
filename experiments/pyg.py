"""Peers of the linear models: small networks of PyTorch Geometric's layers.

Hoplite trains and searches them as any torch.nn.Module, by their addresses:

    hoplite search cora --model experiments.pyg:GCN --grid FILE --out DIR

Most are two layers with a ReLU between them, and ``dropout`` of what each layer reads:

    logits = layer2(drop(ReLU(layer1(drop(X)))))

Citation graphs have thousands of features, nearly all 0. So first layers (but those of GraphSAGE,
TAG and SSG) multiply before they propagate, S (X W) instead of (S X) W, and multiply only the
nonzero entries, :class:`FeatureMap`. This is slower where most features are not 0.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, elu, relu

from hoplite.machine import quiet

with quiet():
    import torch_geometric.nn as pyg
    from torch_geometric.nn.conv.gcn_conv import gcn_norm

    torch.eye(1).to_sparse_csr()  # the first one warns that they are in beta

SUM = pyg.SimpleConv(aggr="sum")  # of the weighted messages: (n, w) -> (n, w)


class FeatureMap(nn.Linear):
    """X~ W' + b: applies dropout to X, (n, d), and multiplies only the nonzero entries.

    W is ``blocks`` matrices side by side, each with Glorot's initialisation. X must not change in
    place, and gets no gradient.
    """

    def __init__(
        self, inputs: int, outputs: int, rate: float, *, blocks: int = 1, bias: bool = True
    ) -> None:
        self.blocks = blocks
        super().__init__(inputs, blocks * outputs, bias)
        self.rate = rate

    def reset_parameters(self) -> None:
        for block in self.weight.chunk(self.blocks):
            nn.init.xavier_uniform_(block)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        values = dropout(_entries(input).values, self.rate, self.training)
        product: Any = _Product.apply(self.weight, input, values)
        return product if self.bias is None else product + self.bias


def _csr(indices: tuple[Tensor, Tensor], values: Tensor, shape: tuple[int, ...]) -> Tensor:
    return torch.sparse_csr_tensor(*indices, values, shape, check_invariants=False)


class _Product(torch.autograd.Function):
    """X~ W' of the ``values`` of X~ where X is not 0, differentiable in W."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, x: Tensor, values: Tensor) -> Tensor:
        entries = _entries(x)
        ctx.x, ctx.values = x, values[entries.csc_order]
        return _csr(entries.csr, values, tuple(x.shape)) @ weight.T

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        transposed = _csr(_entries(ctx.x).csc, ctx.values, tuple(ctx.x.shape[::-1]))
        return (transposed @ gradients[0]).T, None, None


class Entries(NamedTuple):
    """The nonzero entries of a matrix by rows, where they are, and their order by columns."""

    values: Tensor
    csr: tuple[Tensor, Tensor]
    csc: tuple[Tensor, Tensor]
    csc_order: Tensor


@lru_cache(maxsize=4)
def _entries(x: Tensor) -> Entries:
    rows, columns = x.nonzero(as_tuple=True)
    order = torch.argsort(columns, stable=True)
    row_starts, column_starts = [
        torch.cat([ids.new_zeros(1), torch.bincount(ids, minlength=size).cumsum(0)])
        for ids, size in zip((rows, columns), x.shape, strict=True)
    ]
    return Entries(x[rows, columns], (row_starts, columns), (column_starts, rows[order]), order)


class WithDropout(nn.Module):
    """Dropout, then a layer."""

    def __init__(self, layer: nn.Module, rate: float) -> None:
        super().__init__()
        self.layer, self.rate = layer, rate

    def forward(self, x: Tensor, *edges: Tensor) -> Tensor:
        return self.layer(dropout(x, self.rate, self.training), *edges)


class Mapped(nn.Module):
    """A map of the features, then a layer."""

    def __init__(self, features: FeatureMap, layer: nn.Module) -> None:
        super().__init__()
        self.features, self.layer = features, layer

    def forward(self, x: Tensor, *edges: Tensor) -> Tensor:
        return self.layer(self.features(x), *edges)


class TwoLayers(nn.Module):
    """Two layers with an activation between them; the first layer applies its own dropout."""

    activation = staticmethod(relu)

    def __init__(self, first: nn.Module, second: nn.Module, rate: float) -> None:
        super().__init__()
        self.first, self.second, self.rate = first, second, rate

    def both(self, x: Tensor, *edges: Tensor) -> Tensor:
        hidden = self.activation(self.first(x, *edges))
        hidden = dropout(hidden, self.rate, self.training)
        return self.second(hidden, *edges)


class Weighted(TwoLayers):
    """Its layers know the weights of edges."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.both(x, edge_index, *[] if edge_weight is None else [edge_weight])


class Unweighted(TwoLayers):
    """Its layers do not."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.both(x, edge_index)


class GCN(Weighted):
    """Kipf and Welling's."""

    def __init__(
        self, in_channels: int, out_channels: int, hidden_channels: int = 64, dropout: float = 0.5
    ) -> None:
        first = pyg.GCNConv(in_channels, hidden_channels)
        first.lin = FeatureMap(in_channels, hidden_channels, dropout, bias=False)
        super().__init__(first, pyg.GCNConv(hidden_channels, out_channels), dropout)


class GAT(Unweighted):
    """Velickovic and others': ``heads`` of ``hidden_channels`` each, an ELU, then one head."""

    activation = staticmethod(elu)

    def __init__(
        self, in_channels: int, out_channels: int, hidden_channels: int = 8, heads: int = 8,
        dropout: float = 0.5,
    ) -> None:  # fmt: skip
        first = pyg.GATConv(in_channels, hidden_channels, heads, dropout=dropout)
        first.lin = FeatureMap(in_channels, hidden_channels, dropout, blocks=heads, bias=False)
        second = pyg.GATConv(heads * hidden_channels, out_channels, 1, dropout=dropout)
        super().__init__(first, second, dropout)


class GraphSAGE(Unweighted):
    """Hamilton and others': the mean of the neighbours, and the node itself."""

    def __init__(
        self, in_channels: int, out_channels: int, hidden_channels: int = 64, dropout: float = 0.5
    ) -> None:
        first = WithDropout(pyg.SAGEConv(in_channels, hidden_channels), dropout)
        super().__init__(first, pyg.SAGEConv(hidden_channels, out_channels), dropout)


class GIN(Unweighted):
    """Xu and others': the sum of the neighbours through a small network, with BatchNorm in it."""

    def __init__(
        self, in_channels: int, out_channels: int, hidden_channels: int = 64, dropout: float = 0.5
    ) -> None:
        def layer(outputs: int, *first: nn.Module) -> nn.Module:
            parts = *first, nn.BatchNorm1d(hidden_channels), nn.ReLU()
            return pyg.GINConv(nn.Sequential(*parts, nn.Linear(hidden_channels, outputs)))

        # the sum of the X_j W is (sum of X_j) W; BatchNorm cancels a bias
        features = FeatureMap(in_channels, hidden_channels, dropout, bias=False)
        first = Mapped(features, layer(hidden_channels))
        second = layer(out_channels, nn.Linear(hidden_channels, hidden_channels))
        super().__init__(first, second, dropout)


class ARMA(Weighted):
    """Bianchi and others': the mean of ``num_stacks`` recursions of one step."""

    def __init__(
        self, in_channels: int, out_channels: int, hidden_channels: int = 64, num_stacks: int = 2,
        dropout: float = 0.5,
    ) -> None:  # fmt: skip
        first = FirstARMA(in_channels, hidden_channels, num_stacks, dropout)
        second = pyg.ARMAConv(hidden_channels, out_channels, num_stacks, act=None, dropout=dropout)
        super().__init__(first, second, dropout)


class FirstARMA(nn.Module):
    """mean over stacks s of ReLU(A^ X~ W_s + X~ V_s + b_s), A^ = D^-1/2 A D^-1/2.

    Both terms read the same X~, while PyTorch Geometric's layer applies dropout to X V_s once more.
    """

    def __init__(self, inputs: int, outputs: int, stacks: int, rate: float) -> None:
        super().__init__()
        self.features = FeatureMap(inputs, outputs, rate, blocks=2 * stacks, bias=False)
        self.bias, self.stacks = nn.Parameter(torch.zeros(stacks * outputs)), stacks

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        propagated, skip = self.features(x).chunk(2, dim=1)
        propagated = SUM(propagated, *adjacency(edge_index, edge_weight, x))
        return relu(propagated + skip + self.bias).view(len(x), self.stacks, -1).mean(dim=1)


class ChebNet(Weighted):
    """Defferrard and others': Chebyshev polynomials of degree ``hops``, a matrix for each."""

    def __init__(
        self, in_channels: int, out_channels: int, hidden_channels: int = 64, hops: int = 2,
        dropout: float = 0.5,
    ) -> None:  # fmt: skip
        first = FirstCheb(in_channels, hidden_channels, hops, dropout)
        super().__init__(first, pyg.ChebConv(hidden_channels, out_channels, hops + 1), dropout)


class FirstCheb(nn.Module):
    """sum_i T_i(L^) X~ W_i + b by Clenshaw's recurrence, L^ = -D^-1/2 A D^-1/2."""

    def __init__(self, inputs: int, outputs: int, hops: int, rate: float) -> None:
        super().__init__()
        self.features = FeatureMap(inputs, outputs, rate, blocks=hops + 1, bias=False)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        edges, weights = adjacency(edge_index, edge_weight, x)
        blocks = self.features(x).chunk(self.features.blocks, dim=1)
        if len(blocks) == 1:
            return blocks[0] + self.bias
        b1, b2 = blocks[-1], torch.zeros_like(blocks[-1])
        for block in reversed(blocks[1:-1]):
            b1, b2 = block - 2 * SUM(b1, edges, weights) - b2, b1
        return blocks[0] - SUM(b1, edges, weights) - b2 + self.bias


def adjacency(edges: Tensor, weights: Tensor | None, x: Tensor) -> tuple[Tensor, Tensor]:
    """The edges and entries of D^-1/2 A D^-1/2."""
    return gcn_norm(edges, weights, len(x), add_self_loops=False, dtype=x.dtype)


class TAG(Weighted):
    """Du and others': powers of the adjacency up to ``hops``, a matrix for each."""

    def __init__(
        self, in_channels: int, out_channels: int, hidden_channels: int = 64, hops: int = 3,
        dropout: float = 0.5,
    ) -> None:  # fmt: skip
        first = WithDropout(pyg.TAGConv(in_channels, hidden_channels, hops), dropout)
        super().__init__(first, pyg.TAGConv(hidden_channels, out_channels, hops), dropout)


class SSG(nn.Module):
    """Zhu and Koniusz': a linear map of the mean of ``hops`` hops, no second layer."""

    def __init__(
        self, in_channels: int, out_channels: int, hops: int = 16, alpha: float = 0.05,
        dropout: float = 0.5,
    ) -> None:  # fmt: skip
        super().__init__()
        # without dropout the mean of the hops never changes, as the authors have it
        self.layer = pyg.SSGConv(in_channels, out_channels, alpha, hops, cached=not dropout)
        self.rate = dropout

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.layer(dropout(x, self.rate, self.training), edge_index, edge_weight)


class APPNP(nn.Module):
    """Gasteiger and others': a network of each node's own features, then personalised PageRank."""

    def __init__(
        self, in_channels: int, out_channels: int, hidden_channels: int = 64, hops: int = 10,
        alpha: float = 0.1, dropout: float = 0.5,
    ) -> None:  # fmt: skip
        super().__init__()
        self.first = FeatureMap(in_channels, hidden_channels, dropout)
        self.second = nn.Linear(hidden_channels, out_channels)
        self.propagation, self.rate = self.hops(hops, alpha), dropout

    def hops(self, hops: int, alpha: float) -> nn.Module:
        return pyg.APPNP(hops, alpha)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        hidden = relu(self.first(x))
        outputs = self.second(dropout(hidden, self.rate, self.training))
        return self.propagation(outputs, edge_index, edge_weight)


class GPRGNN(APPNP):
    """Chien and others': as APPNP, but what each hop counts, gamma (k + 1,), is learned.

    logits = sum_{i=0..k} gamma_i S^i H,    gamma_i = a (1 - a)^i at first, the last (1 - a)^k
    """

    def hops(self, hops: int, alpha: float) -> nn.Module:
        return _Hops(hops, alpha)


class _Hops(nn.Module):
    """sum_i gamma_i S^i of a signal; a hop is PageRank of one step that never returns."""

    def __init__(self, hops: int, alpha: float) -> None:
        super().__init__()
        shares = [alpha * (1 - alpha) ** i for i in range(hops)]
        self.gamma = nn.Parameter(torch.tensor([*shares, (1 - alpha) ** hops]))
        self.hop = pyg.APPNP(1, 0.0, normalize=False)

    def forward(self, signal: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
        edge_index, edge_weight = gcn_norm(edge_index, edge_weight, len(signal), dtype=signal.dtype)
        total = self.gamma[0] * signal
        for share in self.gamma[1:]:
            signal = self.hop(signal, edge_index, edge_weight)
            total = total + share * signal
        return total
