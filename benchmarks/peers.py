"""The peers: what a careful user writes in plain torch, and PyTorch Geometric's layers.

An epoch of a peer is a training step (Adam, dropout on X, cross-entropy) and a validation pass.
In plain torch the same models are evaluated as cheaply as torch alone allows:

- weights first: X Theta, then hops of m columns, as torch CSR products with 32-bit indices;
- dropout draws for the nonzero values of X alone, as a zero stays one;
- the gradient of a product with a constant matrix is one with its transpose, which is kept: torch's
  own backward pass makes a transpose in every step, and takes many times longer;
- SGC's filter is constant, so its rows S^k[train] are kept, and so are those of S^k X that nothing
  is dropped from: the validation nodes', and without dropout all. Then a linear layer is left;
- hop blocks, too, are a linear layer on kept rows, those of all hops side by side;
- SGC and GCN work on the nodes alone that their few hops reach.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.functional import cross_entropy, dropout, linear

from hoplite import Graph
from hoplite.machine import find, quiet
from hoplite.operators import find_operator


def quietly(work: Callable[..., Any]) -> Callable[..., Any]:
    """``work`` without a peer's warnings."""

    def silent(*arguments: Any) -> Any:
        with quiet():
            return work(*arguments)

    return silent


def missing_note(package: str) -> str:
    """The note that stands for the figures of a peer that could not be asked."""
    return f"{package} is not installed (or does not load), so it was not measured."


Both = tuple[Tensor, Tensor]  # a CSR tensor, and its transpose


class Inputs:
    """Sparse features that are dropped from."""

    def __init__(self, X: sp.csr_array) -> None:
        self.both = _both(X)
        numbers = sp.csr_array((np.arange(X.nnz), X.indices, X.indptr), X.shape)
        # which value of X each value of the transpose is
        self._order = torch.from_numpy(numbers.T.tocsr().data.astype(np.int32))

    def dropped(self, rate: float) -> Both:
        """After dropout: each nonzero value is 0, or divided by 1 - rate."""
        if not rate:
            return self.both
        X, transpose = self.both
        values = _drop(X.values(), rate)
        return _with_values(X, values), _with_values(transpose, values.index_select(0, self._order))


class PeerData:
    """A graph as the peers take it; each form is made at its first use."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        assert graph.labels is not None  # the benchmark's graphs are labelled
        self.labels = torch.from_numpy(np.array(graph.labels, np.int64))
        self.train = torch.from_numpy(np.array(graph.split.train))
        self.val = torch.from_numpy(np.array(graph.split.val))
        self.d, self.m = graph.num_features, graph.num_classes

    @cached_property
    def X(self) -> Tensor:
        return torch.from_numpy(sp.csr_array(self.graph.features).toarray())

    @cached_property
    def edge_index(self) -> Tensor:
        places = self.graph.adjacency.tocoo()
        return torch.from_numpy(np.stack([places.row, places.col]).astype(np.int64))

    @cached_property
    def csr(self) -> Tensor:
        """The adjacency matrix as a CSR tensor of ones, which PyTorch Geometric takes as well."""
        A, values = self.graph.adjacency, np.ones(self.graph.adjacency.nnz, np.float32)
        return csr_tensor(sp.csr_array((values, A.indices, A.indptr), A.shape), torch.int64)

    @cached_property
    def matrix(self) -> sp.csr_array:
        return find_operator("renormalized").matrix(self.graph)

    @cached_property
    def S(self) -> Tensor:
        return csr_tensor(self.matrix)

    @cached_property
    def inputs(self) -> Inputs:
        return Inputs(sp.csr_array(self.graph.features))

    def around(self, nodes: Tensor) -> tuple[Inputs, Both, Both]:
        """All that two hops at ``nodes`` need: the rows of X two hops away, S from there to the
        nodes' neighbours, and S from these to the nodes."""
        last = self.matrix[nodes.numpy()]
        near = np.unique(last.indices)
        first = self.matrix[near]
        far = np.unique(first.indices)
        X = sp.csr_array(self.graph.features)[far]
        return Inputs(X), _both(first[:, far]), _both(last[:, near])

    def propagated(self, signal: Tensor, hops: int) -> Tensor:
        """S^hops signal."""
        for _ in range(hops):
            signal = self.S @ signal
        return signal


def csr_tensor(matrix: Any, indices: torch.dtype = torch.int32) -> Tensor:
    """A SciPy CSR matrix as torch's; 32-bit indices are its faster case."""
    return torch.sparse_csr_tensor(
        torch.from_numpy(matrix.indptr).to(indices),
        torch.from_numpy(matrix.indices).to(indices),
        torch.from_numpy(matrix.data),
        size=matrix.shape,
    )


def _both(matrix: Any) -> Both:
    return csr_tensor(matrix), csr_tensor(matrix.T.tocsr())


def _with_values(matrix: Tensor, values: Tensor) -> Tensor:
    indptr, indices = matrix.crow_indices(), matrix.col_indices()
    return torch.sparse_csr_tensor(indptr, indices, values, size=matrix.shape)


def _drop(values: Tensor, rate: float) -> Tensor:
    """Dropout; torch's own takes twice as long."""
    return (values * (torch.rand_like(values) >= rate)).div_(1 - rate)


class _Product(torch.autograd.Function):
    """A B for a constant matrix A and its transpose."""

    @staticmethod
    def forward(ctx: Any, matrices: Both, B: Tensor) -> Tensor:
        A, ctx.transpose = matrices
        return A @ B

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return None, ctx.transpose @ gradients[0]


class _Polynomial(torch.autograd.Function):
    """sum_i c_i S^i Z at some nodes, for a symmetric S: n x n, Z: n x m and c: k + 1 numbers."""

    @staticmethod
    def forward(ctx: Any, S: Tensor, Z: Tensor, c: Tensor, nodes: Tensor) -> Tensor:
        hops = [Z[nodes]]
        for _ in range(len(c) - 1):
            Z = S @ Z
            hops.append(Z[nodes])
        kept = torch.stack(hops)
        ctx.save_for_backward(S, c, nodes, kept)
        return torch.tensordot(c, kept, dims=1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        S, c, nodes, kept = ctx.saved_tensors
        outer = torch.zeros(len(S), kept.shape[2]).index_copy_(0, nodes, gradients[0])
        return None, _horner(S, outer, c), (kept * gradients[0]).sum(dim=(1, 2)), None


def _horner(S: Tensor, Z: Tensor, c: Tensor) -> Tensor:
    """sum_i c_i S^i Z, with one matrix of memory."""
    *first, last = c.tolist()
    total = last * Z
    for value in reversed(first):
        total = torch.addmm(Z, S, total, beta=value)
    return total


def _product(matrices: Both, B: Tensor) -> Tensor:
    return _Product.apply(matrices, B)  # type: ignore[return-value]  # apply is not typed


@dataclass(frozen=True)
class Peer:
    """A model of a peer: its weights, and its logits at the training nodes (with dropout) and at
    the validation nodes (without)."""

    data: PeerData
    weights: list[Tensor]
    step: Callable[[], Tensor]
    check: Callable[[], Tensor]

    @property
    def epoch(self) -> Callable[[], float]:
        """An epoch as a function: a training step, then the validation accuracy."""
        data = self.data
        optimizer = torch.optim.Adam(self.weights, lr=0.2, weight_decay=5e-4, fused=True)
        targets, answers = data.labels[data.train], data.labels[data.val]

        def epoch() -> float:
            optimizer.zero_grad()
            cross_entropy(self.step(), targets).backward()
            optimizer.step()
            with torch.no_grad():
                predicted = self.check().argmax(dim=1)
            return float((predicted == answers).double().mean())

        return quietly(epoch)


Build = Callable[[PeerData], Peer]
# How names of peers begin whose epochs take milliseconds: they are tried with one thread and with
# several.
FAST = ("plain torch", "SIGN")


def plain(model: str, rate: float, hops: int = 2, hidden: int = 16) -> dict[str, Build]:
    """The model in plain torch, by the peer's name; nothing for a model that is not here."""
    if model not in PLAIN:
        return {}
    if model == "blocks" and rate:  # features that are made once cannot be dropped from
        return {}
    kept = {"sgc": ", S^k X kept", "blocks": ", hops kept"}
    name = f"plain torch{'' if rate else kept.get(model, '')}"
    return {name: quietly(partial(PLAIN[model], rate=rate, hops=hops, hidden=hidden))}


def _weight(*shape: int) -> Parameter:
    return Parameter(torch.empty(shape).uniform_(-0.3, 0.3))


def sgc(data: PeerData, rate: float, hops: int, **_: int) -> Peer:
    """S^k X Theta, a linear layer on the features S^k X."""
    weight = _weight(data.m, data.d)  # as torch.nn.Linear keeps it
    features = data.propagated(data.X, hops)
    val = features[data.val]
    if not rate:
        train = features[data.train]
        return Peer(data, [weight], lambda: linear(train, weight), lambda: linear(val, weight))
    chosen = torch.zeros(len(data.labels), len(data.train))
    chosen[data.train, torch.arange(len(data.train))] = 1
    columns = data.propagated(chosen, hops)
    near = columns.any(dim=1)  # the nodes that k hops reach
    filters = columns[near].T.contiguous()
    inputs = Inputs(sp.csr_array(data.graph.features)[near.numpy()])
    return Peer(
        data,
        [weight],
        lambda: filters @ _product(inputs.dropped(rate), weight.T),
        lambda: linear(val, weight),
    )


def lgc(data: PeerData, rate: float, hops: int, **_: int) -> Peer:
    """sum_i alpha_i S^i X Theta."""
    alpha = _weight(hops + 1)
    return _polynomial(data, rate, alpha, lambda: alpha)


def egc(data: PeerData, rate: float, hops: int, **_: int) -> Peer:
    """sum_i beta^i / i! S^i X Theta."""
    beta, powers = _weight(1), torch.arange(hops + 1)
    factorials = torch.tensor([float(math.factorial(i)) for i in range(hops + 1)])
    return _polynomial(data, rate, beta, lambda: beta**powers / factorials)


def _polynomial(
    data: PeerData, rate: float, weight: Parameter, coefficients: Callable[[], Tensor]
) -> Peer:
    theta = _weight(data.d, data.m)

    def step() -> Tensor:
        Z = _product(data.inputs.dropped(rate), theta)
        return _Polynomial.apply(data.S, Z, coefficients(), data.train)  # type: ignore[return-value]

    def check() -> Tensor:
        return _horner(data.S, data.inputs.both[0] @ theta, coefficients())[data.val]

    return Peer(data, [theta, weight], step, check)


def gcn(data: PeerData, rate: float, hidden: int, **_: int) -> Peer:
    """S drop(ReLU(S X W1 + b1)) W2 + b2, on the nodes alone that two hops need."""
    weights = [_weight(data.d, hidden), _weight(hidden), _weight(hidden, data.m), _weight(data.m)]
    train, val = data.around(data.train), data.around(data.val)

    def logits(inputs: Inputs, first: Both, last: Both, rate: float) -> Tensor:
        W1, b1, W2, b2 = weights
        middle = _product(first, _product(inputs.dropped(rate), W1)).add(b1).relu()
        return _product(last, (_drop(middle, rate) if rate else middle) @ W2) + b2

    return Peer(data, [*weights], lambda: logits(*train, rate), lambda: logits(*val, 0.0))


def blocks(data: PeerData, rate: float, hops: int, **_: int) -> Peer:
    """sum_i S^i X Theta_i, a linear layer on all hops side by side; nothing is dropped."""
    features = torch.cat([data.propagated(data.X, i) for i in range(hops + 1)], dim=1)
    train, val = features[data.train], features[data.val]
    weight = _weight(data.m, features.shape[1])
    return Peer(data, [weight], lambda: linear(train, weight), lambda: linear(val, weight))


PLAIN = {"sgc": sgc, "egc": egc, "lgc": lgc, "gcn": gcn, "blocks": blocks}


def layers(model: str, rate: float, hops: int = 2, hidden: int = 16) -> dict[str, Build]:
    """PyTorch Geometric's layers for the model, by name; nothing without it, or without one.

    TAGConv learns one weight matrix per hop where LGC learns one coefficient: it is the layer
    closest to LGC, and is taken with edge_index, its usual input, and with a CSR adjacency.
    SIGN's features are made once, so that nothing can be dropped from them.
    """
    nn: Any = find("torch_geometric.nn")
    if nn is None:
        return {}

    def peer(*kinds: Callable[[PeerData], Any], csr: bool = False) -> Build:
        """These layers one after another, with a ReLU between."""

        def build(data: PeerData) -> Peer:
            chain, edges = [make(data) for make in kinds], data.csr if csr else data.edge_index

            def logits(X: Tensor) -> Tensor:
                for layer in chain[:-1]:
                    X = layer(X, edges).relu()
                return chain[-1](X, edges)

            return Peer(
                data,
                [weight for layer in chain for weight in layer.parameters()],
                lambda: logits(dropout(data.X, rate))[data.train],
                lambda: logits(data.X)[data.val],
            )

        return quietly(build)

    def polynomial(layer: Any, **options: bool) -> Callable[[PeerData], Any]:
        return lambda data: layer(data.d, data.m, K=hops, bias=False, **options)

    tag = polynomial(nn.TAGConv)
    sg = polynomial(nn.SGConv, cached=not rate)  # without dropout S^k X is constant
    gcn = (lambda data: nn.GCNConv(data.d, hidden)), (lambda data: nn.GCNConv(hidden, data.m))
    known = {
        "sgc": {f"SGConv K={hops}{'' if rate else ', cached'}": peer(sg)},
        "lgc": {f"TAGConv K={hops}": peer(tag), f"TAGConv K={hops}, CSR": peer(tag, csr=True)},
        "gcn": {"GCNConv, 2 layers": peer(*gcn)},
        "blocks": {} if rate else {f"SIGN K={hops}": quietly(partial(sign, hops=hops))},
    }
    return known.get(model, {})


def sign(data: PeerData, hops: int) -> Peer:
    """sum_i S^i X Theta_i by PyTorch Geometric's transform SIGN and a torch.nn.Linear per hop.

    The transform normalises by degrees, so that with loops its S is ``renormalized``. Of the
    features only the rows are kept that training and validation read.
    """
    pyg: Any = find("torch_geometric")
    weights = torch.from_numpy(data.graph.adjacency.data).to(data.X.dtype)
    graph = pyg.data.Data(x=data.X, edge_index=data.edge_index, edge_weight=weights)
    loops = pyg.transforms.AddSelfLoops(fill_value=data.graph.loop_weight)
    graph = pyg.transforms.SIGN(hops)(loops(graph))
    features = [graph.x, *(graph[f"x{i}"] for i in range(1, hops + 1))]
    maps = [torch.nn.Linear(data.d, data.m, bias=False) for _ in features]

    def logits_at(nodes: Tensor) -> Callable[[], Tensor]:
        rows = [values[nodes] for values in features]

        def logits() -> Tensor:
            found = maps[0](rows[0])
            for layer, values in zip(maps[1:], rows[1:], strict=True):
                found = found + layer(values)
            return found

        return logits

    thetas: list[Tensor] = [layer.weight for layer in maps]
    return Peer(data, thetas, logits_at(data.train), logits_at(data.val))
