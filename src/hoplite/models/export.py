"""A trained model for programs without Hoplite: arrays, a torch module, ONNX.

What it reads are hop features, as :class:`hoplite.HopFeatures` or a hop store gives them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hoplite.errors import ConfigError, HopliteError, require_extra
from hoplite.files import atomic_write
from hoplite.models.linear import LinearModel

if TYPE_CHECKING:
    import torch

    from hoplite.models.trained import TrainedModel

OPSET, IR_VERSION = 17, 8  # versions of 2022, which all runtimes since then read


def hop_arrays(model: TrainedModel) -> dict[str, np.ndarray]:
    """``weight`` ((k + 1) d, m), ``bias`` (m,) and, of classes, ``shift`` (m,), all float32.

    See :meth:`hoplite.TrainedModel.to_arrays`. ConfigError for models that are no such sum: gated
    ones, and those that standardise their outputs over all nodes or need edges.
    """
    config = model.config
    if not issubclass(config.kind, LinearModel):
        raise ConfigError(
            f"model {config.model!r} is not a linear map of hop features; export a linear model, "
            "e.g. lgc."
        )
    model.refuse_correct_smooth("linear maps of hop features to its outputs")
    for refused, why, options in (
        (model.parts_, "uses several operators", "directed, type and channels"),
        (config.neighbour_labels, "uses labels of neighbours", "neighbour_labels"),
        (config.standardize, "standardises its outputs over all nodes", "standardize"),
    ):
        if refused:
            raise ConfigError(
                f"the model {why}, so it is not a map of one node's hop features; train it without "
                f"{options} to export it."
            )
    maps, task = model.maps_, model.task
    scales = model._linear("Theta").hop_coefficients(model.weights)
    blocks = (scales[:, None, None] * maps).reshape(-1, maps.shape[-1])
    none = np.zeros(maps.shape[-1])
    weight, bias = task.rescaled(blocks, model.weights.get("bias", none))
    arrays = {"weight": weight, "bias": bias}
    if task.exclusive:
        arrays["shift"] = task.rescaled(blocks, none - task.decisions(none))[1]
    return {name: values.astype(np.float32) for name, values in arrays.items()}


def hop_module(model: TrainedModel) -> torch.nn.Linear:
    """The map from stacked hop features (rows, (k + 1) d) to logits (rows, m), as a module.

    Its buffer ``shift`` (m,), of classes, is not taken from them.
    """
    require_extra("torch", "to_torch", "torch")
    import torch

    arrays = hop_arrays(model)
    module = torch.nn.Linear(*arrays["weight"].shape)
    with torch.no_grad():
        module.weight.copy_(torch.from_numpy(np.ascontiguousarray(arrays["weight"].T)))
        module.bias.copy_(torch.from_numpy(arrays["bias"]))
    if "shift" in arrays:
        module.register_buffer("shift", torch.from_numpy(arrays["shift"]), persistent=False)
    return module


def write_onnx(model: TrainedModel, path: str | Path) -> None:
    """The same map as ONNX: ``hops`` (rows, (k + 1) d) float32 to ``logits`` (rows, m).

    The model's facts (classes, features, hops, operator, basis, task, with its state, and shift)
    are its metadata, as JSON.
    """
    require_extra("export", "to_onnx", "onnx")
    from onnx import TensorProto, checker, helper, numpy_helper

    arrays = hop_arrays(model)
    inputs, outputs = arrays["weight"].shape
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["hops", "weight", "bias"], ["logits"])],
        "hoplite",
        [helper.make_tensor_value_info("hops", TensorProto.FLOAT, ["rows", inputs])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["rows", outputs])],
        [numpy_helper.from_array(arrays[name], name) for name in ("weight", "bias")],
    )
    onnx_model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    onnx_model.ir_version, onnx_model.producer_name = IR_VERSION, "hoplite"
    config, task = model.config, model.task
    facts = {name: getattr(config, name) for name in ("model", "hops", "operator", "basis")}
    facts |= {"class_names": model.class_names, "feature_names": model.feature_names}
    facts |= {"task": task.name, "task_state": task.state()}
    if "shift" in arrays:
        facts["shift"] = arrays["shift"].tolist()
    helper.set_model_props(onnx_model, {k: json.dumps(v) for k, v in facts.items()})
    checker.check_model(onnx_model)
    try:
        with atomic_write(path) as file:
            file.write(onnx_model.SerializeToString())
    except OSError as error:
        raise HopliteError(f"cannot write {path}: {error.strerror or error}.") from error
