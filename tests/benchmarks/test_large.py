"""The benchmarks of large graphs at their smallest size: the same processes, files and cluster."""

import pytest
from tests.commands import run_module

from benchmarks import child, large
from benchmarks.measure import Context
from hoplite import HopliteError


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """The figures mean nothing at this size, so the processes need not have imported all anew."""
    monkeypatch.setattr(child, "run", run_module)
    monkeypatch.setattr(large, "QUICK_SCALE", 0.005)
    monkeypatch.setattr(large, "QUICK_SCALES", ((0.005, 10**9),))
    monkeypatch.setattr(large, "QUICK_MODELS", ("lgc",))


@pytest.fixture(scope="module")
def context(tmp_path_factory):
    return Context(quick=True, threads=1, folder=tmp_path_factory.mktemp("large"))


def left(context):
    return sorted(path.name for path in context.folder.iterdir())


def test_hops(context):
    hops, operator, beyond = large.hops(context).figures
    assert hops.ours > 0
    assert operator.ours > 0
    assert 0 < beyond.ours < 2


def test_store(context):
    pytest.importorskip("distributed")
    figures = {figure.case: figure for figure in large.store(context).figures}
    ratio = figures["(on disk - the disk alone) / in memory"]
    seconds = [figures[case].ours for case in figures if case.startswith(("in m", "on disk, w"))]
    alone = figures["the disk alone: as many bytes"].ours
    assert ratio.ours == pytest.approx((seconds[1] - alone) / seconds[0])
    assert 0 < figures["on disk: peak memory"].ours < 1
    assert figures["local:2 / one process"].ours > 0
    assert left(context) == ["reddit-like-0.005"]


def test_the_cost_model_knows_the_bytes(context):
    figures = [figure for figure in large.cost_model(context).figures if figure.goal is not None]
    assert len(figures) == 3
    assert all(figure.passed for figure in figures), [figure.ours for figure in figures]


def test_update(context, monkeypatch):
    whole = large._write_graphs
    monkeypatch.setattr(
        large, "_write_graphs", lambda place, n, degree, d, new: whole(place, 3000, degree, 5, 15)
    )
    update, gap = large.update(context, degree=4, hops=2).figures
    assert update.peer == "anew"
    assert update.ratio > 0
    assert gap.passed
    assert "update" not in left(context)


def test_a_process_that_fails_says_why(tmp_path):
    with pytest.raises(HopliteError, match=r"a process of the benchmark failed: .*no such path"):
        child.ask("store", folder="none", out=str(tmp_path), hops=1, memory=10**9, threads=1)
