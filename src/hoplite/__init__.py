"""Hoplite: linear graph convolutions, fast on a CPU and exact in what they say.

Names are imported at their first use, so that ``import hoplite`` and ``hoplite --help`` do not wait
for torch and scikit-learn.

The log has the name ``hoplite``, and is silent unless you configure ``logging``.
"""

import logging
import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hoplite import io
    from hoplite.config import TrainingConfig
    from hoplite.engine.backend import set_num_threads
    from hoplite.engine.spectrum import frequency_response, spectral_density
    from hoplite.errors import (
        ConfigError,
        DatasetError,
        GraphError,
        HopliteError,
        HopliteWarning,
        ModelFileError,
        StoreError,
    )
    from hoplite.estimators import (
        DGCClassifier,
        DGCRegressor,
        EGCClassifier,
        EGCRegressor,
        HeatClassifier,
        HeatRegressor,
        HopBlocksClassifier,
        HopBlocksRegressor,
        HopFeatures,
        HyperLGCClassifier,
        HyperLGCRegressor,
        JacobiConvClassifier,
        JacobiConvRegressor,
        LabelPropagationClassifier,
        LGCClassifier,
        LGCRegressor,
        PPRClassifier,
        PPRRegressor,
        S2GCClassifier,
        S2GCRegressor,
        SGCClassifier,
        SGCRegressor,
    )
    from hoplite.graph import Graph, Split
    from hoplite.io import load
    from hoplite.models import ModelConfig, model_config, register_model
    from hoplite.models.trained import TrainedModel
    from hoplite.node_data import NodeData
    from hoplite.predictions import predict_table
    from hoplite.preparation import Preparation, TableOptions
    from hoplite.search import auto, search
    from hoplite.search.auto_classifier import AutoClassifier
    from hoplite.store import HopStore, open_data, propagate, update_store
    from hoplite.training import TrainingResult, train

    __version__: str

logging.getLogger("hoplite").addHandler(logging.NullHandler())

_NAMES = {
    "config": ("TrainingConfig",),
    "engine.backend": ("set_num_threads",),
    "engine.spectrum": ("frequency_response", "spectral_density"),
    "graph": ("Graph", "Split"),
    "io": ("load",),
    "models": ("ModelConfig", "model_config", "register_model"),
    "models.trained": ("TrainedModel",),
    "node_data": ("NodeData",),
    "predictions": ("predict_table",),
    "preparation": ("Preparation", "TableOptions"),
    "search": ("auto", "search"),
    "search.auto_classifier": ("AutoClassifier",),
    "store": ("HopStore", "open_data", "propagate", "update_store"),
    "training": ("TrainingResult", "train"),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}


if not TYPE_CHECKING:  # to a checker, a name that is not imported above is none

    def __getattr__(name: str) -> Any:
        if name == "io":
            return import_module("hoplite.io")
        if name == "__version__":
            return import_module("hoplite.machine").VERSION
        if name not in __all__:
            raise AttributeError(f"module 'hoplite' has no attribute {name!r}")
        others = "errors" if name.endswith(("Error", "Warning")) else "estimators"
        value = getattr(import_module(f"hoplite.{_HOMES.get(name, others)}"), name)
        globals()[name] = value
        return value


class _Package(ModuleType):
    """``hoplite.search`` is the function, though a package of that name is imported for it."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "search" or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


__all__ = [
    "AutoClassifier",
    "ConfigError",
    "DGCClassifier",
    "DGCRegressor",
    "DatasetError",
    "EGCClassifier",
    "EGCRegressor",
    "Graph",
    "GraphError",
    "HeatClassifier",
    "HeatRegressor",
    "HopBlocksClassifier",
    "HopBlocksRegressor",
    "HopFeatures",
    "HopStore",
    "HopliteError",
    "HopliteWarning",
    "HyperLGCClassifier",
    "HyperLGCRegressor",
    "JacobiConvClassifier",
    "JacobiConvRegressor",
    "LGCClassifier",
    "LGCRegressor",
    "LabelPropagationClassifier",
    "ModelConfig",
    "ModelFileError",
    "NodeData",
    "PPRClassifier",
    "PPRRegressor",
    "Preparation",
    "S2GCClassifier",
    "S2GCRegressor",
    "SGCClassifier",
    "SGCRegressor",
    "Split",
    "StoreError",
    "TableOptions",
    "TrainedModel",
    "TrainingConfig",
    "TrainingResult",
    "auto",
    "frequency_response",
    "io",
    "load",
    "model_config",
    "open_data",
    "predict_table",
    "propagate",
    "register_model",
    "search",
    "set_num_threads",
    "spectral_density",
    "train",
    "update_store",
]
