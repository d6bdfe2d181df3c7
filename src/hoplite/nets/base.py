"""Networks, which PyTorch differentiates, on the NumPy engine's kernels.

A network is a function of its weights, :meth:`Network.forward`; it has no state. Training, in
:mod:`hoplite.nets.training`, shares all but the gradient with the linear models.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from hoplite.errors import require_extra
from hoplite.machine import torch
from hoplite.models.base import Model, Weights

if TYPE_CHECKING:
    from torch import Tensor

    from hoplite.config import TrainingConfig
    from hoplite.engine.dropout import Dropout
    from hoplite.engine.propagation import Propagation
    from hoplite.nets.view import GraphView, RowView
    from hoplite.training.objective import Objective, Problem

Tensors = dict[str, "Tensor"]


class Network(Model):
    """A model that PyTorch differentiates; it reads the edges in every step.

    A weight called ``bias`` is added to the outputs after :meth:`forward`, unless ``own_bias``.
    """

    own_bias: ClassVar[bool] = False  # whether forward adds a weight of that name itself
    # Whether a step draws at random even where no feature is dropped: forward always gets a Dropout
    # in training then, whose seed and step decide what is drawn
    random_steps: ClassVar[bool] = False

    @property
    def unlearned(self) -> frozenset[str]:
        """The weights that no optimizer changes, such as running means.

        A :meth:`forward` of a training step may change their tensors in place.
        """
        return frozenset()

    @abstractmethod
    def forward(self, weights: Tensors, view: GraphView, dropout: Dropout | None) -> Tensor:
        """The signal of the view's rows before standardisation and bias: (rows, m).

        ``dropout`` is what a training step drops; None where nothing is dropped.
        """

    def logits(self, weights: Weights, source: Propagation) -> np.ndarray:
        self.require_torch()
        from hoplite.nets.view import GraphView, torch_threads

        view, nodes = GraphView(source), source.num_nodes
        with torch.no_grad(), torch_threads(self.dense_work(nodes, nodes)):
            values = self.forward(as_tensors(weights, source.dtype), view, None)
        return self.finished(weights, values.numpy())

    def finished(self, weights: Weights, values: np.ndarray) -> np.ndarray:
        return super().finished({} if self.own_bias else weights, values)

    def objective(self, problem: Problem, config: TrainingConfig, seed: int) -> Objective:
        self.require_torch()
        from hoplite.nets.training import NetworkObjective

        return NetworkObjective(self, problem, config, seed)

    def dense_work(self, rows: int, nodes: int) -> int:
        """About how many multiply-adds PyTorch's own operations take at ``rows`` of ``nodes``.

        The engine's kernels, which have their own threads, do not count.
        """
        return rows * self.signal_columns() * self.num_classes

    def require_torch(self) -> None:
        """HopliteError without PyTorch; it says how to install it."""
        require_extra("torch", f"model {self.name!r}", "torch")


class RowNetwork(Network):
    """A network whose outputs at a node follow from the node's own hop features.

    So it also trains from, and predicts, rows of hop features, which a store holds, and in
    mini-batches.
    """

    @classmethod
    def check_store(cls) -> None:
        return

    @property
    def hops_read(self) -> list[int]:
        """The hops that it reads."""
        return list(range(self.config.hops + 1))

    @abstractmethod
    def forward(self, weights: Tensors, view: RowView, dropout: Dropout | None) -> Tensor: ...

    def signal_from_hops(self, weights: Weights, hops: np.ndarray) -> np.ndarray:
        """The signal before standardisation and bias: (hops, rows, d) -> (rows, m)."""
        self.require_torch()
        from hoplite.nets.view import HopView, torch_threads

        rows = hops.shape[1]
        with torch.no_grad(), torch_threads(self.dense_work(rows, rows)):
            tensors = as_tensors(weights, hops.dtype)
            return self.forward(tensors, HopView(hops), None).numpy()


def as_tensors(weights: Weights, dtype: np.dtype) -> Tensors:
    """Weights as tensors of ``dtype``, which are only read."""
    from hoplite.nets.view import as_tensor

    return {name: as_tensor(np.asarray(v, dtype, order="C")) for name, v in weights.items()}


def glorot(inputs: int, outputs: int, rng: np.random.Generator | None) -> np.ndarray:
    """U(-a, a) with a = sqrt(6 / (inputs + outputs)); without a generator only the shape counts."""
    if rng is None:
        return np.broadcast_to(np.float32(0), (inputs, outputs))
    bound = np.float32(math.sqrt(6 / (inputs + outputs)))
    return bound * (2 * rng.random((inputs, outputs), np.float32) - 1)
