"""The networks of the paper's related work that :mod:`experiments.pyg` does not have.

    python -m experiments linear --methods experiments/related.toml --out results/related

trains all of them with the protocol of the comparison table. P = D^-1 A is the random walk, S the
renormalized operator, A the adjacency.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, relu

from experiments.pyg import GCN, SUM, FeatureMap, pyg
from hoplite.config import flag_setting
from hoplite.models.linear import HopSettings, basis_setting, operator_setting
from hoplite.nets.base import RowNetwork, glorot


class DCNN(RowNetwork):
    """Atwood and Towsley's diffusion CNN: a weight per hop and feature, then a dense layer.

    logits = [tanh(w_0 * X~) | tanh(w_1 * P X~) | .. | tanh(w_k * P^k X~)] W + b,
    w_i: d,  W: (k + 1) d x m. Dropout is applied to X alone.
    """

    name = "dcnn"
    title = "DCNN"
    idle = frozenset({"output_dropout"})

    @dataclass(frozen=True)
    class Settings(HopSettings):
        operator: str = operator_setting("random_walk", ["random_walk"])
        basis: str = basis_setting()
        bias: bool = flag_setting(True, "Add a bias.")

    def initial(self, rng: np.random.Generator | None) -> dict[str, np.ndarray]:
        """Initial weights; the diffusion weights are 1."""
        hops, d, m = self.config.hops, self.num_features, self.num_classes
        weights = {
            "diffusion": np.ones((hops + 1, d), np.float32),
            "theta": glorot((hops + 1) * d, m, rng),
        }
        return weights | ({"bias": np.zeros(m, np.float32)} if self.config.bias else {})

    def forward(self, weights: dict[str, Tensor], view: Any, dropout: Any) -> Tensor:
        blocks = weights["theta"].view(*weights["diffusion"].shape, -1)
        hops = view.hop_features(dropout) * weights["diffusion"].unsqueeze(1)
        return torch.einsum("hnd,hdm->nm", torch.tanh(hops), blocks)

    def signal_columns(self) -> int:
        return self.num_features


class GGNN(nn.Module):
    """Li and others' gated graph network: ``num_layers`` steps of one gated recurrent unit."""

    def __init__(
        self, in_channels: int, out_channels: int, hidden_channels: int = 64, num_layers: int = 2,
        dropout: float = 0.5,
    ) -> None:  # fmt: skip
        super().__init__()
        self.first = FeatureMap(in_channels, hidden_channels, dropout)
        self.gated = pyg.GatedGraphConv(hidden_channels, num_layers, aggr="mean")
        self.last, self.rate = nn.Linear(hidden_channels, out_channels), dropout

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        hidden = torch.tanh(self.first(x))
        hidden = relu(self.gated(hidden, edge_index, edge_weight))
        return self.last(dropout(hidden, self.rate, self.training))


class NN4G(nn.Module):
    """Micheli's neural network for graphs, trained end to end; every layer reads all before it.

    H_1 = tanh(X W_1),  H_{i+1} = tanh(X W_{i+1} + sum_{j<=i} A H_j V_{i,j}),  logits = [H_1 | ..] U
    """

    def __init__(
        self, in_channels: int, out_channels: int, hidden_channels: int = 64, num_layers: int = 2,
        dropout: float = 0.5,
    ) -> None:  # fmt: skip
        super().__init__()
        self.hidden, self.rate = hidden_channels, dropout
        self.inputs = FeatureMap(in_channels, hidden_channels, dropout, blocks=num_layers)
        # [H_1 | .. | H_i] times V_i is the sum over j of H_j V_{i,j}
        self.before = nn.ModuleList(
            nn.Linear(i * hidden_channels, hidden_channels, bias=False)
            for i in range(1, num_layers)
        )
        self.last = nn.Linear(num_layers * hidden_channels, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        inputs = self.inputs(x).split(self.hidden, dim=1)
        layers = [torch.tanh(inputs[0])]
        for own, before in zip(inputs[1:], self.before, strict=True):
            signal = SUM(before(torch.cat(layers, dim=1)), edge_index, edge_weight)
            layers.append(torch.tanh(own + signal))
        return self.last(dropout(torch.cat(layers, dim=1), self.rate, self.training))


class FastGCN(GCN):
    """Chen and others': a GCN whose second layer reads ``samples`` nodes in a training step.

    Node u is drawn with probability q_u ~ ||S[:, u]||^2, with replacement, and counts 1 / (samples
    q_u) times, so that the sum has the same expectation. The first layer is exact, as S X is
    computed before training there; all nodes are read in evaluation. Nothing is saved in time here.
    """

    def __init__(
        self, in_channels: int, out_channels: int, hidden_channels: int = 64, samples: int = 400,
        dropout: float = 0.5,
    ) -> None:  # fmt: skip
        super().__init__(in_channels, out_channels, hidden_channels, dropout)
        self.samples = samples

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        hidden = relu(self.first(x, edge_index, edge_weight))
        if self.training:
            hidden = hidden * self.counts(edge_index, edge_weight, len(x), x.dtype).unsqueeze(1)
        return self.second(dropout(hidden, self.rate, self.training), edge_index, edge_weight)

    def counts(self, edges: Tensor, weights: Tensor | None, n: int, dtype: torch.dtype) -> Tensor:
        """How often each node counts in this step: (n,)."""
        edges, entries = pyg.conv.gcn_conv.gcn_norm(edges, weights, n, dtype=dtype)
        norms = torch.zeros(n, dtype=dtype).index_add(0, edges[0], torch.square(entries))
        chances = norms / norms.sum()
        drawn = torch.multinomial(chances, self.samples, replacement=True)
        return torch.bincount(drawn, minlength=n) / (self.samples * chances)


class DGI(nn.Module):
    """Velickovic and others' Deep Graph Infomax, then logistic regression on what it embeds.

    The encoder, a GCN layer with a PReLU, is trained once without labels; it depends on
    ``encoder_seed`` and not on the seed of a run, which is that of the regression.
    """

    def __init__(
        self, in_channels: int, out_channels: int, hidden_channels: int = 512, steps: int = 200,
        encoder_seed: int = 0, dropout: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.encoder, self.rate = (hidden_channels, steps, encoder_seed), dropout
        self.head = nn.Linear(hidden_channels, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.head(dropout(embedded(x, edge_index, *self.encoder), self.rate, self.training))


class Encoder(nn.Module):
    """A layer and its activation."""

    def __init__(self, layer: nn.Module, activation: nn.Module) -> None:
        super().__init__()
        self.layer, self.activation = layer, activation

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.activation(self.layer(x, edge_index))


@lru_cache(maxsize=4)
def embedded(x: Tensor, edge_index: Tensor, hidden: int, steps: int, seed: int) -> Tensor:
    """What an encoder without labels makes of a graph: (n, hidden)."""

    def shuffled(features: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        return features[torch.randperm(len(features))], edge_index

    def summary(embedding: Tensor, *_: Tensor) -> Tensor:
        return embedding.mean(dim=0).sigmoid()

    with torch.enable_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        # rows of X W are shuffled, as those of X would be
        features = FeatureMap(x.shape[1], hidden, 0.0, bias=False)
        hop = pyg.GCNConv(hidden, hidden)
        encoder = Encoder(hop, nn.PReLU(hidden))
        model = pyg.DeepGraphInfomax(hidden, encoder, summary, shuffled)
        hop.lin = nn.Identity()  # it reads X W; DeepGraphInfomax had to reset its parameters first
        modules = nn.ModuleList([features, model]).to(x.dtype)
        optimizer = torch.optim.Adam(modules.parameters(), lr=1e-3)
        for _ in range(steps):
            optimizer.zero_grad()
            model.loss(*model(features(x), edge_index)).backward()
            optimizer.step()
    return encoder(features(x), edge_index).detach()
