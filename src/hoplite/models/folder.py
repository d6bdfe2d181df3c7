"""A trained model as a folder: it is there completely or not at all.

``config.json`` holds settings, names and the checksum of ``weights.safetensors``; ``result.json``,
if there is one, the figures of the training. Both files are first written and synced under other
names, then the weights and last the configuration take theirs. If that is cut between the two, the
new configuration is still there under its other name, and reading takes the one that fits.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from hoplite.errors import ModelFileError
from hoplite.files import atomic_write_bytes
from hoplite.models.base import Weights

FORMAT = 1
CONFIG_FILE, WEIGHTS_FILE, RESULT_FILE = "config.json", "weights.safetensors", "result.json"
NEW_CONFIG_FILE, NEW_WEIGHTS_FILE = ".config.json.new", ".weights.safetensors.new"
OWN_FILES = {CONFIG_FILE, WEIGHTS_FILE, RESULT_FILE, NEW_CONFIG_FILE, NEW_WEIGHTS_FILE}


def check_target(folder: str | Path, *, overwrite: bool) -> Path:
    """The real path that a model may be written to, or an error that says why not.

    Only an empty folder or, with ``overwrite``, one that holds a model and nothing else is
    replaced.
    """
    given, folder = Path(folder), Path(os.path.realpath(folder))
    try:
        names = {path.name for path in folder.iterdir()} if folder.exists() else set()
    except NotADirectoryError:
        raise ModelFileError(f"{given} is a file; choose a folder for the model.") from None
    except OSError as error:
        raise ModelFileError(f"{given} cannot be used: {error.strerror}.") from None
    if names - OWN_FILES:
        raise ModelFileError(
            f"{given} holds {sorted(names - OWN_FILES)[0]!r}, which is not a model's; "
            "choose another folder."
        )
    if names & {CONFIG_FILE, WEIGHTS_FILE} and not overwrite:
        raise ModelFileError(f"{given} holds a model already; replace it with --overwrite.")
    parent = folder
    while not os.path.lexists(parent):
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise ModelFileError(f"{given} cannot be written: {parent} is not a writable folder.")
    return folder


def write_folder(
    folder: str | Path,
    config: dict[str, Any],
    weights: Weights,
    result: dict[str, Any] | None,
    *,
    overwrite: bool,
) -> None:
    """Write the model into ``folder``, which is made if it is not there."""
    given, folder = folder, check_target(folder, overwrite=overwrite)
    data = save_tensors({name: value.contiguous() for name, value in weights.items()})
    config = {"format": FORMAT, **config, "weights_sha256": hashlib.sha256(data).hexdigest()}
    new_weights, new_config = folder / NEW_WEIGHTS_FILE, folder / NEW_CONFIG_FILE
    existed = folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write_bytes(new_weights, data)
        atomic_write_bytes(new_config, json.dumps(config, indent=2, allow_nan=False).encode())
    except OSError as error:
        for path in (new_weights, new_config):
            path.unlink(missing_ok=True)
        if not existed and folder.exists():
            folder.rmdir()
        raise ModelFileError(f"cannot write the model to {given}: {error.strerror}.") from error
    try:
        new_weights.replace(folder / WEIGHTS_FILE)
        new_config.replace(folder / CONFIG_FILE)
        (folder / RESULT_FILE).unlink(missing_ok=True)  # of the model before
        if result is not None:
            atomic_write_bytes(
                folder / RESULT_FILE, json.dumps(result, indent=1, allow_nan=False).encode()
            )
    except OSError as error:
        raise ModelFileError(f"cannot write the model to {given}: {error.strerror}.") from error


def read_folder(folder: str | Path) -> tuple[dict[str, Any], Weights]:
    """The configuration and the weights of a model folder, checked against each other."""
    folder = Path(folder)
    config = _read_config(folder, CONFIG_FILE)
    path = folder / WEIGHTS_FILE
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror}.") from None
    checksum = hashlib.sha256(data).hexdigest()
    if checksum != config.get("weights_sha256") and (folder / NEW_CONFIG_FILE).exists():
        config = _read_config(folder, NEW_CONFIG_FILE)  # a save was cut after its first half
    if checksum != config.get("weights_sha256"):
        raise ModelFileError(
            f"{path} is truncated or belongs to another model; "
            f"its checksum is not the one in {CONFIG_FILE}."
        )
    try:
        weights = load_tensors(data)
    except SafetensorError as error:
        raise ModelFileError(f"{path} is not a weights file: {error}.") from None
    for name, value in weights.items():
        if value.dtype not in (torch.float32, torch.float64) or not value.isfinite().all():
            raise ModelFileError(f"{path} holds {name!r} with values that are not finite numbers.")
    return config, weights


def _read_config(folder: Path, name: str) -> dict[str, Any]:
    path = folder / name
    if not folder.is_dir():
        raise ModelFileError(f"{folder} is not a model folder; train one with `hoplite train`.")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror}.") from None
    except (ValueError, RecursionError):
        raise ModelFileError(f"{path} is truncated or not JSON; train the model again.") from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise ModelFileError(f"{path} is not a model that this version of Hoplite can read.")
    return config
