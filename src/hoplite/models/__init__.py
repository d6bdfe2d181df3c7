"""The models: each is one file, and its line here makes it known.

A user's own is made known by :func:`register_model`, or by an entry point of its package; see
docs/your-own-model.md.
"""

from __future__ import annotations

from hoplite.config import choice_setting, flag_setting, number_setting
from hoplite.models.base import Model, Weights, build_model
from hoplite.models.blocks import HopBlocks
from hoplite.models.dgc import DGC
from hoplite.models.egc import EGC
from hoplite.models.heat import Heat
from hoplite.models.jacobiconv import JacobiConv
from hoplite.models.labelprop import LabelModel, LabelPropagation
from hoplite.models.lgc import LGC
from hoplite.models.linear import LinearModel, PolynomialSettings
from hoplite.models.pagerank import PersonalisedPageRank
from hoplite.models.s2gc import S2GC
from hoplite.models.settings import (
    ADAPTERS,
    MODELS,
    ModelConfig,
    address_of,
    all_settings,
    check_batch,
    check_default_options,
    default_options,
    find_model,
    idle_settings,
    models_with,
    register_model,
    split_options,
    usual_options,
    without_idle,
)
from hoplite.models.sgc import SGC
from hoplite.nets.base import Network, RowNetwork
from hoplite.nets.gat import GAT
from hoplite.nets.gcn import GCN
from hoplite.nets.hlgc import HyperLGC
from hoplite.nets.module import as_model

for model in (
    SGC,
    EGC,
    LGC,
    HyperLGC,
    JacobiConv,
    HopBlocks,
    S2GC,
    PersonalisedPageRank,
    Heat,
    DGC,
    LabelPropagation,
    GCN,
    GAT,
):
    register_model(model)
ADAPTERS.append(as_model)

__all__ = [
    "DGC",
    "EGC",
    "GAT",
    "GCN",
    "LGC",
    "MODELS",
    "S2GC",
    "SGC",
    "Heat",
    "HopBlocks",
    "HyperLGC",
    "JacobiConv",
    "LabelModel",
    "LabelPropagation",
    "LinearModel",
    "Model",
    "ModelConfig",
    "Network",
    "PersonalisedPageRank",
    "PolynomialSettings",
    "RowNetwork",
    "Weights",
    "address_of",
    "all_settings",
    "build_model",
    "check_batch",
    "check_default_options",
    "choice_setting",
    "default_options",
    "find_model",
    "flag_setting",
    "idle_settings",
    "models_with",
    "number_setting",
    "register_model",
    "split_options",
    "usual_options",
    "without_idle",
]
