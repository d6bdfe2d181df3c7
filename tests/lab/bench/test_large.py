"""The benchmarks of large graphs at their smallest size: the same processes, files and cluster."""

import pytest
from tests.commands import run_module

from hoplite import HopliteError
from hoplite.lab.bench import child, large, update
from hoplite.lab.bench.measure import Context, Effort

SMALL = large.LargeSize(0.005, 2, 10**9, Effort(1))


@pytest.fixture(autouse=True)
def processes(monkeypatch):
    """The figures mean nothing at this size, so the processes need not have imported all anew."""
    monkeypatch.setattr(child, "_completed", run_module)


@pytest.fixture(scope="module")
def context(tmp_path_factory):
    return Context(threads=1, bandwidth=1e10, folder=tmp_path_factory.mktemp("large"))


def left(context):
    return sorted(path.name for path in context.folder.iterdir())


def test_hops(context):
    race, operator, beyond = large.run_hops(context, SMALL).figures
    assert (race.peer, race.goal.text) == ("torch", ">= 4x")
    assert race.ratio > 0
    assert operator.ours > 0
    assert 0 < beyond.ours < 2
    assert beyond.passed


def test_store(context):
    pytest.importorskip("distributed")
    outcome = large.run_store(context, SMALL)
    figures = {figure.case: figure for figure in outcome.figures}
    ratio = figures["(on disk - the disk alone) / in memory"]
    seconds = [figures[case].ours for case in figures if case.startswith(("in m", "on disk, w"))]
    alone = figures["the disk alone: as many bytes"].ours
    assert ratio.ours == pytest.approx((seconds[1] - alone) / seconds[0])
    assert figures["on disk: peak memory"].passed
    assert figures["local:2 / one process"].ours > 0
    assert left(context) == ["reddit-like-0.005"]


def test_budget(context):
    larger, peak, seconds = large.run_budget(context, SMALL).figures
    assert 0 < larger.ours < 1  # at this size Python is what takes the memory
    assert peak.passed
    assert seconds.ours > 0


def test_training(context):
    size = large.TrainSize(0.005, 1, 1, 10**9, ("lgc",), minutes=15)
    outcome = large.run_training(context, size)
    assert [figure.passed for figure in outcome.figures] == [None, True]
    assert "test accuracy" in outcome.notes[0]
    assert left(context) == ["reddit-like-0.005"]


def test_the_cost_model_tells_the_bytes(context):
    outcome = large.run_cost(context, large.CostSize(((0.005, 10**9),), 3))
    told = [figure for figure in outcome.figures if figure.goal is not None]
    assert len(told) == 3
    assert all(figure.passed for figure in told), [figure.ours for figure in told]


def test_update(context):
    size = update.UpdateSize(3000, 4, 5, 2, Effort(1))
    race, gap = update.run(context, size).figures
    assert (race.peer, race.goal.text) == ("anew", ">= 5x")
    assert race.ratio > 0
    assert gap.passed
    assert "update" not in left(context)


def test_a_process_that_fails_says_why(tmp_path):
    with pytest.raises(HopliteError, match=r"a process of the benchmark failed: .*no such path"):
        child.ask("store", folder="none", out=str(tmp_path), hops=1, memory=10**9, threads=1)
