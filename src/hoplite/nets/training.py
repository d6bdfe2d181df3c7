"""The objective of networks: PyTorch's gradients, of a loss that is the tasks' own.

The weights are NumPy arrays, which the optimizers change in place; tensors share their memory. A
network gives its signal V, (rows, m). Standardisation, the bias and the loss are those of the
linear models, in NumPy, and so is dV; PyTorch takes it back to the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from hoplite.config import TrainingConfig
from hoplite.engine.dropout import Dropout
from hoplite.engine.propagation import Propagation
from hoplite.errors import ConfigError
from hoplite.models.base import Weights
from hoplite.nets.view import GraphView, HopView, RowView, torch_threads
from hoplite.training.linear import plan_order
from hoplite.training.objective import GradientObjective, Measured, Problem, Signal

if TYPE_CHECKING:
    from hoplite.nets.base import Network

Tensors = dict[str, Tensor]


class NetworkObjective(GradientObjective):
    """The loss of a network, from a graph in memory or, of a RowNetwork, rows of hop features."""

    def __init__(self, model: Network, problem: Problem, config: TrainingConfig, seed: int) -> None:
        super().__init__(model, problem, config, seed)
        self.model, self.map_weights = model, model.map_weights
        self.random_steps = model.random_steps
        first = model.initial(np.random.default_rng(seed))
        dtype, unlearned = problem.source.dtype, model.unlearned
        whole = {name: np.array(value, dtype, order="C") for name, value in first.items()}
        self.params = {name: value for name, value in whole.items() if name not in unlearned}
        self._buffers = {name: whole[name] for name in unlearned}
        if not self.params:
            raise ConfigError(f"{model.title} has no trainable parameters.")
        self._tensors = {name: torch.from_numpy(value) for name, value in whole.items()}
        for name in self.params:
            self._tensors[name].requires_grad_()
        self._train = self._rows(self._train_nodes, learns=True)
        if problem.scored:
            everywhere, scored = self._standardize, [*problem.scored.values()]
            self._scored_nodes = None if everywhere else np.concatenate(scored)
            self._scored = self._rows(self._scored_nodes, learns=False)

    def weights(self) -> Weights:
        return super().weights() | {name: value.copy() for name, value in self._buffers.items()}

    def gradient(self, step: int, batch: np.ndarray | None = None) -> tuple[Measured, Weights]:
        with self._threads(self._train_nodes if batch is None else batch):
            return super().gradient(step, batch)

    def training_signal(self, dropout: Dropout | None) -> Signal:
        return self._train.evaluate(self._forward, dropout)

    def batch_signal(self, batch: np.ndarray) -> Signal:
        return self._train.part(batch).evaluate(self._forward, None)

    def outputs(self, next_step: int | None) -> dict[str, np.ndarray]:
        if not self.problem.scored:
            return {}
        with self._threads(self._scored_nodes), torch.no_grad():
            logits = self.finished(self._scored.evaluate(self._forward, None)).values
        return self.problem.cut(logits, everywhere=self._standardize)

    @property
    def adds_bias(self) -> bool:
        return not self.model.own_bias and super().adds_bias

    def _forward(self, view: RowView, dropout: Dropout | None) -> tuple[Tensor, Tensors]:
        """The signal at a view's rows, and the weights that it is differentiated by."""
        values = self.model.forward(self._tensors, view, dropout)  # pyright: ignore
        if torch.is_grad_enabled() and not values.requires_grad:
            raise ConfigError(
                f"the outputs of {self.model.title} have no gradient, so it cannot be trained; its "
                "forward must compute them from its parameters, without detach() or no_grad()."
            )
        return values, {name: self._tensors[name] for name in self.params}

    def _rows(self, nodes: np.ndarray | None, *, learns: bool) -> _GraphRows | _StoredRows:
        problem, model = self.problem, self.model
        if not isinstance(problem.source, Propagation):
            return _StoredRows(problem.source, model.hops_read, nodes)  # pyright: ignore
        hops_first = model.reads_rows() and (
            plan_order(model, problem.source, self._config, nodes, learns=learns).order
            == "hops-first"
        )
        key = ("view", hops_first, None if nodes is None else nodes.tobytes())
        return _GraphRows(
            problem.shared(key, lambda: GraphView(problem.source, nodes, hops_first=hops_first))
        )

    def _threads(self, nodes: np.ndarray | None) -> Any:
        """Within the block, the threads that the evaluation at ``nodes`` is worth."""
        everywhere = self.problem.source.num_nodes
        rows = everywhere if nodes is None else len(nodes)
        return torch_threads(self.model.dense_work(rows, everywhere))


Forward = Callable[[RowView, Dropout | None], tuple[Tensor, Tensors]]


class _GraphRows:
    """Rows of a graph in memory, or of hop features in memory."""

    def __init__(self, view: RowView) -> None:
        self._view = view

    def evaluate(self, forward: Forward, dropout: Dropout | None) -> Signal:
        """The signal, with its gradient unless gradients are off."""
        values, weights = forward(self._view, dropout)
        return Signal(values.detach().numpy(), lambda outer: _backward(values, weights, outer))

    def part(self, rows: np.ndarray) -> _GraphRows:
        """The hop features of some of the rows, by their positions."""
        assert isinstance(self._view, GraphView)  # rows of a batch have no parts
        return _GraphRows(self._view.part(rows))


class _StoredRows:
    """Rows of hop features in files, which are read a chunk at a time.

    A gradient reads them twice, as the first pass keeps the signal alone, unless one chunk has all.
    """

    def __init__(self, source: Any, hops: list[int], nodes: np.ndarray | None) -> None:
        self._source, self._hops, self._nodes = source, hops, nodes
        # files are read in rising order
        self._order = np.arange(source.num_nodes) if nodes is None else np.argsort(nodes)
        self._sorted = None if nodes is None else nodes[self._order]

    def evaluate(self, forward: Forward, dropout: Dropout | None) -> Signal:
        signal = self._evaluate(forward, dropout)
        values = np.empty_like(signal.values)
        values[self._order] = signal.values
        return Signal(values, lambda outer: signal.gradient(outer[self._order]))

    def _evaluate(self, forward: Forward, dropout: Dropout | None) -> Signal:
        """The same of the nodes in rising order."""
        chunks: list[np.ndarray] = []
        for part, hops in self._chunks():
            if part.stop - part.start == len(self._order):
                return _GraphRows(HopView(hops)).evaluate(forward, dropout)
            with torch.no_grad():
                values, _ = forward(HopView(hops), dropout)
            chunks.append(values.numpy())

        def gradient(outer: np.ndarray) -> Weights:
            total: dict[str, np.ndarray] = {}
            for part, hops in self._chunks():
                values, weights = forward(HopView(hops), dropout)
                for name, value in _backward(values, weights, outer[part]).items():
                    total[name] = total.get(name, 0) + value.astype(np.float64)
            return {name: value.astype(outer.dtype) for name, value in total.items()}

        return Signal(np.concatenate(chunks), gradient)

    def _chunks(self) -> Iterator[tuple[slice, np.ndarray]]:
        return self._source.chunks(self._sorted, self._hops)

    def part(self, rows: np.ndarray) -> _GraphRows:
        nodes = rows if self._nodes is None else self._nodes[rows]
        return _GraphRows(HopView(self._source.rows(nodes, self._hops)))


def _backward(values: Tensor, weights: Tensors, outer: np.ndarray) -> Weights:
    """The gradient by the weights from that by a signal; 0 for those that have no part in it."""
    zeros = {name: np.zeros(value.shape, outer.dtype) for name, value in weights.items()}
    # as an argument of grad, the outer gradient would make torch import SymPy, which takes a second
    inner = (values * torch.from_numpy(np.ascontiguousarray(outer))).sum()
    gradients = torch.autograd.grad(inner, [*weights.values()], allow_unused=True)
    pairs = zip(weights, gradients, strict=True)
    known = {
        name: np.ascontiguousarray(gradient.numpy())
        for name, gradient in pairs
        if gradient is not None
    }
    return zeros | known
