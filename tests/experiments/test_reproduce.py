"""The paper's experiments on the real Cora with few epochs: every section, and its report."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.experiments.conftest import write_graph

import hoplite
from benchmarks.machine import Machine, made_by
from benchmarks.measure import Effort
from experiments import defaults, imbalanced, paper, reproduce
from experiments.__main__ import main
from experiments.gates import gated_coefficients, hop_coefficients
from experiments.paper_report import best_gates, paper_report
from experiments.report import markdown, page
from experiments.reproduce import Job
from experiments.results import Results, load_results
from experiments.trainings import Training
from hoplite import ConfigError
from hoplite.engine.propagation import Propagation
from hoplite.search import parse_space

HOSTILE = '</script><script>alert("x")</script><img src=x onerror=alert(1)>'
GRID = """
[cora]
lr = [0.2, 0.001]
dropout = [0.0, 0.5]
hops = 3
hidden = 4
epochs = 15
[cora.hlgc]
lr = 0.2
"""
COMMITTED = Path(__file__).parents[2] / "results"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few jobs on a small grid; everything else is as in a real run."""

    def jobs(datasets: list[str]) -> list[Job]:
        plain_jobs = [Job(data, model, "tiny") for data in datasets for model in ("sgc", "lgc")]
        return [*plain_jobs, Job("cora", "hlgc", "tiny", "class"), Job("cora", "gcn", "tiny")]

    monkeypatch.setattr(reproduce, "full_jobs", jobs)
    monkeypatch.setattr(reproduce, "quick_jobs", jobs)
    monkeypatch.setattr(paper, "space", lambda name: parse_space(GRID))
    monkeypatch.setattr(reproduce, "SPLITS", 2)
    monkeypatch.setattr(reproduce, "describe", lambda threads: Machine(cpu="a test's"))
    monkeypatch.setattr(reproduce, "Effort", lambda rounds, seconds: Effort(1))


@pytest.fixture
def trained(monkeypatch) -> list[Training]:
    seen, run = [], Training.run
    monkeypatch.setattr(Training, "run", lambda one, graphs: seen.append(one) or run(one, graphs))
    return seen


def test_a_full_run_has_every_section(small, tmp_path, trained, capsys):
    out = tmp_path / "full"
    words = ["reproduce", "--out", str(out), "--dataset", "cora", "--seeds", "2", "--workers", "1"]
    assert main(words) == 0
    assert "82.0 ± 0.52" in capsys.readouterr().out  # the paper's
    results = load_results(out)
    validation, test = ({e.model: e for e in results.of(p)} for p in ("validation", "test"))
    assert set(validation) == set(test) == {"sgc", "lgc", "gcn", "hlgc"}
    assert validation["lgc"].runs == 8
    searched = [one for one in trained if one.model == "lgc" and not one.details and not one.random]
    scores = [one.run(None) for one in searched[:4]]
    assert test["lgc"].test_mean == pytest.approx(max(np.mean(one.test) for one in scores))
    best = max(range(4), key=lambda i: (np.mean(scores[i].val), -np.mean(scores[i].loss)))
    assert validation["lgc"].config == searched[best].options
    assert {e.model for e in results.timing} == set(test)
    assert all(e.ms_low <= e.ms_median <= e.ms_high for e in results.timing)
    assert {e.model for e in results.curves} == {"sgc", "lgc", "hlgc"}
    assert {e.model for e in results.coefficients} == {"lgc", "hlgc"}
    (spectrum,) = results.spectrum
    assert {r.model for r in spectrum.responses} == {"sgc", "lgc", "hlgc"}
    assert np.max(spectrum.responses[0].mean) == pytest.approx(1)  # SGC is exactly x^3
    compared = [(e.label, len(e.test)) for e in results.comparison]
    assert compared == [("LGC", 2), ("hLGC, class gate", 2)]
    assert "Optimistic" in (out / "RESULTS.md").read_text()
    assert "Optimistic" in (out / "report.html").read_text()
    trained.clear()
    assert main(words) == 0
    assert trained == []  # the same call trains nothing again
    assert [e.test for e in load_results(out).accuracy] == [e.test for e in results.accuracy]
    (out / "trainings.sqlite").unlink()
    assert main([*words, "--gate", "class"]) == 0
    assert {one.model for one in trained} == {"hlgc"}  # the rest is kept, times and splits included
    again = load_results(out)
    assert {(e.label, e.test_mean) for e in again.of("validation")} == {
        (e.label, e.test_mean) for e in results.of("validation")
    }
    assert [e.test for e in again.comparison] == [e.test for e in results.comparison]
    assert {e.model for e in again.timing} == set(test)


def test_a_part_keeps_the_rest_and_commands_repeat_the_figures(
    small, tmp_path, trained, monkeypatch
):
    monkeypatch.setattr(reproduce, "time_models", lambda *arguments, **options: [])
    call = {"quick": True, "datasets": ["cora"], "seeds": 2, "workers": 1}
    first = reproduce.reproduce(tmp_path / "q", **call)
    trained.clear()
    second = reproduce.reproduce(tmp_path / "q", models=["sgc"], **call)
    assert trained == []
    assert {e.model for e in second.accuracy} == {e.model for e in first.accuracy}
    entry = next(e for e in first.accuracy if e.model == "lgc")
    words = shlex.split(entry.command)
    assert words[:5] == ["hoplite", "train", "cora", "--model", "lgc"]
    pairs = dict(zip(words[5::2], words[6::2], strict=True))
    options = {name[2:].replace("-", "_"): value for name, value in pairs.items()}
    options = {k: v if k == "tie" else json.loads(v) for k, v in options.items()}
    again = hoplite.train("cora", "lgc", **options)
    assert again.test_accuracy == pytest.approx(entry.test_mean)
    with pytest.raises(ConfigError, match="has another run"):
        reproduce.reproduce(tmp_path / "q", quick=True, datasets=["cora"], seeds=3, workers=1)
    with pytest.raises(ConfigError, match="datasets is 'reddit'"):
        reproduce.reproduce(tmp_path / "r", datasets=["reddit"])


@pytest.mark.parametrize("gate", ["node", "class", "feature"])
def test_gated_coefficients_give_the_logits(gate, graphs):
    graph = graphs(n=40, d=5)
    model = hoplite.train(graph, "hlgc", gate=gate, hops=3, epochs=3).model
    nodes = np.concatenate([graph.split.train, graph.split.val, graph.split.test])
    hops = list(gated_coefficients(model, graph, nodes))
    source = Propagation.of(graph, model.config)
    features, theta = source.hop_features(nodes), model.weights["theta"]
    if gate == "feature":
        logits = sum((c * x) @ theta for c, x in zip(hops, features, strict=True))
    else:
        logits = sum(c * (x @ theta) for c, x in zip(hops, features, strict=True))
    np.testing.assert_allclose(logits, model.raw_logits(source)[nodes], rtol=2e-3, atol=2e-4)
    means, spreads = hop_coefficients(model, graph)
    assert means.shape == spreads.shape == (4,)
    linear = hoplite.train(graph, "lgc", hops=3, epochs=3).model
    np.testing.assert_allclose(hop_coefficients(linear, graph)[0], linear.filter_coefficients_)


def committed() -> Results:
    return load_results(COMMITTED)


def test_the_committed_results_have_a_report():
    report = paper_report(committed(), "A *note*.")
    text, html = markdown(report), page(report)
    cells = best_gates(committed(), "validation")
    assert len(cells) == 18
    for cell in cells.values():
        assert str(cell.ours) in text
        assert str(cell.ours) in html
    assert "A *note*." in text
    assert "test set instead would show +" in text  # docs/_ext/measured.py reads it
    assert "Content-Security-Policy\" content=\"default-src 'none'; " in html
    assert html.count("<h1>") == 1


def test_hostile_text_is_only_text():
    """Wherever a file can hold text, on the page and in Markdown."""
    results = committed()
    entry = replace(results.accuracy[0], config={HOSTILE: HOSTILE}, cut=HOSTILE, command=HOSTILE)
    hostile = replace(
        results,
        command=HOSTILE,
        provenance=replace(results.provenance, date=HOSTILE, machine=Machine(cpu=HOSTILE)),
        accuracy=[replace(entry, grid=HOSTILE, gate=HOSTILE)],
        timing=[replace(results.timing[0], gate=HOSTILE, config={"hops": HOSTILE})],
        curves=[replace(results.curves[0], gate=HOSTILE)],
    )
    html = page(paper_report(hostile))
    assert HOSTILE not in html
    assert html.count("<script") == 3
    assert "&lt;/script&gt;" in html
    text = re.sub("`.*`", "", markdown(paper_report(hostile)))  # a code span is text anyway
    assert not re.search("<(script|img)", text)


def test_defaults(tmp_path, monkeypatch):
    for name in ("tolokers", "actor"):
        write_graph(tmp_path / f"{name}.npz", 2, 5)
    monkeypatch.setattr(defaults, "SPLITS", 2)
    monkeypatch.setattr(defaults, "PAGE", tmp_path / "page.md")
    known = {"made_by": made_by(), "scores": {"tolokers": {"default": [0.25]}}}  # continued
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "page.json").write_text(json.dumps(known))
    text = defaults.run(tmp_path, tmp_path / "out", ["tolokers", "actor"], lambda *_: None)
    written = json.loads((tmp_path / "page.json").read_text())
    assert written["scores"]["tolokers"]["default"][0] == 0.25
    assert f"Made by {written['made_by']}." in text
    assert (tmp_path / "page.md").read_text() == text
    assert len([line for line in text.splitlines() if line.startswith("| tolokers | roc auc")]) == 1
    worse = {"default": [0.5, 0.6], "logistic": [0.7, 0.81], "boosting": [0.4, 0.7]}
    assert "It is worse on actor (logistic) by more" in defaults.page({"actor": worse})
    (tmp_path / "out" / "page.json").write_text(json.dumps(known | {"made_by": "another"}))
    defaults.run(tmp_path, tmp_path / "out", ["tolokers"], lambda *_: None)
    again = json.loads((tmp_path / "out" / "page.json").read_text())
    assert again["scores"]["tolokers"]["default"][0] != 0.25  # scored by this version


def test_imbalanced(tmp_path, monkeypatch):
    for name in imbalanced.GRAPHS:
        write_graph(tmp_path / f"{name}.npz", 2, 5)
    monkeypatch.setattr(imbalanced, "SPLITS", 2)
    monkeypatch.setattr(imbalanced, "GRID", {"hops": (0, 1)})
    text = imbalanced.run(tmp_path, tmp_path / "out", 1, lambda *_: None, tmp_path / "page.md")
    assert (tmp_path / "page.md").read_text() == text
    assert len([line for line in text.splitlines() if line.startswith("| tolokers")]) == 3
    assert made_by() in text
