"""TrainedModel: weights with everything needed to use them on a graph."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hoplite.engine.backend import one_blas_thread
from hoplite.engine.propagation import Propagation, part_names
from hoplite.engine.standardize import Moments, Standardized
from hoplite.errors import ConfigError, HopliteError, HopliteWarning
from hoplite.graph import Graph, NodeData, Split, StoredHops
from hoplite.io.convert import converted
from hoplite.labels import distinct
from hoplite.machine import free_memory
from hoplite.models import ModelConfig, Weights, build_model, pictures
from hoplite.models.alignment import (
    LEFT_OUT,
    NodeIndex,
    aligned_columns,
    aligned_graph,
    check_classes,
    check_prepared,
    check_relations,
    check_stored,
    in_columns,
)
from hoplite.models.correct_smooth import CorrectSmooth
from hoplite.models.export import hop_arrays, hop_module, write_onnx
from hoplite.models.fold_models import FoldModels, is_of_fold
from hoplite.models.labelprop import LabelModel
from hoplite.models.linear import LinearModel
from hoplite.models.neighbours import NeighbourLabels
from hoplite.models.saved import ModelFile, Shapes, read_folder, write_folder
from hoplite.preparation import Preparation
from hoplite.tasks import DEFAULT_TASK, Conformal, Task, find_task
from hoplite.tasks.conformal import nodes_needed

if TYPE_CHECKING:
    import torch
    from plotly.graph_objects import Figure

TASK_STATE = "task_state"  # of a model's training: what its task must know, see Task.state
CONFORMAL = "conformal"  # of a model's training: scores of the validation nodes, see Conformal
SPLIT = "split"  # of a model's training: the split it had, see split_facts
# the fields that a model's file has, too
SAVED = (
    *("num_features", "class_names", "feature_names", "training", "preparation", "loop_weight"),
    *("relations", "node_index", "correct_smooth", "neighbours"),
)
PIECE_BYTES = 16 * 10**6  # of hop features at a time
COPIES = 12  # of them at the same time: as read, in the model's order, and what a model makes
MIN_ROWS = 16
MAX_IDLE = 1 << 16  # a setting that the model does not use may be this much above its weights


@dataclass(frozen=True, eq=False, repr=False)
class TrainedModel:
    """A model with learned weights.

    Parameters
    ----------
    config : ModelConfig
    weights : dict of arrays (``theta`` is (d, m))
    num_features : d
    class_names : names of the m classes
    feature_names : names of the d features, if the data had them
    training : what is worth knowing of the training (settings, seed, validation accuracy)
    preparation : how the features come from the columns of tables, if they did
    loop_weight : of the self-loops in S, for every graph; None for each graph's own
    relations : the relations that it knows, with the weights of their self-loops; none for most
    node_index : the nodes that labels inside belong to, if it keeps some
    correct_smooth : what is made of its outputs by the labels of its training nodes, if anything
    neighbours : the labels of its training nodes, if it reads those of neighbours
    fold_models : the models of the folds, if they are kept, for prediction sets
    """

    config: ModelConfig
    weights: Weights
    num_features: int
    class_names: tuple[str, ...]
    feature_names: tuple[str, ...] | None = None
    training: dict[str, Any] = field(default_factory=dict)
    preparation: Preparation | None = None
    loop_weight: float | None = None
    relations: dict[str, float] = field(default_factory=dict)
    node_index: NodeIndex | None = None
    correct_smooth: CorrectSmooth | None = None
    neighbours: NeighbourLabels | None = None
    fold_models: FoldModels | None = None

    @property
    def num_classes(self) -> int:
        """m, the outputs: of regression 1."""
        return len(self.class_names)

    @property
    def task(self) -> Task:
        """What the model was trained for, which reads its outputs."""
        task, state = (
            find_task(self.training.get("task", DEFAULT_TASK)),
            self.training.get(TASK_STATE),
        )
        return task if state is None else task.restored(state)

    def settle(
        self, labels: np.ndarray, logits: np.ndarray, *, threshold: str | float, calibrate: bool
    ) -> Task:
        """Let validation nodes, with their outputs (n, m), decide what is read of the outputs.

        That is the threshold, then the temperature if they shall ``calibrate``; a number as
        ``threshold`` is one of calibrated probabilities. Their scores are kept for prediction sets.
        Returns the task, which the model then has.
        """
        tunes = isinstance(threshold, str)
        task = self.task.tuned(threshold, labels, logits) if tunes else self.task
        task = task.calibrated(labels, logits) if calibrate else task
        task = task if tunes else task.tuned(threshold, labels, logits)
        self.training[TASK_STATE] = task.state()
        if task.has_sets:
            scores = task.strangeness(labels, logits)
            kept = (
                Conformal.of_classes(scores, labels, self.num_classes)
                if task.has_classes
                else Conformal.of(scores)
            )
            self.training[CONFORMAL] = dataclasses.asdict(kept)
        return task

    @property
    def left_out_classes(self) -> tuple[str, ...]:
        """Classes of its graph that the model has not, because it was not shown any of them."""
        names = self.training.get(LEFT_OUT)  # from a file, so anything
        found = names if isinstance(names, list) else []
        return tuple(name for name in found if isinstance(name, str))

    @property
    def parts_(self) -> list[str]:
        """The matrices whose hops stand side by side, by relation and operator; none if one."""
        return part_names(self.relations, self.config.operators)

    @property
    def filter_coefficients_(self) -> np.ndarray:
        """c_0 .. c_k in the model's basis; networks have none.

        Of JacobiConv (k + 1, m), those of every class. Hop blocks have a filter for every feature
        and class, in :attr:`maps_`; here they have the norms ``||Theta_i||``, which tell how much
        each hop weighs, as far as features of all hops are of one size. With relations or channels
        a row for each of :attr:`parts_`, (P, k + 1), all with the c_0 that they share.
        """
        values = np.array(self._linear("filter coefficients").shown_coefficients(self.weights))
        if not self.parts_:
            return values
        own = values[1:].reshape(len(self.parts_), -1)
        return np.column_stack([np.full(len(own), values[0]), own])

    @property
    def filters_(self) -> dict[str, np.ndarray]:
        """c_0 .. c_k, (k + 1,), of every filter by its name, as :meth:`plot_filter` draws them.

        That is one for all classes, called as the model; or one for each class, or each of
        :attr:`parts_`, which share c_0. ConfigError for models that have no such filters.
        """
        values = np.array(self._linear("filter").filters(self.weights))
        if values.shape[1] > 1:
            return dict(zip(distinct(self.class_names), values.T, strict=True))
        if not self.parts_:
            return {self.config.kind.title: values[:, 0]}
        return dict(zip(self.parts_, self.filter_coefficients_, strict=True))

    @property
    def maps_(self) -> np.ndarray:
        """Theta of every hop: (k + 1, d, m), or (1, d, m) if it is the same for all.

        Of hop blocks with P :attr:`parts_` (1 + P k, d, m): hop 0, then those of every part.
        """
        return np.array(self._linear("Theta").maps(self.weights))

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
            check_stored(stored, config, self.loop_weight)
            self.refuse_correct_smooth("predictions from a hop store, which has no edges")
            check_relations((), self.relations)
            columns = aligned_columns(stored, self.num_features, self.feature_names)
            rows = _stored_logits(self._model(), self.weights, stored, columns, memory)
            for first, part in rows:
                yield first, _checked(part, first)
        elif memory is not None:
            raise ConfigError(
                "memory is only for hop stores; build one with `hoplite propagate` and predict "
                "from it."
            )
        else:
            graph = self.aligned(data.in_memory())
            yield 0, self.logits_from(Propagation.of(graph, config), graph)

    def aligned(self, graph: Graph) -> Graph:
        """``graph`` with its features in the model's order, see :func:`aligned_graph`."""
        return aligned_graph(
            graph, self.num_features, self.feature_names, self.loop_weight, self.relations
        )

    def logits_from(self, propagation: Propagation, graph: Graph | None = None) -> np.ndarray:
        """Logits of every node from a propagation of ``graph`` that is already set up: (n, m).

        The graph itself is needed by models that keep labels of its nodes.
        """
        if self.node_index is None and self.neighbours is None:
            return _checked(self.raw_logits(propagation))
        if graph is None:
            raise ConfigError("the model keeps labels of its graph's nodes; give the graph, too.")
        if self.node_index is not None:
            self.node_index.check(graph)
        return self.finished(graph, _checked(self.raw_logits(propagation, graph)))

    def finished(self, graph: Graph, logits: np.ndarray) -> np.ndarray:
        """The outputs of all nodes from the model's own ``logits``: (n, m)."""
        return logits if self.correct_smooth is None else self.correct_smooth.outputs(graph, logits)

    def refuse_correct_smooth(self, what: str) -> None:
        """ConfigError if Correct and Smooth changes the outputs, so that there is no ``what``."""
        if self.correct_smooth is not None and not self.correct_smooth.idle:
            raise ConfigError(
                f"the model is followed by Correct and Smooth, so there are no {what}; train one "
                "without correct_smooth."
            )

    def raw_logits(self, propagation: Propagation, graph: Graph | None = None) -> np.ndarray:
        """The model's own outputs, with infinity and NaN where they overflow.

        The graph itself is needed by models that read labels of neighbours.
        """
        if self.neighbours is not None and graph is not None:
            columns = self.neighbours.columns(graph, self.num_classes, propagation.dtype)
            propagation = propagation.with_neighbours(columns)
        with one_blas_thread, np.errstate(over="ignore", invalid="ignore"):
            return self._model().logits(self.weights, propagation)

    def predict_proba(self, data: NodeData) -> np.ndarray:
        """Class probabilities of every node: (n, m), rows sum to 1; of numbers, these: (n, 1).

        Column c is that of ``class_names[c]``. Calibrated if the model was trained so.
        """
        return self.task.link(self.logits(data))

    def predict(self, data: NodeData) -> np.ndarray:
        """Class index of every node, or its number: (n,); of several labels 0 and 1: (n, m)."""
        return self.task.predict(self.logits(data))

    def prediction_sets(
        self, data: NodeData, coverage: float = 0.9, *, by_class: bool = False
    ) -> np.ndarray:
        """Sets that hold the true label of a node with a probability of at least ``coverage``.

        Of classes bool (n, m): which are in a node's set; it may have several, or none. Of numbers
        (n, 2): the ends of an interval. They are made by split conformal prediction on the
        validation nodes of the training, see :class:`hoplite.tasks.Conformal`; ConfigError if it
        had none. The guarantee is for a model that has not learned from these nodes.

        After cross-validation the sets are made by CV+ from the models of all folds, if these are
        kept in ``fold_models``: then they cover at least ``2 coverage - 1``, and mostly about
        ``coverage``. Without them, from a hop store, and after a refit, whose scores are those of
        the model before it, the model has learned from all labels: the coverage is approximate.
        With ``by_class`` the nodes of every class are covered so; without, they are in the mean.
        """
        data = converted(data, prepare=self)
        logits = self.logits(data)
        return self.set_maker(data, coverage, by_class=by_class)(range(len(logits)), logits)

    def set_maker(
        self, data: NodeData, coverage: float, *, by_class: bool = False
    ) -> Callable[[range, np.ndarray], np.ndarray]:
        """The function from a range of nodes of ``data`` and their logits to their sets."""
        most, folds = self.set_quantile(coverage, by_class=by_class), self.fold_models
        if folds is None or data.stored is not None:
            return lambda nodes, logits: self.task.sets(logits, most)
        models = (replace(self, weights=own, fold_models=None) for own in folds.weights)
        outputs = [model.logits(data) for model in models]
        found = folds.sets(self.task, outputs, coverage, by_class=by_class)
        return lambda nodes, logits: found[nodes.start : nodes.stop]

    def set_quantile(self, coverage: float, *, by_class: bool = False) -> float | np.ndarray:
        """How strange a label may be in the sets of this coverage, see :meth:`Task.strangeness`.

        With ``by_class`` of each class: (m,).
        """
        state = self.training.get(CONFORMAL)
        if not self.task.has_sets:
            raise ConfigError(f"there are no prediction sets of {self.task.name}; leave them out.")
        if state is None:
            raise ConfigError(
                "the model has no validation scores, which prediction sets require; train it "
                "again, with folds or on a graph with validation nodes."
            )
        kept = Conformal.restored(state)
        if by_class and not self.task.has_classes:
            raise ConfigError("by_class is True, but the model predicts numbers; leave it out.")
        quantile = kept.quantiles(coverage) if by_class else kept.quantile(coverage)
        if np.isinf(quantile).any():
            what = "is without bounds" if not self.task.has_classes else "holds too many classes"
            warnings.warn(
                f"sets that cover {100 * coverage:g} % need {nodes_needed(coverage):,} validation "
                f"nodes{' of every class' if by_class else ''}, so a set {what}; train with more "
                "of them, or request a lower coverage.",
                HopliteWarning,
                stacklevel=3,
            )
        return quantile

    def plot_filter(self, graph: Graph | None = None) -> Figure:
        """The frequency response of the learned filter over the spectrum, and its coefficients.

        A curve for each of :attr:`filters_`, at eigenvalue lambda p(lambda) = sum_i c_i
        p_i(lambda); with a ``graph`` also the density of its operator's eigenvalues. It needs the
        extra ``plot``, as all pictures do; ConfigError for models without a filter.
        """
        return pictures.filter_figure(self, graph)

    def plot_confusion(self, data: NodeData, nodes: Any = "test") -> Figure:
        """Who is taken for whom: nodes of the class of a row, predicted as that of a column.

        ``nodes`` is "train", "val", "test", "all" that have a label, or indices or a mask of nodes.
        ConfigError unless every node has one class.
        """
        data = converted(data, prepare=self)
        return pictures.confusion_figure(pictures.judged(self, data, nodes, "plot_confusion"))

    def plot_reliability(self, data: NodeData, nodes: Any = "test") -> Figure:
        """Whether probabilities mean what they say: the share of right predictions beside each.

        ``nodes`` as for :meth:`plot_confusion`. The bins are those of the calibration error. Of
        several labels a node there is a curve for each of the most frequent ones, alone.
        """
        data = converted(data, prepare=self)
        return pictures.reliability_figure(pictures.judged(self, data, nodes, "plot_reliability"))

    def plot_predicted(self, data: NodeData, nodes: Any = "test") -> Figure:
        """Predicted numbers beside the true ones, of a model of numbers; right is the diagonal.

        ``nodes`` as for :meth:`plot_confusion`.
        """
        data = converted(data, prepare=self)
        return pictures.predicted_figure(pictures.judged(self, data, nodes, "plot_predicted"))

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
        shared = {name: getattr(self, name) for name in SAVED}
        model = ModelFile(self.config.as_dict(), module=self.config.kind.source(), **shared)
        kept = {} if self.fold_models is None else self.fold_models.arrays()
        write_folder(folder, model, self.weights | kept, result, overwrite=overwrite)
        return Path(folder)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """``weight`` ((k + 1) d, m) and ``bias`` (m,), which make logits of stacked hop features.

        logits = [P_0, .., P_k] weight + bias with P_i = p_i(S) X, as
        ``HopFeatures(graph, hops=k, operator=..., basis=..., stack=True)`` gives them; block i of
        the weight is c_i Theta. ConfigError for models that are no such sum.

        Of a model of classes there is also ``shift`` (m,): the class is argmax(logits - shift). It
        is 0, but log(t / (1 - t)) for a class that begins at a chosen threshold t. The logits of a
        calibrated model are divided by its temperature, so that their softmax are the
        probabilities. Of a model of numbers these are instead the numbers themselves, in their
        units.
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
        found, arrays = read_folder(folder, _shapes)
        weights = {name: value for name, value in arrays.items() if not is_of_fold(name)}
        others = {name: value for name, value in arrays.items() if is_of_fold(name)}
        kept = FoldModels.of_arrays(others, [*weights]) if others else None
        shared = {name: getattr(found, name) for name in SAVED}
        return cls(found.config, weights, fold_models=kept, **shared)

    def _model(self) -> Any:
        return build_model(self.config, self.num_features, self.num_classes, self.relations)

    def _linear(self, what: str) -> LinearModel:
        """The model, if it is a linear one; ConfigError if it has no ``what``."""
        model = self._model()
        if not isinstance(model, LinearModel):
            raise ConfigError(f"a {self.config.model} has no {what}; use a linear model.")
        return model

    def __repr__(self) -> str:
        config = self.config
        return (
            f"TrainedModel({config.model}, {config.size()}, features={self.num_features}, "
            f"{'classes' if self.task.has_classes else 'outputs'}={self.num_classes})"
        )


def split_facts(split: Split) -> dict[str, Any]:
    """By which the split of a training is known again: sizes of its parts, its note, its seed.

    >>> split_facts(Split([0, 2], [1], note="mine"))
    {'train': 2, 'val': 1, 'test': 0, 'note': 'mine', 'seed': None}
    """
    return {**split.sizes(), "note": split.note, "seed": split.seed}


def _checked(logits: np.ndarray, first: int = 0) -> np.ndarray:
    """The logits of the nodes from ``first`` on; HopliteError unless they are finite."""
    bad = np.flatnonzero(~np.isfinite(logits).all(axis=1))
    if bad.size:
        raise HopliteError(
            f"the outputs of {bad.size:,} nodes (first: node {first + bad[0]}) are not finite, so "
            "there are no predictions; features or weights are too large: scale the features as "
            "those in training were, or train again with fewer hops."
        )
    return logits


def _shapes(found: ModelFile, there: Shapes) -> Shapes | None:
    """The shapes that the weights must have; None if those that are there are far too few."""
    own = {name: shape for name, shape in there.items() if not is_of_fold(name)}
    held = sum(math.prod(shape) for shape in own.values())
    spreads_labels = issubclass(found.config.kind, LabelModel)
    if not spreads_labels and found.num_features > held + MAX_IDLE:
        return None
    model = build_model(found.config, found.num_features, len(found.class_names), found.relations)
    try:
        expected = model.expected(own, 0 if found.node_index is None else found.node_index.count)
        return expected | FoldModels.shapes(expected, there)
    except ConfigError:  # too large for any memory
        return None


def _stored_logits(
    model: Any,
    weights: Weights,
    stored: StoredHops,
    columns: np.ndarray | None,
    memory: str | int | None = None,
) -> Iterator[tuple[int, np.ndarray]]:
    """The first node of every piece of rows, and the logits of the piece: (rows, m).

    ``columns`` are those of :func:`aligned_columns`. ``memory`` is the peak of the whole process,
    such as ``"700MB"``.

    A node's filtered signal follows from its own hop features. Standardisation needs the mean and
    the deviation of the signal over all nodes, so there the store is read twice:

        mean = sum_r v_r / n,  std^2 = sum_r (v_r - mean)^2 / n

    merged from the sums of the pieces in double precision.
    """
    wanted = model.hops_read
    step = _rows_at_a_time(
        model, len(wanted) * max(stored.num_features, model.num_features), memory
    )
    weights = {name: value.astype(np.float32) for name, value in weights.items()}

    def pieces() -> Iterator[tuple[int, np.ndarray]]:
        for start in range(0, max(stored.num_nodes, 1), step):
            found = stored.read(start, min(start + step, stored.num_nodes), wanted)
            found = found if columns is None else in_columns(found, columns)
            yield start, model.signal_from_hops(weights, found)

    scale = None
    if model.config.standardize:
        moments = Moments(0, np.zeros(model.num_classes), np.zeros(model.num_classes))
        for _, signal in pieces():
            moments = moments.merged(Moments.of(signal))
        scale = Standardized.from_moments(moments, np.dtype(np.float32))
    for start, signal in pieces():
        logits = signal if scale is None else scale.apply(signal)
        yield start, logits + weights["bias"] if "bias" in weights else logits


def _rows_at_a_time(model: Any, numbers: int, memory: str | int | None) -> int:
    """Rows of a piece; ConfigError, with the least that works, if ``memory`` is too little."""
    row_bytes = 4 * (numbers + 4 * model.num_classes)
    size, least = PIECE_BYTES, MIN_ROWS * COPIES * row_bytes
    if memory is not None:
        size = min(size, (free_memory(memory, least, "this prediction") + least) // COPIES)
    return max(MIN_ROWS, size // row_bytes)
