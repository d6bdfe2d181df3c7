"""The folder of a choice: its settings, and what is decided so far; the same call goes on there."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hoplite.errors import ConfigError, LedgerError
from hoplite.files import parse_json, read_json, to_json, write_json
from hoplite.models.saved import CHOICE
from hoplite.selection.budget import parse_trials

FORMAT = 1
PLAN, RESULT = "plan.json", "auto.json"
FINAL = {"seeds", "epochs"}


@dataclass(frozen=True)
class Plan:
    """``plan.json``."""

    format: int
    hoplite: str
    graph: str  # a fingerprint
    budget: float | None
    trials: list[int] | None  # that were asked for
    seeds: list[int]
    options: dict[str, Any]
    candidates: list[str]
    sizes: list[int] = field(default_factory=list)  # that are decided
    shortened: list[str] = field(default_factory=list)  # what time did not allow
    spent: float = 0.0
    final: dict[str, int] = field(default_factory=dict)  # seeds and epochs of the last training


@dataclass(frozen=True)
class Recorded:
    """What of ``auto.json`` the same call takes over."""

    trials: str
    shortened: list[str]


@contextlib.contextmanager
def choice_folder(out: str | os.PathLike[str] | None) -> Iterator[Path]:
    """Where the ledgers are: in ``out``, or for as long as the choice lasts."""
    if out is not None:
        yield Path(out) / CHOICE
        return
    with tempfile.TemporaryDirectory(prefix="hoplite-auto-") as folder:
        yield Path(folder)


def opened_plan(folder: Path, plan: Plan, *, anew: bool) -> Plan:
    """``plan``, or the same one that an earlier call left in ``folder``."""
    path = folder / PLAN
    plan = parse_json(to_json(_plain(plan)).encode(), Plan)
    if path.exists():
        there = _read_plan(path)
        differs = _difference(there, plan)
        if not anew or not (differs or (folder / RESULT).exists()):
            if differs:
                raise LedgerError(
                    f"{folder} holds a choice with other settings: {differs}. Give another folder, "
                    "or delete this one."
                )
            return _as_recorded(folder / RESULT, there)
        shutil.rmtree(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LedgerError(f"cannot keep a choice in {folder}: {error.strerror}.") from error
    write(path, plan)
    return plan


def _plain(plan: Plan) -> Mapping[str, Any]:
    return json.loads(json.dumps(dataclasses.asdict(plan), default=str))


def _read_plan(path: Path) -> Plan:
    try:
        found = read_json(path, Plan)
        if len(found.sizes) not in (0, 3) or min(found.sizes, default=1) < 1:
            raise ValueError("its sizes are not three")
        if found.final and (found.final.keys() != FINAL or min(found.final.values()) < 1):
            raise ValueError("its last training is not of some seeds and epochs")
    except OSError as error:
        raise LedgerError(f"cannot read {path}: {error.strerror}.") from error
    except ValueError as error:
        raise LedgerError(
            f"{path} is damaged; delete the folder and choose again ({error})."
        ) from error
    return found


def _as_recorded(path: Path, plan: Plan) -> Plan:
    """``plan`` with the sizes of the result at ``path``, if there is one: it is decided."""
    if not path.exists():
        return plan
    try:
        found = read_json(path, Recorded)
        sizes = list(parse_trials(found.trials))
    except OSError as error:
        raise LedgerError(f"cannot read {path}: {error.strerror}.") from error
    except (ValueError, ConfigError) as error:
        raise LedgerError(f"{path} is damaged; delete it and choose again ({error}).") from error
    return dataclasses.replace(plan, sizes=sizes, shortened=found.shortened)


def _difference(there: Plan, here: Plan) -> str:
    """The first setting in which they differ; empty if they are of the same call."""
    for name in ("format", "hoplite", "graph", "budget", "trials", "seeds", "options"):
        old, new = getattr(there, name), getattr(here, name)
        if old != new:
            return f"{name} is {old!r} there and {new!r} here"
    return "" if there.candidates == here.candidates else "the candidates are others"


def write(path: Path, content: Any) -> None:
    """Write a file of the folder, whole or not at all."""
    try:
        write_json(path, content)
    except OSError as error:
        raise LedgerError(f"cannot write {path}: {error.strerror}.") from error
