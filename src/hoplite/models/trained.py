"""TrainedModel: weights with everything needed to use them on a graph."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hoplite.engine.backend import one_blas_thread
from hoplite.engine.evaluation import Moments, Standardized
from hoplite.engine.propagation import Propagation, part_names
from hoplite.errors import ConfigError, GraphError, HopliteError, HopliteWarning, plural, some_of
from hoplite.graph import Graph, NodeData, Split, StoredHops
from hoplite.io.convert import converted
from hoplite.labels import distinct
from hoplite.machine import free_memory
from hoplite.models import ModelConfig, Weights, alignment, build_model, pictures
from hoplite.models.export import hop_arrays, hop_module, write_onnx
from hoplite.models.labelprop import CorrectSmooth, LabelModel
from hoplite.models.linear import LinearModel
from hoplite.models.neighbours import NeighbourLabels
from hoplite.models.saved import ModelFile, Shapes, read_folder, write_folder
from hoplite.preparation import Preparation
from hoplite.tasks import DEFAULT_TASK, Conformal, Task, find_task
from hoplite.tasks.base import restore
from hoplite.tasks.conformal import FoldModels, is_of_fold, nodes_needed

if TYPE_CHECKING:
    import torch
    from plotly.graph_objects import Figure

TASK_STATE = "task_state"  # key in a model's training: what its task must know, see Task.state
CONFORMAL = "conformal"  # key in a model's training: scores of validation nodes, see Conformal
LEARNED_FROM = "learned_from"  # key in a model's training: see learned_nodes
SPLIT = "split"  # key in a model's training: the split it had, see split_facts
PIECE_BYTES = 16 * 10**6  # bytes of hop features at a time
COPIES = 12  # copies at the same time: as read, in the model's order, and what a model makes
MIN_ROWS = 16
MAX_IDLE = 1 << 16  # num_features in a file may exceed the number of weights by this


@dataclass(frozen=True, eq=False, repr=False)
class TrainedModel:
    """A trained model; ``hoplite.train(...).model``, or :meth:`load` a saved one.

    Parameters
    ----------
    config : ModelConfig
        Settings of the model.
    weights : dict of ndarray
        ``theta`` is (d, m); the others depend on the model.
    num_features : int
        d.
    class_names : tuple of str
        Names of the m classes.
    feature_names : tuple of str, optional
        Names of the d features.
    training : dict
        Settings, seed and validation scores of the training.
    preparation : Preparation, optional
        How the features come from the columns of tables.
    loop_weight : float, optional
        Weight of the self-loops in S, for every graph; None for each graph's own.
    relations : dict, optional
        The relations of the training graph, with the weights of their self-loops.
    node_index : NodeIndex, optional
        The nodes of the labels that the model stores, if any.
    correct_smooth : CorrectSmooth, optional
        Correct and Smooth with the labels of the training nodes.
    neighbours : optional
        The labels of the training nodes, if the model uses labels of neighbours.
    fold_models : optional
        The models of the folds, for prediction sets.

    Examples
    --------
    >>> import hoplite, tempfile
    >>> graph = hoplite.load("cora")
    >>> model = hoplite.train(graph, "sgc", hops=2, epochs=5).model
    >>> model.predict_proba(graph).shape
    (2708, 7)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     loaded = hoplite.TrainedModel.load(model.save(f"{folder}/model"))
    >>> bool((loaded.predict(graph) == model.predict(graph)).all())
    True
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
    node_index: alignment.NodeIndex | None = None
    correct_smooth: CorrectSmooth | None = None
    neighbours: NeighbourLabels | None = None
    fold_models: FoldModels | None = None

    @property
    def num_classes(self) -> int:
        """Number of outputs m; 1 for regression."""
        return len(self.class_names)

    @property
    def task(self) -> Task:
        """The task that the model was trained for."""
        task = find_task(self.training.get("task", DEFAULT_TASK))
        state = self.training.get(TASK_STATE)
        return task if state is None else restore(type(task), state, "task is")

    def calibrate_on(
        self, labels: np.ndarray, logits: np.ndarray, *, threshold: str | float, calibrate: bool
    ) -> Task:
        """Choose the threshold and the temperature on validation nodes with outputs (n, m).

        The temperature is chosen after the threshold, and only with ``calibrate``; a number as
        ``threshold`` applies to calibrated probabilities. The nonconformity scores of the nodes are
        stored for prediction sets. Returns the new task of the model.
        """
        tunes = isinstance(threshold, str)
        task = self.task.tuned(threshold, labels, logits) if tunes else self.task
        task = task.calibrated(labels, logits) if calibrate else task
        task = task if tunes else task.tuned(threshold, labels, logits)
        self.training[TASK_STATE] = task.state()
        if task.has_sets:
            classes = self.num_classes if task.has_classes else 0
            scores = Conformal.of(task.nonconformity(labels, logits), labels, classes)
            self.training[CONFORMAL] = dataclasses.asdict(scores)
        return task

    @property
    def left_out_classes(self) -> tuple[str, ...]:
        """Classes of the graph that the model cannot predict, because no training node has them."""
        names = self.training.get(alignment.LEFT_OUT)  # from a file, so anything
        names = names if isinstance(names, list) else []
        return tuple(name for name in names if isinstance(name, str))

    @property
    def parts_(self) -> list[str]:
        """The matrices of hop blocks, by relation and operator; empty if there is only one."""
        return part_names(self.relations, self.config.operators)

    @property
    def filter_coefficients_(self) -> np.ndarray:
        """The coefficients c_0 .. c_k in the model's basis; networks have none.

        For JacobiConv (k + 1, m), a column for each class. Hop blocks have a filter for every
        feature and class, :attr:`maps_`; their coefficients are the norms ``||Theta_i||``, which
        show how important each hop is if the features of all hops have similar sizes. With
        relations or channels, (P, k + 1): a row for each of :attr:`parts_`, with the shared c_0.
        """
        values = np.array(self._linear("filter coefficients").filter_summary(self.weights))
        if not self.parts_:
            return values
        by_part = values[1:].reshape(len(self.parts_), -1)
        return np.column_stack([np.full(len(by_part), values[0]), by_part])

    @property
    def filters_(self) -> dict[str, np.ndarray]:
        """The coefficients c_0 .. c_k, (k + 1,), of every filter by name.

        There is one filter with the name of the model, or one for each class or each of
        :attr:`parts_`. Models without such filters raise ConfigError.
        """
        values = np.array(self._linear("filter").filters(self.weights))
        if values.shape[1] > 1:
            return dict(zip(distinct(self.class_names), values.T, strict=True))
        if not self.parts_:
            return {self.config.kind.title: values[:, 0]}
        return dict(zip(self.parts_, self.filter_coefficients_, strict=True))

    @property
    def maps_(self) -> np.ndarray:
        """Theta of every hop: (k + 1, d, m), or (1, d, m) if it is the same for all hops.

        For hop blocks with P :attr:`parts_` (1 + P k, d, m): hop 0, then the hops of every part.
        """
        return np.array(self._linear("Theta").maps(self.weights))

    def logits(self, data: NodeData) -> np.ndarray:
        """Logits of every node.

        Parameters
        ----------
        data : NodeData, or whatever :func:`hoplite.open_data` accepts

        Returns
        -------
        (n, m) ndarray

        Raises
        ------
        ModelFileError
            If the data does not have the model's features.
        HopliteError
            If a logit is not finite, e.g. because features are far beyond those of training.
        """
        return np.concatenate([part for _, part in self.logit_rows(data)])

    def logit_rows(
        self, data: NodeData, *, memory: str | int | None = None
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Logits in pieces of rows, as :meth:`logits`.

        Parameters
        ----------
        data : NodeData
        memory : str or int, optional
            Memory limit of the process if ``data`` is a hop store, such as ``"700MB"``.

        Yields
        ------
        (int, (rows, m) ndarray)
            The first node of a piece, and its logits.

        Raises
        ------
        ConfigError
            If the hops of a store are not those of the model.
        """
        source, data = data, converted(data, prepare=self)
        if not hasattr(data, "stored"):
            raise GraphError(
                f"predict takes a Graph, not data of type {type(source).__name__}; pass a Graph, "
                "such as hoplite.load(path) or Graph.from_edges(edges, features)."
            )
        self.check_data(data)
        if data.stored is not None:
            self.refuse_correct_smooth("predictions from a hop store, which has no edges")
            columns = self.columns_of(data.stored)
            rows = _stored_logits(self._model(), self.weights, data.stored, columns, memory)
            for first, part in rows:
                yield first, _checked(part, first)
        elif memory is not None:
            raise ConfigError(
                "is only used with hop stores; leave it out.",
                "memory",
            )
        else:
            graph = self.aligned(data.in_memory())
            yield 0, self.logits_from(Propagation.of(graph, self.config), graph)

    def check_data(self, data: NodeData) -> None:
        """ModelFileError unless the classes of the data, and how its columns were prepared, fit."""
        if self.task.has_classes:
            alignment.check_classes(data, self.class_names, self.left_out_classes)
        alignment.check_prepared(data, self.preparation)

    def columns_of(self, stored: StoredHops) -> np.ndarray | None:
        """The columns of a store with the model's features, see :func:`aligned_columns`."""
        alignment.check_stored(stored, self.config, self.loop_weight)
        alignment.check_relations((), self.relations)
        return alignment.aligned_columns(stored, self.num_features, self.feature_names)

    def aligned(self, graph: Graph) -> Graph:
        """``graph`` with its features in the model's order, see :func:`aligned_graph`."""
        return alignment.aligned_graph(
            graph, self.num_features, self.feature_names, self.loop_weight, self.relations
        )

    def logits_from(self, propagation: Propagation, graph: Graph) -> np.ndarray:
        """Logits of every node, (n, m), from a propagation of ``graph`` that is already set up."""
        if self.node_index is not None:
            self.node_index.check(graph)
        return self.finished(graph, _checked(self.raw_logits(propagation, graph)))

    def finished(self, graph: Graph, logits: np.ndarray) -> np.ndarray:
        """The outputs of all nodes, (n, m), from the model's own ``logits``."""
        return logits if self.correct_smooth is None else self.correct_smooth.outputs(graph, logits)

    def refuse_correct_smooth(self, what: str) -> None:
        """Raise ConfigError if Correct and Smooth changes the outputs, so there is no ``what``."""
        if self.correct_smooth is not None and not self.correct_smooth.idle:
            raise ConfigError(
                f"the model is followed by Correct and Smooth, so it has no {what}; train one "
                "without correct_smooth."
            )

    def raw_logits(self, propagation: Propagation, graph: Graph | None = None) -> np.ndarray:
        """Logits without Correct and Smooth, with infinity and NaN where they overflow.

        Models that use labels of neighbours need the graph itself.
        """
        if self.neighbours is not None and graph is not None:
            columns = self.neighbours.columns(graph, self.num_classes, propagation.dtype)
            propagation = propagation.with_neighbours(columns)
        with one_blas_thread, np.errstate(over="ignore", invalid="ignore"):
            return self._model().logits(self.weights, propagation)

    def predict_proba(self, data: NodeData) -> np.ndarray:
        """Class probabilities of every node, calibrated if the model is.

        Parameters
        ----------
        data : NodeData, or whatever :func:`hoplite.open_data` accepts

        Returns
        -------
        (n, m) ndarray
            Column c belongs to ``class_names[c]``; rows sum to 1, except for several labels per
            node. For regression the numbers: (n, 1).
        """
        return self.task.link(self.logits(data))

    def predict(self, data: NodeData) -> np.ndarray:
        """Predict every node.

        Parameters
        ----------
        data : NodeData, or whatever :func:`hoplite.open_data` accepts

        Returns
        -------
        (n,) ndarray
            Indices into ``class_names``, or numbers for regression. For several labels per node, a
            matrix of 0 and 1: (n, m).
        """
        return self.task.predict(self.logits(data))

    def prediction_sets(
        self, data: NodeData, coverage: float = 0.9, *, by_class: bool = False
    ) -> np.ndarray:
        """Sets that contain the true label of a node with a given probability.

        They come from split conformal prediction on the validation nodes of the training. After
        cross-validation they come from CV+ with the models of all folds, if these are stored: the
        coverage is at least ``2 coverage - 1``, and mostly about ``coverage``. In all other cases
        (no models of folds, a hop store, a refit) the coverage is approximate.

        Parameters
        ----------
        data : NodeData, or whatever :func:`hoplite.open_data` accepts
        coverage : float, default 0.9
            The probability, between 0 and 1.
        by_class : bool, default False
            Cover every class with this probability, instead of the average over all nodes.

        Returns
        -------
        (n, m) ndarray of bool
            The classes in each set, which may be several, or none. For regression (n, 2): the ends
            of an interval.

        Raises
        ------
        ConfigError
            If the model was trained without validation nodes.
        """
        data = converted(data, prepare=self)
        logits = self.logits(data)
        return self.set_maker(data, coverage, by_class=by_class)(range(len(logits)), logits)

    def set_maker(
        self, data: NodeData, coverage: float, *, by_class: bool = False
    ) -> Callable[[range, np.ndarray], np.ndarray]:
        """The function from a range of nodes of ``data`` and their logits to their sets."""
        max_score, folds = self.set_quantile(coverage, by_class=by_class), self.fold_models
        if folds is None or data.stored is not None:
            return lambda nodes, logits: self.task.sets(logits, max_score)
        models = (replace(self, weights=own, fold_models=None) for own in folds.weights)
        outputs = [model.logits(data) for model in models]
        sets = folds.sets(self.task, outputs, coverage, by_class=by_class)
        return lambda nodes, logits: sets[nodes.start : nodes.stop]

    def set_quantile(self, coverage: float, *, by_class: bool = False) -> float | np.ndarray:
        """The largest :meth:`Task.nonconformity` of a label in the sets of this coverage.

        With ``by_class``, one for each class: (m,).
        """
        state = self.training.get(CONFORMAL)
        if not self.task.has_sets:
            raise ConfigError(
                f"prediction sets are not available for {self.task.name}; leave them out."
            )
        if state is None:
            raise ConfigError(
                "the model has no validation scores, which prediction sets require; train it "
                "again, with folds or on a graph with validation nodes."
            )
        kept = restore(Conformal, state, "validation scores are")
        if by_class and not self.task.has_classes:
            raise ConfigError("is True, but the model predicts numbers; leave it out.", "by_class")
        quantile = kept.quantiles(coverage) if by_class else kept.quantile(coverage)
        if np.isinf(quantile).any():
            nodes = "validation nodes" if self.fold_models is None else "labelled nodes"
            there, what = f"there are {kept.nodes:,}", "every set contains all classes"
            if not self.task.has_classes:
                what = "every interval is unbounded"
            elif by_class:
                few = np.flatnonzero(np.isinf(quantile)).tolist()
                counts = [0 if part is None else part.nodes for part in kept.classes]
                there = some_of(f"{self.class_names[c]!r} has {counts[c]:,}" for c in few)
                nodes, what = f"{nodes} of each class", "every set contains such a class"
            warnings.warn(
                f"a coverage of {100 * coverage:g} % needs at least {nodes_needed(coverage):,} "
                f"{nodes} but {there}, so {what}; label more nodes, or request a lower coverage.",
                HopliteWarning,
                stacklevel=3,
            )
        return quantile

    def plot_filter(self, graph: Graph | None = None) -> Figure:
        """Plot the frequency response of the filter over the spectrum, and its coefficients.

        There is a curve p(lambda) = sum_i c_i p_i(lambda) for each of :attr:`filters_`. Plots
        require the extra ``plot``.

        Parameters
        ----------
        graph : Graph, optional
            Also plot the density of the eigenvalues of its operator.

        Returns
        -------
        plotly.graph_objects.Figure

        Raises
        ------
        ConfigError
            If the model has no filter.
        """
        return pictures.filter_figure(self, graph)

    def plot_confusion(self, data: NodeData, nodes: Any = "test") -> Figure:
        """Plot the confusion matrix: rows are classes, columns predictions.

        Parameters
        ----------
        data : NodeData, or whatever :func:`hoplite.open_data` accepts
        nodes : {"train", "val", "test", "all"}, array of int, or boolean mask
            "all" are all labelled nodes.

        Returns
        -------
        plotly.graph_objects.Figure
        """
        return pictures.confusion_figure(pictures.picture_data(self, data, nodes, "plot_confusion"))

    def plot_reliability(self, data: NodeData, nodes: Any = "test") -> Figure:
        """Plot the reliability diagram: the accuracy in each bin of the predicted probability.

        For several labels per node, there is a curve for each of the most frequent labels.

        Parameters
        ----------
        data : NodeData, or whatever :func:`hoplite.open_data` accepts
        nodes : {"train", "val", "test", "all"}, array of int, or boolean mask

        Returns
        -------
        plotly.graph_objects.Figure
        """
        return pictures.reliability_figure(
            pictures.picture_data(self, data, nodes, "plot_reliability")
        )

    def plot_predicted(self, data: NodeData, nodes: Any = "test") -> Figure:
        """Plot predicted against true numbers.

        Parameters
        ----------
        data : NodeData, or whatever :func:`hoplite.open_data` accepts
        nodes : {"train", "val", "test", "all"}, array of int, or boolean mask

        Returns
        -------
        plotly.graph_objects.Figure
        """
        return pictures.predicted_figure(pictures.picture_data(self, data, nodes, "plot_predicted"))

    def save(
        self,
        folder: str | Path,
        *,
        overwrite: bool = False,
        result: dict[str, Any] | None = None,
    ) -> Path:
        """Save the model. The folder appears complete or not at all.

        Parameters
        ----------
        folder : path
        overwrite : bool, default False
            Replace an existing model.
        result : dict, optional
            JSON values to save with the model.

        Returns
        -------
        Path
            The folder.
        """
        shared = {name: getattr(self, name) for name in SAVED}
        model = ModelFile(self.config.as_dict(), module=self.config.kind.source(), **shared)
        kept = {} if self.fold_models is None else self.fold_models.arrays()
        write_folder(folder, model, self.weights | kept, result, overwrite=overwrite)
        return Path(folder)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The linear map from stacked hop features to logits.

        logits = [P_0, .., P_k] weight + bias with P_i = p_i(S) X, the output of
        ``HopFeatures(graph, hops=k, operator=..., basis=..., stack=True)``. Block i of ``weight``
        is c_i Theta.

        Returns
        -------
        dict of ndarray
            ``weight`` ((k + 1) d, m), ``bias`` (m,) and, for classes, ``shift`` (m,): the predicted
            class is argmax(logits - shift). ``shift`` is log(t / (1 - t)) for a class with a chosen
            threshold t, otherwise 0. The logits are divided by the temperature of a calibrated
            model. For regression they are the numbers, in their units.

        Raises
        ------
        ConfigError
            If the model is not such a sum.
        """
        return hop_arrays(self)

    def to_torch(self) -> torch.nn.Linear:
        """The map of :meth:`to_arrays` as a torch module.

        Returns
        -------
        torch.nn.Linear
            With ``shift`` as a buffer.
        """
        return hop_module(self)

    def to_onnx(self, path: str | Path) -> None:
        """Write the map of :meth:`to_arrays` as ONNX, from ``hops`` to ``logits``.

        The metadata contain ``task``, ``task_state`` (with a chosen threshold) and ``shift``. This
        requires the extra ``export``.

        Parameters
        ----------
        path : path
            The file to write.
        """
        write_onnx(self, path)

    @classmethod
    def load(cls, folder: str | Path) -> TrainedModel:
        """Load a saved model.

        Parameters
        ----------
        folder : path
            A folder that :meth:`save` or ``hoplite train --out`` wrote.

        Returns
        -------
        TrainedModel

        Raises
        ------
        ModelFileError
            If the folder is not a model, or is damaged.
        """
        file, arrays = read_folder(folder, _shapes)
        weights = {name: value for name, value in arrays.items() if not is_of_fold(name)}
        others = {name: value for name, value in arrays.items() if is_of_fold(name)}
        fold_models = FoldModels.of_arrays(others, [*weights]) if others else None
        shared = {name: getattr(file, name) for name in SAVED}
        return cls(file.config, weights, fold_models=fold_models, **shared)

    def _model(self) -> Any:
        return build_model(self.config, self.num_features, self.num_classes, self.relations)

    def _linear(self, what: str) -> LinearModel:
        """The model, if it is a linear one; ConfigError if it has no ``what``."""
        model = self._model()
        if not isinstance(model, LinearModel):
            raise ConfigError(f"model {self.config.model!r} has no {what}; use a linear model.")
        return model

    def __repr__(self) -> str:
        config = self.config
        return (
            f"TrainedModel({config.model}, {config.size()}, features={self.num_features}, "
            f"{'classes' if self.task.has_classes else 'outputs'}={self.num_classes})"
        )


# Fields that ModelFile must have under the same name; the others are stored in another form
SAVED = {each.name for each in fields(TrainedModel)} - {"config", "weights", "fold_models"}
NOT_FINITE = (
    "are not finite because features or weights are too large; scale the features as in training, "
    "or train again with fewer hops."
)


def check_trained(model: Any) -> None:
    """ConfigError unless ``model`` is a TrainedModel; a result of a training has one."""
    if not isinstance(model, TrainedModel):
        raise ConfigError(
            f"has type {type(model).__name__}; pass result.model, before the data.", "model"
        )


def split_facts(split: Split) -> dict[str, Any]:
    """A description of a split: the sizes of its parts, its note and its seed.

    >>> split_facts(Split([0, 2], [1], note="mine"))
    {'train': 2, 'val': 1, 'test': 0, 'note': 'mine', 'seed': None}
    """
    return {**split.sizes(), "note": split.note, "seed": split.seed}


def learned_nodes(split: Split) -> str:
    """A digest of the training and validation nodes: 16 hexadecimal digits.

    >>> learned_nodes(Split([0, 2], [1])) == learned_nodes(Split([1, 0], [2], [3]))
    True
    """
    nodes = np.union1d(split.train, split.val).astype("<i8")
    return hashlib.sha256(nodes.tobytes()).hexdigest()[:16]


def _checked(logits: np.ndarray, first: int = 0) -> np.ndarray:
    """Raise HopliteError unless the logits of the nodes from ``first`` on are finite."""
    bad = np.flatnonzero(~np.isfinite(logits).all(axis=1))
    if bad.size:
        raise HopliteError(
            f"the outputs of {plural(bad.size, 'node')} (first: node {first + bad[0]}) {NOT_FINITE}"
        )
    return logits


def _shapes(file: ModelFile, stored: Shapes) -> Shapes | None:
    """The shapes that the weights must have; None if there are far too few weights."""
    shapes = {name: shape for name, shape in stored.items() if not is_of_fold(name)}
    held = sum(math.prod(shape) for shape in shapes.values())
    spreads_labels = issubclass(file.config.kind, LabelModel)
    if not spreads_labels and file.num_features > held + MAX_IDLE:
        return None
    model = build_model(file.config, file.num_features, len(file.class_names), file.relations)
    try:
        expected = model.expected(shapes, 0 if file.node_index is None else file.node_index.count)
        return expected | FoldModels.shapes(expected, stored)
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
    hops_read = model.hops_read
    columns_read = max(stored.num_features, model.num_features)
    step = _rows_at_a_time(model, len(hops_read) * columns_read, memory)
    weights = {name: value.astype(np.float32) for name, value in weights.items()}

    def pieces() -> Iterator[tuple[int, np.ndarray]]:
        for start in range(0, max(stored.num_nodes, 1), step):
            hops = stored.read(start, min(start + step, stored.num_nodes), hops_read)
            hops = hops if columns is None else alignment.in_columns(hops, columns)
            yield start, model.signal_from_hops(weights, hops)

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
    """Rows per piece; ConfigError, with the minimum, if ``memory`` is not enough."""
    row_bytes = 4 * (numbers + 4 * model.num_classes)
    size, least = PIECE_BYTES, MIN_ROWS * COPIES * row_bytes
    if memory is not None:
        size = min(size, (free_memory(memory, least, "this prediction") + least) // COPIES)
    return max(MIN_ROWS, size // row_bytes)
