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
from hoplite.models.gat import GAT
from hoplite.models.gcn import GCN
from hoplite.models.heat import Heat
from hoplite.models.hlgc import HyperLGC
from hoplite.models.jacobiconv import JacobiConv
from hoplite.models.labelprop import LabelPropagation
from hoplite.models.lgc import LGC
from hoplite.models.module import as_model
from hoplite.models.pagerank import PersonalisedPageRank
from hoplite.models.polynomial import Polynomial, PolynomialSettings
from hoplite.models.s2gc import S2GC
from hoplite.models.settings import (
    ADAPTERS,
    MODELS,
    ModelConfig,
    address_of,
    all_settings,
    check_batch,
    find_model,
    idle_settings,
    models_with,
    register_model,
    split_options,
    usual_options,
    without_idle,
)
from hoplite.models.sgc import SGC

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
    "LabelPropagation",
    "Model",
    "ModelConfig",
    "PersonalisedPageRank",
    "Polynomial",
    "PolynomialSettings",
    "Weights",
    "address_of",
    "all_settings",
    "build_model",
    "check_batch",
    "choice_setting",
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
