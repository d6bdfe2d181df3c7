"""The models: SGC, EGC, LGC, hLGC with its three gates, and the baselines GCN and GAT."""

from __future__ import annotations

from hoplite.config import ModelConfig
from hoplite.models.attention import GAT
from hoplite.models.base import Model, Weights
from hoplite.models.baselines import GCN
from hoplite.models.hyper import HyperLGC
from hoplite.models.linear import EGC, LGC, SGC, LinearModel

# a line each, as in hoplite.kinds, which tells what is known without torch
_EVALUATED_BY: dict[str, type[Model]] = {
    "sgc": SGC,
    "egc": EGC,
    "lgc": LGC,
    "hlgc": HyperLGC,
    "gcn": GCN,
    "gat": GAT,
}


def build_model(config: ModelConfig, num_features: int, num_classes: int) -> Model:
    """The model that ``config`` names, for ``num_features`` inputs and ``num_classes`` outputs."""
    kind = _EVALUATED_BY[config.model].reading(config)
    return kind(config, num_features, num_classes)


__all__ = [
    "LinearModel",
    "Model",
    "Weights",
    "build_model",
]
