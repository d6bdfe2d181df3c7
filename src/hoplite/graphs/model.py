"""GraphModel: a family of features, fitted, and the linear map that was trained on them.

In a folder it is an ordinary trained model, whose ``training`` has the family under ``graphs``.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import scipy.sparse as sp

from hoplite.errors import ModelFileError
from hoplite.graph import Graph
from hoplite.graphs.graph_set import GraphSet
from hoplite.graphs.pooling import FAMILIES, Pooling
from hoplite.models.alignment import aligned_columns, check_prepared, in_columns
from hoplite.models.trained import TrainedModel
from hoplite.preparation import Preparation
from hoplite.tasks import Task

KEY = "graphs"  # key in the training of a model


class PoolingFile(msgspec.Struct, frozen=True):
    """What a model's file keeps of its family."""

    family: str
    settings: dict[str, Any]
    num_features: int
    feature_names: tuple[str, ...] | None
    arrays: dict[str, bytes]  # in base64
    preparation: Preparation | None = None


class PooledGraphs(Graph):
    """The rows Phi of a set's graphs as nodes without edges, for the trainings of nodes.

    In cross-validation, the family is fitted again to the training graphs of each fold.
    """

    graphs: GraphSet
    pooling: Pooling

    @classmethod
    def of(cls, graphs: GraphSet, pooling: Pooling) -> PooledGraphs:
        """The rows of all graphs, with their labels and their split."""
        columns = graphs.feature_names or [f"x{j}" for j in range(graphs.num_features)]
        names = pooling.names([*columns])
        plain = graphs.table.with_features(pooling.features(graphs), names)
        return cls._from(plain, graphs, pooling)

    @classmethod
    def _from(cls, plain: Graph, graphs: GraphSet, pooling: Pooling) -> PooledGraphs:
        pooled = object.__new__(cls)
        pooled.__dict__.update(plain.__dict__, graphs=graphs, pooling=pooling)
        return pooled

    def _replace(self, **changes: Any) -> Graph:
        return self._from(super()._replace(**changes), self.graphs, self.pooling)

    def fitted_to(self, nodes: np.ndarray) -> Graph:
        fitted = type(self.pooling).fit(self.graphs, nodes, self.pooling.settings)
        return self.of(self.graphs, fitted)


@dataclass(frozen=True, eq=False, repr=False)
class GraphModel:
    """A trained model of whole graphs; ``hoplite.train_graphs(...).model``, or :meth:`load` one.

    Parameters
    ----------
    head : TrainedModel
        The linear map from Phi to the outputs.
    pooling : Pooling
        The family that makes Phi.
    feature_names : tuple of str, optional
        The columns of X.
    preparation : Preparation, optional
        How X comes from the columns of a table.

    Examples
    --------
    >>> import hoplite, numpy as np
    >>> rings = [hoplite.Graph.from_edges([(i, (i + 1) % n) for i in range(n)], np.ones((n, 1)))
    ...     for n in range(4, 12)]
    >>> stars = [hoplite.Graph.from_edges([(0, i) for i in range(1, n)], np.ones((n, 1)))
    ...     for n in range(4, 12)]
    >>> graphs = hoplite.load_graphs(rings + stars, labels=["ring"] * 8 + ["star"] * 8)
    >>> model = hoplite.train_graphs(graphs, "hops", hops=1).model
    >>> model.predict_proba(graphs).shape
    (16, 2)
    """

    head: TrainedModel
    pooling: Pooling
    feature_names: tuple[str, ...] | None = None
    preparation: Preparation | None = None

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the m classes."""
        return self.head.class_names

    @property
    def task(self) -> Task:
        """Classification, regression or several labels."""
        return self.head.task

    def pooled(self, graphs: GraphSet) -> PooledGraphs:
        """Phi of the graphs, (G, width), as the features of nodes without edges.

        ModelFileError if their columns are not those of the training, or were prepared differently.
        """
        data: Any = graphs
        check_prepared(data, self.preparation)
        columns = aligned_columns(data, self.pooling.num_features, self.feature_names)
        if columns is not None:
            own: Any = graphs.features
            graphs = dataclasses.replace(
                graphs,
                features=in_columns(own.toarray() if sp.issparse(own) else own, columns),
                feature_names=self.feature_names,
            )
        return PooledGraphs.of(graphs, self.pooling)

    def logits(self, graphs: GraphSet) -> np.ndarray:
        """Logits of every graph, computed a range of graphs at a time.

        Parameters
        ----------
        graphs : GraphSet

        Returns
        -------
        (G, m) ndarray
        """
        pieces = graphs.pieces(max(graphs.num_features, 1))
        return np.concatenate([self.head.logits(self.pooled(piece)) for piece in pieces])

    def predict_proba(self, graphs: GraphSet) -> np.ndarray:
        """Class probabilities of every graph.

        Parameters
        ----------
        graphs : GraphSet

        Returns
        -------
        (G, m) ndarray
            For regression the numbers: (G, 1).
        """
        return self.task.link(self.logits(graphs))

    def predict(self, graphs: GraphSet) -> np.ndarray:
        """Predict every graph.

        Parameters
        ----------
        graphs : GraphSet

        Returns
        -------
        (G,) ndarray
            Indices into ``class_names``, or numbers for regression. For several labels per graph, a
            matrix of 0 and 1: (G, m).
        """
        return self.task.predict(self.logits(graphs))

    def save(self, folder: str | Path, *, overwrite: bool = False, result: Any = None) -> Path:
        """Save the model.

        Parameters
        ----------
        folder, overwrite, result
            As for :meth:`hoplite.TrainedModel.save`.

        Returns
        -------
        Path
            The folder.
        """
        state, arrays = self.pooling.state, self.pooling.arrays.items()
        content = PoolingFile(
            self.pooling.name,
            dataclasses.asdict(self.pooling.settings),
            self.pooling.num_features,
            self.feature_names,
            {name: state[name].astype(dtype).tobytes() for name, dtype in arrays},
            self.preparation,
        )
        training = self.head.training | {KEY: msgspec.to_builtins(content)}
        head = dataclasses.replace(self.head, training=training)
        return head.save(folder, overwrite=overwrite, result=result)

    @classmethod
    def load(cls, folder: str | Path) -> GraphModel:
        """Load a saved model.

        Parameters
        ----------
        folder : path

        Returns
        -------
        GraphModel

        Raises
        ------
        ModelFileError
            If the folder is not a model of graphs, or is damaged.
        """
        head = TrainedModel.load(folder)
        if not is_graph_model(head):
            raise ModelFileError(
                f"{folder} is a node model, not a graph model; pass a graph model."
            )
        try:
            content = msgspec.convert(head.training.pop(KEY), PoolingFile)
            if content.family not in FAMILIES:
                raise ValueError(f"unknown family {content.family!r}")
            family, data = FAMILIES[content.family], content.arrays
            state = {name: np.frombuffer(data[name], t) for name, t in family.arrays.items()}
            pooling = family(family.Settings(**content.settings), content.num_features, state)
            pooling.check_state()
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise ModelFileError(f"{folder} is damaged ({error}); train it again.") from None
        return cls(head, pooling, content.feature_names, content.preparation)

    def __repr__(self) -> str:
        settings = dataclasses.asdict(self.pooling.settings).items()
        texts = ", ".join(f"{name}={value!r}" for name, value in settings)
        return f"GraphModel({self.pooling.name}, {texts}, outputs={len(self.class_names)})"


def is_graph_model(model: TrainedModel) -> bool:
    """Whether a model in a folder is one of graphs."""
    return KEY in model.training
