"""The comparison table on small untidy graphs: honest, resumable, and true after changes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from tests import commands
from tests.experiments.conftest import write_graph

import hoplite
from experiments.linear import columns, linear_table, protocol_words
from experiments.linear_report import linear_report, settings
from experiments.methods import read_methods
from experiments.problems import PROBLEMS, chosen_problems
from experiments.report import markdown, page
from experiments.results import LinearTable
from experiments.trainings import Training

ROOT = Path(__file__).parents[2]


@pytest.fixture
def trained(monkeypatch) -> list[tuple[str, int, bool]]:
    """Problem, split and whether the test nodes were read, of every training of a call."""
    seen: list[tuple[str, int, bool]] = []
    run = Training.run

    def watched(self, graphs):
        seen.append((self.problem, self.split, self.test))
        return run(self, graphs)

    monkeypatch.setattr(Training, "run", watched)
    return seen


@pytest.fixture(scope="module")
def finished(graph_files, methods, tmp_path_factory) -> tuple[LinearTable, Path]:
    out = tmp_path_factory.mktemp("linear") / "out"
    call = {"graphs": graph_files, "methods": methods, "workers": 1}
    return linear_table(out, datasets=["texas", "tolokers", "cora-public"], **call), out


def test_every_method_has_its_figures(finished):
    table, _ = finished
    found = {(one.method, one.problem) for one in table.figures}
    few = ("cora-public", "cora-random", "cora-longer")
    names = ("features", "lgc", "mixed")
    wanted = {(name, problem) for name in names for problem in ("texas", "tolokers", *few)}
    assert found == wanted | {("gcn", "texas")}
    for one in table.figures:
        count = {"cora-public": 3, "cora-longer": 3, "cora-random": 3}.get(one.problem, 10)
        assert len(one.test) == len(one.val) == len(one.splits) == count
        assert one.test_mean == pytest.approx(np.mean(one.test))
        assert one.test_std == pytest.approx(np.std(one.test))
    lgc = table.figure("lgc", "texas")
    assert lgc.tried == 4
    assert lgc.runs == 4 * 2 + 2 * 8  # all on two splits, two of them on the other eight
    assert lgc.difference is None
    other = table.figure("features", "texas")
    expected = np.mean(np.array(other.test) - np.array(lgc.test))
    assert other.difference.mean == pytest.approx(expected)
    assert other.difference.pairs == 3
    assert table.figure("lgc", "cora-longer").config["epochs"] == 9


@pytest.mark.filterwarnings("ignore::hoplite.HopliteWarning")
def test_a_figure_is_what_hoplite_trains(finished, graph_files):
    """The chosen setting, trained by hand on a public split, gives the same score."""
    table, _ = finished
    one = table.figure("lgc", "texas")
    graph = hoplite.load(graph_files / "texas.npz", split=3)
    result = hoplite.train(graph, "lgc", seeds=[3], **one.config)
    assert result.test_accuracy == pytest.approx(one.test[3])
    assert result.val_accuracy == pytest.approx(one.val[3])
    auc = table.figure("lgc", "tolokers")
    graph = hoplite.load(graph_files / "tolokers.npz", split=0, scale="standard")
    run = hoplite.train(graph, "lgc", seeds=[0], **auc.config).runs[0]
    assert run.test_metrics["roc_auc"] == pytest.approx(auc.test[0])


def test_searches_do_not_read_the_test_set(methods, tmp_path, trained):
    """Other labels of the test nodes change test scores, and neither choices nor validation."""
    tables = []
    for wrong in (False, True):
        folder = tmp_path / f"graphs-{wrong}"
        folder.mkdir()
        write_graph(folder / "texas.npz", 3, 1, wrong=wrong)
        call = {"graphs": folder, "methods": methods, "datasets": ["texas"], "workers": 1}
        tables.append(linear_table(tmp_path / f"out-{wrong}", **call))
    for one, other in zip(tables[0].figures, tables[1].figures, strict=True):
        assert (one.config, one.reading, one.val) == (other.config, other.reading, other.val)
        assert one.test != other.test
    assert {test for _, _, test in trained} == {False, True}


KILLED = """
import os, sys
from experiments.__main__ import main
from experiments.trainings import Training
run, left = Training.run, iter(range(int(sys.argv[1]), -1, -1))
Training.run = lambda one, graphs: run(one, graphs) if next(left) else os.kill(os.getpid(), 9)
main(sys.argv[2:])
"""


def test_a_killed_run_goes_on(graph_files, methods, tmp_path):
    """kill -9: what was finished is in the file, and the result is the same."""
    out = tmp_path / "out"
    words = ["linear", "--out", out, "--graphs", graph_files, "--methods", methods]
    for more in (1, 12):
        done = commands.run(KILLED, more, *words, "--dataset", "texas", "--workers", 1, cwd=ROOT)
        assert done.returncode == -9, done.stderr
    assert (before := _count(out)) == 13
    call = {"graphs": graph_files, "methods": methods, "datasets": ["texas"]}
    table = linear_table(out, workers=1, **call)
    fresh = linear_table(tmp_path / "fresh", workers=1, **call)
    assert [one.test for one in table.figures] == [one.test for one in fresh.figures]
    assert [one.config for one in table.figures] == [one.config for one in fresh.figures]
    assert _count(out) == _count(tmp_path / "fresh") > before


def _count(out: Path) -> int:
    """Finished trainings."""
    with closing(sqlite3.connect(out / "trainings.sqlite")) as file:
        return file.execute("SELECT count(*) FROM trainings").fetchone()[0]


def test_the_page_and_the_text_have_every_figure(finished):
    table, _ = finished
    report = linear_report(table)
    text, html = markdown(report), page(report)
    for one in table.figures:
        shown = f"{100 * one.test_mean:.1f} ± {100 * one.test_std:.2f}"
        assert shown in text
        assert shown in html
    assert "GCN (not linear)" in text
    assert settings(table.figure("lgc", "texas")).startswith("hops = ")


def test_the_committed_methods_are_sound():
    plan = read_methods()
    assert len(plan.methods) > 30
    for name, method in plan.methods.items():
        problem = next(one for one in PROBLEMS.values() if method.takes(one))
        tried = plan.settings(name, problem)
        if any(one.options.get("correct_smooth") for one in tried):
            assert not method.linear, name
    assert len({column.name for column in columns(plan)}) == len(columns(plan)) == 27
    assert "screen = 1" in " ".join(protocol_words(plan))
    assert chosen_problems(["few"])[0].name == "cora-public"
