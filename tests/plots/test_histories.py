"""Pictures of trainings and searches: their curves are the recorded ones."""

import numpy as np
import pytest

from hoplite import search

go = pytest.importorskip("plotly.graph_objects")


def lines(figure):
    return [t for t in figure.data if t.mode == "lines"]


def test_curves_are_the_history(graph, trained):
    result = trained["jacobiconv"]
    figure = result.plot_history()
    drawn = {(t.name, t.yaxis): np.array(t.y, dtype=float) for t in lines(figure)}
    assert len(drawn) == 3 * 4  # seeds; training and validation, loss and accuracy
    for run in result.runs:
        for part, title in (("train", "training"), ("val", "validation")):
            for axis, what in (("y", "loss"), ("y2", "accuracy")):
                np.testing.assert_array_equal(
                    drawn[f"{title}, seed {run.seed}", axis], run.history[f"{part}_{what}"]
                )


def test_settings_of_a_search(graph, tmp_path):
    (tmp_path / "mine.toml").write_text("[any]\nlr = [0.01, 0.1]\nhops = [0, 1]\n")
    found = search(
        graph, "sgc", grid=tmp_path / "mine.toml", out=tmp_path / "out", seeds=2, epochs=8
    )
    (points,) = found.plot().data
    assert list(points.y) == [pytest.approx(np.mean(one.val)) for one in found.ranking]
    assert list(points.y) == sorted(points.y, reverse=True)
    assert list(points.error_y.array) == [pytest.approx(np.std(one.val)) for one in found.ranking]
    best = found.best.options
    assert points.customdata[0] == f"hops {best['hops']}, lr {best['lr']}"
    assert "<script>" not in found._repr_html_()
