"""Hoplite: linear graph convolutions, fast on a CPU and exact in what they say."""

from hoplite.datasets import load
from hoplite.errors import (
    ConfigError,
    DatasetError,
    GraphError,
    HopliteError,
    HopliteWarning,
    ModelFileError,
)
from hoplite.estimators import (
    EGCClassifier,
    HopFeatures,
    HyperLGCClassifier,
    LGCClassifier,
    SGCClassifier,
)
from hoplite.filters import frequency_response
from hoplite.graph import Graph, Split
from hoplite.models import ModelConfig
from hoplite.models.trained import TrainedModel
from hoplite.propagation.backend import set_num_threads
from hoplite.training import TrainingConfig, TrainingResult, train

__version__ = "0.1.0"

__all__ = [
    "ConfigError",
    "DatasetError",
    "EGCClassifier",
    "Graph",
    "GraphError",
    "HopFeatures",
    "HopliteError",
    "HopliteWarning",
    "HyperLGCClassifier",
    "LGCClassifier",
    "ModelConfig",
    "ModelFileError",
    "SGCClassifier",
    "Split",
    "TrainedModel",
    "TrainingConfig",
    "TrainingResult",
    "frequency_response",
    "load",
    "set_num_threads",
    "train",
]
