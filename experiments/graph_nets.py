"""Networks on the folds of experiments/graphs.py: what the linear models are compared with.

The loss on the inner validation graphs ends a training and chooses the learning rate; then the test
graphs are read, once. A fold that is in the folder of results is not run again. The grid is small,
so that both sets take about an hour on one core. It needs the extra ``torch``.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Batch, Data

from benchmarks.machine import made_by
from experiments.graphs import FOLDS, PAGE, load_fold, write_page
from experiments.trainings import Report
from hoplite.files import atomic_write_text
from hoplite.graphs import GraphSet

SETS = ("PROTEINS", "NCI1")
# Fixed before the first run that read test graphs.
RATES = (1e-2, 3e-3)
WIDTH, EPOCHS, PATIENCE, BATCH, HOPS, SORTED = 32, 40, 10, 64, 4, 30


def readout(x: Tensor, batch: Tensor) -> Tensor:
    """Mean, sum and maximum over the nodes of each graph, side by side."""
    pools = (pyg.global_mean_pool, pyg.global_add_pool, pyg.global_max_pool)
    return torch.cat([pool(x, batch) for pool in pools], dim=1)


def diffused(x: Tensor, edges: Tensor, hops: int, power: float) -> list[Tensor]:
    """X, S X, .. S^hops X with S = D^-power A D^(power - 1), of which 1/2 is symmetric."""
    degree = torch.zeros(len(x)).index_add_(0, edges[0], torch.ones(edges.shape[1])).clamp(min=1)
    weight = degree[edges[1]] ** -power * degree[edges[0]] ** (power - 1)
    found = [x]
    for _ in range(hops):
        step = found[-1][edges[0]] * weight[:, None]
        found.append(torch.zeros_like(found[-1]).index_add_(0, edges[1], step))
    return found


def mlp(inside: int, width: int, out: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inside, width), nn.ReLU(), nn.Dropout(0.5), nn.Linear(width, out)
    )


class StackedLGC(nn.Module):
    """Two polynomial convolutions without an activation, and a linear map of the readouts."""

    def __init__(self, inside: int, width: int, classes: int) -> None:
        super().__init__()
        self.maps = nn.ModuleList([nn.Linear(inside, width), nn.Linear(width, width)])
        self.filters = nn.Parameter(torch.full((2, HOPS + 1), 1 / (HOPS + 1)))
        self.head = nn.Sequential(nn.BatchNorm1d(3 * width), nn.Linear(3 * width, classes))

    def forward(self, x: Tensor, edges: Tensor, batch: Tensor) -> Tensor:
        for convolve, filter_ in zip(self.maps, self.filters, strict=True):
            hops = diffused(convolve(x), edges, HOPS, 0.5)
            x = sum((c * hop for c, hop in zip(filter_, hops, strict=True)), torch.zeros(()))
        return self.head(readout(x, batch))


class PolynomialConvolution(nn.Module):
    """X0 = BN(GraphConv(X)), H = BN([X0, A X0, ..] W) with W block-triangular, readouts, MLP."""

    def __init__(self, inside: int, width: int, classes: int) -> None:
        super().__init__()
        self.first, self.norm = pyg.GraphConv(inside, width), nn.BatchNorm1d(width)
        self.maps = nn.ModuleList([nn.Linear((i + 1) * width, width) for i in range(HOPS)])
        self.second = nn.BatchNorm1d(HOPS * width)
        self.head = mlp(3 * HOPS * width, width, classes)

    def forward(self, x: Tensor, edges: Tensor, batch: Tensor) -> Tensor:
        hops = diffused(self.norm(self.first(x, edges)), edges, HOPS - 1, 0.5)
        parts = [own(torch.cat(hops[: i + 1], dim=1)) for i, own in enumerate(self.maps)]
        return self.head(readout(self.second(torch.cat(parts, dim=1)), batch))


class GIN(nn.Module):
    """Four layers of GINConv; the sums of all layers are added up."""

    def __init__(self, inside: int, width: int, classes: int) -> None:
        super().__init__()
        sizes = [inside, *[width] * 4]
        self.layers = nn.ModuleList(
            pyg.GINConv(
                nn.Sequential(nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU(), nn.Linear(b, b))
            )
            for a, b in itertools.pairwise(sizes)
        )
        self.heads = nn.ModuleList([nn.Linear(size, classes) for size in sizes])

    def forward(self, x: Tensor, edges: Tensor, batch: Tensor) -> Tensor:
        outputs = self.heads[0](pyg.global_add_pool(x, batch))
        for layer, head in zip(self.layers, list(self.heads)[1:], strict=True):
            x = functional.relu(layer(x, edges))
            outputs = outputs + functional.dropout(
                head(pyg.global_add_pool(x, batch)), 0.5, self.training
            )
        return outputs


class DGCNN(nn.Module):
    """GCN layers, the 30 first nodes by the last one (SortPool), a convolution, an MLP."""

    def __init__(self, inside: int, width: int, classes: int) -> None:
        super().__init__()
        sizes = [inside, width, width, width, 1]
        self.layers = nn.ModuleList(pyg.GCNConv(a, b) for a, b in itertools.pairwise(sizes))
        self.sort, self.width = pyg.SortAggregation(SORTED), 3 * width + 1
        self.convolve = nn.Conv1d(1, 16, self.width, self.width)
        self.head = mlp(16 * SORTED, 128, classes)

    def forward(self, x: Tensor, edges: Tensor, batch: Tensor) -> Tensor:
        found = []
        for layer in self.layers:
            x = torch.tanh(layer(x, edges))
            found.append(x)
        rows = self.sort(torch.cat(found, dim=1), batch)
        return self.head(functional.relu(self.convolve(rows[:, None])).flatten(1))


class ECC(nn.Module):
    """Two edge-conditioned convolutions.

    The edges of these sets have no attributes, so the network that makes a matrix of them makes
    the same one for all: SAGEConv with means is that convolution.
    """

    def __init__(self, inside: int, width: int, classes: int) -> None:
        super().__init__()
        sizes = [inside, width, width]
        self.layers = nn.ModuleList(pyg.SAGEConv(a, b) for a, b in itertools.pairwise(sizes))
        self.head = mlp(width, width, classes)

    def forward(self, x: Tensor, edges: Tensor, batch: Tensor) -> Tensor:
        for layer in self.layers:
            x = functional.relu(layer(x, edges))
        return self.head(pyg.global_mean_pool(x, batch))


class DCNN(nn.Module):
    """Diffusion-convolution: tanh(w_ij (P^i X)_j), means over nodes, an MLP."""

    def __init__(self, inside: int, width: int, classes: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.randn(HOPS + 1, inside))
        self.head = mlp((HOPS + 1) * inside, width, classes)

    def forward(self, x: Tensor, edges: Tensor, batch: Tensor) -> Tensor:
        hops = diffused(x, edges, HOPS, 1.0)
        found = [torch.tanh(w * hop) for w, hop in zip(self.weights, hops, strict=True)]
        return self.head(pyg.global_mean_pool(torch.cat(found, dim=1), batch))


NETS: dict[str, type[nn.Module]] = {
    "stacked LGC": StackedLGC,
    "polynomial convolution": PolynomialConvolution,
    "GIN": GIN,
    "DGCNN": DGCNN,
    "ECC": ECC,
    "DCNN": DCNN,
}


def as_data(graphs: GraphSet) -> list[Data]:
    """The graphs of PyTorch Geometric; nodes without features have a 1."""
    found = []
    for g in range(len(graphs)):
        graph = graphs.graph(g)
        arcs, features = graph.adjacency.tocoo(), np.asarray(graph.features, np.float32)
        features = features if features.shape[1] else np.ones((graph.num_nodes, 1), np.float32)
        pairs = torch.tensor(np.stack([arcs.row, arcs.col]), dtype=torch.int64)
        label = torch.tensor([int(graphs.table.labels[g])])
        found.append(Data(x=torch.tensor(features), edge_index=pairs, y=label))
    return found


def scores(net: nn.Module, batch: Any) -> tuple[float, float]:
    """The loss and the accuracy on some graphs."""
    net.eval()
    with torch.no_grad():
        logits = net(batch.x, batch.edge_index, batch.batch)
    loss = float(functional.cross_entropy(logits, batch.y))
    return loss, float((logits.argmax(dim=1) == batch.y).float().mean())


def trained(
    family: type[nn.Module], data: list[Data], parts: Any, lr: float
) -> tuple[float, float, nn.Module]:
    """The lowest validation loss, the accuracy there, and the network that reached them."""
    torch.manual_seed(0)
    classes = 1 + max(int(graph.y) for graph in data)
    net = family(data[0].num_features, WIDTH, classes)
    optimizer = torch.optim.Adam(net.parameters(), lr=lr)
    val = Batch.from_data_list([data[i] for i in parts.val])
    best, state, last = (float("inf"), 0.0), net.state_dict(), 0
    for epoch in range(EPOCHS):
        net.train()
        for some in torch.tensor(parts.train)[torch.randperm(len(parts.train))].split(BATCH):
            if len(some) == 1:  # which batch normalisation cannot take
                continue
            batch: Any = Batch.from_data_list([data[i] for i in some.tolist()])
            optimizer.zero_grad()
            logits = net(batch.x, batch.edge_index, batch.batch)
            functional.cross_entropy(logits, batch.y).backward()
            optimizer.step()
        reached = scores(net, val)
        if reached[0] < best[0]:
            best, last = reached, epoch
            state = {name: value.clone() for name, value in net.state_dict().items()}
        if epoch - last >= PATIENCE:
            break
    net.load_state_dict(state)
    return *best, net


def run_fold(data: list[Data], parts: Any, net: str) -> dict[str, Any]:
    """Choose the learning rate on the inner validation graphs, then read the test graphs."""
    start = time.process_time()
    trainings = {rate: trained(NETS[net], data, parts, rate) for rate in RATES}
    rate = min(RATES, key=lambda rate: trainings[rate][0])
    loss, accuracy, chosen = trainings[rate]
    test = Batch.from_data_list([data[i] for i in parts.test])
    return {
        "chosen": f"lr={rate}",
        "val_loss": loss,
        "val_accuracy": accuracy,
        "test_accuracy": scores(chosen, test)[1],
        "processor_seconds": time.process_time() - start,
    }


def run(data: Path, out: Path, sets: Sequence[str], report: Report, page: Path = PAGE) -> str:
    """Run what is missing, write the page and return its text."""
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    records = []
    for number, (name, fold) in enumerate(itertools.product(sets, range(FOLDS))):
        graphs = load_fold(data, name, fold)
        batches, parts = as_data(graphs), graphs.table.split
        for net in NETS:
            report(f"{name} {net} {fold}", number / FOLDS / len(sets))
            path = out / f"{name}-{net.replace(' ', '-')}-{fold}.json"
            if not path.exists():
                record = {"set": name, "net": net, "fold": fold, "made_by": made_by()}
                record |= run_fold(batches, parts, net)
                atomic_write_text(path, json.dumps(record))
            records.append(json.loads(path.read_text(encoding="utf-8")))
            write_page(records, page)  # of what there is, as it takes long
    return write_page(records, page)
