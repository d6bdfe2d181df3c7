"""scikit-learn estimators whose samples are node indices of one graph, or whole graphs.

    LGCClassifier(graph, hops=10).fit(nodes, y).predict(other_nodes)

The graph is a constructor argument and immutable, so ``clone``, ``cross_val_score``,
``GridSearchCV`` and pipelines work as they are.

To use several cores, choose threads: training releases Python's lock, all threads share the graph,
and nothing is started or sent.

    with joblib.parallel_config("threading"):
        GridSearchCV(LGCClassifier(graph), {"hops": [2, 5]}, n_jobs=2).fit(nodes, y)

Without that line ``n_jobs=2`` starts two processes. joblib maps large arrays of the graph into
their memory instead of copying them, but each process first imports scikit-learn and Hoplite,
which takes longer than many a grid.
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from hoplite.bases import find_basis
from hoplite.config import TrainingConfig, check_class_weight, check_flag, check_hops, check_number
from hoplite.engine.evaluation import side_by_side
from hoplite.engine.propagation import Propagation, fitted_basis
from hoplite.errors import (
    ConfigError,
    DatasetError,
    GraphError,
    HopliteWarning,
    nearest_hint,
    plural,
)
from hoplite.graph import Graph, Split, ids_hint
from hoplite.graphs.graph_set import GraphSet
from hoplite.graphs.reading import load_graphs
from hoplite.graphs.training import train_graphs
from hoplite.io.convert import KNOWN, converted
from hoplite.labels import AUTO, CLASSES, NUMBERS, SETS, known_labels, label_type
from hoplite.models import (
    DGC,
    EGC,
    LGC,
    PPR,
    S2GC,
    SGC,
    Heat,
    HopBlocks,
    JacobiConv,
    LabelPropagation,
    LinearModel,
    Model,
    split_options,
)
from hoplite.models.alignment import LEFT_OUT, aligned_graph, check_prepared, class_names_of
from hoplite.models.trained import TrainedModel
from hoplite.nets.hlgc import HyperLGC
from hoplite.search.auto import auto, check_fixed
from hoplite.tasks import Task, find_task, task_of
from hoplite.training.fit import count_folds, fit
from hoplite.training.runs import Run
from hoplite.training.sets import NodeSet, checked_weights

GRAPH_SETTINGS = ("hops", "operator", "structure", "profile_bins", "depth", "frequency", "count")
AUTO_TRIALS = 12  # candidates of AutoClassifier
PLACES = ("hops", "operator", "bias", "standardize")  # the others are given by their names


class NodeEstimator(BaseEstimator):
    """The base of classifiers and regressors: arguments from the settings, and the training."""

    model_class: ClassVar[type[Model]]
    example: ClassVar[str] = ""  # example in the docstrings of subclasses
    lacking: ClassVar[frozenset[str]] = frozenset()  # settings that mean nothing to it
    graph: Any
    seed: int

    def __init_subclass__(cls, *, model: type[Model] | None = None) -> None:
        """Give an estimator of a ``model`` an ``__init__`` with its settings as arguments.

        scikit-learn reads them from the signature. One that the class has itself stays.
        """
        super().__init_subclass__()
        if model is None:
            return
        cls.model_class = model
        _, _, shared = (cls.__base__.__doc__ or "").partition("\n\n")
        example = cls.example.replace("NAME", cls.__name__) if cls.__module__ == __name__ else ""
        cls.__doc__ = f"{cls.__doc__ or model.title}\n\n{shared}\n{example}"
        if "__init__" in vars(cls):
            return
        settings = [*dataclasses.fields(model.Settings), *dataclasses.fields(TrainingConfig)]
        defaults = {field.name: field.default for field in settings} | {"folds": 0}
        defaults |= model.defaults | {"seed": 0, "random_state": None}
        accepted = {*model.settings(), "seed", "random_state"} - cls.lacking
        names = [name for name in defaults if name in accepted]
        arguments: list[Any] = [("graph", Any)]
        for name in sorted(names, key=lambda name: [*PLACES, name].index(name)):
            named = name not in PLACES
            arguments.append((name, Any, dataclasses.field(default=defaults[name], kw_only=named)))
        same: Any = dataclasses.make_dataclass(cls.__name__, arguments)
        parameters = [argument[0] for argument in arguments]

        @functools.wraps(same.__init__)
        def init(self: Any, *values: Any, **settings: Any) -> None:
            for name in settings.keys() - parameters:
                hint = nearest_hint(name, parameters)
                raise TypeError(f"{cls.__name__} has no parameter {name!r}.{hint}")
            same.__init__(self, *values, **settings)

        cls.__init__ = init

    if TYPE_CHECKING:

        def __init__(self, graph: Any, **settings: Any) -> None: ...

    def _fit(
        self,
        task: Task,
        train: NodeSet,
        val: NodeSet | None,
        sample_weight: Any,
        names: tuple[str, ...],
        texts: Sequence[str],
    ) -> None:
        """Train on ``train``, validate on ``val``; ``texts`` are the classes in class_weight."""
        graph = graph_of(self)
        # not get_params: an __init__ of the user's may set more than it takes
        names_of_settings = self.model_class.settings() - self.lacking
        options = {name: getattr(self, name) for name in sorted(names_of_settings)}
        model_config, training_config = split_options(self.model_class.name, options)
        training_config.warn_unused()
        weights = checked_weights(sample_weight, len(train))
        sets = {"train": NodeSet(train.nodes, train.labels, weights).counted()}
        sets |= {} if val is None else {"val": val}
        validated = len(sets.get("val", ())) > 0 or count_folds(training_config, sets) > 0
        training_config.check_validated(validated, "pass validation=(nodes, y)")
        (run,) = fit(
            graph,
            model_config,
            [Run(training_config, _seed_of(self))],
            sets,
            task,
            names=names,
            class_texts=texts,
            score=["val"],
        )
        self.model_ = run.model
        self._keep(graph, run.history, run.epochs)

    def _keep(self, graph: Graph, history: dict[str, np.ndarray], epochs: int) -> None:
        """Set the attributes of ``model_``, which was fitted on ``graph``."""
        if not isinstance(self.graph, Graph):
            self._converted = self.graph, self.model_, graph
        if issubclass(self.model_.config.kind, LinearModel):
            self.filter_coefficients_ = self.model_.filter_coefficients_
            maps = self.model_.maps_
            self.coef_ = maps.reshape(-1, maps.shape[-1]).T
            none = np.zeros(len(self.coef_), self.coef_.dtype)
            self.intercept_ = np.array(self.model_.weights.get("bias", none))
        self.history_ = history
        self.n_iter_ = epochs

    def _logits(self, nodes: Any) -> np.ndarray:
        check_is_fitted(self, "model_")
        model = self.model_
        graph, config = graph_of(self, model), model.config  # as fitted, not as set now
        nodes = as_nodes(nodes, graph)
        check_prepared(graph, model.preparation)
        graph = model.aligned(graph)
        return model.logits_from(Propagation.of(graph, config), graph)[nodes]


class NodeClassifier(ClassifierMixin, NodeEstimator):
    """A classifier of nodes; write yours as ``class MyClassifier(NodeClassifier, model=MyModel)``.

    Parameters
    ----------
    graph : Graph or graph of another library
        Load names and paths with :func:`hoplite.load` first. A graph of another library is
        converted at the first use, and again by every clone.
    seed : int, default 0
        Seed of the initial weights and of dropout.
    random_state : int or RandomState, optional
        The same as ``seed``, which it overrides.
    **settings
        Settings of the model (:class:`~hoplite.ModelConfig`) and of training
        (:class:`~hoplite.TrainingConfig`), with the model's defaults; but ``folds`` is 0 for models
        that are trained in epochs, so the last epoch is kept unless ``fit`` gets validation nodes.

    Attributes
    ----------
    classes_ : ndarray
        The distinct values of y, sorted.
    filter_coefficients_ : (hops + 1,) ndarray
        The filter in the model's basis; (hops + 1, m) for JacobiConv. For hop blocks, the norms of
        their maps.
    coef_ : (classes, features) ndarray
        The learned weights, Theta transposed. For hop blocks (classes, (hops + 1) features), hop 0
        first, then the hops of each of ``model_.parts_``. Label propagation has none.
    intercept_ : (classes,) ndarray
        The bias; zeros without one.
    model_ : TrainedModel
        The trained model, e.g. to save or explain it. Its ``class_names`` are the graph's if y has
        the graph's labels (as numbers or names), otherwise the values of y as text.
    history_ : dict of ndarray
        Loss and accuracy by epoch.
    n_iter_ : int
        Number of epochs.
    """

    example: ClassVar[str] = """
    Examples
    --------
    >>> import hoplite
    >>> features = [[1.0, 0.0]] * 3 + [[0.0, 1.0]] * 3
    >>> graph = hoplite.Graph.from_edges([(0, 1), (1, 2), (3, 4), (4, 5)], features)
    >>> model = hoplite.NAME(graph, hops=2, folds=0).fit([0, 3], ["a", "b"])
    >>> model.predict([1, 2, 4, 5]).tolist()
    ['a', 'a', 'b', 'b']
    """
    lacking: ClassVar[frozenset[str]] = frozenset({"loss", "preset"})

    def fit(
        self,
        nodes: Any,
        y: Any,
        validation: tuple[Any, Any] | None = None,
        sample_weight: Any = None,
    ) -> Self:
        """Train on the classes of some nodes.

        Parameters
        ----------
        nodes : array of int, or boolean mask
            The training nodes.
        y : array
            The class of each training node; with a mask, also of every node. A matrix of 0 and 1,
            (nodes, m), means several labels per node; ``predict`` and ``predict_proba`` then return
            such matrices.
        validation : tuple (nodes, y), optional
            Nodes that choose the best epoch and stop training early. Without them, ``folds`` of the
            training nodes choose, and with ``folds=0`` the last epoch is kept.
        sample_weight : array, optional
            Weight of each training node in the loss, times that of ``class_weight``. Nodes of
            weight 0 are as if without a label.

        Returns
        -------
        self
        """
        graph = graph_of(self)
        sample_weight = _values_at(nodes, sample_weight, graph, "sample_weight")
        nodes, y = _as_labelled(nodes, y, graph, "y", several=True)
        check_classification_targets(y)
        _refuse_unknown(y, np.asarray(graph.labels)[nodes])
        if y.ndim == 2:
            labels, left_out = SETS.checked(y, None), []
            self.classes_ = np.arange(y.shape[1])
            named = label_type(graph.labels) is SETS and graph.num_classes == y.shape[1]
            texts = names = graph.class_names if named else tuple(map(str, self.classes_))
        else:
            self.classes_, labels = np.unique(y, return_inverse=True)
            names, left_out = class_names_of(y, self.classes_, graph, nodes)
            texts = [str(value) for value in self.classes_.tolist()]
        val = None if validation is None else self._as_node_set(validation, several=y.ndim == 2)
        task = task_of(labels)
        task.check_names(names)
        self._fit(task, NodeSet(nodes, labels), val, sample_weight, names, texts)
        self.model_.training[LEFT_OUT] = left_out
        return self

    def decision_function(self, nodes: Any) -> np.ndarray:
        """Logits of some nodes.

        Parameters
        ----------
        nodes : array of int, or boolean mask

        Returns
        -------
        (len(nodes), classes) ndarray
            For two classes (len(nodes),): the second logit minus the first, as in scikit-learn.
        """
        logits = self._logits(nodes)
        two = len(self.classes_) == 2 and self.model_.task.exclusive
        return logits[:, 1] - logits[:, 0] if two else logits

    def predict_proba(self, nodes: Any) -> np.ndarray:
        """Class probabilities of some nodes.

        Parameters
        ----------
        nodes : array of int, or boolean mask

        Returns
        -------
        (len(nodes), classes) ndarray
        """
        logits = self._logits(nodes)
        return self.model_.task.link(logits)

    def predict(self, nodes: Any) -> np.ndarray:
        """Predict the classes of some nodes.

        Parameters
        ----------
        nodes : array of int, or boolean mask

        Returns
        -------
        (len(nodes),) ndarray
            The most probable class of each node, or the one that the ``threshold`` decides. For
            several labels per node, a matrix of 0 and 1: (len(nodes), m).
        """
        logits, task = self._logits(nodes), self.model_.task
        predicted = task.predict(logits)
        return self.classes_[predicted] if task.exclusive else predicted

    def _as_node_set(self, validation: Any, *, several: bool) -> NodeSet:
        pair, graph = _as_pair(validation), graph_of(self)
        nodes, y = _as_labelled(*pair, graph, "validation y", several=several)
        if several:
            if y.shape != (len(nodes), len(self.classes_)):
                raise GraphError(
                    f"validation y has shape {y.shape}, but y has "
                    f"{plural(len(self.classes_), 'column')}; the numbers of columns must be equal."
                )
            return NodeSet(nodes, SETS.checked(y, None))
        unknown = np.setdiff1d(y, self.classes_)
        if unknown.size:
            raise GraphError(f"validation has class {unknown[0]!r}, which y does not have.")
        return NodeSet(nodes, np.searchsorted(self.classes_, y))


class SGCClassifier(NodeClassifier, model=SGC):
    """S^k X Theta: a linear model on features smoothed k times."""


class EGCClassifier(NodeClassifier, model=EGC):
    """sum_i beta^i / i! S^i X Theta: diffusion with one learned rate beta."""


class LGCClassifier(NodeClassifier, model=LGC):
    """sum_i alpha_i p_i(S) X Theta: one learned coefficient per hop."""


class HyperLGCClassifier(NodeClassifier, model=HyperLGC):
    """hLGC: LGC whose coefficients are gated per node."""


class HopBlocksClassifier(NodeClassifier, model=HopBlocks):
    """sum_i p_i(S) X Theta_i: a linear model on all hops side by side."""


class JacobiConvClassifier(NodeClassifier, model=JacobiConv):
    """LGC with a separate filter for every class."""


class S2GCClassifier(NodeClassifier, model=S2GC):
    """A linear model on the mean of the hops and a share of the node's own features."""


class PPRClassifier(NodeClassifier, model=PPR):
    """A linear model on features smoothed by personalised PageRank."""


class HeatClassifier(NodeClassifier, model=Heat):
    """A linear model on features after exp(-t (I - S)), a diffusion of time t."""


class DGCClassifier(NodeClassifier, model=DGC):
    """A linear model on features after k steps of a diffusion of time T."""


class LabelPropagationClassifier(NodeClassifier, model=LabelPropagation):
    """sum_i c_i S^i Y: the labels of the training nodes, propagated k hops."""


class NodeRegressor(RegressorMixin, NodeEstimator):
    """A regressor of nodes; write yours as ``class MineRegressor(NodeRegressor, model=Mine)``.

    Parameters
    ----------
    graph : Graph or graph of another library
        Load names and paths with :func:`hoplite.load` first. A graph of another library is
        converted at the first use, and again by every clone.
    seed : int, default 0
        Seed of the initial weights and of dropout.
    random_state : int or RandomState, optional
        The same as ``seed``, which it overrides.
    loss : {"auto", "squared", "huber"}
        The loss of standardised values: the squared error ("auto"), or Huber's, which is linear
        beyond a distance of 1.
    **settings
        Settings of the model (:class:`~hoplite.ModelConfig`) and of training
        (:class:`~hoplite.TrainingConfig`), with the model's defaults.

    Attributes
    ----------
    filter_coefficients_ : (hops + 1,) ndarray
        The filter in the model's basis; (hops + 1, m) for JacobiConv. For hop blocks, the norms of
        their maps.
    coef_ : (features,) ndarray
        The learned weights in units of y; for hop blocks ((hops + 1) features,).
    intercept_ : float
        The bias in units of y, plus the mean of y in training.
    model_ : TrainedModel
        With ``save``; its ``predict`` returns values.
    history_ : dict of ndarray
        Loss, R^2 and mean absolute error by epoch.
    n_iter_ : int
        Number of epochs.
    """

    example: ClassVar[str] = """
    Examples
    --------
    >>> import hoplite
    >>> features = [[1.0, 0.0]] * 3 + [[0.0, 1.0]] * 3
    >>> graph = hoplite.Graph.from_edges([(0, 1), (1, 2), (3, 4), (4, 5)], features)
    >>> model = hoplite.NAME(graph, hops=2, folds=0).fit([0, 2, 3, 5], [1.0, 1.0, 5.0, 5.0])
    >>> low, high = model.predict([1, 4])
    >>> bool(low < 3 < high)
    True
    """

    lacking: ClassVar[frozenset[str]] = frozenset(
        {"class_weight", "threshold", "calibrate", "correct_smooth", "preset"}
    )

    def fit(
        self,
        nodes: Any,
        y: Any,
        validation: tuple[Any, Any] | None = None,
        sample_weight: Any = None,
    ) -> Self:
        """Train on the numbers of some nodes.

        Parameters
        ----------
        nodes : array of int, or boolean mask
            The training nodes.
        y : array of float
            The number of each training node; with a mask, also of every node.
        validation : tuple (nodes, y), optional
            Nodes that choose the best epoch and stop training early. Without them, ``folds`` of the
            training nodes choose, and with ``folds=0`` the last epoch is kept.
        sample_weight : array, optional
            Weight of each training node in the loss.

        Returns
        -------
        self
        """
        train = self._values(nodes, y, "y")
        sample_weight = _values_at(nodes, sample_weight, graph_of(self), "sample_weight")
        val = None if validation is None else self._values(*_as_pair(validation), "validation y")
        self._fit(find_task("regression"), train, val, sample_weight, ("value",), ())
        if hasattr(self, "coef_"):
            rescaled = self.model_.task.rescaled
            self.coef_, self.intercept_ = rescaled(self.coef_[0], self.intercept_[0])
        return self

    def predict(self, nodes: Any) -> np.ndarray:
        """Predict the numbers of some nodes.

        Parameters
        ----------
        nodes : array of int, or boolean mask

        Returns
        -------
        (len(nodes),) ndarray
        """
        logits = self._logits(nodes)
        return self.model_.task.predict(logits)

    def _values(self, nodes: Any, y: Any, name: str) -> NodeSet:
        nodes, y = _as_labelled(nodes, y, graph_of(self), name)
        if y.dtype.kind not in "biuf":
            raise GraphError(f"{name} has type {y.dtype}; pass numbers, or use a classifier.")
        if not np.isfinite(y).all():
            raise GraphError(f"{name} contains NaN or infinity; leave out those nodes.")
        if not len(y):
            raise GraphError(f"{name} is empty; pass at least one node.")
        return NodeSet(nodes, NUMBERS.checked(y, None))


class SGCRegressor(NodeRegressor, model=SGC):
    """S^k X Theta: a linear model on features smoothed k times."""


class EGCRegressor(NodeRegressor, model=EGC):
    """sum_i beta^i / i! S^i X Theta: diffusion with one learned rate beta."""


class LGCRegressor(NodeRegressor, model=LGC):
    """sum_i alpha_i p_i(S) X Theta: one learned coefficient per hop."""


class HyperLGCRegressor(NodeRegressor, model=HyperLGC):
    """hLGC: LGC whose coefficients are gated per node."""


class HopBlocksRegressor(NodeRegressor, model=HopBlocks):
    """sum_i p_i(S) X Theta_i: a linear model on all hops side by side."""


class JacobiConvRegressor(NodeRegressor, model=JacobiConv):
    """LGC with a separate filter for every class."""


class S2GCRegressor(NodeRegressor, model=S2GC):
    """A linear model on the mean of the hops and a share of the node's own features."""


class PPRRegressor(NodeRegressor, model=PPR):
    """A linear model on features smoothed by personalised PageRank."""


class HeatRegressor(NodeRegressor, model=Heat):
    """A linear model on features after exp(-t (I - S)), a diffusion of time t."""


class DGCRegressor(NodeRegressor, model=DGC):
    """A linear model on features after k steps of a diffusion of time T."""


@dataclass(eq=False, repr=False)
class HopFeatures(TransformerMixin, BaseEstimator):
    """Transform node indices to hop features: p_k(S) X at these nodes, or all hops side by side.

    ``make_pipeline(HopFeatures(graph, hops=2), LogisticRegression())`` is SGC.

    Parameters
    ----------
    graph : Graph or graph of another library
        As for the classifiers.
    hops : int, default 2
        Number of hops k.
    operator, basis : str
        As for LGC; the basis "optimal" is computed by ``fit``.
    stack : bool, default False
        False for the last hop, (nodes, d); True for all hops, (nodes, (hops + 1) d), hop 0 first.

    Examples
    --------

    >>> g = Graph.from_edges([(0, 1)], features=[[1.0], [3.0]])
    >>> HopFeatures(g, hops=1, operator="adjacency").fit_transform([0, 1]).tolist()
    [[3.0], [1.0]]
    """

    graph: Any
    hops: int = 2
    operator: str = LGC.Settings.operator
    basis: str = LGC.Settings.basis
    stack: bool = False

    def fit(self, nodes: Any, y: Any = None) -> HopFeatures:
        """Check the nodes, and keep how the graph was prepared.

        Parameters
        ----------
        nodes : array of int, or boolean mask
        y : ignored

        Returns
        -------
        self
        """
        graph = graph_of(self)
        graph.refuse_relations("HopFeatures")
        as_nodes(nodes, graph)
        check_hops(self.hops)
        check_flag("stack", self.stack)
        self.basis_ = fitted_basis(graph, self.operator, self.basis, self.hops)
        self.n_features_out_ = graph.num_features * (self.hops + 1 if self.stack else 1)
        self._fitted = self.graph, graph
        return self

    def transform(self, nodes: Any) -> np.ndarray:
        """Hop features of some nodes.

        Parameters
        ----------
        nodes : array of int, or boolean mask

        Returns
        -------
        (len(nodes), d) or (len(nodes), (hops + 1) d) ndarray
            If ``graph`` was replaced after ``fit``, the same columns of the new graph.
        """
        check_is_fitted(self, "n_features_out_")
        graph, (source, before) = self.graph, self._fitted
        if graph is source:
            graph = before
        else:
            graph = graph_of(self, before)
            check_prepared(graph, before.preparation)
            trained = before.num_features, before.feature_names, before.loop_weight
            graph = aligned_graph(graph, *trained)
        nodes, hops = as_nodes(nodes, graph), check_hops(self.hops)
        basis = find_basis(self.basis)
        basis = self.basis_ if basis.of_signal else basis
        source = Propagation(graph, self.operator, basis, hops)
        if self.stack:
            return side_by_side(source.hop_features(nodes))
        return source.filtered_features(np.append(np.zeros(hops), 1.0), nodes)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Names of the output columns, such as ``hop2:word17``.

        Parameters
        ----------
        input_features : ignored

        Returns
        -------
        ndarray of str
        """
        graph = self._fitted[1] if hasattr(self, "_fitted") else graph_of(self)
        names = graph.feature_names or [f"x{j}" for j in range(graph.num_features)]
        hops = range(self.hops + 1) if self.stack else [self.hops]
        return np.array([f"hop{i}:{name}" for i in hops for name in names], dtype=object)


def _as_pair(validation: Any) -> tuple[Any, Any]:
    """``validation`` as (nodes, y)."""
    if not isinstance(validation, tuple | list) or len(validation) != 2:
        raise GraphError("validation is not a pair; pass validation=(nodes, y).")
    return validation[0], validation[1]


@dataclass(eq=False, repr=False)
class AutoClassifier(NodeClassifier):
    """Choose a linear model on validation, the simplest of those that are as good as the best.

    See :func:`hoplite.auto`.

    Parameters
    ----------
    graph : Graph or graph of another library
        Load names and paths with :func:`hoplite.load` first.
    trials : int or str, optional
        Number of candidates, or which, such as "1,2,5"; 12 if there is no budget. The choice is
        then the same on every machine.
    budget : str or float, optional
        Wall time instead, such as "60s".
    seeds : int, default 3
        Number of runs of the chosen model: seed, seed + 1, ...
    held_out : float, default 0.25
        Share of each class of the training nodes that validates if ``fit`` gets no ``validation``;
        at least one node per class is trained on.
    candidates : path, optional
        TOML file of candidates, see docs/searching.md.
    options : mapping, optional
        Settings for all candidates that have them.
    seed : int, default 0
        Seed of the runs and of the held-out nodes.
    random_state : int or RandomState, optional
        The same as ``seed``, which it overrides.

    Attributes
    ----------
    result_ : AutoResult
        The candidates, and why one was chosen.
    classes_, filter_coefficients_, coef_, intercept_, model_, history_, n_iter_
        As for the other classifiers, of the best run of the chosen model.

    Examples
    --------
    >>> import hoplite
    >>> graph = hoplite.load("cora")
    >>> nodes = graph.split.train
    >>> model = hoplite.AutoClassifier(graph, trials=1, seeds=1).fit(nodes, graph.labels[nodes])
    >>> len(model.result_.candidates)
    1
    """

    graph: Any
    trials: int | str | None = None
    _: KW_ONLY
    budget: str | float | None = None
    seeds: int = 3
    held_out: float = 0.25
    candidates: str | Path | None = None
    options: Mapping[str, Any] | None = None
    seed: int = 0
    random_state: Any = None

    def fit(  # pyright: ignore[reportIncompatibleMethodOverride] - searches weigh no samples
        self, nodes: Any, y: Any, validation: tuple[Any, Any] | None = None
    ) -> Self:
        """Choose a model and train it on the classes of some nodes.

        Parameters
        ----------
        nodes : array of int, or boolean mask
            The training nodes.
        y : array
            The class of each training node; with a mask, also of every node.
        validation : tuple (nodes, y), optional
            Nodes that choose. Without them, a part of every class is held out.

        Returns
        -------
        self
        """
        return super().fit(nodes, y, validation)

    def _fit(
        self,
        task: Task,
        train: NodeSet,
        val: NodeSet | None,
        sample_weight: Any,
        names: tuple[str, ...],
        texts: Sequence[str],
    ) -> None:
        check_number("seeds", self.seeds, 1, whole=True)
        seed = _seed_of(self)
        trials = AUTO_TRIALS if self.trials is None and self.budget is None else self.trials
        if not isinstance(self.options, Mapping | None):
            raise ConfigError(f"options has type {type(self.options).__name__}; pass a mapping.")
        options = dict(self.options or {})
        check_fixed(options)
        if "class_weight" in options:  # by values of y, and the model may call them otherwise
            weights = check_class_weight("class_weight", options["class_weight"])
            called = dict(zip(texts, names, strict=True)) if names else {}
            if isinstance(weights, tuple):
                weights = tuple((called.get(value, value), weight) for value, weight in weights)
            options["class_weight"] = weights
        if val is None:
            train, val = self._hold_out(train, seed)
        graph = graph_of(self)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HopliteWarning)  # estimators report no scores
            labelled = _labelled(graph, [train, val], names)
            self.result_ = auto(
                labelled,
                trials=trials,
                budget=self.budget,
                seeds=range(seed, seed + self.seeds),
                candidates=self.candidates,
                **options,
            )
        self.model_ = self.result_.model
        best = self.result_.trained.best_run
        self._keep(graph, best.history, best.epochs)

    def _hold_out(self, labelled: NodeSet, seed: int) -> tuple[NodeSet, NodeSet]:
        """The nodes to train on, and a part of every class that validates."""
        check_number("held_out", self.held_out, 0, 1, open_ends="lm")
        nodes, first = np.unique(labelled.nodes, return_index=True)  # a bootstrap has some twice
        labels = np.asarray(labelled.labels)[first]
        # with several labels per node there are no classes to stratify by
        strata = labels if labels.ndim == 1 else np.zeros(len(nodes), np.int64)
        generator, validation = np.random.default_rng(seed), np.zeros(len(nodes), bool)
        for group in (np.flatnonzero(strata == c) for c in np.unique(strata)):
            count = min(len(group) - 1, max(1, round(self.held_out * len(group))))
            validation[generator.permutation(group)[:count]] = True
        if not validation.any():
            raise GraphError(
                "y has only one node per class, so none can be held out; pass validation=(nodes, "
                "y), or more nodes."
            )
        train, val = (NodeSet(nodes[part], labels[part]) for part in (~validation, validation))
        return train, val


@dataclass(repr=False, eq=False)
class _GraphEstimator(BaseEstimator):
    """The base of both; settings that are None have the default of the family."""

    model: str = AUTO
    hops: int | None = None
    operator: str | None = None
    structure: str | None = None
    profile_bins: int | None = None
    depth: int | None = None
    frequency: float | None = None
    count: int | None = None
    folds: int = 5
    options: dict[str, Any] | None = None

    def _fit(self, graphs: Any, labels: np.ndarray, names: list[str] | None) -> None:
        data = load_graphs(graphs).with_labels(labels, names)
        data = data.with_split(Split(np.arange(len(data))))
        settings = {name: v for name in GRAPH_SETTINGS if (v := getattr(self, name)) is not None}
        chosen: dict[str, Any] = {"folds": self.folds, "task": label_type(labels).task}
        chosen |= settings | dict(self.options or {})
        self.result_ = train_graphs(data, self.model, **chosen)
        self.model_ = self.result_.model

    def _data(self, graphs: Any) -> GraphSet:
        check_is_fitted(self, "model_")
        return load_graphs(graphs, prepare=self.model_).with_labels(None)  # not those of fit

    def decision_function(self, graphs: Any) -> np.ndarray:
        """Logits of graphs: (G, m)."""
        return self.model_.logits(self._data(graphs))


class GraphClassifier(ClassifierMixin, _GraphEstimator):
    """Classify whole graphs; see :func:`hoplite.train_graphs`.

    Parameters
    ----------
    model : {"auto", "hops", "pool", "colours", "fourier"}, default "auto"
        The family of features.
    hops, operator, structure, profile_bins, depth, frequency, count : optional
        Settings of the family, see :mod:`hoplite.graphs.pooling`.
    folds : int, default 5
        Number of folds that choose the penalty and, with "auto", the family.
    options : dict, optional
        Further settings of training, such as ``{"class_weight": "balanced"}``.

    Attributes
    ----------
    classes_ : ndarray
        The distinct labels, sorted.
    model_ : GraphModel
    result_ : GraphResult

    Examples
    --------
    >>> import hoplite, numpy as np
    >>> rings = [hoplite.Graph.from_edges([(i, (i + 1) % n) for i in range(n)], np.ones((n, 1)))
    ...     for n in range(4, 12)]
    >>> stars = [hoplite.Graph.from_edges([(0, i) for i in range(1, n)], np.ones((n, 1)))
    ...     for n in range(4, 12)]
    >>> graphs = hoplite.load_graphs(rings + stars, labels=[0] * 8 + [1] * 8)
    >>> model = hoplite.GraphClassifier("colours", depth=1, folds=2).fit(graphs, graphs.labels)
    >>> model.predict(graphs)[[0, -1]].tolist()
    [0, 1]
    """

    def fit(self, graphs: Any, y: Any) -> GraphClassifier:
        """Train on graphs.

        Parameters
        ----------
        graphs : GraphSet, or whatever :func:`hoplite.load_graphs` accepts
            For example a list of NetworkX graphs.
        y : array
            The label of each graph; a matrix of 0 and 1 means several labels per graph.

        Returns
        -------
        self
        """
        labels = np.asarray(y)
        _refuse_unknown(labels, getattr(graphs, "labels", None))
        if labels.ndim == 2:
            self.classes_ = np.arange(labels.shape[1])
            self._fit(graphs, labels, None)
            return self
        self.classes_, codes = np.unique(labels, return_inverse=True)
        self._fit(graphs, codes, [str(value) for value in self.classes_])
        return self

    def predict_proba(self, graphs: Any) -> np.ndarray:
        """Class probabilities of each graph.

        Parameters
        ----------
        graphs : GraphSet, or whatever :func:`hoplite.load_graphs` accepts

        Returns
        -------
        (G, m) ndarray
            A column for each of ``classes_``.
        """
        data = self._data(graphs)
        return self.model_.predict_proba(data)

    def predict(self, graphs: Any) -> np.ndarray:
        """Predict the class of each graph.

        Parameters
        ----------
        graphs : GraphSet, or whatever :func:`hoplite.load_graphs` accepts

        Returns
        -------
        (G,) ndarray
            For several labels per graph, a matrix of 0 and 1: (G, m).
        """
        data = self._data(graphs)
        predicted = self.model_.predict(data)
        return predicted if predicted.ndim == 2 else self.classes_[predicted]


class GraphRegressor(RegressorMixin, _GraphEstimator):
    """Predict a number for each graph; see :func:`hoplite.train_graphs`.

    Parameters
    ----------
    model, hops, operator, structure, profile_bins, depth, frequency, count, folds, options
        As for :class:`GraphClassifier`.

    Attributes
    ----------
    model_ : GraphModel
    result_ : GraphResult

    Examples
    --------
    >>> import hoplite, numpy as np
    >>> paths = [hoplite.Graph.from_edges([(i, i + 1) for i in range(n)], np.ones((n + 1, 1)))
    ...     for n in range(2, 22)]
    >>> graphs, y = hoplite.load_graphs(paths), np.arange(2.0, 22.0)
    >>> model = hoplite.GraphRegressor("hops", hops=1, folds=2).fit(graphs, y)
    >>> bool(model.score(graphs, y) > 0.9)
    True
    """

    def fit(self, graphs: Any, y: Any) -> GraphRegressor:
        """Train on graphs.

        Parameters
        ----------
        graphs : GraphSet, or whatever :func:`hoplite.load_graphs` accepts
        y : (G,) array of float

        Returns
        -------
        self
        """
        self._fit(graphs, np.asarray(y, np.float64), None)
        return self

    def predict(self, graphs: Any) -> np.ndarray:
        """Predict the number of each graph.

        Parameters
        ----------
        graphs : GraphSet, or whatever :func:`hoplite.load_graphs` accepts

        Returns
        -------
        (G,) ndarray
        """
        data = self._data(graphs)
        return self.model_.predict(data)


def _seed_of(estimator: Any) -> int:
    """Its ``random_state``, by scikit-learn's convention, or else its ``seed``."""
    state = getattr(estimator, "random_state", None)  # an __init__ of the user's may lack it
    if isinstance(state, np.random.RandomState):
        return int(state.randint(2**31))
    name = "seed" if state is None else "random_state"
    check_number(name, getattr(estimator, name), 0, whole=True)
    return int(getattr(estimator, name))


def _labelled(graph: Graph, parts: Sequence[NodeSet], names: tuple[str, ...]) -> Graph:
    """``graph`` with the labels of ``parts``, training and validation, and of no other node."""
    first = np.asarray(parts[0].labels)
    labels = np.full((graph.num_nodes, *first.shape[1:]), -1, dtype=first.dtype)
    for part in parts:
        labels[part.nodes] = part.labels
    train, val = (np.unique(part.nodes) for part in parts)
    return graph.with_labels(labels, names).with_split(Split(train, val))


def _values_at(nodes: Any, values: Any, graph: Graph, name: str) -> np.ndarray | None:
    return None if values is None else _as_labelled(nodes, values, graph, name)[1]


def _refuse_unknown(y: np.ndarray, labels: Any) -> None:
    """GraphError if ``y`` are the graph's own ``labels``, with -1 where they are unknown."""
    same = y.ndim == 1 and y.dtype.kind == "i" and np.array_equal(y, labels)
    if same and not known_labels(y).all():
        raise GraphError("y contains -1 for unknown labels; leave these out.")


def _as_labelled(
    nodes: Any, y: Any, graph: Graph, name: str, *, several: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    array, y, nodes = np.asarray(nodes), np.asarray(y), as_nodes(nodes, graph)
    if array.dtype == bool and y.shape[:1] == array.shape:
        y = y[nodes]
    matrix = several and y.ndim == 2 and y.shape[1] > 1
    if y.shape[:1] != nodes.shape or not (matrix or y.ndim == 1):
        raise GraphError(
            f"{name} has shape {y.shape} for {plural(len(nodes), 'node')}; pass one value per node."
        )
    return nodes, y


def graph_of(estimator: Any, model: TrainedModel | Graph | None = None) -> Graph:
    """The graph of an estimator. Its parameter is not changed, because ``clone`` compares it.

    Its columns are prepared as those of the fitted ``model`` (or graph), or by themselves.
    """
    source = estimator.graph
    if isinstance(source, Graph):
        return source
    before, by, graph = vars(estimator).get("_converted", (None, None, None))
    if before is not source or by is not model or graph is None:
        try:
            graph = converted(source, prepare=model)
        except DatasetError:  # y are the labels, so the task of the table does not matter
            if model is not None:
                raise
            type_ = NUMBERS if isinstance(estimator, RegressorMixin) else CLASSES
            graph = converted(source, prepare=model, task=type_.task)
        if not isinstance(graph, Graph):
            raise GraphError(
                f"graph has type {type(source).__name__}; pass a Graph (see hoplite.load), {KNOWN}."
            )
        estimator._converted = source, model, graph
    return graph


def as_nodes(nodes: Any, graph: Graph) -> np.ndarray:
    """``nodes`` as a flat index array: (n,) or (n, 1) integers within the graph, or a mask."""
    array = np.asarray(nodes)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.dtype == bool and array.shape == (graph.num_nodes,):
        array = np.flatnonzero(array)
    if len(getattr(nodes, "shape", array.shape)) == 2 and array.dtype.kind in "fO":
        raise GraphError(
            "pass node indices, not features, which are in the graph: fit(nodes, y), and then "
            "predict or transform(nodes)."
        )
    if array.ndim != 1 or not (array.size == 0 or np.issubdtype(array.dtype, np.integer)):
        raise GraphError(
            f"nodes has type {array.dtype} and shape {array.shape}; pass integer node indices, or "
            f"a boolean mask of all {plural(graph.num_nodes, 'node')}.{ids_hint(array)}"
        )
    if array.size and (array.min() < 0 or array.max() >= graph.num_nodes):
        outside = array.min() if array.min() < 0 else array.max()
        raise GraphError(
            f"nodes contains {outside:,} but the graph has {plural(graph.num_nodes, 'node')}; node "
            "indices go from 0 to "
            f"{graph.num_nodes - 1:,}.{ids_hint(outside[None], graph.node_ids)}"
        )
    return array.astype(np.int64)
