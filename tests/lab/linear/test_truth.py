"""The second table tells what is so: after changes of its methods, in parts, and interrupted."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests import commands

from hoplite.errors import GridError
from hoplite.json_files import write_json
from hoplite.lab.linear import linear_table, read_linear, run, trainings
from hoplite.lab.linear.methods import parse_methods, read_methods
from hoplite.lab.linear.page import page
from hoplite.lab.linear.problems import PROBLEMS
from hoplite.lab.linear.results import LinearTable, published
from hoplite.lab.linear.text import markdown
from hoplite.lab.linear.view import headline, settings
from hoplite.models import MODELS

TWO = """
from hoplite.models import SGC

class First(SGC):
    name = "first_of_two"

class Second(SGC):  # the same settings, and figures of its own
    name = "second_of_two"
    title = "Second"

    def logits(self, *values, **options):
        return -super().logits(*values, **options)
"""


@pytest.fixture
def two(tmp_path, monkeypatch):
    """A module with two models of the same settings."""
    (tmp_path / "two_models.py").write_text(TWO)
    monkeypatch.syspath_prepend(tmp_path)
    known = dict(MODELS)
    yield "two_models"
    MODELS.clear()
    MODELS.update(known)
    sys.modules.pop("two_models", None)


def plan_file(path: Path, model: str = "lgc", extra: str = "") -> Path:
    path.write_text(
        f"reference = 'a'\n[protocol]\nseeds = 1\nfinal_seeds = 2\nscreen = 1\n{extra}\n"
        f"[common.any]\nepochs = 4\n[methods.a]\nmodel = '{model}'\ngrid = {{hops = [1, 2]}}\n"
    )
    return path


@pytest.fixture
def trained(monkeypatch) -> list[tuple[str, str]]:
    """The searches and tests of a call, with the model's name."""
    seen: list[tuple[str, str]] = []
    real_train, real_search = trainings.train, trainings.run_search

    def train(graph, model, **options):
        seen.append(("test", model))
        return real_train(graph, model, **options)

    def search(graph, model, *arguments, **options):
        seen.append(("search", model))
        return real_search(graph, model, *arguments, **options)

    monkeypatch.setattr(trainings, "train", train)
    monkeypatch.setattr(trainings, "run_search", search)
    return seen


def without_the_new(folder: Path) -> None:
    """Jobs as earlier versions wrote them."""
    for path in (folder / "jobs").glob("*.json"):
        content = json.loads(path.read_text())
        content.pop("checksum")
        for inner in (content, content.get("choice", {})):
            inner.pop("model", None)
            inner.pop("sizes", None)
        write_json(path, content)


@pytest.mark.parametrize("first", ["two_models:First", "sgc", "egc"])
def test_another_model_is_searched_anew(two, graphs, tmp_path, trained, first):
    """The same settings or others: neither figures nor ledgers are those of the other model."""
    path, out = tmp_path / "m.toml", tmp_path / "out"
    call = {"graphs": graphs, "datasets": ["texas"], "workers": 1, "methods": path}
    before = linear_table(out, **call | {"methods": plan_file(path, first)})
    trained.clear()
    plan_file(path, f"{two}:Second")
    after = linear_table(out, **call)
    assert {kind for kind, _ in trained} == {"search", "test"}
    assert {model for _, model in trained} == {"second_of_two"}
    fresh = linear_table(tmp_path / "fresh", **call)
    assert after.figures[0].val == fresh.figures[0].val != before.figures[0].val
    trained.clear()
    plan_file(path, first)  # and back: the ledger of the first is there
    again = linear_table(out, **call)
    assert again.figures[0].val == before.figures[0].val
    assert again.rows[0].model == first


def test_a_figure_of_another_model_does_not_stay_in_a_part(two, graphs, tmp_path):
    path, out = tmp_path / "m.toml", tmp_path / "out"
    more = "[methods.b]\nmodel = 'lgc'\ngrid = {hops = 1}\n"
    call = {"graphs": graphs, "datasets": ["texas"], "workers": 1, "methods": path}
    plan_file(path, f"{two}:First").write_text(path.read_text() + more)
    linear_table(out, **call)
    plan_file(path, f"{two}:Second").write_text(path.read_text() + more)
    table = linear_table(out, **call, models=["b"])
    assert [one.method for one in table.figures] == ["b"]
    assert table.coming["texas"] == ["a"]


def test_jobs_of_earlier_versions_are_kept(graphs, tmp_path, trained):
    path, out = plan_file(tmp_path / "m.toml"), tmp_path / "out"
    call = {"graphs": graphs, "datasets": ["texas", "cora-public"], "workers": 1, "methods": path}
    before = linear_table(out, **call)
    without_the_new(out)
    stamps = {one: one.stat().st_mtime_ns for one in (out / "jobs").iterdir()}
    trained.clear()
    after = linear_table(out, **call)
    assert trained == []
    assert {one: one.stat().st_mtime_ns for one in (out / "jobs").iterdir()} == stamps
    assert [one.test for one in after.figures] == [one.test for one in before.figures]


def test_a_ledger_in_the_earlier_place_goes_on(graphs, tmp_path, trained, monkeypatch):
    path, out = plan_file(tmp_path / "m.toml"), tmp_path / "out"
    call = {"graphs": graphs, "datasets": ["texas"], "workers": 1, "methods": path}
    real = trainings.Search._place
    monkeypatch.setattr(
        trainings.Search, "_place", lambda self, folder, about: real(self, folder, about[:4])
    )
    linear_table(out, **call)  # as earlier versions: the model is not in the place
    monkeypatch.setattr(trainings.Search, "_place", real)
    ledgers = {one.name for one in (out / "searches").iterdir()}
    shutil.rmtree(out / "jobs")
    cells = {one: one.stat().st_mtime_ns for one in out.rglob("cells/*.json")}
    linear_table(out, **call)
    assert {one.name for one in (out / "searches").iterdir()} == ledgers
    assert {one: one.stat().st_mtime_ns for one in out.rglob("cells/*.json")} == cells


def test_other_sizes_of_random_splits_are_trained_anew(tmp_path, trained):
    path, out = tmp_path / "m.toml", tmp_path / "out"
    call = {"datasets": ["cora-public"], "workers": 1, "methods": path}
    plan_file(path, extra="random = {splits = 2, per_class = 5, val = 60, test = 90}")
    first = linear_table(out, **call)
    trained.clear()
    plan_file(path, extra="random = {splits = 2, per_class = 5, val = 60, test = 91}")
    second = linear_table(out, **call)
    assert trained == [("test", "lgc")] * 2  # the two random splits, and nothing else
    before, after = (one.figure("a", "cora-random") for one in (first, second))
    assert (before.sizes["test"], after.sizes["test"]) == (90, 91)
    assert before.test != after.test
    for text in (markdown(second), page(second)):
        assert "5 nodes a class to train, 60 to validate, 91 to test" in text
        assert "of the same sizes" not in text
    own = {one.group_title for one in run._columns(read_methods())}
    assert "Random splits of the same sizes" in own


def test_methods_that_work_on_labels_are_no_linear_classifiers():
    plan = read_methods()
    for method in plan.methods.values():
        problem = next(one for one in PROBLEMS.values() if method.takes(one))
        found = plan.settings(method, problem)
        if any(one.options.get("correct_smooth") for one in found):
            assert not method.linear, method.name
    assert not plan.methods["labelprop"].linear
    assert plan.methods["ppr"].linear


def test_the_headline_says_what_it_compares(graphs, methods, tmp_path):
    call = {"graphs": graphs, "methods": methods, "datasets": ["texas"], "workers": 1}
    table = linear_table(tmp_path / "out", **call)

    def told(linear: float, other: float) -> str:
        figures = [
            replace(one, test_mean=other if one.method == "gcn" else linear)
            for one in table.figures
        ]
        return headline(replace(table, figures=figures))

    reach = published()["texas"].reach
    assert "In 1 of 1 columns" in told((reach - 0.04) / 100, 0.1)  # the same, as it is shown
    assert "In 0 of 1 columns" in told((reach - 0.06) / 100, 0.99)
    words = told(0.9, 0.9)
    assert "rounded to one decimal" in words
    assert "maximum over methods" in words
    assert "optimistic" in words


def test_directed_settings_without_a_file_are_named(graphs, tmp_path):
    path = tmp_path / "m.toml"
    path.write_text(
        "[common.any]\nepochs = 3\n[protocol]\nseeds = 1\nfinal_seeds = 1\nscreen = 1\n"
        "random = {splits = 1, per_class = 5, val = 60, test = 90}\n"
        "[methods.some]\nmodel = 'lgc'\ngrid = {hops = [1, 2], directed = [false, true]}\n"
        "[methods.all]\nmodel = 'lgc'\ngrid = {directed = true}\n"
        "[methods.none]\nmodel = 'lgc'\n"
    )
    call = {"methods": path, "datasets": ["texas", "cora-public"], "workers": 1}
    table = linear_table(tmp_path / "out", graphs=graphs, **call)
    assert {(one.method, one.problem): one.unread for one in table.figures} == {
        ("some", "texas"): 2,
        ("none", "texas"): 0,
        **{("some", f"cora-{ending}"): 2 for ending in ("public", "random")},
        **{("none", f"cora-{ending}"): 0 for ending in ("public", "random")},
    }
    told = {"all on texas", "all on cora-public"}
    told |= {"2 settings of some on texas", "2 settings of some on cora-public"}
    assert told <= {*table.left_out}
    assert not [one for one in table.left_out if "random" in one]  # they have no search
    for text in (markdown(table), page(table)):
        assert "2 settings of some on texas" in re.sub(r"\\", "", text)
    whole = tmp_path / "graphs"
    shutil.copytree(graphs, whole)
    shutil.copy(whole / "texas.npz", whole / "texas_directed.npz")
    table = linear_table(tmp_path / "out", graphs=whole, **call)
    assert table.figure("some", "texas").unread == 0
    assert table.figure("all", "texas") is not None
    assert "all on texas" not in table.left_out


def test_the_protocol_in_words_is_the_one_of_the_file():
    own = " ".join(run._protocol_words(read_methods()))
    assert "methods.toml, as committed" in own
    assert "with 3 seeds, and the chosen one with 10 (Cora and Citeseer)" in own
    assert "with 2 seeds, and the chosen one with 10 (Pubmed)" in own
    assert "which choose (Pubmed, Photo, Computers, Actor, Minesweeper and Tolokers)" in own
    text = "[protocol]\nscreen = 3\n[protocol.on.texas]\nscreen = 5\n[methods.a]\nmodel='lgc'\n"
    other = " ".join(run._protocol_words(parse_methods(text)))
    assert "committed" not in other
    assert "with 3 seeds, and the chosen one with 10." in other
    assert "the best 5 on all ten, of which the best is chosen (Texas)" in other
    plan = read_methods()
    assert "0 hops" not in plan.note
    assert all(plan.methods["features"].takes(one) for one in PROBLEMS.values())


def test_defaults_of_a_model_by_its_address_are_not_told(two, graphs, tmp_path):
    path = plan_file(tmp_path / "m.toml", f"{two}:First")
    call = {"graphs": graphs, "datasets": ["texas"], "workers": 1, "methods": path}
    (figure,) = linear_table(tmp_path / "out", **call).figures
    assert settings(figure) == f"k = {figure.config['hops']}, epochs = 4"
    (kept,) = read_linear(tmp_path / "out").figures
    MODELS.pop("first_of_two")  # the page of a file imports nothing
    assert settings(kept) == settings(figure)


@pytest.mark.parametrize(
    ("grid", "problem", "told"),
    [
        ("{scale = 'minmax'}", "texas", "scale is 'minmax'; it must be one of"),
        ("{scale = ['standard', 'log ']}", "texas", "scale is 'log '"),
        ("{structural = -1}", "texas", "structural is -1"),
        ("{structural = 2.5}", "texas", "structural is 2.5"),
        ("{link = 'yes'}", "texas", "link is 'yes'; it must be True or False"),
        ("{directed = 1}", "texas", "directed is 1; give True or False"),
        ("{label = 'y'}", "texas", "label says how tables are read"),
        ("{scale = 'standard'}", "cora-public", "scale says how tables are read"),
    ],
)
def test_options_of_reading_are_checked_before_any_work(graphs, tmp_path, grid, problem, told):
    path = tmp_path / "m.toml"
    path.write_text(f"[methods.a]\nmodel = 'lgc'\ngrid = {grid}\n")
    with pytest.raises(GridError, match=re.escape(told)):
        linear_table(tmp_path / "out", graphs=graphs, methods=path, datasets=[problem])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "text",
    ["on = 3", "on = {large = 3}", "on = []", "on = {few = {seeds = 0}, cora = {seeds = 2}}"],
)
def test_a_wrong_protocol_gets_a_sentence(text):
    with pytest.raises(GridError, match="protocol cannot be read"):
        parse_methods(f"[protocol]\n{text}\n[methods.a]\nmodel='lgc'")


def test_what_has_a_figure_is_not_absent(graphs, tmp_path):
    path, out = plan_file(tmp_path / "m.toml"), tmp_path / "out"
    linear_table(out, graphs=graphs, methods=path, datasets=["texas"], workers=1)
    table = linear_table(out, methods=path, datasets=["cora-public"], workers=1)
    assert table.figure("a", "texas") is not None
    assert "texas" not in table.absent
    assert "tolokers" in table.absent


def test_a_part_says_what_is_still_to_come(graphs, methods, tmp_path):
    call = {"graphs": graphs, "methods": methods, "workers": 1}
    table = linear_table(tmp_path / "out", **call, datasets=["texas"], models=["lgc"])
    assert table.coming["texas"] == ["features", "mixed", "gcn"]
    assert table.coming["cora-longer"] == ["features", "lgc", "mixed"]
    assert "cornell" not in table.coming  # it has no file
    assert table.missing == sum(map(len, table.coming.values())) == len(
        {
            (task.cell.method.name, task.problem)
            for task in every_task(methods, graphs)
            if isinstance(task, trainings.Test)
        }
    ) - 1  # fmt: skip
    for text in (markdown(table), page(table)):
        assert f"Still to come: {table.missing} figures." in text
        assert f"{table.command}" in text
        assert "texas: Features, Two grids, GCN" in text
    table = linear_table(tmp_path / "out", **call, datasets=["texas"])
    assert "texas" not in table.coming


def every_task(methods: Path, graphs: Path) -> list[trainings.Task]:
    plan = read_methods(methods)
    cells = [
        run._cell(plan, method, problem, graphs)
        for problem in PROBLEMS.values()
        for method in plan.methods.values()
    ]
    return [task for cell in cells if cell for task in trainings.tasks_of(cell, plan.variants)]


def test_a_report_before_the_first_figure(graphs, methods, tmp_path):
    out = tmp_path / "out"
    words = ["reproduce", "--table", "linear", "--out", out, "--graphs", graphs]
    process = commands.start(*words, "--methods", methods, "--dataset", "texas", "--workers", "1")
    while process.poll() is None and not (out / "LINEAR.md").exists():
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert not list((out / "jobs").glob("*.test.json"))
    table = read_linear(out)
    assert table.figures == []
    assert table.missing > 4
    shown = commands.hoplite("report", out, "--out", tmp_path / "page.html")
    assert shown.returncode == 0, shown.stderr
    told = " ".join(shown.stdout.split())
    assert f"Still to come: {table.missing} figures" in told
    assert "hoplite reproduce --table linear" in told
    assert "Still to come" in (out / "LINEAR.md").read_text()


def test_an_old_figure_of_a_changed_grid_is_not_shown_meanwhile(graphs, tmp_path, monkeypatch):
    path, out = plan_file(tmp_path / "m.toml"), tmp_path / "out"
    call = {"graphs": graphs, "datasets": ["texas"], "workers": 1, "methods": path}
    linear_table(out, **call)
    path.write_text(path.read_text().replace("hops = [1, 2]", "hops = [3, 4]"))

    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(trainings, "run_search", stop)
    with pytest.raises(KeyboardInterrupt):
        linear_table(out, **call)
    table = read_linear(out)
    assert table.figures == []
    assert "texas" in table.coming


def test_a_finished_table_has_nothing_to_come():
    assert "Still to come" not in markdown(LinearTable())
