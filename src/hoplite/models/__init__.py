"""The models: each is a class, and is registered here.

Register your own with :func:`register_model`, or with an entry point of its package; see
docs/your-own-model.md. Networks, which import this package, are registered by module and class.
"""

from __future__ import annotations

from hoplite.config import choice_setting, flag_setting, number_setting
from hoplite.models.base import Model, Weights, build_model
from hoplite.models.fixed import DGC, PPR, S2GC, SGC, Heat
from hoplite.models.labelprop import LabelModel, LabelPropagation
from hoplite.models.learned import EGC, LGC, HopBlocks, JacobiConv
from hoplite.models.linear import LinearModel, PolynomialSettings
from hoplite.models.settings import (
    MODELS,
    ModelConfig,
    all_settings,
    find_model,
    idle_settings,
    model_config,
    model_defaults,
    models_with,
    register_model,
    split_options,
)

for model in (
    SGC,
    EGC,
    LGC,
    "hoplite.nets.hlgc:HyperLGC",
    JacobiConv,
    HopBlocks,
    S2GC,
    PPR,
    Heat,
    DGC,
    LabelPropagation,
    "hoplite.nets.gcn:GCN",
    "hoplite.nets.gat:GAT",
    "hoplite.nets.stacked:StackedLGC",
):
    find_model(model)

__all__ = [
    "DGC",
    "EGC",
    "LGC",
    "MODELS",
    "PPR",
    "S2GC",
    "SGC",
    "Heat",
    "HopBlocks",
    "JacobiConv",
    "LabelModel",
    "LabelPropagation",
    "LinearModel",
    "Model",
    "ModelConfig",
    "PolynomialSettings",
    "Weights",
    "all_settings",
    "build_model",
    "choice_setting",
    "find_model",
    "flag_setting",
    "idle_settings",
    "model_config",
    "model_defaults",
    "models_with",
    "number_setting",
    "register_model",
    "split_options",
]
