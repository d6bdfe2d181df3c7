"""Timing: turns, budgets, medians, ratios, goals and the page, on numbers known beforehand."""

import time

import numpy as np
import pytest
import torch

from benchmarks import machine, suite
from benchmarks.__main__ import main
from benchmarks.measure import (
    Contestant,
    Effort,
    Figure,
    Goal,
    Outcome,
    Samples,
    race,
    timed,
)
from benchmarks.product import power_law_matrix
from hoplite.engine.backend import get_num_threads


def test_contestants_take_turns_after_a_warm_up():
    calls = []

    def contestant(name, warm_up=None):
        return Contestant(name, lambda: calls.append(name) or 1.0, warm_up)

    race([contestant("a"), contestant("b", lambda: calls.append("warm b"))], Effort(2), 1)
    assert calls == ["a", "warm b", "a", "b", "a", "b"]


def test_a_contestant_may_have_threads_of_its_own():
    seen = []

    def contestant(name, threads=None):
        def sample():
            seen.append((name, get_num_threads(), torch.get_num_threads()))
            return 1.0

        return Contestant(name, sample, threads=threads)

    before = torch.get_num_threads()
    race([contestant("a"), contestant("b", 1)], Effort(1), 2)
    assert seen == [("a", 2, 2), ("b", 1, 1)] * 2
    assert torch.get_num_threads() == before


def test_no_round_starts_after_the_budget_but_one_is_always_made():
    samples = race([Contestant("a", timed(lambda: time.sleep(0.01)))], Effort(50, 0), 1)
    assert len(samples.seconds["a"]) == 1
    assert samples.median("a") >= 0.01


def test_ratio_is_the_median_of_the_rounds_ratios():
    samples = Samples({"ours": [1.0, 10.0, 2.0], "peer": [2.0, 30.0, 8.0]})
    figure = samples.figure("case", "ours", "peer", goal=Goal.ratio_at_least(3))
    assert (figure.ours, figure.theirs) == (2000.0, 8000.0)
    assert figure.ratio == 3.0  # of 2, 3 and 4; the ratio of the medians would be 4
    assert figure.passed is True
    assert samples.fastest("peer") == 2.0


@pytest.mark.parametrize(
    ("goal", "passed"),
    [
        (None, None),
        (Goal.at_most(3, "ms"), True),
        (Goal.at_most(2.9, "ms"), False),
        (Goal.between(0.9, 1.1), False),
        (Goal.at_least(3), True),
        (Goal.at_least(3.1), False),
        (Goal.ratio_at_least(5), True),
        (Goal.ratio_at_least(5.1), False),
    ],
)
def test_goals(goal, passed):
    assert Figure("case", 3.0, "ms", "peer", 15.0, 5.0, goal).passed is passed


def test_a_ratio_goal_without_a_peer_is_open():
    assert Figure("case", 3.0, "ms", goal=Goal.ratio_at_least(5)).passed is None


def test_power_law_graph():
    matrix = power_law_matrix(2000, 40_000, seed=1)
    assert matrix.dtype == np.float32
    assert 0.9 * 40_000 < matrix.nnz <= 40_000
    assert abs(matrix - matrix.T).max() < 1e-6
    degrees = np.sort(np.diff(matrix.indptr))
    assert degrees[-1] > 10 * np.median(degrees)
    assert np.linalg.norm(matrix @ np.ones(2000)) < 3 * np.sqrt(2000)  # normalised: no blow-up
    assert (power_law_matrix(2000, 40_000, seed=1) != matrix).nnz == 0
    sparse = power_law_matrix(1000, 100)
    assert np.isfinite(sparse.data).all()
    assert (np.diff(sparse.indptr) == 0).any()


def fake(context):
    figures = [
        Figure("fast", 2.0, "ms", "peer", 8.0, 4.0, Goal.ratio_at_least(3)),
        Figure("slow", 20_000.0, "ms", goal=Goal.at_most(3 if context.quick else 30_000, "ms")),
        Figure("free", 123.4, "ns"),
    ]
    return Outcome(figures, ["a note."])


FAKES = {
    "one": suite.Benchmark("one", "The first", fake),
    "two": suite.Benchmark("two", "The second", fake, quick=False),
}


@pytest.fixture
def quiet(monkeypatch):
    """A machine that is described without the seconds that an honest bandwidth takes."""
    whole = machine.describe
    monkeypatch.setattr(suite, "describe", lambda threads: whole(threads, floats=2**16))
    monkeypatch.setattr(machine.OtherPrograms, "share", lambda self: 0.05)


def test_the_page_has_a_row_for_every_figure(quiet):
    result = suite.run_suite(FAKES, quick=True)
    assert [benchmark.name for benchmark, _ in result.outcomes] == ["one"]
    page = suite.markdown(result, "python -m benchmarks --quick")
    assert "Written by `python -m benchmarks --quick`; do not edit." in page
    assert "| fast | 2 ms | peer: 8 ms | 4x | >= 3x: pass |" in page
    assert "| slow | 20 s | - | - | <= 3 ms: miss |" in page
    assert "| free | 123 ns | - | - | - |" in page
    assert "| fast | peer | >= 3x | 4x, pass |" in page  # the table of goals
    assert "1 of 2 goals reached" in page


def test_a_busy_machine_judges_nothing(quiet, monkeypatch):
    monkeypatch.setattr(machine.OtherPrograms, "share", lambda self: 0.4)
    result = suite.run_suite(FAKES)
    assert {figure.passed for figure in result.figures} == {None}
    assert {figure.ratio for figure in result.figures} == {None}
    assert "0 of 0 goals reached, 4 not judged" in suite.markdown(result, "")


def test_the_command(quiet, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("benchmarks.__main__.BENCHMARKS", FAKES)
    monkeypatch.setattr("benchmarks.__main__.LARGE", {})
    assert main(["--quick", "--out", str(tmp_path / "page.md")]) == 1  # a goal is missed
    assert "The first" in capsys.readouterr().out
    assert main(["--only", "two", "--out", str(tmp_path / "page.md")]) == 0
    page = (tmp_path / "page.md").read_text()
    assert "The second" in page
    assert "The first" not in page
    assert main(["--only", "two", "--quick"]) == 1
    assert "no quick size" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--only", "three"])
