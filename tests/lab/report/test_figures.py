"""The figures: valid for Plotly, complete, and robust to what a training can produce."""

import json
import re

import pytest

from hoplite.lab.report.figures import (
    accuracy_figures,
    coefficient_figures,
    comparison_figures,
    curve_figures,
    curves_note,
    mistake_figures,
    spectrum_figures,
)
from hoplite.lab.report.page import page, script_json
from hoplite.lab.results import as_results

MAKERS = (
    accuracy_figures, coefficient_figures, comparison_figures, curve_figures, spectrum_figures,
)  # fmt: skip


def plain(figure):
    """The figure with every named colour replaced by one that Plotly knows."""
    text = json.dumps({"data": figure.data, "layout": figure.layout}, allow_nan=False)
    return json.loads(re.sub(r'"@[a-z]+(/[\d.]+)?"', '"black"', text))


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_figures_are_valid_and_described(make, hostile_results):
    graph_objects = pytest.importorskip("plotly.graph_objects")
    figures = make(as_results(hostile_results))
    assert len(figures) >= 3
    assert len({figure.id for figure in figures}) == len(figures)
    for figure in figures:
        graph_objects.Figure(plain(figure))  # raises on a name or value that Plotly has not
        assert figure.summary
        assert all(len(row) == len(figure.columns) for row in figure.rows)
        assert figure.rows
        for trace in figure.data:
            assert len(trace["x"]) == len(trace["y"]) > 0


def test_responses_are_divided_by_their_largest(results):
    for figure in spectrum_figures(as_results(results)):
        for trace in figure.data:
            if trace["mode"] == "lines" and trace.get("name") in ("SGC", "EGC", "LGC"):
                assert max(abs(y) for y in trace["y"]) == pytest.approx(1)


def test_curves_share_their_axes(results):
    figures = curve_figures(as_results(results))
    assert len({str(f.layout["xaxis"]["range"]) for f in figures}) == 1
    assert len({str(f.layout["yaxis"]["range"]) for f in figures}) == 1
    assert all("best epoch 40" in f.layout["annotations"][0]["text"] for f in figures)
    assert curves_note(figures) == ""
    results["curves"][0]["test_loss"][5] = 500.0
    figures = curve_figures(as_results(results))
    assert figures[0].layout["yaxis"]["range"][1] < 10
    assert "leaves it" in curves_note(figures)


def test_what_is_not_a_number_becomes_a_gap(results):
    nan, infinite = float("nan"), float("inf")
    results["curves"][0]["train_loss"] = [1.0, nan, infinite, None, 2.0]
    results["coefficients"][0] |= {"mean": [nan, 1.0, None], "std": [0.1, infinite]}
    results["spectrum"][0]["responses"][0]["mean"][3] = nan
    results["spectrum"][0]["density"] = results["spectrum"][0]["density"][:-1]
    results = as_results(results)
    for make in MAKERS:
        for figure in make(results):
            json.dumps([figure.data, figure.layout], allow_nan=False)
    assert "NaN" not in page(results).split('id="specs">')[1].split("</script>")[0]


def test_figures_of_nothing():
    for make in MAKERS:
        assert make(as_results({"format": 1})) == []
    empty = {"dataset": "cora", "model": "lgc"}
    curve = empty | {"train_loss": [], "val_loss": [], "test_loss": []}
    zero = {"dataset": "cora", "points": [], "responses": [empty | {"mean": [], "std": []}]}
    results = {
        "format": 1,
        "curves": [curve],
        "coefficients": [empty | {"mean": [], "std": []}],
        "spectrum": [zero],
    }
    assert "LGC: no response." in page(as_results(results))


def test_script_json_cannot_end_the_script(hostile_text):
    written = script_json({hostile_text: hostile_text})
    assert not re.search("[<>&]", written)
    assert json.loads(written) == {hostile_text: hostile_text}


def test_where_the_best_model_errs(hostile_text):
    names, matrix = [hostile_text, "b"], [[5, 2], [0, 9]]
    told = {
        "nodes": "test", "seed": 3, "mean": {"calibration_error": 0.1}, "std": {}, "baseline": {},
        "classes": {name: {"support": 1.0} for name in names}, "confusion": matrix,
        "reliability": [[0.6, 0.5, 4.0], [0.9, 1.0, 12.0]],
    }  # fmt: skip
    usual = {
        "dataset": "cora",
        "protocol": "validation",
        "config": {},
        "test_mean": 0.5,
        "test_std": 0.1,
    }
    entries = [
        usual | {"model": "lgc", "val_mean": 0.8, "figures": told},
        usual | {"model": "sgc", "val_mean": 0.7, "test_mean": 0.9, "figures": told},
        usual | {"model": "egc", "val_mean": 0.9},  # keeps no figures
    ]
    results = as_results({"format": 1, "accuracy": entries})
    confusion, reliability = mistake_figures(results)
    assert confusion.heading == "LGC on Cora: who is taken for whom"  # validation chose it
    assert confusion.data[0]["text"] == [["5", "2"], ["0", "9"]]
    assert "14 of 16 nodes" in confusion.summary
    assert reliability.data[1]["x"] == [0.6, 0.9]
    assert reliability.rows[1] == ["0.9", "1", "12"]
    graph_objects = pytest.importorskip("plotly.graph_objects")
    for figure in (confusion, reliability):
        graph_objects.Figure(plain(figure))
    assert "<img" not in json.dumps(confusion.data)
    assert "Where the best model of each dataset errs" in page(results)

    told["confusion"], told["reliability"] = [[5], [0, 9]], [[0.6, 0.5]]  # a damaged file
    assert mistake_figures(as_results({"format": 1, "accuracy": entries})) == []
    del told["reliability"]  # of an earlier version
    told["confusion"] = matrix
    assert len(mistake_figures(as_results({"format": 1, "accuracy": entries}))) == 1
