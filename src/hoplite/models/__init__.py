"""The models: SGC, EGC, LGC, hLGC with its three gates, and the baselines GCN and GAT."""

from __future__ import annotations

from hoplite.config import ModelConfig
from hoplite.models.attention import GAT
from hoplite.models.base import Model, Weights
from hoplite.models.baselines import GCN
from hoplite.models.hyper import ClassGate, FeatureGate, NodeGate
from hoplite.models.linear import EGC, LGC, SGC, LinearModel

_PLAIN: dict[str, type[Model]] = {"sgc": SGC, "egc": EGC, "lgc": LGC, "gcn": GCN, "gat": GAT}
_GATED: dict[str, type[Model]] = {"node": NodeGate, "class": ClassGate, "feature": FeatureGate}


def build_model(config: ModelConfig, num_features: int, num_classes: int) -> Model:
    """The model that ``config`` names, for ``num_features`` inputs and ``num_classes`` outputs."""
    kind = _GATED[config.gate] if config.model == "hlgc" else _PLAIN[config.model]
    return kind(config, num_features, num_classes)


__all__ = [
    "LinearModel",
    "Model",
    "Weights",
    "build_model",
]
