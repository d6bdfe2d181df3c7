"""Searches where a small mistake would go unnoticed elsewhere: ties, ends of ranges, sizes of
cells, words of messages."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

from hoplite import Graph
from hoplite.errors import ConfigError, GraphError, LedgerError
from hoplite.selection import (
    SearchProgress,
    full_options,
    parse_space,
    rank,
    run_search,
    search,
    train_command,
)  # fmt: skip
from hoplite.selection.cells import CellWork, cells_of, graph_digest, search_settings
from hoplite.selection.ledger import Ledger, RecordedRun, Settings

# ---- ranking


def ledger_of(runs, folder=Path("x")):
    """What ``rank`` asks of a ledger: finished, with these runs and test accuracies."""
    count = 1 + max(run.configuration for run, _ in runs)
    return SimpleNamespace(
        folder=folder,
        settings=SimpleNamespace(configurations=[{"lr": float(c)} for c in range(count)]),
        waiting=lambda test=False: [],
        runs=lambda test=False: [run for run, _ in runs],
        test_accuracies=lambda: [test for _, test in runs],
    )


def run_of(configuration, val, loss, test=None, seed=0):
    return RecordedRun(configuration, seed, val, loss, 1, 2, False, 0.1), test


def record(ledger, cell, runs, cpu_seconds):
    tests = [test for _, test in runs if test is not None]
    ledger.record(cell, [run for run, _ in runs], cpu_seconds, tests or None)


def test_equal_means_go_by_the_loss_then_by_the_grid():
    runs = [
        run_of(3, 0.8, 0.5),
        run_of(0, 0.8, 0.5),
        run_of(1, 0.9, 0.9),
        run_of(2, 0.8, 0.4),
    ]
    assert [one.position for one in rank(ledger_of(runs), "validation")] == [1, 2, 0, 3]


def test_sums_in_another_order_are_equal_sums():
    """0.1 + 0.2 + 0.3 is not 0.3 + 0.2 + 0.1 for a computer, but it is for a ranking."""
    first = [run_of(0, value, 0.7, seed=s) for s, value in enumerate((0.1, 0.2, 0.3))]
    second = [run_of(1, value, 0.6, seed=s) for s, value in enumerate((0.3, 0.2, 0.1))]
    best, other = rank(ledger_of(first + second), "validation")
    assert (best.position, other.position) == (1, 0)
    assert best.val_mean == pytest.approx(0.2)
    assert best.val == (0.3, 0.2, 0.1)


def test_the_test_protocol_goes_by_test_then_validation_then_loss():
    runs = [
        run_of(0, 0.9, 0.5, 0.7),
        run_of(1, 0.8, 0.1, 0.75),
        run_of(2, 0.85, 0.3, 0.75),
        run_of(3, 0.85, 0.2, 0.75),
    ]
    ranked = rank(ledger_of(runs), "test")
    assert [one.position for one in ranked] == [3, 2, 1, 0]
    assert ranked[0].test_mean == 0.75
    assert [one.position for one in rank(ledger_of(runs), "validation")] == [0, 3, 2, 1]
    assert rank(ledger_of(runs), "validation")[0].test == ()


def test_a_missing_loss_counts_as_infinite():
    runs = [run_of(0, 0.8, None), run_of(1, 0.8, 5.0)]
    ranked = rank(ledger_of(runs), "validation")
    assert [one.position for one in ranked] == [1, 0]
    assert ranked[1].val_loss == math.inf


# ---- cells


def lines_of(lr, dropout=0.5, **more):
    return full_options("sgc", {"lr": lr, "dropout": dropout, "hops": 2, **more})


def test_cells_hold_one_shape_and_not_too_many_runs():
    shapes = [
        lines_of(0.1),
        lines_of(0.2, weight_decay=0.5),
        lines_of(0.1, 0.0),
        lines_of(0.3, 0.1),
        lines_of(0.1, hops=3),
        lines_of(0.2, 0.0),
    ]
    assert cells_of("sgc", shapes, 5) == [[0, 1, 2, 3, 5], [4]]
    many = [lines_of(1 + i) for i in range(20)]
    for seeds, step in ((5, 9), (45, 1), (46, 1), (22, 2), (1, 20)):
        found = cells_of("sgc", many, seeds)
        assert [len(cell) for cell in found] == [
            min(step, 20 - first) for first in range(0, 20, step)
        ]
        assert [one for cell in found for one in cell] == list(range(20))


def test_costs_of_cells(graphs):
    configurations = [
        lines_of(0.1, 0.5),
        lines_of(0.2, 0.5),
        lines_of(0.1, 0.0, hops=7),
    ]
    found = Settings(1, "0", "x", "0", "sgc", [0], configurations, [[0, 1], [2]])
    task = CellWork(graphs(), Ledger(Path("x"), found), False)
    assert task.cell_weights().tolist() == [2 * 22 * 3, 27]
    with pytest.raises(dataclasses.FrozenInstanceError):
        task.test = True
    options = full_options("gcn", {"hidden": 9, "dropout": 0.0})
    gcn = Ledger(Path("x"), Settings(1, "0", "x", "0", "gcn", [0], [options], [[0]]))
    assert CellWork(graphs(), gcn, False).cell_weights().tolist() == [29]


# ---- what decides the results


def test_settings_are_complete_and_refuse_nothing_to_try(graphs):
    graph = graphs()
    found = search_settings(graph, "sgc", [{"lr": 0.1}], [4, 2])
    assert found.seeds == [4, 2]
    assert found.configurations == [full_options("sgc", {"lr": 0.1})]
    assert "model" not in found.configurations[0]
    assert found.configurations[0]["lr"] == 0.1
    assert found.cells == [[0]]
    twice = [
        {"basis": text, "lr": lr} for lr in (0.1, 0.2) for text in ("jacobi:1,1", "jacobi:1.0,1")
    ]
    both = search_settings(graph, "lgc", twice, [0])
    assert [one["lr"] for one in both.configurations] == [0.1, 0.2]
    assert both.cells == [[0, 1]]
    with pytest.raises(ConfigError, match="configurations is empty"):
        search_settings(graph, "sgc", [], [0])


def test_the_fingerprint_sees_every_part_but_no_width(graphs):
    graph = graphs(n=20, seed=5)
    first = graph_digest(graph)
    assert len(first) == 16
    assert graph_digest(graphs(n=20, seed=5)) == first
    changed = np.array(graph.features)
    changed[3, 1] += 1e-9
    others = [graph.with_features(changed, graph.feature_names)]
    others.append(graph.with_features(sp.csr_array(graph.features), graph.feature_names))
    labels = np.array(graph.labels)
    labels[7] = (labels[7] + 1) % 3
    same = {"features": graph.features, "split": graph.split}
    others.append(Graph(graph.adjacency, labels=labels, **same))
    others.append(Graph(graph.adjacency * 2, labels=graph.labels, **same))
    digests = [graph_digest(one) for one in others]
    assert len({first, *digests}) == 5
    split = dataclasses.replace(graph.split, val=graph.split.test, test=graph.split.val)
    moved = Graph(graph.adjacency, graph.features, graph.labels, split=split)
    assert graph_digest(moved) != first


# ---- ledgers


SETTINGS = Settings(
    format=1, hoplite="0", dataset="d", graph="0123", model="sgc", cells=[[0, 1], [2]],
    seeds=[0, 5], configurations=[{"lr": 1.0}, {"lr": 2.0}, {"lr": 3.0}],
)  # fmt: skip


def test_other_settings_are_told_by_their_first_difference(tmp_path):
    Ledger.open(tmp_path / "s", SETTINGS)
    Ledger.open(tmp_path / "s", SETTINGS)
    for change, words in (
        ({"seeds": [0]}, r"2 seeds there, 1 here"),
        ({"seeds": [0, 6]}, r"seeds\[1\] is 5 there and 6 here"),
        ({"dataset": "x" * 80}, r"dataset is \"d\" there and \"x{56}\.\.\. here"),
        (
            {"configurations": [{"lr": 1.0}, {"lr": 2.5}, {"lr": 3.0}]},
            r"configurations\[1\]: lr is 2.0 there and 2.5 here",
        ),
    ):
        with pytest.raises(LedgerError, match=words):
            Ledger.open(tmp_path / "s", dataclasses.replace(SETTINGS, **change))


def test_shares_and_cells_that_wait(tmp_path):
    ledger = Ledger.open(tmp_path / "s", SETTINGS)
    assert ledger.waiting() == [0, 1]
    assert [ledger.share(cell) for cell in (0, 1)] == [0.0, 0.0]
    with ledger.claim(1) as claim:
        claim.note(0.25)
        assert ledger.share(1) == 0.25
        claim.note(0.12345)
        assert ledger.share(1) == 0.1235
        with Ledger.read(tmp_path / "s").claim(1) as other:
            assert other is None
        with Ledger.read(tmp_path / "s").claim(0) as other:
            assert other is not None
    (tmp_path / "s" / "cells" / "0000.lock").write_text("7.5")
    assert ledger.share(0) == 1.0
    (tmp_path / "s" / "cells" / "0000.lock").write_text("nothing")
    assert ledger.share(0) == 0.0
    runs = [run_of(2, 0.5, 0.1, 0.9, seed=seed) for seed in (0, 5)]
    record(ledger, 1, runs, 3.5)
    assert ledger.share(1) == ledger.share(1, test=True) == 1.0
    assert ledger.waiting() == ledger.waiting(test=True) == [0]
    assert ledger.cpu_seconds() == 3.5
    assert ledger.test_accuracies() == [0.9, 0.9]


def test_what_was_recorded_stays(tmp_path):
    ledger = Ledger.open(tmp_path / "s", SETTINGS)
    runs = [run_of(2, 0.5, 0.1, seed=seed) for seed in (0, 5)]
    record(ledger, 1, runs, 3.5)
    assert ledger.waiting(test=True) == [0, 1]
    better = [run_of(2, 0.7, 0.0, 0.8, seed=seed) for seed in (0, 5)]
    record(ledger, 1, better, 9.0)
    assert [run.val_accuracy for run in ledger.runs(test=True)] == [0.5, 0.5]
    assert ledger.test_accuracies() == [0.8, 0.8]
    assert ledger.cpu_seconds() == 3.5


@pytest.mark.parametrize(
    "change",
    [
        {"val_accuracy": 1.01},
        {"val_accuracy": -1.5},
        {"val_accuracy": True},
        {"val_accuracy": "0.5"},
        {"val_loss": -1},
        {"val_loss": "low"},
        {"configuration": 1},
        {"seed": 5},
    ],
)
def test_cells_that_cannot_be(tmp_path, change):
    ledger = Ledger.open(tmp_path / "s", SETTINGS)
    runs = [run_of(2, 1, 0, seed=0), run_of(2, 0, None, seed=5)]
    record(ledger, 1, runs, 0)
    assert len(ledger.runs()) == 2
    path = tmp_path / "s" / "cells" / "0001.json"
    content = json.loads(path.read_text())
    content.pop("checksum", None)
    content["runs"][0] |= change
    path.write_text(json.dumps(content))
    with pytest.raises(LedgerError, match="is damaged"):
        ledger.runs()
    content["runs"] = content["runs"][1:]
    path.write_text(json.dumps(content))
    with pytest.raises(LedgerError, match="is damaged"):
        ledger.runs()


# ---- whole searches


def test_progress_adds_up_and_settings_are_checked(graphs, tmp_path):
    graph = graphs(n=40, d=6, seed=3)
    states: list[SearchProgress] = []
    configurations = [{"lr": lr, "hops": 1, "epochs": 3} for lr in (0.1, 0.2)]
    begun = time.process_time()
    ledger = run_search(
        graph, "sgc", configurations, tmp_path / "s", seeds=3, progress=states.append
    )
    assert 0 < ledger.cpu_seconds() <= time.process_time() - begun
    assert (states[0].done, states[0].total, states[0].share) == (0, 6, 0.0)
    assert states[0].running == 0
    assert (states[-1].done, states[-1].total, states[-1].share) == (6, 6, 1.0)
    assert states[-1].running == 0
    assert len(ledger.runs()) == 6
    again: list[SearchProgress] = []
    run_search(graph, "sgc", configurations, tmp_path / "s", seeds=3, progress=again.append)
    assert (again[0].done, again[0].share) == (6, 1.0)
    for workers in (0, 1025, 1.5):
        with pytest.raises(ConfigError, match="workers is"):
            run_search(graph, "sgc", configurations, tmp_path / "t", workers=workers)
    bare = dataclasses.replace(graph.split, test=np.array([], int))
    untested = Graph(graph.adjacency, graph.features, graph.labels, split=bare)
    with pytest.raises(GraphError, match="no test nodes"):
        run_search(untested, "sgc", configurations, tmp_path / "t", protocol="test")
    run_search(untested, "sgc", configurations, tmp_path / "u", seeds=1)


def test_figures_of_a_search(graphs, tmp_path):
    graph = graphs(n=40, d=6, seed=3)
    grid = tmp_path / "grid.toml"
    grid.write_text("[any]\nlr = [0.2, 0.01]\nhops = 2\ncut = 'small'\n")
    result = search(graph, "sgc", grid=grid, out=tmp_path / "s", seeds=2, epochs=6)
    summary = result.summary()
    assert (summary.configurations, summary.runs) == (2, 4)
    assert summary.cut == "small"
    assert summary.biased is None
    assert summary.val_mean == pytest.approx(np.mean(result.val))
    assert summary.test_std == pytest.approx(np.std(result.test))
    assert summary.cpu_minutes == pytest.approx(result.ledger.cpu_seconds() / 60)
    assert len(result.test) == 2
    assert result.table().num_rows == 4
    assert result.table()["configuration"].to_pylist() == [0, 0, 1, 1]
    assert result.table()["seed"].to_pylist() == [0, 1, 0, 1]
    again = search(graph, "sgc", grid=grid, out=tmp_path / "s", seeds=2, epochs=6)
    assert again.test == result.test
    three = search(
        graph, "sgc", grid=grid, out=tmp_path / "r", seeds=1, epochs=2, samples=1, sample_seed=3
    )
    assert three.summary().configurations == 1


def test_the_command_that_repeats_a_configuration():
    usual = full_options("lgc", {})
    command = train_command("my data", "lgc", usual | {"hops": 4, "bias": True}, 3)
    assert command.startswith("hoplite train 'my data' --model lgc --hops 4 ")
    assert " --bias " in command
    assert command.endswith(" --seeds 3")
    assert "--operator" not in command
    assert "--split-seed" not in command
    for flag in ("--lr", "--weight-decay", "--dropout"):
        assert flag in command
    assert "--split-seed 2 --seeds 1" in train_command("d", "lgc", usual, 1, 2)


def test_sections_by_path_and_name():
    space = parse_space("note = 'n'\n[Cora]\nlr = 0.1\n[any]\nlr = 0.2\n[any.lgc]\nhops = 3")
    assert space.note == "n"
    for name in ("cora", "CORA", "data/Cora.npz", Path("x/cora")):
        assert space.configurations(name, "sgc") == [{"lr": 0.1}]
    assert space.configurations("else", "lgc") == [{"lr": 0.2, "hops": 3}]
    with pytest.raises(ConfigError, match=r"has two sections \[cora\]"):
        parse_space("[Cora]\nlr = 0.1\n[cora]\nlr = 0.2")
