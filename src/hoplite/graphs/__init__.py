"""Whole graphs: sets of them, features, models, predictions and explanations."""

from hoplite.graphs.explanation import GraphExplanation, explain_graph
from hoplite.graphs.files import write_graph_files, write_graphs
from hoplite.graphs.graph_set import GraphSet
from hoplite.graphs.model import GraphModel
from hoplite.graphs.reading import is_graph_set, load_graphs
from hoplite.graphs.training import GraphResult, train_graphs

__all__ = [
    "GraphExplanation",
    "GraphModel",
    "GraphResult",
    "GraphSet",
    "explain_graph",
    "is_graph_set",
    "load_graphs",
    "train_graphs",
    "write_graph_files",
    "write_graphs",
]
