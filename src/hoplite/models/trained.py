"""TrainedModel: weights with everything needed to use them on a graph."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hoplite.convert import converted
from hoplite.errors import ConfigError, HopliteError, ModelFileError
from hoplite.models import Model, ModelConfig, Weights, build_model
from hoplite.models.alignment import (
    LEFT_OUT,
    aligned_columns,
    aligned_graph,
    check_classes,
    check_prepared,
    check_stored,
)
from hoplite.models.export import hop_arrays, hop_module, write_onnx
from hoplite.models.from_store import stored_logits
from hoplite.models.saved import ModelFile, Shapes, read_folder, write_folder
from hoplite.node_data import NodeData
from hoplite.preparation import Preparation
from hoplite.propagation.engine import Propagation
from hoplite.tasks import USUAL, Task, find_task

TASK_STATE = "task_state"  # of a model's training: what its task must know, see Task.state
MOST_IDLE = 1 << 16  # a setting that the model does not use may be this much above its weights


@dataclass(frozen=True, eq=False, repr=False)
class TrainedModel:
    """A model with learned weights.

    Parameters
    ----------
    config : ModelConfig
    weights : dict of tensors, without run axis (``theta`` is (d, m))
    num_features : d
    class_names : names of the m classes
    feature_names : names of the d features, if the data had them
    training : what is worth knowing of the training (settings, seed, validation accuracy)
    preparation : how the features come from the columns of tables, if they did
    """

    config: ModelConfig
    weights: Weights
    num_features: int
    class_names: tuple[str, ...]
    feature_names: tuple[str, ...] | None = None
    training: dict[str, Any] = field(default_factory=dict)
    preparation: Preparation | None = None

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def task(self) -> Task:
        """What the model was trained for, which reads its outputs."""
        task, state = find_task(self.training.get("task", USUAL)), self.training.get(TASK_STATE)
        return task if state is None else task.restored(state)

    @property
    def left_out_classes(self) -> tuple[str, ...]:
        """Classes of its graph that the model has not, because it was not shown any of them."""
        names = self.training.get(LEFT_OUT)  # from a file, so anything
        found = names if isinstance(names, list) else []
        return tuple(name for name in found if isinstance(name, str))

    @property
    def coefficients_(self) -> np.ndarray:
        """c_0 .. c_k in the model's basis; the baselines have none.

        For hLGC the ungated alpha; its feature gate has none, so there they are 1.
        """
        many = self._model().coefficients(self._stacked())
        values = torch.eye(self.config.hops + 1)[-1] if many is None else many[0]
        return values.detach().numpy().copy()

    def logits(self, data: NodeData) -> np.ndarray:
        """Logits of every node: (n, m); ModelFileError unless the data fits the model.

        ``data`` may also be a graph of another library, see :func:`hoplite.open_data`.

        HopliteError if one is not finite, as for features beyond all that the model has seen.
        """
        return np.concatenate([part for _, part in self.logit_rows(data)])

    def logit_rows(
        self, data: NodeData, *, memory: str | int | None = None
    ) -> Iterator[tuple[int, np.ndarray]]:
        """As :meth:`logits`, in pieces of rows, each with its first node.

        A hop store is read piece by piece, and ``memory``, such as ``"700MB"``, is then the peak of
        this process; ConfigError if its hops are not those of the model.
        """
        data = converted(data, prepare=self)
        stored, config = data.stored, self.config
        if self.task.has_classes:
            check_classes(data, self.class_names, self.left_out_classes)
        check_prepared(data, self.preparation)
        if stored is not None:
            check_stored(stored, config)
            columns = aligned_columns(stored, self.num_features, self.feature_names)
            rows = stored_logits(self._model(), self._stacked(), stored, columns, memory)
            for first, part in rows:
                yield first, _checked(part, first)
        elif memory is not None:
            raise ConfigError(
                "memory is given, which is for hop stores; make one with `hoplite propagate` and "
                "predict from it."
            )
        else:
            graph = aligned_graph(data.in_memory(), self.num_features, self.feature_names)
            yield (
                0,
                self.logits_from(Propagation(graph, config.operator, config.basis, config.hops)),
            )

    def logits_from(self, propagation: Propagation) -> np.ndarray:
        """Logits of every node from a propagation that is already set up: (n, m)."""
        return _checked(self.raw_logits(propagation))

    def raw_logits(self, propagation: Propagation) -> np.ndarray:
        """As :meth:`logits_from`, with infinity and NaN where that overflows."""
        weights = {name: value.to(propagation.dtype) for name, value in self._stacked().items()}
        with torch.no_grad():
            return self._model().logits(weights, propagation.view())[:, 0].numpy()

    def predict_proba(self, data: NodeData) -> np.ndarray:
        """Class probabilities of every node: (n, m), rows sum to 1; of numbers, these: (n, 1)."""
        return self.task.link(self.logits(data))

    def predict(self, data: NodeData) -> np.ndarray:
        """Class index of every node, or its number: (n,)."""
        return self.task.predict(self.logits(data))

    def save(
        self,
        folder: str | Path,
        *,
        overwrite: bool = False,
        result: dict[str, Any] | None = None,
    ) -> Path:
        """Write the model to ``folder``, with ``result`` (plain JSON values) beside it.

        The folder appears complete or not at all; with ``overwrite`` it may replace a model.
        """
        module = self.config.kind.__module__
        model = ModelFile(
            self.config.as_dict(),
            self.num_features,
            self.class_names,
            self.feature_names,
            self.training,
            self.preparation,
            "" if module.startswith("hoplite.models.") else module,
        )
        write_folder(folder, model, self.weights, result, overwrite=overwrite)
        return Path(folder)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """``weight`` ((k + 1) d, m) and ``bias`` (m,), which make logits of stacked hop features.

        logits = [P_0, .., P_k] weight + bias with P_i = p_i(S) X, as
        ``HopFeatures(graph, hops=k, operator=..., basis=..., stack=True)`` gives them; block i of
        the weight is c_i Theta. ConfigError for models that are no such sum.

        Of a model of classes there is also ``shift`` (m,): the class is argmax(logits - shift). It
        is 0, but log(t / (1 - t)) for a class that begins at a chosen threshold t. Of a model of
        numbers, instead of the logits these are the numbers themselves, in their units.
        """
        return hop_arrays(self)

    def to_torch(self) -> torch.nn.Linear:
        """The map of :meth:`to_arrays` as a torch module: logits, with ``shift`` as a buffer."""
        return hop_module(self)

    def to_onnx(self, path: str | Path) -> None:
        """Write the map of :meth:`to_arrays` as ONNX: ``hops`` to ``logits``.

        ``task``, ``task_state`` (with a chosen threshold) and ``shift`` are among its metadata. It
        needs the extra ``export``.
        """
        write_onnx(self, path)

    @classmethod
    def load(cls, folder: str | Path) -> TrainedModel:
        """Read a model that ``save`` wrote; anything else raises ModelFileError."""
        found, weights = read_folder(folder, _shapes)
        return cls(
            found.config,
            weights,
            found.num_features,
            found.class_names,
            found.feature_names or None,
            found.training,
            found.preparation,
        )

    def _model(self) -> Model:
        return build_model(self.config, self.num_features, self.num_classes)

    def _stacked(self) -> dict[str, Tensor]:
        return {name: value.unsqueeze(0) for name, value in self.weights.items()}

    def __repr__(self) -> str:
        config = self.config
        return (
            f"TrainedModel({config.model}, {config.size()}, "
            f"features={self.num_features}, classes={self.num_classes})"
        )


def _checked(logits: np.ndarray, first: int = 0) -> np.ndarray:
    """The logits of the nodes from ``first`` on; HopliteError unless they are finite."""
    bad = np.flatnonzero(~np.isfinite(logits).all(axis=1))
    if bad.size:
        raise HopliteError(
            f"the outputs of {bad.size:,} nodes (first: node {first + bad[0]}) are not finite, so "
            "they are no predictions; features or weights are too large: scale the features as "
            "those in training were, or train again with fewer hops."
        )
    return logits


def _shapes(found: ModelFile, there: Shapes) -> Shapes | None:
    """The shapes that the weights must have; None if those that are there are far too few."""
    if found.num_features > sum(math.prod(shape) for shape in there.values()) + MOST_IDLE:
        return None
    model = build_model(found.config, found.num_features, len(found.class_names))
    refusal = model.refusal(there)
    if refusal is not None:
        raise ModelFileError(f"the model was saved by an earlier version: {refusal}.")
    try:
        return model.shapes()
    except ConfigError:  # too large for any memory
        return None
