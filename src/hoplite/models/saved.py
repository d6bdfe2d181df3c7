"""A trained model in a folder, which holds a complete model at any time.

    config.json                       settings and names; the SHA-256 of the other two files
    weights-SHA.safetensors
    result-SHA.json                   the figures of the training, if they were given
    auto/                             how the model was chosen, if it was; not changed here

SHA stands for the first 16 digits of the file's SHA-256. Saving adds files and then replaces
config.json in one step, **with which the model is saved**; finally it removes the old files. A kill
before that step leaves the old model, and after it the new one; the next save removes leftover
files. Saving and reading lock the folder, so concurrent processes wait for each other; a lock ends
with its process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as save_arrays

from hoplite import files
from hoplite.errors import ModelFileError, by_interface, option_name, plural
from hoplite.models.alignment import NodeIndex
from hoplite.models.base import Weights
from hoplite.models.labelprop import CorrectSmooth
from hoplite.models.neighbours import NeighbourLabels
from hoplite.models.settings import ModelConfig, is_known
from hoplite.preparation import Preparation
from hoplite.tasks import DEFAULT_TASK, TASKS

CONFIG_FILE = "config.json"
CHOICE = "auto"  # the folder that records how the model was chosen, next to the model
PARTS = re.compile(r"weights-[0-9a-f]{16}\.safetensors|result-[0-9a-f]{16}\.json")
TEMPORARY = re.compile(r"\..*\.tmp")  # see atomic_write
WAIT_SECONDS = 60.0  # longest wait for another process that saves; it takes far less

Shapes = dict[str, tuple[int, ...]]
Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


@dataclass(frozen=True)
class ModelFile:
    """config.json."""

    model: dict[str, Any]  # its name and its settings
    num_features: Annotated[int, Meta(ge=0, le=2**40)]
    class_names: Annotated[tuple[str, ...], Meta(min_length=1)]
    feature_names: tuple[str, ...] | None
    training: dict[str, Any]
    preparation: Preparation | None = None  # of the columns of tables
    loop_weight: Annotated[float, Meta(gt=0)] | None = 1.0  # None: of any graph, its own
    relations: dict[str, Annotated[float, Meta(gt=0)]] = field(default_factory=dict)
    node_index: NodeIndex | None = None  # the nodes that labels inside belong to
    correct_smooth: CorrectSmooth | None = None
    neighbours: NeighbourLabels | None = None  # the labels that it reads
    module: str = ""  # package.module:Class of a model that is not our own
    weights_sha256: Digest = "0" * 64  # written by :func:`write_folder`, as the next one
    result_sha256: Digest | None = None
    format: Literal[1] = 1

    def __post_init__(self) -> None:
        names = self.feature_names
        if names is not None and len(names) != self.num_features:
            raise ValueError(f"{len(names):,} names for {self.num_features:,} features")
        if self.training.get("task", DEFAULT_TASK) not in [*TASKS]:
            raise ValueError("unknown task")
        prepared = () if self.preparation is None else self.preparation.names
        if prepared and (names or ())[: len(prepared)] != prepared:
            raise ValueError("the preparation produces other features")
        if (self.neighbours is not None) != bool(self.model.get("neighbour_labels")):
            raise ValueError("labels of neighbours: the settings do not match the stored labels")
        if self.neighbours is not None:
            self.neighbours.check(len(self.class_names), self.node_index)
        after, index = self.correct_smooth, self.node_index
        if after is not None:
            count, classes = 0 if index is None else index.count, len(self.class_names)
            if max(after.nodes, default=-1) >= count or max(after.labels, default=-1) >= classes:
                raise ValueError("the labels of Correct and Smooth have unknown nodes or classes")

    @cached_property
    def config(self) -> ModelConfig:
        """The settings, checked."""
        return ModelConfig.from_dict(self.model)

    @property
    def weights_file(self) -> str:
        """The name of the file of its weights."""
        return f"weights-{self.weights_sha256[:16]}.safetensors"


def check_target(folder: str | Path, *, overwrite: bool) -> Path:
    """The real path of ``folder``; ModelFileError if a model cannot be written to it.

    The folder must be empty or, with ``overwrite``, contain nothing but a model.
    """
    target, folder = Path(folder), Path(os.path.realpath(folder))
    try:
        names = _names(folder) if folder.exists() else set()
    except NotADirectoryError:
        raise ModelFileError(f"{target} is a file; choose a folder for the model.") from None
    except OSError as error:
        raise ModelFileError(f"{target} cannot be used: {error.strerror}.") from None
    others = sorted(name for name in names - {CONFIG_FILE, CHOICE} if not _is_part(name))
    if others:
        raise ModelFileError(
            f"{target} contains {others[0]!r}, which is not part of a model; choose another folder."
        )
    if CONFIG_FILE in names and not overwrite:
        raise ModelFileError(
            f"{target} already exists; replace it with {option_name('overwrite', True)}."
        )
    parent = folder
    while not os.path.lexists(parent):
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise ModelFileError(f"{target} cannot be written: {parent} is not a writable folder.")
    return folder


def write_folder(
    folder: str | Path,
    model: ModelFile,
    weights: Weights,
    result: dict[str, Any] | None,
    *,
    overwrite: bool,
) -> None:
    """Write the model into ``folder``, which is created if necessary."""
    target, folder = Path(folder), check_target(folder, overwrite=overwrite)
    for name, value in weights.items():
        if value.dtype not in (np.float32, np.float64) or not np.isfinite(value).all():
            raise ModelFileError(
                f"the weights {name!r} are not finite float32 or float64 numbers, so the model is "
                f"not saved to {target}; train it with a smaller lr or fewer hops."
            )
    data = save_arrays({name: np.asarray(value, order="C") for name, value in weights.items()})
    digest = hashlib.sha256(data).hexdigest()
    try:
        model = dataclasses.replace(model, weights_sha256=digest)
        contents = {model.weights_file: data}
        if result is not None:
            scores = _json(result, 1)
            digest = hashlib.sha256(scores).hexdigest()
            model = dataclasses.replace(model, result_sha256=digest)
            contents[f"result-{digest[:16]}.json"] = scores
        contents[CONFIG_FILE] = _json(msgspec.to_builtins(model), 2)
    except ValueError as error:
        raise ModelFileError(f"cannot write the model to {target}: {error}.") from error
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _held(folder):
            check_target(target, overwrite=overwrite)  # another process may have been faster
            before = _names(folder)
            try:
                for name, content in contents.items():
                    files.atomic_write_bytes(folder / name, content)
            except BaseException:
                _remove(folder, contents.keys() - before)
                raise
            _remove(folder, _names(folder) - contents.keys())
    except BaseException as error:  # also Ctrl-C leaves no empty folder
        if is_new:
            with contextlib.suppress(OSError):
                folder.rmdir()
        if not isinstance(error, OSError):
            raise
        raise ModelFileError(f"cannot write the model to {target}: {error.strerror}.") from error


def read_folder(
    folder: str | Path, shapes: Callable[[ModelFile, Shapes], Shapes | None]
) -> tuple[ModelFile, Weights]:
    """The configuration and the weights of a model folder, checked against each other.

    ``shapes`` returns the expected shapes of weights, given those in the file, or None.
    """
    folder = Path(folder)
    with _held(folder):
        model = _read_config(folder / CONFIG_FILE)
        return model, _read_weights(folder / model.weights_file, model, shapes)


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def _is_part(name: str) -> bool:
    return bool(PARTS.fullmatch(name) or TEMPORARY.fullmatch(name))


def _remove(folder: Path, names: set[str]) -> None:
    """Remove files of models with these names."""
    for name in filter(_is_part, names):
        with contextlib.suppress(OSError):
            (folder / name).unlink()


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Within the block, no other process saves to or reads from ``folder``."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # folders cannot be opened on this system; other errors occur later
        yield
        return
    try:
        deadline = time.monotonic() + WAIT_SECONDS
        while files.lock(handle) is False:
            if time.monotonic() > deadline:
                raise ModelFileError(
                    f"another process is using {folder}; wait until it has finished."
                )
            time.sleep(0.01)
        yield
    finally:
        os.close(handle)


def _json(content: dict[str, Any], indent: int) -> bytes:
    return files.to_json(files.without_nan(content), indent).encode("utf-8")


def _read_config(path: Path) -> ModelFile:
    try:
        content = files.parse_json(files.read_regular(path, files.MAX_JSON), dict[str, Any])
        model = msgspec.convert(content, ModelFile)
        if model.module and not is_known(model.model.get("model")):
            raise ModelFileError(
                f"{path} has the model {model.model.get('model')!r}, which is unknown; "
                f"{_remedy(model.module)}, or install the package that declares it."
            )
        _ = model.config
        return model
    except (FileNotFoundError, NotADirectoryError):
        what = "is not a model folder" if path.parent.exists() else "does not exist"
        raise ModelFileError(
            f"{path.parent} {what}; pass a folder written by "
            f"{by_interface('TrainedModel.save', '`hoplite train --out`')}."
        ) from None
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror}.") from None
    except ValueError as error:
        raise ModelFileError(f"{path} is damaged ({error}); train the model again.") from None


def _remedy(source: str) -> str:
    """How to register the model with this :meth:`Model.source`."""
    module, _, name = source.partition(":")
    register = f"import {module} and pass {name} to hoplite.register_model first"
    return by_interface(register, f"add --model {source}")


def _read_weights(
    path: Path, model: ModelFile, shapes: Callable[[ModelFile, Shapes], Shapes | None]
) -> Weights:
    """The weights; their shapes are checked before they are read into memory."""
    try:
        with files.open_regular(path) as file:  # not a pipe or a device
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != model.weights_sha256:
            raise ModelFileError(
                f"{path} is truncated or belongs to another model: its checksum does not match "
                f"{CONFIG_FILE}; train the model again."
            )
        with safe_open(path, framework="numpy") as file:
            parts = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            shapes_in_file = {name: tuple(part.get_shape()) for name, part in parts.items()}
            floats = all(part.get_dtype() in ("F32", "F64") for part in parts.values())
            if floats and shapes_in_file != shapes(model, shapes_in_file):
                raise ModelFileError(
                    f"the weights {shapes_in_file} in {path} do not fit model "
                    f"{model.config.model!r} with {model.config.size()}, "
                    f"{plural(model.num_features, 'feature')} and "
                    f"{plural(len(model.class_names), 'class')}."
                )
            weights = {name: file.get_tensor(name) for name in parts} if floats else {}
    except OSError as error:
        problem = f"cannot read {path}: {error.strerror}; train the model again."
        raise ModelFileError(problem) from None
    except (SafetensorError, ValueError) as error:
        problem = f"{path} is not a weights file ({error}); train the model again."
        raise ModelFileError(problem) from None
    if not floats or not all(np.isfinite(value).all() for value in weights.values()):
        raise ModelFileError(f"{path} contains weights that are not finite; train the model again.")
    return weights
