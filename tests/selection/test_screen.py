"""Searches in two stages: all configurations with one seed, then the best with all seeds."""

from __future__ import annotations

import signal
from dataclasses import replace

import numpy as np
import pytest
from tests import commands

import hoplite
from hoplite.errors import ConfigError, LedgerError
from hoplite.selection import Ledger, rank, run_search, search

LIST = [
    {"hops": k, "lr": lr, "weight_decay": wd, "dropout": p, "epochs": 12, "patience": 6}
    for k in (1, 3)
    for lr in (0.001, 0.3)
    for wd in (5e-4, 5e-2)
    for p in (0.0, 0.5)
]
SEEDS = [4, 0, 7]  # the first stage is of the first one, whatever its number


@pytest.fixture
def graph(graphs):
    return graphs(n=60, d=6, classes=3, seed=5, isolated=7, weighted=True, dtype=np.float32)


def figures(ledger):
    return [
        [replace(run, seconds=0) for run in stage.runs()]
        for stage in (ledger.screen, ledger)
        if stage is not None
    ]


def stopped(at):
    """A progress that stops the search when so many runs are done."""

    def look(state):
        if state.done >= at:
            raise KeyboardInterrupt

    return look


def test_the_best_of_the_first_seed_are_trained_with_all(graph, tmp_path):
    states = []
    ledger = run_search(
        graph, "lgc", LIST, tmp_path / "s",
        seeds=SEEDS, screen=3, protocol="test", progress=states.append,
    )  # fmt: skip
    plain = run_search(graph, "lgc", LIST, tmp_path / "plain", seeds=SEEDS[:1])
    best = sorted(rank(plain, "validation")[:3], key=lambda one: one.position)
    assert ledger.settings.configurations == [one.options for one in best]
    for candidate in rank(ledger, "validation"):
        alone = hoplite.train(graph, "lgc", seeds=SEEDS, **candidate.options)
        assert [run.val_accuracy for run in alone.runs] == pytest.approx(candidate.val)
    assert len(rank(ledger, "test")) == 3
    assert ledger.cpu_seconds() > sum(stage.cpu_seconds() for stage in [ledger.screen])
    assert list((tmp_path / "s" / "cells").glob("*.test.json"))
    assert not list((tmp_path / "s" / "screen").rglob("*.test.json"))
    shares = [state.share for state in states]
    assert shares == sorted(shares)
    assert (states[-1].share, states[-1].done, states[-1].total) == (1, 25, 25)


def test_what_is_told_counts_both_stages(graph, tmp_path):
    grid = tmp_path / "grid.toml"
    grid.write_text("[any]\nlr = [0.001, 0.3]\nhops = [1, 2, 3]\nepochs = 5\nscreen = 2\n")
    result = search(graph, "lgc", grid=grid, out=tmp_path / "s", seeds=2, protocol="test")
    summary = result.summary()
    assert (summary.configurations, summary.runs) == (6, 10)
    rows = result.table().to_pylist()
    assert [(row["stage"], row["configuration"], row["seed"]) for row in rows[:6]] == [
        (1, i, 0) for i in range(6)
    ]
    grid_order = [(lr, hops) for lr in (0.001, 0.3) for hops in (1, 2, 3)]
    assert all((row["lr"], row["hops"]) == grid_order[row["configuration"]] for row in rows)
    assert [row["test_accuracy"] is None for row in rows] == [True] * 6 + [False] * 4
    again = search(graph, "lgc", grid=grid, out=tmp_path / "s", seeds=2, protocol="test")
    assert again.summary() == summary


@pytest.mark.parametrize("at", [5, 16, 19])
def test_whoever_goes_on_finds_the_same_ones(graph, tmp_path, at):
    """Stopped in the first stage, between the two and in the second; two workers continue."""
    whole = run_search(graph, "lgc", LIST, tmp_path / "whole", seeds=SEEDS, screen=3)
    with pytest.raises(KeyboardInterrupt):
        run_search(graph, "lgc", LIST, tmp_path / "s", seeds=SEEDS, screen=3, progress=stopped(at))
    assert (tmp_path / "s" / "search.json").exists() == (at > 16)
    again = run_search(graph, "lgc", LIST, tmp_path / "s", seeds=SEEDS, screen=3, workers=2)
    assert figures(again) == figures(whole)
    assert figures(Ledger.read(tmp_path / "s")) == figures(whole)
    with pytest.raises(LedgerError, match="3 configurations there, 4 here"):
        run_search(graph, "lgc", LIST, tmp_path / "s", seeds=SEEDS, screen=4)
    with pytest.raises(LedgerError, match="screened is 16 there and 0 here"):
        run_search(graph, "lgc", LIST, tmp_path / "s", seeds=SEEDS)


KILL = """
import os, signal
from hoplite.selection.ledger import Ledger

def opened(cls, folder, settings, before=Ledger.open.__func__, **options):
    if settings.screened:
        os.kill(os.getpid(), signal.SIGKILL)
    return before(cls, folder, settings, **options)

Ledger.open = classmethod(opened)
"""


def test_killed_between_the_stages_and_continued_by_two_at_once(tmp_path):
    grid = tmp_path / "grid.toml"
    grid.write_text("[cora]\nlr = [0.2, 0.05, 0.01]\nhops = [1, 2]\nepochs = 4\nscreen = 2\n")
    words = ["search", "cora", "--grid", str(grid), "--seeds", "2", "--workers", "1"]
    out = ["--out", str(tmp_path / "s")]
    killed = commands.hoplite(*words, *out, before=KILL)
    assert killed.returncode == -signal.SIGKILL
    assert not (tmp_path / "s" / "search.json").exists()
    assert not list((tmp_path / "s").rglob("*.test.json"))
    both = [commands.start(*words, *out) for _ in range(2)]
    texts = [process.communicate()[0] for process in both]
    assert texts[0] == texts[1]
    assert "best of 6 configurations: one seed each, 2 seeds for 2" in " ".join(texts[0].split())
    whole = commands.hoplite(*words, "--out", str(tmp_path / "whole"))
    assert whole.stdout.splitlines()[:-2] == texts[0].splitlines()[:-2]  # all but the folders
    assert figures(Ledger.read(tmp_path / "s")) == figures(Ledger.read(tmp_path / "whole"))


def test_a_search_of_one_stage_does_not_go_on_with_half_of_two(graph, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run_search(graph, "lgc", LIST, tmp_path / "s", seeds=SEEDS, screen=3, progress=stopped(16))
    with pytest.raises(LedgerError, match="not empty and holds no search"):
        run_search(graph, "lgc", LIST, tmp_path / "s", seeds=SEEDS)


def test_where_nothing_would_be_saved_there_is_one_stage(graph, tmp_path):
    for name, seeds, screen in (("a", SEEDS, 2), ("b", SEEDS, 50), ("c", [3], 1)):
        ledger = run_search(graph, "lgc", LIST[:2], tmp_path / name, seeds=seeds, screen=screen)
        assert ledger.screen is None
        assert len(rank(ledger, "validation")) == 2
        assert len(ledger.runs()) == 2 * len(seeds)
    with pytest.raises(ConfigError, match="screen"):
        run_search(graph, "lgc", LIST, tmp_path / "d", screen=0)
