"""The coefficients of every hop, for the paper's figure; of hLGC those that its gates give.

With P_i the hop features of the nodes, (rows, d), and H_i the sum up to hop i, as
:mod:`hoplite.nets.hlgc` defines the gates:

    node      alpha_i sigmoid(ReLU(P_i W1_i + b1_i) W2_i + b2_i)        (rows, 1)
    class     alpha_i ([X, H_{i-1}] W + b)                (rows, m)
    feature   [P_{i-1}, H_{i-1}] W + b                    (rows, d)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from scipy.special import expit

from hoplite import Graph, TrainedModel
from hoplite.engine.propagation import Propagation
from hoplite.models import LinearModel, Weights


def hop_coefficients(
    model: TrainedModel, graph: Graph
) -> tuple[np.ndarray, np.ndarray | None] | None:
    """c_0 .. c_k as they act, (k + 1,): of hLGC the mean of the gated ones, with their spread.

    The mean and spread are over the nodes of the split, and over classes or features where these
    have gates of their own. None for a model without such coefficients.
    """
    if issubclass(model.config.kind, LinearModel):
        return model.filter_coefficients_, None
    if model.config.model != "hlgc":
        return None
    split = graph.split
    nodes = np.concatenate([split.train, split.val, split.test])
    hops = gated_coefficients(model, graph, nodes)
    moments = [(hop.mean(dtype=np.float64), hop.std(dtype=np.float64)) for hop in hops]
    means, spreads = np.array(moments).T
    return means, spreads


def gated_coefficients(
    model: TrainedModel, graph: Graph, nodes: np.ndarray
) -> Iterator[np.ndarray]:
    """Those of hop 0, 1, .. k at ``nodes``: (rows, 1), (rows, m) or (rows, d), by the gate."""
    source = Propagation.of(graph, model.config)
    gates: dict[str, Callable[..., Iterator[np.ndarray]]] = {
        "node": _of_nodes,
        "class": _of_classes,
        "feature": _of_features,
    }
    weights = {name: value.astype(source.dtype) for name, value in model.weights.items()}
    return gates[model.config.gate](weights, source, nodes)


def _of_nodes(weights: Weights, source: Propagation, nodes: np.ndarray) -> Iterator[np.ndarray]:
    names = ("alpha", "gate_hidden", "gate_hidden_bias", "gate_out", "gate_out_bias")
    of_hops = zip(source.hop_features(nodes), *[weights[name] for name in names], strict=True)
    for hop, alpha, W1, b1, W2, b2 in of_hops:
        yield alpha * expit(np.maximum(hop @ W1 + b1, 0) @ W2 + b2)[:, None]


def _of_classes(weights: Weights, source: Propagation, nodes: np.ndarray) -> Iterator[np.ndarray]:
    fixed = source.features.times(weights["gate_features"])[nodes] + weights["gate_bias"]
    outputs = source.gather(source.features.times(weights["theta"]), nodes)
    total = np.zeros_like(outputs[0])
    for alpha, output in zip(weights["alpha"], outputs, strict=True):
        coefficient = alpha * (fixed + total @ weights["gate_sum"])
        yield coefficient
        total = total + coefficient * output


def _of_features(weights: Weights, source: Propagation, nodes: np.ndarray) -> Iterator[np.ndarray]:
    hops = source.hop_features(nodes)
    total, before = np.zeros((len(nodes), weights["theta"].shape[1]), hops.dtype), hops[0]
    for hop in hops:
        gate = before @ weights["gate_hop"] + total @ weights["gate_sum"] + weights["gate_bias"]
        yield gate
        total, before = total + (hop * gate) @ weights["theta"], hop
