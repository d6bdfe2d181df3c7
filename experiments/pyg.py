"""Peers of the linear models: small networks of PyTorch Geometric's layers, as they come.

Hoplite trains and searches them as any torch.nn.Module, by their addresses:

    hoplite search cora --model experiments.pyg:GCN --grid FILE --out DIR

Most are two layers with a ReLU between them, and ``dropout`` of what each layer reads:

    logits = layer2(drop(ReLU(layer1(drop(X)))))
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, elu, relu

from hoplite.machine import quiet

with quiet():
    import torch_geometric.nn as pyg
    from torch_geometric.nn.conv.gcn_conv import gcn_norm


class TwoLayers(nn.Module):
    """Two layers with an activation between them."""

    activation = staticmethod(relu)

    def __init__(self, first: nn.Module, second: nn.Module, rate: float) -> None:
        super().__init__()
        self.first, self.second, self.rate = first, second, rate

    def both(self, x: Tensor, *edges: Tensor) -> Tensor:
        hidden = self.first(dropout(x, self.rate, self.training), *edges)
        hidden = dropout(self.activation(hidden), self.rate, self.training)
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
        super().__init__(first, pyg.GCNConv(hidden_channels, out_channels), dropout)


class GAT(Unweighted):
    """Velickovic and others': ``heads`` of ``hidden_channels`` each, an ELU, then one head."""

    activation = staticmethod(elu)

    def __init__(
        self, in_channels: int, out_channels: int, hidden_channels: int = 8, heads: int = 8,
        dropout: float = 0.5,
    ) -> None:  # fmt: skip
        first = pyg.GATConv(in_channels, hidden_channels, heads, dropout=dropout)
        second = pyg.GATConv(heads * hidden_channels, out_channels, 1, dropout=dropout)
        super().__init__(first, second, dropout)


class GraphSAGE(Unweighted):
    """Hamilton and others': the mean of the neighbours, and the node itself."""

    def __init__(
        self, in_channels: int, out_channels: int, hidden_channels: int = 64, dropout: float = 0.5
    ) -> None:
        first = pyg.SAGEConv(in_channels, hidden_channels)
        super().__init__(first, pyg.SAGEConv(hidden_channels, out_channels), dropout)


class GIN(Unweighted):
    """Xu and others': the sum of the neighbours through a small network, with BatchNorm in it."""

    def __init__(
        self, in_channels: int, out_channels: int, hidden_channels: int = 64, dropout: float = 0.5,
        batch_norm: bool = True,
    ) -> None:  # fmt: skip
        def layer(inputs: int, outputs: int) -> nn.Module:
            norm = nn.BatchNorm1d(hidden_channels) if batch_norm else nn.Identity()
            parts = nn.Linear(inputs, hidden_channels), norm, nn.ReLU()
            return pyg.GINConv(nn.Sequential(*parts, nn.Linear(hidden_channels, outputs)))

        first = layer(in_channels, hidden_channels)
        super().__init__(first, layer(hidden_channels, out_channels), dropout)


class ARMA(Weighted):
    """Bianchi and others': the mean of ``num_stacks`` recursions of ``num_layers`` steps."""

    def __init__(
        self, in_channels: int, out_channels: int, hidden_channels: int = 64, num_stacks: int = 2,
        num_layers: int = 1, dropout: float = 0.5,
    ) -> None:  # fmt: skip
        shape = {"num_stacks": num_stacks, "num_layers": num_layers, "shared_weights": True}
        first = pyg.ARMAConv(in_channels, hidden_channels, dropout=dropout, **shape)
        second = pyg.ARMAConv(hidden_channels, out_channels, act=None, dropout=dropout, **shape)
        super().__init__(first, second, dropout)


class ChebNet(Weighted):
    """Defferrard and others': Chebyshev polynomials of degree ``hops``, a matrix for each."""

    def __init__(
        self, in_channels: int, out_channels: int, hidden_channels: int = 64, hops: int = 2,
        dropout: float = 0.5,
    ) -> None:  # fmt: skip
        first = pyg.ChebConv(in_channels, hidden_channels, hops + 1)
        super().__init__(first, pyg.ChebConv(hidden_channels, out_channels, hops + 1), dropout)


class TAG(Weighted):
    """Du and others': powers of the adjacency up to ``hops``, a matrix for each."""

    def __init__(
        self, in_channels: int, out_channels: int, hidden_channels: int = 64, hops: int = 3,
        dropout: float = 0.5,
    ) -> None:  # fmt: skip
        first = pyg.TAGConv(in_channels, hidden_channels, hops)
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
        self.first = nn.Linear(in_channels, hidden_channels)
        self.second = nn.Linear(hidden_channels, out_channels)
        self.propagation, self.rate = self.hops(hops, alpha), dropout

    def hops(self, hops: int, alpha: float) -> nn.Module:
        return pyg.APPNP(hops, alpha)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        hidden = relu(self.first(dropout(x, self.rate, self.training)))
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
