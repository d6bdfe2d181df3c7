"""Reading ``results.json``: strict about what is there, patient about what is missing."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

from hoplite.errors import HopliteError
from hoplite.json_files import read_json

FORMAT = 1
SECTIONS: dict[str, tuple[str, ...]] = {  # and what each of their entries must have
    "accuracy": ("protocol", "dataset", "model", "config", "test_mean", "test_std"),
    "timing": ("dataset", "model", "ms_median"),
    "curves": ("dataset", "model", "train_loss", "val_loss", "test_loss"),
    "coefficients": ("dataset", "model", "mean", "std"),
    "spectrum": ("dataset", "points", "responses"),
}
RESPONSE = ("model", "mean", "std")
SHARES = ("val_mean", "val_std", "test_mean", "test_std")  # of an accuracy: from 0 to 1
AMOUNTS = {"accuracy": ("minutes",), "timing": ("ms_median", "ms_low", "ms_high")}
COUNTS = {"accuracy": ("configurations", "runs"), "timing": ("threads",)}
LISTS = {
    "accuracy": ("val", "test", "seeds"),
    "curves": ("train_loss", "val_loss", "test_loss"),
    "coefficients": ("mean", "std", "node_std", "seeds"),
    "spectrum": ("points", "density", "responses"),
    "responses": ("mean", "std"),
}


def load_results(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The checked content of ``folder/results.json``."""
    path = Path(folder) / "results.json"
    try:
        return check_results(read_json(path, dict[str, Any]))
    except FileNotFoundError:
        raise HopliteError(
            f"{path} does not exist; `hoplite reproduce --out {folder}` writes it."
        ) from None
    except OSError as error:
        raise HopliteError(f"cannot read {path}: {error.strerror}.") from None
    except ValueError as error:
        raise HopliteError(f"{path} is not valid JSON: {error}.") from None


def check_results(results: Any) -> dict[str, Any]:
    """Return ``results`` if a report can be made of it; any section may be missing or empty."""
    if not isinstance(results, dict):
        raise HopliteError(f"the results are a {type(results).__name__}; they must be an object.")
    if results.get("format") != FORMAT:
        raise HopliteError(
            f"the results have format {results.get('format')!r}; this version reads {FORMAT}."
        )
    _check_every_value(results)
    _check_header(results)
    for section, keys in SECTIONS.items():
        entries = results.get(section)
        if entries is None:
            continue
        _check_entries(section, entries, keys)
        for index, entry in enumerate(entries if section == "spectrum" else ()):
            _check_entries("responses", entry["responses"], RESPONSE, f"spectrum[{index}].")
    _check_unique(results.get("accuracy") or [], "protocol")
    _check_unique(results.get("timing") or [])
    return results


def is_number(value: Any) -> bool:
    """Whether it is a finite number.

    >>> is_number(0.5), is_number(float("nan")), is_number(True), is_number("1")
    (True, False, False, False)
    """
    return _is_real(value) and math.isfinite(value)


def _is_real(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_every_value(results: dict[str, Any]) -> None:
    """What cannot be written, wherever it stands: half a character, or a number beyond floats."""
    waiting: list[Any] = [results]
    while waiting:  # and no recursion: results may be nested deeply
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += [*value.keys(), *value.values()]
        elif isinstance(value, list | tuple):
            waiting += value
        elif isinstance(value, str):
            try:
                value.encode("utf-8")
            except UnicodeEncodeError:
                raise HopliteError(
                    f"the results hold the text {value[:40]!a}, which has a lone surrogate."
                ) from None
        elif isinstance(value, int):
            try:
                float(value)
            except OverflowError:
                raise HopliteError("the results hold a whole number beyond all floats.") from None


def _check_header(results: dict[str, Any]) -> None:
    provenance = results.get("provenance") or {}
    machine = provenance.get("machine") or {} if isinstance(provenance, dict) else None
    versions = machine.get("versions") or {} if isinstance(machine, dict) else None
    if not isinstance(versions, dict):
        raise HopliteError("provenance, its machine and the machine's versions must be objects.")
    busy = machine.get("busy_before") if isinstance(machine, dict) else None
    if busy is not None and not is_number(busy):
        raise HopliteError("provenance.machine: busy_before must be a finite number or null.")


def _check_entries(section: str, entries: Any, keys: tuple[str, ...], where: str = "") -> None:
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise HopliteError(f"{where}{section} must be a list of objects.")
    for index, entry in enumerate(entries):
        name = f"{where}{section}[{index}]"
        missing = [key for key in keys if entry.get(key) is None]
        if missing:
            raise HopliteError(f"{name} has no {' and no '.join(missing)}.")
        for key in ("dataset", "model", "protocol"):
            if not isinstance(entry.get(key, ""), str):
                raise HopliteError(f"{name}: {key} must be text.")
        if not isinstance(entry.get("config"), dict | None):
            raise HopliteError(f"{name}: config must be an object.")
        if not isinstance(entry.get("gate"), str | None):
            raise HopliteError(f"{name}: gate must be text or null.")
        _check_values(section, name, entry)
        _check_lists(section, name, entry)
        if section == "timing":
            _check_peer(name, entry.get("peer"))


def _check_values(section: str, name: str, entry: dict[str, Any]) -> None:
    """Single numbers; null where the section does not demand one."""

    def known(*keys: str) -> list[tuple[str, Any]]:
        return [(key, entry[key]) for key in keys if entry.get(key) is not None]

    for key, value in known(*SHARES) if section == "accuracy" else ():
        if not (is_number(value) and 0 <= value <= 1):
            raise HopliteError(f"{name}: {key} must be a finite number from 0 to 1.")
    for key, value in known(*AMOUNTS.get(section, ())):
        if not (is_number(value) and value >= 0):
            raise HopliteError(f"{name}: {key} must be a finite number, 0 or above.")
    for key, value in known(*COUNTS.get(section, ())):
        if not (isinstance(value, int) and is_number(value) and value >= 0):
            raise HopliteError(f"{name}: {key} must be a whole number, 0 or above.")


def _check_lists(section: str, name: str, entry: dict[str, Any]) -> None:
    for key in LISTS.get(section, ()):
        values = entry.get(key)
        if not isinstance(values, list | None):
            raise HopliteError(f"{name}: {key} must be a list.")
        if key == "seeds":
            if not all(isinstance(v, int) and _is_real(v) for v in values or []):
                raise HopliteError(f"{name}: seeds must hold whole numbers.")
        elif key != "responses" and not all(v is None or _is_real(v) for v in values or []):
            raise HopliteError(f"{name}: {key} must hold numbers.")


def _check_peer(name: str, peer: Any) -> None:
    if peer is None:
        return
    if not isinstance(peer, dict) or not isinstance(peer.get("name"), str):
        raise HopliteError(f"{name}: peer must be null, or an object with a name.")
    if not (is_number(peer.get("ms_median")) and peer["ms_median"] >= 0):
        raise HopliteError(f"{name}: peer.ms_median must be a finite number, 0 or above.")


def _check_unique(entries: list[dict[str, Any]], *extra: str) -> None:
    seen = set()
    for entry in entries:
        key = tuple(entry.get(name) for name in (*extra, "dataset", "model", "gate"))
        if key in seen:
            what = ", ".join(str(part) for part in key if part)
            raise HopliteError(f"there are two results for {what}; keep one of them.")
        seen.add(key)
