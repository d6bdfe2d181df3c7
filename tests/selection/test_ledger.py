"""The ledger: atomic, shared, continued, and never of other settings."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from hoplite.errors import HopliteWarning, LedgerError
from hoplite.files import write_json
from hoplite.machine import source_hash
from hoplite.selection.ledger import Ledger, RecordedRun, Settings

SETTINGS = Settings(
    format=1, hoplite="0", dataset="x", graph="0", model="lgc", seeds=[0, 1],
    configurations=[{"lr": 1}, {"lr": 2}, {"lr": 3}], cells=[[0], [1, 2]],
)  # fmt: skip


def runs_of(cell: list[int], **extra: Any) -> list[RecordedRun]:
    return [RecordedRun(c, s, 0.5, **extra) for c in cell for s in (0, 1)]


def everything(ledger: Ledger) -> list[tuple[RecordedRun, float | None]]:
    return list(zip(ledger.runs(test=True), ledger.test_accuracies(), strict=True))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.open(tmp_path / "search", SETTINGS)


def test_records_once_and_reads_in_order(ledger: Ledger) -> None:
    ledger.record(1, runs_of([1, 2]), 2.0)
    assert ledger.waiting() == [0]
    ledger.record(0, runs_of([0]), 1.0)
    ledger.record(0, runs_of([0], seconds=99), 99.0)  # what was recorded stays
    assert ledger.runs() == runs_of([0]) + runs_of([1, 2])
    assert ledger.cpu_seconds() == 3.0
    assert ledger.waiting() == []


def test_the_test_set_has_files_of_its_own(ledger: Ledger) -> None:
    ledger.record(0, runs_of([0]), 1.0, [0.25, 0.5])
    assert "test" not in (ledger.folder / "cells" / "0000.json").read_text()
    assert ledger.test_accuracies() == [0.25, 0.5]
    ledger.record(1, runs_of([1, 2]), 1.0)
    assert ledger.waiting() == []
    assert ledger.waiting(test=True) == [1]
    assert len(ledger.runs()) == 6
    assert ledger.runs(test=True) == runs_of([0])
    assert ledger.test_accuracies() == [0.25, 0.5]


def test_continues_with_the_same_settings_only(ledger: Ledger) -> None:
    ledger.record(0, runs_of([0]), 1.0)
    again = Ledger.open(ledger.folder, SETTINGS)
    assert again.waiting() == [1]
    assert Ledger.read(ledger.folder).settings == again.settings
    with pytest.raises(LedgerError, match="2 seeds there, 3 here"):
        Ledger.open(ledger.folder, replace(SETTINGS, seeds=[0, 1, 2]))
    with pytest.raises(LedgerError, match='model is "lgc" there and "egc" here'):
        Ledger.open(ledger.folder, replace(SETTINGS, model="egc"))
    other = [{"lr": 1}, {"lr": 5}, {"lr": 3}]
    with pytest.raises(LedgerError, match=r"configurations\[1\]: lr is 2 there and 5 here"):
        Ledger.open(ledger.folder, replace(SETTINGS, configurations=other))


def test_a_larger_grid_goes_on_in_the_cells_that_are_there(ledger: Ledger) -> None:
    ledger.record(1, runs_of([1, 2]), 1.0)
    more = [{"lr": 9}, {"lr": 3, "tie": "first"}, {"lr": 3}, {"lr": 1}, {"lr": 2}, {"lr": 8}]
    larger = replace(SETTINGS, configurations=more, cells=[[0, 2, 3], [1], [4, 5]])
    again = Ledger.open(ledger.folder, larger)
    added = [{"lr": 9}, {"lr": 3, "tie": "first"}, {"lr": 8}]
    assert again.settings.configurations == [*SETTINGS.configurations, *added]
    assert again.settings.cells == [[0], [1, 2], [3], [4], [5]]
    assert again.runs() == runs_of([1, 2])
    assert again.waiting() == [0, 2, 3, 4]
    assert Ledger.read(ledger.folder).settings == again.settings
    for smaller in (SETTINGS, replace(larger, configurations=more[1:], cells=[[0, 1, 2, 3, 4]])):
        with pytest.raises(LedgerError, match="configurations"):
            Ledger.open(ledger.folder, smaller)
    fewer = replace(SETTINGS, configurations=[{"lr": 3, "tie": "loss"}], cells=[[0]])
    with pytest.raises(
        LedgerError,
        match=r"6 configurations there, 1 here \(lr: 1, 2, 3, 9, 8 there, 3 here; tie: null, "
        r'"first" there, "loss" here\)\. Give',
    ):
        Ledger.open(ledger.folder, fewer)
    bigger = replace(larger, configurations=[*more, {"lr": 7}], cells=[[*range(7)]])
    with pytest.raises(LedgerError, match="6 configurations there, 7 here"):
        Ledger.open(ledger.folder, bigger, grows=False)


def test_another_source_of_the_same_version_goes_on_with_a_warning(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ledger.settings.source == source_hash()
    ledger.record(0, runs_of([0]), 1.0)
    monkeypatch.setattr("hoplite.selection.ledger.source_hash", lambda: "0123456789ab")
    with pytest.warns(HopliteWarning, match=r"other source code of .*here 0123456789ab"):
        again = Ledger.open(ledger.folder, SETTINGS)
    assert again.waiting() == [1]
    assert Ledger.read(ledger.folder).settings.source == ledger.settings.source  # who began it
    with pytest.warns(HopliteWarning):  # another source may cut the cells otherwise
        again = Ledger.open(ledger.folder, replace(SETTINGS, cells=[[0, 1, 2]]))
    assert again.runs() == runs_of([0])
    assert again.waiting() == [1]
    with pytest.raises(LedgerError, match='hoplite is "0" there and "1" here'):
        Ledger.open(ledger.folder, replace(SETTINGS, hoplite="1"))


def test_a_claim_is_for_one(ledger: Ledger) -> None:
    with ledger.claim(0) as mine:
        assert mine is not None
        mine.note(0.25)
        assert ledger.share(0) == 0.25
        with ledger.claim(0) as other:
            assert other is None
        with ledger.claim(1) as free:
            assert free is not None
    with ledger.claim(0) as again:
        assert again is not None


def test_other_folders_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(LedgerError, match="not empty and holds no search"):
        Ledger.open(tmp_path, SETTINGS)
    with pytest.raises(LedgerError, match="holds no search"):
        Ledger.read(tmp_path)
    with pytest.raises(LedgerError, match="cannot keep a search"):
        Ledger.open(tmp_path / "letter.txt", SETTINGS)


GOOD = {"configuration": 0, "seed": 0, "val_accuracy": 0.5}
DAMAGED = [
    [],
    [1, 2],
    [{}, {}],
    [GOOD, GOOD],
    [GOOD, {**GOOD, "seed": 1, "val_accuracy": "x"}],
    [GOOD, {**GOOD, "seed": 1, "val_accuracy": float("nan")}],
    [GOOD, {**GOOD, "seed": 1, "val_loss": "x"}],
    [GOOD, {**GOOD, "seed": 1, "configuration": 99}],
    [GOOD, {**GOOD, "seed": 1, "val_accuracy": -0.5}],
    [GOOD, {**GOOD, "seed": 1, "configuration": 1e18}],
    [GOOD, {**GOOD, "seed": 1, "epochs": -1}],
]
HOSTILE = [
    '{"cell": 0, "cpu_seconds": Infinity, "runs": []}',
    '{"cell": 0, "cpu_seconds": 1e999, "runs": []}',
    '{"cell": 1, "cpu_seconds": 1, "runs": []}',
    "[" * 10**6,
    '{"runs":' * 10**5,
    '{"cell": 0, "cpu_seconds": ' + "9" * 10**5 + "}",
]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"cell": 0}', *HOSTILE]
    + [json.dumps({"cell": 0, "cpu_seconds": 1, "runs": runs}) for runs in DAMAGED],
)
def test_damage_is_told(ledger: Ledger, text: str) -> None:
    (ledger.folder / "cells" / "0000.json").write_text(text)
    for look in (ledger.runs, ledger.cpu_seconds):
        with pytest.raises(LedgerError, match=r"0000\.json is damaged; delete it"):
            look()


@pytest.mark.parametrize("name", ["search.json", "cells/0000.json", "cells/0000.test.json"])
@pytest.mark.parametrize("kind", ["pipe", "device", "huge", "folder"])
def test_what_is_no_file_is_told_at_once(ledger: Ledger, name: str, kind: str) -> None:
    ledger.record(0, runs_of([0]), 1.0, [0.25, 0.25])
    path = ledger.folder / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        with path.open("wb") as file:
            file.truncate(10**12)
    with pytest.raises(LedgerError, match=r"json|holds no search"):
        everything(Ledger.read(ledger.folder))


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("search.json", '"lr": 2', '"lr": 20'),
        ("search.json", '"lgc"', '"egc"'),
        ("cells/0000.json", "0.5", "0.9"),
        ("cells/0000.test.json", "0.25", "0.75"),
    ],
)
def test_an_edited_file_is_found(ledger: Ledger, name: str, old: str, new: str) -> None:
    ledger.record(0, runs_of([0]), 1.0, [0.25, 0.25])
    path = ledger.folder / name
    text = path.read_text()
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(LedgerError, match=r"damaged.*checksum"):
        everything(Ledger.read(ledger.folder))
    path.write_text(json.dumps(json.loads(text), indent=4))  # the same content
    assert len(everything(Ledger.read(ledger.folder))) == 2


def test_files_of_earlier_versions_are_read(ledger: Ledger) -> None:
    """Without checksums, and with -1 for a run that diverged at once."""
    path = ledger.folder / "search.json"
    settings = json.loads(path.read_text())
    del settings["checksum"]
    runs = [asdict(run) for run in runs_of([0], val_loss=0.1)]
    runs[1] |= {"val_accuracy": -1.0, "val_loss": None, "best_epoch": 1}
    del runs[0]["seconds"], settings["source"]
    path.write_text(json.dumps(settings))
    cell = {"cell": 0, "cpu_seconds": 1.5, "runs": runs}
    (ledger.folder / "cells" / "0000.json").write_text(json.dumps(cell))
    found = Ledger.read(ledger.folder)
    lost = {"val_accuracy": None, "val_loss": None, "best_epoch": 0, "diverged": True}
    assert found.runs() == [RecordedRun(**runs[0]), RecordedRun(**runs[1] | lost)]
    assert found.cpu_seconds() == 1.5
    Ledger.open(ledger.folder, SETTINGS)


@pytest.mark.parametrize("values", [[], [0.5], ["x", 0.5], [float("nan"), 0.5], [2, 0.5]])
def test_damaged_test_accuracies_are_told(ledger: Ledger, values: list) -> None:
    ledger.record(0, runs_of([0]), 1.0, [0.25, 0.25])
    path = ledger.folder / "cells" / "0000.test.json"
    path.write_text(json.dumps({"cell": 0, "test_accuracy": values}))
    assert len(ledger.runs()) == 2
    with pytest.raises(LedgerError, match=r"0000\.test\.json is damaged"):
        ledger.test_accuracies()


@pytest.mark.parametrize("name", ["search.lock", "cells/0000.lock"])
def test_a_pipe_or_link_in_place_of_a_lock_is_told(ledger: Ledger, name: str) -> None:
    """Nobody waits for the pipe's reader, and what the link points to keeps its content."""
    path, letter = ledger.folder / name, ledger.folder / "letter"
    letter.write_text("dear")
    for make in (os.mkfifo, lambda path: path.symlink_to(letter)):
        path.unlink(missing_ok=True)
        make(path)
        with pytest.raises(LedgerError, match="cannot"):
            Ledger.open(ledger.folder, SETTINGS).tidy()
    assert letter.read_text() == "dear"


@pytest.mark.parametrize("name", ["search.json", "cells/0000.json", "cells/0000.test.json"])
def test_unknown_keys_are_told(ledger: Ledger, name: str) -> None:
    ledger.record(0, runs_of([0]), 1.0, [0.25, 0.25])
    path = ledger.folder / name
    content = json.loads(path.read_text())
    del content["checksum"]
    write_json(path, {**content, "shuffle": True})
    with pytest.raises(LedgerError, match=r"'shuffle', which this version of Hoplite does not"):
        everything(Ledger.open(ledger.folder, SETTINGS))
    if name == "search.json":  # of a later version, which may well have more
        write_json(path, {**content, "shuffle": True, "format": content["format"] + 1})
        with pytest.raises(LedgerError, match="is not of this version of Hoplite"):
            Ledger.read(ledger.folder)


def test_where_a_disk_has_no_locks_nothing_of_others_is_removed(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hoplite.files.lock", lambda handle, *, wait: None)
    other = ledger.folder / "cells" / ".0000.json.tmp"
    other.touch()
    with ledger.claim(0) as claim:
        assert claim is not None
    ledger.tidy()
    assert other.exists()


def test_cells_without_settings_are_not_adopted(ledger: Ledger) -> None:
    ledger.record(0, runs_of([0]), 1.0)
    (ledger.folder / "search.json").unlink()
    with pytest.raises(LedgerError, match="not empty and holds no search"):
        Ledger.open(ledger.folder, SETTINGS)


def test_tidy_removes_what_killed_processes_left(ledger: Ledger) -> None:
    cells = ledger.folder / "cells"
    (cells / ".0001.json.abc.tmp").write_text("half")
    (cells / "0000.lock").write_text("0.9")
    with ledger.claim(1) as mine:
        assert mine is not None
        mine.note(0.5)
        ledger.tidy()
        assert (cells / ".0001.json.abc.tmp").exists()  # somebody is at it
        assert ledger.share(0) == 0
        assert ledger.share(1) == 0.5
    ledger.tidy()
    assert not (cells / ".0001.json.abc.tmp").exists()


def test_settings_of_another_version_are_told(ledger: Ledger) -> None:
    settings = asdict(SETTINGS) | {"format": 99}
    (ledger.folder / "search.json").write_text(json.dumps(settings))
    with pytest.raises(LedgerError, match="not of this version"):
        Ledger.read(ledger.folder)


@pytest.mark.parametrize(
    "change",
    [
        {"cells": [[0], [1, 10**18]]},
        {"cells": [[0], [1]]},
        {"cells": [[0], [1, 1, 2]]},
        {"cells": 1e18},
        {"seeds": [-1]},
        {"seeds": [1, 1]},
        {"seeds": []},
        {"configurations": [1, 2, 3]},
        {"model": None},
    ],
)
def test_damaged_settings_are_told(ledger: Ledger, change: dict) -> None:
    whole = asdict(SETTINGS)
    for text in ("{", json.dumps({**whole, **change}), json.dumps({"format": 1})):
        (ledger.folder / "search.json").write_text(text)
        for look in (Ledger.read, lambda folder: Ledger.open(folder, SETTINGS)):
            with pytest.raises(LedgerError, match=r"search\.json is damaged"):
                look(ledger.folder)
