"""Estimators of whole graphs, for pipelines and searches of scikit-learn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from hoplite.graph import Split
from hoplite.graphs.graph_set import GraphSet
from hoplite.graphs.reading import load_graphs
from hoplite.graphs.training import AUTO, train_graphs

OWN = ("hops", "operator", "structure", "profile_bins", "depth", "frequency", "count")


@dataclass(repr=False, eq=False)
class _GraphEstimator(BaseEstimator):
    """What both share; settings that are None have the default of the family."""

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
        own = {name: getattr(self, name) for name in OWN if getattr(self, name) is not None}
        chosen: dict[str, Any] = {"folds": self.folds} | own | dict(self.options or {})
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
        if labels.ndim == 2:
            self.classes_ = np.arange(labels.shape[1])
            self._fit(graphs, labels, None)
            return self
        self.classes_, codes = np.unique(labels, return_inverse=True)
        self._fit(graphs, codes, [str(one) for one in self.classes_])
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
        return self.model_.predict_proba(self._data(graphs))

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
        found = self.model_.predict(self._data(graphs))
        return found if found.ndim == 2 else self.classes_[found]


class GraphRegressor(RegressorMixin, _GraphEstimator):
    """Predict a number for each graph; the parameters are those of :class:`GraphClassifier`.

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
        return self.model_.predict(self._data(graphs))
