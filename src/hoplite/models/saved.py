"""A trained model as a folder: the old one or the new one, whole, at every moment.

    config.json            settings, names, and the SHA-256 of the weights
    weights.safetensors
    result.json            the figures of the training, if they were given
    auto/                  how it was chosen, if it was; not touched here

Three files cannot be replaced in one step, so a save goes through a sub-folder NEW:

1. NEW.tmp gets all files of the new model, synced, and a token: result.json itself, or the empty
   ``no-result`` if there is none. It is renamed to NEW. As long as NEW has its token, it is nothing
   yet; if it is found without its process, it is removed, by renaming it back first.
2. One step takes the token away and makes the visible result.json the new one: the rename of
   NEW/result.json to result.json, or of result.json to NEW/replaced, or the removal of
   NEW/no-result where there was no result before either. **Now the model is saved.**
3. Weights and configuration are moved to their places, and NEW goes.

So a kill before step 2 leaves the old model, and after it the new one, each with its own result:
reading takes from NEW what step 3 has not moved, and finishes step 3. All of this, reading too, is
done with the folder locked, so that processes that save at the same time follow each other. A lock
ends with its process, and whatever is in NEW then belongs to nobody.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import math
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
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from hoplite.errors import ModelFileError
from hoplite.files import lock, open_regular, read_regular, sync_folder
from hoplite.json_files import MOST_BYTES, parse_json, to_json, without_nan
from hoplite.models.base import Weights
from hoplite.models.correct_smooth import CorrectSmooth
from hoplite.models.places import Places
from hoplite.models.settings import ModelConfig, is_known
from hoplite.preparation import Preparation

FORMATS = (1, 2, 3)  # earlier versions read 1 alone, or 1 and 2; 3 has labels inside
CONFIG_FILE, WEIGHTS_FILE, RESULT_FILE = "config.json", "weights.safetensors", "result.json"
NEW, UNFINISHED = ".hoplite-new", ".hoplite-new.tmp"
NO_RESULT, REPLACED = "no-result", "replaced"
CHOICE = "auto"  # the folder in which a choice among models is kept, beside the chosen one
VISIBLE = {CONFIG_FILE, WEIGHTS_FILE, RESULT_FILE}
# What earlier versions left in a folder when they were killed.
EARLIER = re.compile(
    r"\.+(config\.json|weights\.safetensors|result\.json)(\.new|(\.new)?\.[0-9a-f]{16}\.tmp)"
)
EARLIER_CONFIG = ".config.json.new"
MOST_HEADER = 1 << 20  # bytes of the names and shapes of the weights
SAVED_TYPES = ("float32", "float64")
ITEM_BYTES = {"F32": 4, "F64": 8}
WAIT_SECONDS = 60.0  # for another process that saves; it takes far less

Shapes = dict[str, tuple[int, ...]]


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
    places: Places | None = None  # the nodes that labels inside belong to
    correct_smooth: CorrectSmooth | None = None
    module: str = ""  # that makes the model known (or package.module:Class), if it is not our own
    weights_sha256: str = ""  # written by :func:`write_folder`
    format: Literal[1, 2, 3] = 1

    def __post_init__(self) -> None:
        names = self.feature_names
        if names is not None and len(names) != self.num_features:
            raise ValueError(f"{len(names):,} names of {self.num_features:,} features")
        made = () if self.preparation is None else self.preparation.names
        if made and (names or ())[: len(made)] != made:
            raise ValueError("the preparation makes other features")
        after, places = self.correct_smooth, self.places
        if after is not None:
            count, classes = 0 if places is None else places.count, len(self.class_names)
            if max(after.nodes, default=-1) >= count or max(after.labels, default=-1) >= classes:
                raise ValueError("the labels of Correct and Smooth are of no node, or no class")

    @cached_property
    def config(self) -> ModelConfig:
        """The settings, checked."""
        return ModelConfig.from_dict(self.model)


@dataclass(frozen=True)
class _Tensor:
    """The header of one weight."""

    dtype: str
    shape: tuple[Annotated[int, Meta(ge=0, le=2**40)], ...]


def check_target(folder: str | Path, *, overwrite: bool) -> Path:
    """The real path that a model may be written to, or an error that says why not.

    Only an empty folder or, with ``overwrite``, one that holds a model and nothing else is
    replaced.
    """
    given, folder = Path(folder), Path(os.path.realpath(folder))
    if _names(given) - VISIBLE - {CHOICE}:
        with _held(folder), contextlib.suppress(OSError):
            _settle(folder)
    _check_free(given, overwrite)
    parent = folder
    while not os.path.lexists(parent):
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise ModelFileError(f"{given} cannot be written: {parent} is not a writable folder.")
    return folder


def _names(folder: Path) -> set[str]:
    """What is in ``folder``, none if it does not exist; ModelFileError if it is not a model's."""
    try:
        names = {path.name for path in folder.iterdir()} if folder.exists() else set()
    except NotADirectoryError:
        raise ModelFileError(f"{folder} is a file; choose a folder for the model.") from None
    except OSError as error:
        raise ModelFileError(f"{folder} cannot be used: {error.strerror}.") from None
    own = VISIBLE | {NEW, UNFINISHED, CHOICE}
    others = sorted(name for name in names - own if not EARLIER.fullmatch(name))
    if others:
        raise ModelFileError(
            f"{folder} holds {others[0]!r}, which is not a model's; choose another folder."
        )
    return names


def _check_free(folder: Path, overwrite: bool) -> None:
    if not overwrite and _names(folder) & {CONFIG_FILE, WEIGHTS_FILE}:
        raise ModelFileError(
            f"{folder} holds a model already; replace it with --overwrite (overwrite=True in "
            "Python)."
        )


def write_folder(
    folder: str | Path,
    model: ModelFile,
    weights: Weights,
    result: dict[str, Any] | None,
    *,
    overwrite: bool,
) -> None:
    """Write the model into ``folder``, which is made if it is not there."""
    given, folder = Path(folder), check_target(folder, overwrite=overwrite)
    for name, value in weights.items():
        if str(value.dtype) not in SAVED_TYPES:
            raise ModelFileError(
                f"the weights {name!r} have type {value.dtype}, and only float32 and float64 are "
                f"saved to {given}; convert them first."
            )
        if not np.isfinite(value).all():
            raise ModelFileError(
                f"the weights {name!r} hold values that are not finite numbers, so the model is "
                f"not saved to {given}; train it with a smaller --lr, or fewer --hops."
            )
    data = save_arrays({name: np.asarray(value, order="C") for name, value in weights.items()})
    model = dataclasses.replace(model, weights_sha256=hashlib.sha256(data).hexdigest())
    try:
        config = {"format": model.format} | dataclasses.asdict(model)
        for name in ("module", "preparation", "places", "correct_smooth"):
            if not config[name]:
                del config[name]
        files = {WEIGHTS_FILE: data, CONFIG_FILE: _json(config, 2)}
        files |= {NO_RESULT: b""} if result is None else {RESULT_FILE: _json(result, 1)}
    except ValueError as error:
        raise ModelFileError(f"cannot write the model to {given}: {error}.") from error
    made = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _held(folder):
            _settle(folder)
            _check_free(given, overwrite)  # another process may have been faster
            try:
                _prepare(folder, files)
                _take_token(folder)
            finally:
                _settle(folder)
    except BaseException as error:  # also Ctrl-C leaves no empty folder
        if made:
            with contextlib.suppress(OSError):
                folder.rmdir()
        if not isinstance(error, OSError):
            raise
        raise ModelFileError(f"cannot write the model to {given}: {error.strerror}.") from error


def read_folder(
    folder: str | Path, shapes: Callable[[ModelFile, Shapes], Shapes | None]
) -> tuple[ModelFile, Weights]:
    """The configuration and the weights of a model folder, checked against each other.

    ``shapes`` tells those that a model must have whose file holds weights of the given ones; None
    if there is none.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise ModelFileError(f"{folder} is not a model folder; train one with `hoplite train`.")
    with _held(folder):
        with contextlib.suppress(OSError):  # a folder that is not ours to write is read as it is
            _settle(folder)
        model = _read_config(_place(folder, CONFIG_FILE))
        return model, _read_weights(_place(folder, WEIGHTS_FILE), model, shapes)


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Within the block, no other process saves to or reads from ``folder``."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # a system where folders cannot be opened, or one that will tell in a moment
        yield
        return
    try:
        deadline = time.monotonic() + WAIT_SECONDS
        while lock(handle, wait=False) is False:
            if time.monotonic() > deadline:
                raise ModelFileError(f"another process is working on {folder}; wait for it.")
            time.sleep(0.01)
        yield
    finally:
        os.close(handle)


def _prepare(folder: Path, files: dict[str, bytes]) -> None:
    """Step 1: all files in NEW, with the token."""
    unfinished = folder / UNFINISHED
    unfinished.mkdir()
    for name, data in files.items():
        with (unfinished / name).open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    sync_folder(unfinished)
    unfinished.rename(folder / NEW)
    sync_folder(folder)


def _take_token(folder: Path) -> None:
    """Step 2: from here on the new model is the model."""
    new, result = folder / NEW, folder / RESULT_FILE
    if (new / RESULT_FILE).exists():
        (new / RESULT_FILE).replace(result)
    elif os.path.lexists(result):
        result.replace(new / REPLACED)
    else:
        (new / NO_RESULT).unlink()
    sync_folder(folder)


def _is_saved(folder: Path) -> bool:
    """Whether there is a new model whose files are not all in their places yet."""
    try:
        names = {path.name for path in (folder / NEW).iterdir()}
    except OSError:
        return False
    return REPLACED in names or not names & {RESULT_FILE, NO_RESULT}


def _place(folder: Path, name: str) -> Path:
    """Where a file of the model is."""
    new = folder / NEW / name
    return new if _is_saved(folder) and os.path.lexists(new) else folder / name


def _settle(folder: Path) -> None:
    """Finish what a save that was killed has begun, or remove it; ``folder`` must be held."""
    _settle_earlier(folder)
    new, unfinished = folder / NEW, folder / UNFINISHED
    if new.is_dir():
        if _is_saved(folder):
            for name in (WEIGHTS_FILE, CONFIG_FILE):
                if (new / name).exists():
                    (new / name).replace(folder / name)
            sync_folder(folder)
        _remove(unfinished)
        new.rename(unfinished)
    _remove(unfinished)


def _remove(folder: Path) -> None:
    """Remove a sub-folder with the files that a save has put there, and no others."""
    if folder.is_dir():
        for name in (*VISIBLE, NO_RESULT, REPLACED):
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()


def _settle_earlier(folder: Path) -> None:
    """Likewise for earlier versions, which moved the weights before the configuration."""
    left = [path for path in folder.iterdir() if EARLIER.fullmatch(path.name)]
    config = folder / EARLIER_CONFIG
    if config in left:
        with contextlib.suppress(ModelFileError, OSError):
            wanted = _read_config(config).weights_sha256
            with open_regular(folder / WEIGHTS_FILE) as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            if found == wanted:
                (folder / RESULT_FILE).unlink(missing_ok=True)  # of the model before
                config.replace(folder / CONFIG_FILE)
    for path in left:
        path.unlink(missing_ok=True)


def _json(content: dict[str, Any], indent: int) -> bytes:
    return to_json(without_nan(content), indent).encode("utf-8")


def _read_config(path: Path) -> ModelFile:
    try:
        content = parse_json(read_regular(path, MOST_BYTES), dict[str, Any])
        settings = content.get("model")
        if content.get("format") not in FORMATS or not isinstance(settings, dict):
            raise ModelFileError(f"{path} is not a model that this version of Hoplite can read.")
        found = msgspec.convert(content, ModelFile)
        if found.module and not is_known(settings.get("model")):
            raise ModelFileError(
                f"{path} is a model {settings.get('model')!r}, which is not known here; "
                f"{_remedy(found.module)}, or install its package with an entry point in the group "
                "'hoplite.models'."
            )
        _ = found.config
        return found
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror}.") from None
    except ValueError as error:
        raise ModelFileError(f"{path} is damaged ({error}); train the model again.") from None


def _remedy(source: str) -> str:
    """How the model that :meth:`Model.source` tells of is made known."""
    if ":" not in source:
        return f"import {source} first"
    return f"give its class to hoplite.register_model first, or the command --model {source}"


def _read_weights(
    path: Path, model: ModelFile, shapes: Callable[[ModelFile, Shapes], Shapes | None]
) -> Weights:
    """The weights, of which nothing is held in memory before their sizes are known to fit."""
    another = ModelFileError(
        f"{path} is truncated or belongs to another model; "
        f"its checksum is not the one in {CONFIG_FILE}."
    )
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            start = file.read(8)
            length = int.from_bytes(start, "little")
            if length > min(MOST_HEADER, size - 8):
                raise another
            header = file.read(length)
            tensors = msgspec.json.decode(header, type=dict[str, Any])
            tensors.pop("__metadata__", None)
            found = msgspec.convert(tensors, dict[str, _Tensor])
            for name, tensor in found.items():
                if tensor.dtype not in ITEM_BYTES:
                    raise ModelFileError(
                        f"{path} holds {name!r} with values that are not finite numbers."
                    )
            numbers = {name: math.prod(tensor.shape) for name, tensor in found.items()}
            held = sum(ITEM_BYTES[found[name].dtype] * count for name, count in numbers.items())
            if size != 8 + length + held:
                raise another
            there = {name: tensor.shape for name, tensor in found.items()}
            wanted = shapes(model, there)
            if there != wanted:
                raise ModelFileError(
                    f"the weights {there} in {path} do not fit a {model.config.model} model with "
                    f"{model.config.size()}, {model.num_features} features and "
                    f"{len(model.class_names)} classes."
                )
            data = start + header + file.readall()
        if hashlib.sha256(data).hexdigest() != model.weights_sha256:
            raise another
        weights = load_arrays(data)
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror}.") from None
    except (SafetensorError, ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} is not a weights file: {error}.") from None
    for name, value in weights.items():
        if not np.isfinite(value).all():
            raise ModelFileError(f"{path} holds {name!r} with values that are not finite numbers.")
    return weights
