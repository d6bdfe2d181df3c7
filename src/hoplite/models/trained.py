"""TrainedModel: weights with everything needed to use them on a graph, in memory and on disk.

On disk it is a folder with ``config.json`` (settings, class and feature names, checksum) and
``weights.safetensors``. The folder appears complete or not at all.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from hoplite.config import ModelConfig
from hoplite.errors import ConfigError, HopliteError, ModelFileError
from hoplite.files import atomic_write_bytes
from hoplite.graph import Graph
from hoplite.models import LinearModel, Model, Weights, build_model
from hoplite.propagation.engine import Propagation

FORMAT = 1
CONFIG_FILE, WEIGHTS_FILE = "config.json", "weights.safetensors"


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """A model with learned weights.

    Parameters
    ----------
    config : ModelConfig
    weights : dict of tensors, without run axis (``theta`` is (d, m))
    num_features : d
    class_names : names of the m classes
    feature_names : names of the d features, if the data had them
    training : what is worth knowing of the training (settings, seed, validation accuracy)
    """

    config: ModelConfig
    weights: Weights
    num_features: int
    class_names: tuple[str, ...]
    feature_names: tuple[str, ...] | None = None
    training: dict[str, Any] = field(default_factory=dict)

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def coefficients_(self) -> np.ndarray:
        """c_0 .. c_k in the model's basis; for hLGC the ungated alpha. A GCN has none."""
        model = self._model()
        if self.config.model == "gcn":
            raise ConfigError("a gcn has no filter coefficients; use a linear model.")
        values = self.weights.get("alpha")
        if isinstance(model, LinearModel):
            many = model.coefficients(self._stacked())
            values = None if many is None else many[0]
        if values is None:
            values = torch.eye(self.config.hops + 1)[-1]
        return values.detach().numpy().copy()

    def logits(self, graph: Graph) -> np.ndarray:
        """Logits of every node: (n, m)."""
        self.check_graph(graph)
        config = self.config
        return self.logits_from(Propagation(graph, config.operator, config.basis, config.hops))

    def logits_from(self, propagation: Propagation) -> np.ndarray:
        """Logits of every node from a propagation that is already set up: (n, m)."""
        dtype = propagation.features.dtype
        weights = {name: value.to(dtype) for name, value in self._stacked().items()}
        with torch.no_grad():
            return self._model().logits(weights, propagation.view())[:, 0].numpy()

    def predict_proba(self, graph: Graph) -> np.ndarray:
        """Class probabilities of every node: (n, m), rows sum to 1."""
        return torch.from_numpy(self.logits(graph)).softmax(dim=1).numpy()

    def predict(self, graph: Graph) -> np.ndarray:
        """Class index of every node: (n,)."""
        return self.logits(graph).argmax(axis=1)

    def check_graph(self, graph: Graph) -> None:
        """Raise ModelFileError unless ``graph`` has this model's features and classes."""
        if graph.num_features != self.num_features:
            raise ModelFileError(
                f"the model was trained on {self.num_features:,} features but the graph has "
                f"{graph.num_features:,}; use a graph with the same feature columns."
            )
        if self.feature_names and graph.feature_names:
            for mine, other in zip(self.feature_names, graph.feature_names, strict=True):
                if mine != other:
                    raise ModelFileError(
                        f"the model expects feature {mine!r} where the graph has {other!r}; "
                        "use a graph with the same feature columns in the same order."
                    )
        if graph.num_classes not in (0, self.num_classes):
            raise ModelFileError(
                f"the model knows {self.num_classes} classes but the graph has "
                f"{graph.num_classes}; use the graph's own model."
            )

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write the model to ``folder``; an existing one is replaced only with ``overwrite``."""
        folder = Path(folder)
        if folder.exists() and not overwrite and any(folder.iterdir()):
            raise ModelFileError(f"{folder} exists and is not empty; choose another folder.")
        data = save_tensors({name: value.contiguous() for name, value in self.weights.items()})
        config = {
            "format": FORMAT,
            "model": dataclasses.asdict(self.config),
            "num_features": self.num_features,
            "class_names": self.class_names,
            "feature_names": self.feature_names,
            "training": self.training,
            "weights_sha256": hashlib.sha256(data).hexdigest(),
        }
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
            new, old = Path(scratch) / "new", Path(scratch) / "old"
            new.mkdir()
            atomic_write_bytes(new / WEIGHTS_FILE, data)
            atomic_write_bytes(new / CONFIG_FILE, json.dumps(config, indent=2).encode())
            if folder.exists():
                for path in folder.iterdir():  # what else the folder holds stays
                    if path.name not in (WEIGHTS_FILE, CONFIG_FILE):
                        copy = shutil.copytree if path.is_dir() else shutil.copy2
                        copy(path, new / path.name)
                folder.rename(old)
            new.rename(folder)
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> TrainedModel:
        """Read a model that ``save`` wrote; anything else raises ModelFileError."""
        folder = Path(folder)
        config = _read_config(folder)
        try:
            data = (folder / WEIGHTS_FILE).read_bytes()
        except OSError as error:
            raise ModelFileError(
                f"cannot read {folder / WEIGHTS_FILE}: {error.strerror}."
            ) from None
        if hashlib.sha256(data).hexdigest() != config.get("weights_sha256"):
            raise ModelFileError(
                f"{folder / WEIGHTS_FILE} is truncated or belongs to another model; "
                "its checksum is not the one in config.json."
            )
        try:
            model = cls(
                config=ModelConfig(**config["model"]),
                weights=load_tensors(data),
                num_features=int(config["num_features"]),
                class_names=tuple(config["class_names"]),
                feature_names=tuple(config["feature_names"]) if config["feature_names"] else None,
                training=config["training"],
            )
            model._check_shapes()
        except (KeyError, TypeError, ValueError, SafetensorError, HopliteError) as error:
            raise ModelFileError(f"{folder} does not hold a complete model: {error}") from None
        return model

    def _check_shapes(self) -> None:
        expected = self._model().initial(torch.Generator())
        found = {name: tuple(value.shape) for name, value in self.weights.items()}
        if found != {name: tuple(value.shape) for name, value in expected.items()}:
            raise ModelFileError(
                f"the weights {found} do not fit a {self.config.model} model with "
                f"{self.num_features} features and {self.num_classes} classes."
            )

    def _model(self) -> Model:
        return build_model(self.config, self.num_features, self.num_classes)

    def _stacked(self) -> dict[str, Tensor]:
        return {name: value.unsqueeze(0) for name, value in self.weights.items()}


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG_FILE
    if not folder.is_dir():
        raise ModelFileError(f"{folder} is not a model folder; train one with `hoplite train`.")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror}.") from None
    except ValueError:
        raise ModelFileError(f"{path} is truncated or not JSON; train the model again.") from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise ModelFileError(f"{path} is not a model that this version of Hoplite can read.")
    return config
