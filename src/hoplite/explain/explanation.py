"""Explanation: one logit as a sum over hops, nodes, features and any pair of these."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from hoplite.config import check_number
from hoplite.errors import check_choice
from hoplite.explain.as_dict import explanation_dict
from hoplite.explain.exact import ExactModel

KINDS = ("hops", "nodes", "features", "node_features")
BLOCK_ENTRIES = 1 << 22  # numbers held at a time for the pairs of node and feature


@dataclass(frozen=True)
class Part:
    """One contribution: of a hop, node or feature, or of a pair with index (node, feature)."""

    index: Any
    name: str
    contribution: float


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """Why ``node`` has the logit it has, exactly; made by :func:`hoplite.explain.explain`.

        logit = constant + by_hop.sum() + residual
        by_hop.sum() = by_node.sum() = by_feature.sum() = sum_{i, u, f} R[i, u] X[u, f] W[i, f]

    All in float64; the residual is what the model's own forward pass rounded away.

    Parameters
    ----------
    node : index of the explained node v
    class_, against : the names of the class and, in a contrast, of the one it is compared with
    logits : (m,), the model's own, of every class
    logit : the explained one, or logit(class_) - logit(against)
    constant : what belongs to no hop, node or feature (bias, and the mean of a standardised model)
    coefficients : (k + 1,), one per hop; (k + 1, d) if the gates are per feature; (k + 1, 2) in a
        contrast whose two classes have gates of their own
    reach : R, (k + 1, n), the rows v of p_0(S) .. p_k(S)
    hop_factor, feature_factor : C (k + 1, t) and Theta (d, t) with W = C Theta^T
    """

    exact: ExactModel
    node: int
    class_: str
    against: str | None
    logits: np.ndarray
    logit: float
    constant: float
    coefficients: np.ndarray
    reach: np.ndarray
    hop_factor: np.ndarray
    feature_factor: np.ndarray

    @cached_property
    def by_hop(self) -> np.ndarray:
        """What hop i gives: (k + 1,)."""
        return (self.hop_factor * (self.reach @ self._signal)).sum(axis=1)

    @cached_property
    def by_node(self) -> np.ndarray:
        """What the features of node u give: (n,)."""
        return (self._weights * self._signal).sum(axis=1)

    @cached_property
    def by_feature(self) -> np.ndarray:
        """What feature f gives, wherever it is: (d,)."""
        return (self.feature_factor * (self._features.T @ self._weights)).sum(axis=1)

    @cached_property
    def hop_node(self) -> np.ndarray:
        """R[i, u] (X W^T)[u, i]: (k + 1, n)."""
        return self.reach * (self.hop_factor @ self._signal.T)

    @cached_property
    def hop_feature(self) -> np.ndarray:
        """(R X)[i, f] W[i, f]: (k + 1, d)."""
        return self.exact.hop_features(self.reach) * (self.hop_factor @ self.feature_factor.T)

    @cached_property
    def node_feature(self) -> sp.csr_array:
        """X[u, f] sum_i R[i, u] W[i, f]: (n, d), zero where X is."""
        blocks = [*self._pair_blocks()]
        shape: Any = self._features.shape
        if not blocks:
            return sp.csr_array(shape)
        rows = np.concatenate([nodes[block.coords[0]] for nodes, block in blocks])
        columns = np.concatenate([block.coords[1] for _, block in blocks])
        values = np.concatenate([block.data for _, block in blocks])
        return sp.csr_array((values, (rows, columns)), shape=shape)

    @property
    def residual(self) -> float:
        """The logit minus the constant and all contributions: rounding, nothing else."""
        return self.logit - self.constant - float(self.by_hop.sum())

    def top(self, kind: str, count: int = 10) -> list[Part]:
        """The ``count`` largest contributions in absolute value, none of them 0.

        ``kind`` is "hops", "nodes", "features", or "node_features" for the pairs of the two.
        """
        check_choice("kind", kind, KINDS)
        check_number("count", count, 0, whole=True)
        if kind == "node_features":
            return self._top_pairs(count)
        values = {"hops": self.by_hop, "nodes": self.by_node, "features": self.by_feature}[kind]
        return [
            Part(int(i), self._name(kind, int(i)), float(values[i])) for i in largest(values, count)
        ]

    def to_dict(self, top: int = 10, flips: dict[str, Any] | None = None) -> dict[str, Any]:
        """Everything worth showing as plain JSON values, with the ``top`` of each kind.

        ``flips`` is what :func:`hoplite.explain.flips` found for the same node, if it was asked.
        """
        return explanation_dict(self, top, flips)

    def __repr__(self) -> str:
        versus = "" if self.against is None else f" against {self.against!r}"
        whose = f"node {self._name('nodes', self.node)}, class {self.class_!r}{versus}"
        sums = f"{self.constant:.4g} + {self.by_hop.sum():.4g}"
        lines = [f"Explanation({whose}: logit {self.logit:.4g} = {sums})"]
        for kind in ("hops", "nodes", "features"):
            parts = self.top(kind, 3)
            shown = ", ".join(f"{_short(part.name)} {part.contribution:+.3g}" for part in parts)
            lines.append(f"  {kind:<9}{shown or 'nothing'}")
        return "\n".join(lines)

    @property
    def _features(self) -> Any:
        return self.exact.features

    @cached_property
    def _signal(self) -> np.ndarray:
        """X Theta: (n, t)."""
        theta = torch.from_numpy(np.ascontiguousarray(self.feature_factor))
        return self.exact.propagation.features.times(theta.unsqueeze(0))[:, 0].numpy()

    @cached_property
    def _weights(self) -> np.ndarray:
        """R^T C, the weight of every node: (n, t)."""
        return self.reach.T @ self.hop_factor

    def _pair_blocks(self) -> Iterator[tuple[np.ndarray, sp.coo_array]]:
        """The nodes of a block of rows that matter, and the contributions of their features."""
        weights, theta, features = self._weights, self.feature_factor, self._features
        nodes = np.flatnonzero(weights.any(axis=1))
        stored = features.nnz if sp.issparse(features) else features.size
        row_entries = max(stored // max(len(weights), 1), 1) * theta.shape[1]
        step = max(BLOCK_ENTRIES // row_entries, 1)
        for start in range(0, len(nodes), step):
            part = nodes[start : start + step]
            block = sp.csr_array(features[part]).tocoo()
            row, column = block.coords
            factor = np.einsum("et,et->e", weights[part][row], theta[column])
            yield part, sp.coo_array((block.data * factor, (row, column)), shape=block.shape)

    def _top_pairs(self, count: int) -> list[Part]:
        best: list[Part] = []
        for nodes, block in self._pair_blocks():
            row, column = block.coords
            for e in largest(block.data, count):
                pair = int(nodes[row[e]]), int(column[e])
                name = f"{self._name('nodes', pair[0])}, {self._name('features', pair[1])}"
                best.append(Part(pair, name, float(block.data[e])))
        return sorted(best, key=lambda part: -abs(part.contribution))[:count]

    def _name(self, kind: str, index: int) -> str:
        graph = self.exact.graph
        names = {"nodes": graph.node_ids, "features": graph.feature_names}.get(kind)
        if names is not None:
            return str(names[index])
        return {"hops": f"hop {index}", "nodes": str(index)}.get(kind, f"feature {index}")


def largest(values: np.ndarray, count: int) -> np.ndarray:
    """Indices of the ``count`` largest absolute values, largest first, without zeros.

    >>> largest(np.array([1.0, -3.0, 0.0, 2.0]), 5).tolist()
    [1, 3, 0]
    """
    size = np.abs(values)
    found = np.flatnonzero(size)
    if len(found) > count:
        found = (
            found[size[found] >= np.partition(size[found], -count)[-count]] if count else found[:0]
        )
    return found[np.argsort(-size[found], kind="stable")][:count]


def _short(name: str) -> str:
    return name if len(name) <= 24 else name[:21] + "..."
