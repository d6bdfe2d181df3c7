"""Reading ``results.json``: strict about what is there, patient about what is missing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from hoplite.errors import HopliteError

FORMAT = 1
SECTIONS: dict[str, tuple[str, ...]] = {  # and what each of their entries must have
    "accuracy": ("protocol", "dataset", "model", "config", "test_mean", "test_std"),
    "timing": ("dataset", "model", "ms_median"),
    "curves": ("dataset", "model", "train_loss", "val_loss", "test_loss"),
    "coefficients": ("dataset", "model", "mean", "std"),
    "spectrum": ("dataset", "points", "responses"),
}
RESPONSE = ("model", "mean", "std")
NUMBERS = {
    "accuracy": ("val_mean", "val_std", "test_mean", "test_std", "minutes"),
    "timing": ("ms_median", "ms_low", "ms_high"),
}
LISTS = {
    "accuracy": ("val", "test", "seeds"),
    "curves": ("train_loss", "val_loss", "test_loss"),
    "coefficients": ("mean", "std", "node_std"),
    "spectrum": ("points", "density", "responses"),
    "responses": ("mean", "std"),
}


def load_results(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The checked content of ``folder/results.json``."""
    path = Path(folder) / "results.json"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise HopliteError(
            f"{path} does not exist; `hoplite reproduce --out {folder}` writes it."
        ) from None
    except UnicodeDecodeError as error:
        raise HopliteError(f"{path} is not UTF-8 text: {error}.") from None
    try:
        return check_results(json.loads(text))
    except ValueError as error:
        raise HopliteError(f"{path} is not valid JSON: {error}.") from None
    except RecursionError:
        raise HopliteError(f"{path} is nested too deeply.") from None


def check_results(results: Any) -> dict[str, Any]:
    """Return ``results`` if a report can be made of it; any section may be missing or empty."""
    if not isinstance(results, dict):
        raise HopliteError(f"the results are a {type(results).__name__}; they must be an object.")
    if results.get("format") != FORMAT:
        raise HopliteError(
            f"the results have format {results.get('format')!r}; this version reads {FORMAT}."
        )
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


def _check_header(results: dict[str, Any]) -> None:
    provenance = results.get("provenance") or {}
    machine = provenance.get("machine") or {} if isinstance(provenance, dict) else None
    versions = machine.get("versions") or {} if isinstance(machine, dict) else None
    if not isinstance(versions, dict):
        raise HopliteError("provenance, its machine and the machine's versions must be objects.")


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
        if not isinstance(entry.get("config") or {}, dict):
            raise HopliteError(f"{name}: config must be an object.")
        if not isinstance(entry.get("gate") or "", str):
            raise HopliteError(f"{name}: gate must be text or null.")
        _check_values(section, name, entry)


def _check_values(section: str, name: str, entry: dict[str, Any]) -> None:
    for key in NUMBERS.get(section, ()):
        if not isinstance(entry.get(key) or 0.0, int | float):
            raise HopliteError(f"{name}: {key} must be a number.")
    for key in LISTS.get(section, ()):
        values = entry.get(key) or []
        if not isinstance(values, list):
            raise HopliteError(f"{name}: {key} must be a list.")
        if key != "responses" and not all(isinstance(v, int | float | None) for v in values):
            raise HopliteError(f"{name}: {key} must hold numbers.")


def _check_unique(entries: list[dict[str, Any]], *extra: str) -> None:
    seen = set()
    for entry in entries:
        key = tuple(entry.get(name) for name in (*extra, "dataset", "model", "gate"))
        if key in seen:
            what = ", ".join(str(part) for part in key if part)
            raise HopliteError(f"there are two results for {what}; keep one of them.")
        seen.add(key)
