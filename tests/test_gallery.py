"""The examples of the gallery run, small, and what they print is true; so do their notebooks.

Each is run as a script is, in a folder of its own, and leaves nothing behind. What it claims is
then computed once more from what it has made, in another way where there is one.
"""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score
from tests import pyg

import hoplite

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
SMALL = "HOPLITE_EXAMPLES"

pytest.importorskip("plotly")
notebooks = runpy.run_path(str(ROOT / "scripts" / "notebooks.py"))
SCRIPTS: list[Path] = notebooks["gallery_scripts"]()


def numbers(line: str) -> list[float]:
    """
    >>> numbers("test 82.0%, 1,024 nodes, residual -9e-08")
    [82.0, 1024.0, -9e-08]
    """
    found = re.findall(r"-?\d[\d,]*\.?\d*(?:e[+-]\d+)?", line)
    return [float(one.replace(",", "")) for one in found]


class Ran:
    """The names of a script that has run, and what it printed."""

    def __init__(self, names: dict[str, Any], printed: str) -> None:
        self.names, self.printed = names, printed

    def __getitem__(self, name: str) -> Any:
        return self.names[name]

    def line(self, begin: str) -> str:
        """The rest of the one line that begins so."""
        (found,) = [one for one in self.printed.splitlines() if one.startswith(begin)]
        return found.removeprefix(begin)


def cora_in_ten_lines(ran: Ran) -> None:
    graph, model = ran["graph"], ran["model"]
    test = graph.split.test
    each = [
        (run.model.predict(graph)[test] == graph.labels[test]).mean() for run in ran["result"].runs
    ]
    assert len(each) == 5
    lgc, words, one = (
        numbers(ran.line(name))[0] for name in ("LGC: ", "the words alone: ", "one field")
    )
    assert lgc == pytest.approx(100 * np.mean(each), abs=0.06)
    counts = np.bincount(graph.labels[graph.split.train])
    assert one == pytest.approx(100 * (graph.labels[test] == counts.argmax()).mean(), abs=0.06)
    assert lgc > words + 10 > one + 20
    assert ran.line("the first paper: ") == graph.class_names[model.predict(graph)[0]]


def your_own_tables(ran: Ran) -> None:
    graph, unknown = ran["graph"], ran["unknown"]
    shown = ran["accounts"]["fraud"].isna().to_numpy()
    assert (unknown == shown).all()
    assert not set(graph.split.train) & set(np.flatnonzero(unknown))
    truth, names = ran["fraud"][unknown], list(graph.node_ids)
    assert names == list(ran["names"])
    score = ran["table"].set_index("id").loc[names, "p_yes"].to_numpy()[unknown]
    told = numbers(ran.line("columns and transfers: "))
    expected = roc_auc_score(truth, score), average_precision_score(truth, score)
    assert told == pytest.approx(expected, abs=0.006)
    assert told[1] > numbers(ran.line("columns alone: "))[1] + 0.1 > truth.mean() + 0.1


def new_nodes(ran: Ran) -> None:
    grown, late, model = ran["grown"], ran["late"], ran["model"]
    assert grown.num_edges == ran["cora"].num_edges
    assert list(grown.node_ids[-len(late) :]) == list(late)
    assert not np.isin(late, np.array(ran["graph"].node_ids)).any()
    np.testing.assert_allclose(model.logits(grown), model.logits(ran["table"]), atol=1e-4)
    right = [model.class_names[c] for c in model.predict(grown)[-len(late) :]] == ran["truth"]
    assert numbers(ran.line("right: "))[0] == pytest.approx(100 * right.mean(), abs=0.06)
    assert right.mean() > max(0.6, numbers(ran.line("by their words alone: "))[0] / 100)


def explain_a_decision(ran: Ran) -> None:
    why, model, person = ran["why"], ran["result"].model, ran["person"]
    place = ran["graph"].node_ids.index(person)
    lead = np.sort(model.logits(ran["graph"])[place])
    assert why.margin == pytest.approx(lead[1] - lead[0], abs=1e-5)
    for kind in ("hops", "people", "columns"):
        constant, parts, total = numbers(ran.line(f"{kind}: ").replace("+", ""))
        assert constant + parts == pytest.approx(total, abs=2e-4)
        assert total == pytest.approx(why.margin, abs=1e-4)

    def decided(people: Any, links: Any) -> str:
        graph = hoplite.io.from_frames(people, links, prepare=model)
        return model.class_names[model.predict(graph)[place]]

    people, links, before = ran["people"], ran["links"], why.class_
    assert decided(people, links) == before
    found = why.changes().found
    assert found
    for change in found:  # from that value on, and not before
        for share, becomes in ((0.99, before), (1.0, change.becomes)):
            value = change.value + share * (change.to - change.value)
            other = people.astype({change.name: float})
            other.loc[place, change.name] = value
            assert decided(other, links) == becomes
    for edge in ran["found"].edges.found:
        ends = {edge.source.id, edge.target.id}
        left = [{a, b} != ends for a, b in zip(links["source"], links["target"], strict=True)]
        assert decided(people, links[left]) == edge.becomes


def learned_filter(ran: Ran) -> None:
    points = ran["eigenvalues"]
    assert np.trapezoid(ran["density"], points) == pytest.approx(1, abs=0.02)
    assert numbers(ran.line("largest difference"))[0] < 1e-9
    for name, model in ran["models"].items():
        assert ran.line(f"{name}: ")
        assert np.abs(hoplite.frequency_response(model, points))[-20:].min() > 0
    sgc = ran["models"]["SGC, 2 hops"]
    np.testing.assert_allclose(hoplite.frequency_response(sgc, points), points**2, atol=1e-9)


def heterophily(ran: Ran) -> None:
    assert ran["shares"] == (0.1, 0.9)
    alone, smooth, lgc, blocks = ran["found"].values()
    assert smooth[0] < alone[0] < min(lgc[0], blocks[0])  # smoothing harms where they are unlike
    assert alone[1] < min(smooth[1], lgc[1], blocks[1])
    c = ran["coefficients"]["LGC, learns the filter", 0.1]
    assert c[::2].sum() > 0 > c[1::2].sum()


def label_propagation(ran: Ran) -> None:
    results = ran["found"]["cora"]
    told = numbers(ran.line("cora: labels alone"))
    for value, result in zip([told[0], told[1], told[2], told[-1]], results.values(), strict=True):
        assert value == pytest.approx(100 * result.test_accuracy, abs=0.06)
    mended, plain = results["words, then labels"], results["words alone"]
    assert mended.val_accuracy >= plain.val_accuracy
    assert mended.model.correct_smooth is not None


def honest_probabilities(ran: Ran) -> None:
    graph, plain, honest = ran["graph"], ran["plain"], ran["honest"]
    assert (plain.model.predict(graph) == honest.model.predict(graph)).all()
    before, after = (one.metrics("test")["calibration_error"].mean for one in (plain, honest))
    assert after < before
    for asked in (80, 90, 95):
        covered, size = numbers(ran.line(f"asked {asked}%: "))
        assert covered == pytest.approx(asked, abs=4)
        assert 0.8 < size < 2.5


def regression(ran: Ran) -> None:
    graph, test, price = ran["graph"], ran["test"], ran["price"]
    mae = np.abs(ran["predicted"] - price[test]).mean()
    told = numbers(ran.line("with the neighbours: ").replace("r2", "r"))
    assert told[1] == pytest.approx(mae, abs=1)
    alone = numbers(ran.line("the house alone: ").replace("r2", "r"))[1]
    mean = np.abs(price[graph.split.train].mean() - price[test]).mean()
    assert mae < 0.7 * alone < 0.7 * mean
    assert 84 < numbers(ran.line("covered: "))[0] < 97


def let_it_choose(ran: Ran) -> None:
    found = ran["found"]
    assert found.trials in ran.printed
    assert found.chosen.model in ran["best"]
    assert found.trained.test_accuracy > found.trained.baseline("test")["accuracy"]
    for name, one in ran["best"].items():
        assert numbers(ran.line(f"{name:12} "))[0] == pytest.approx(100 * one.val, abs=0.06)
        assert one.val == max(
            o.val for o in found.candidates if (o.model, o.rung) == (name, one.rung)
        )


def many_runs(ran: Ran) -> None:
    assert len(ran["together"]) == len(ran["runs"]) == 18
    for one, same in zip(ran["alone"], ran["together"], strict=False):
        assert one.history["val_loss"] == pytest.approx(same.history["val_loss"], rel=1e-4)
    ranking = ran["found"].ranking
    assert len(ranking) == 12
    assert ran["found"].best.val_mean == max(one.val_mean for one in ranking)


def grid_search_cv(ran: Ran) -> None:
    search, test = ran["search"], ran["test"]
    assert search.best_score_ == max(search.cv_results_["mean_test_score"])
    right = (search.predict(test) == ran["y_test"]).mean()
    assert f"test {right:.1%}" in ran.printed
    hop0, hop4 = (numbers(ran.line(f"logistic regression on hop {k}: "))[0] for k in (0, 4))
    assert hop4 > hop0 + 3


def pyg_dataset(ran: Ran) -> None:
    own = hoplite.load("cora")
    twin = hoplite.train(own, "lgc", hops=10, lr=0.2, epochs=ran["epochs"], seeds=3)
    np.testing.assert_allclose(
        twin.model.logits(own), ran["result"].model.logits(ran["data"]), rtol=1e-3, atol=1e-3
    )
    assert numbers(ran.line("Linear"))[-1] < 1e-4
    weights = sum(value.size for value in ran["network"].model.weights.values())
    assert numbers(ran.line("GraphSAGE: "))[1] == weights > 10_000


def unlabelled_nodes(ran: Ran) -> None:
    for name, begin in (
        ("usual", "labelled nodes alone: val"),
        ("consistent", "and the others: val"),
    ):
        val, test = (ran[name].metrics(part)["accuracy"].mean for part in ("val", "test"))
        assert numbers(ran.line(begin))[:2] == pytest.approx([100 * val, 100 * test], abs=0.06)
    assert ran["consistent"].training_config.consistency == 1
    assert ran["usual"].training_config.consistency == 0


def larger_than_memory(ran: Ran) -> None:
    graph, model = ran["graph"], ran["model"]
    assert "damage: none" in ran.printed
    assert numbers(ran.line("one model on both"))[-1] < 1e-3
    disk, memory = numbers(ran.line("test: "))
    assert disk == pytest.approx(memory, abs=1)
    least = numbers(ran.line("the largest class for all: "))[0]
    counts = np.bincount(graph.labels[graph.split.train])
    share = (graph.labels[graph.split.test] == counts.argmax()).mean()
    assert least == pytest.approx(100 * share, abs=0.01)
    assert disk > 2 * least
    grown = ran["grown"]
    assert grown.num_nodes == graph.num_nodes + 3
    assert numbers(ran.printed.splitlines()[-1])[-1] < 1e-3
    changed = np.abs(model.logits(grown)[: graph.num_nodes] - model.logits(graph)).max(axis=1) > 0
    assert 3 < changed.sum() < graph.num_nodes  # those near what is new


def own_model(ran: Ran) -> None:
    model = ran["result"].model
    share, c = float(model.weights["share"]), model.coefficients_
    by_hand = [share, *((1 - share) * model.config.damping ** np.arange(1, 6))]
    assert c == pytest.approx(by_hand, rel=1e-5)
    why = ran["why"]
    assert why.by_hop.sum() + why.constant == pytest.approx(why.margin, abs=1e-4)
    values = [numbers(ran.line(f"damping {q}: "))[0] for q in (0.2, 0.5, 0.8)]
    assert max(values) == values[-1]  # as the text says


CHECKS: dict[str, Callable[[Ran], None]] = {
    check.__name__: check
    for check in (
        cora_in_ten_lines, your_own_tables, new_nodes, explain_a_decision, learned_filter,
        heterophily, label_propagation, honest_probabilities, regression, let_it_choose, many_runs,
        grid_search_cv, pyg_dataset, unlabelled_nodes, larger_than_memory, own_model,
    )
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(CHECKS))
def test_what_an_example_prints_is_true(name, tmp_path, monkeypatch, capsys):
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    if "pandas" in text:
        pytest.importorskip("pandas")
    if "torch_geometric" in text:
        pyg.layers()
    here, scratch = tmp_path / "here", tmp_path / "scratch"
    here.mkdir()
    scratch.mkdir()
    monkeypatch.setenv(SMALL, "small")
    monkeypatch.chdir(here)
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    names = runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    own = [file for file in scratch.iterdir() if not file.name.startswith(("torch", "__pycache__"))]
    assert not [*here.iterdir(), *own]  # nothing is left
    CHECKS[name](Ran(names, printed))


def test_dask_cluster(tmp_path):
    """As a plain script, in another folder, with real workers."""
    pytest.importorskip("distributed")
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "dask_cluster.py")],
        cwd=tmp_path,
        env={**os.environ, SMALL: "small"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("workers: 2\n")
    assert "the same numbers as from one process: True\n" in done.stdout
    assert not [*tmp_path.iterdir()]


def test_every_example_is_checked_and_has_a_place():
    names = {script.stem for script in SCRIPTS}
    assert len(names) >= 12
    assert names == {*CHECKS, "dask_cluster"}
    gallery = runpy.run_path(str(ROOT / "docs" / "_ext" / "gallery.py"))
    assert set(gallery["ORDER"]) == names
    assert {p.stem for p in EXAMPLES.glob("*.py") if gallery["in_gallery"](p)} == names


def test_a_notebook_runs_in_a_kernel(tmp_path, monkeypatch):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv(SMALL, "small")
    path = notebooks["write_notebook"](EXAMPLES / "explain_a_decision.py", tmp_path)
    notebook = nbformat.read(path, 4)
    assert notebook.cells[0].source.strip().startswith("# ")  # the title, as Markdown
    client = nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    client.execute()
    outputs = [one for cell in notebook.cells for one in cell.get("outputs", [])]
    assert not [one for one in outputs if one.output_type == "error"]
    drawn = [one for one in outputs if "application/vnd.plotly.v1+json" in one.get("data", {})]
    assert drawn  # the pictures
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
