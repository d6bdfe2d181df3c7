"""Timing: turns, budgets, medians, ratios, goals and the roofline, on numbers known beforehand."""

import time

import numpy as np
import pytest
import torch

from hoplite.engine.backend import get_num_threads
from hoplite.lab.bench.measure import (
    Contestant,
    Effort,
    Figure,
    Goal,
    Samples,
    interleave,
    timed,
    using_threads,
)
from hoplite.lab.bench.product import Traffic, power_law_matrix
from hoplite.lab.bench.scaling import fitted_slope
from hoplite.lab.machine import describe


def ignore(what, share):
    pass


def test_contestants_take_turns_after_a_warm_up():
    calls = []

    def contestant(name, warm_up=None):
        return Contestant(name, lambda: calls.append(name) or 1.0, warm_up)

    shares = []
    samples = interleave(
        [contestant("a"), contestant("b", lambda: calls.append("warm b"))],
        Effort(2),
        lambda what, share: shares.append(share),
    )
    assert calls == ["a", "warm b", "a", "b", "a", "b"]
    assert samples.rounds == 2
    assert shares == sorted(shares)
    assert 0 <= shares[0] < shares[-1] < 1


def test_a_contestant_may_have_threads_of_its_own():
    seen = []

    def contestant(name, threads=None):
        def sample():
            seen.append((name, get_num_threads(), torch.get_num_threads()))
            return 1.0

        return Contestant(name, sample, threads=threads)

    before = torch.get_num_threads()
    with using_threads(2):
        interleave([contestant("a"), contestant("b", 1)], Effort(1), ignore)
    assert seen == [("a", 2, 2), ("b", 1, 1)] * 2
    assert torch.get_num_threads() == before


def test_no_round_starts_after_the_budget_but_one_is_always_made():
    samples = interleave([Contestant("a", timed(lambda: time.sleep(0.01)))], Effort(50, 0), ignore)
    assert samples.rounds == 1
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
    figure = Figure("case", 3.0, "ms", "peer", 15.0, 5.0, goal)
    assert figure.passed is passed
    assert figure.as_dict()["passed"] is passed


def test_a_ratio_goal_without_a_peer_is_open():
    assert Figure("case", 3.0, "ms", goal=Goal.ratio_at_least(5)).passed is None


def test_traffic_counts_bytes():
    traffic = Traffic(nodes=100, nonzeros=1000, columns=8)
    csr = 8 * 101 + 8 * 1000
    assert traffic.compulsory == csr + 2 * 100 * 8 * 4
    assert traffic.gather == csr + 1000 * 8 * 4 + 100 * 8 * 4
    facts = traffic.facts(seconds=1e-6, bandwidth=1e9)
    assert facts["gflop_per_s"] == pytest.approx(16.0)
    assert facts["roofline_ms_compulsory"] == pytest.approx(traffic.compulsory / 1e6)
    assert facts["gather_gb_per_s"] == pytest.approx(traffic.gather / 1e3)


def test_slope_of_a_square_law():
    assert fitted_slope([1, 3, 9], [2, 18, 162]) == pytest.approx(2.0)


def test_threads_are_given_back():
    before = get_num_threads()
    with using_threads(before + 1):
        assert get_num_threads() == before + 1
    with pytest.raises(ZeroDivisionError), using_threads(before + 1):
        raise ZeroDivisionError
    assert get_num_threads() == before


def test_power_law_graph():
    matrix = power_law_matrix(2000, 40_000, seed=1)
    assert matrix.dtype == np.float32
    assert matrix.has_canonical_format
    assert 0.9 * 40_000 < matrix.nnz <= 40_000
    assert abs(matrix - matrix.T).max() < 1e-6
    degrees = np.sort(np.diff(matrix.indptr))
    assert degrees[-1] > 10 * np.median(degrees)
    assert np.linalg.norm(matrix @ np.ones(2000)) < 3 * np.sqrt(2000)  # normalised: no blow-up
    again = power_law_matrix(2000, 40_000, seed=1)
    assert (again != matrix).nnz == 0


def test_power_law_graph_with_isolated_nodes_is_finite():
    matrix = power_law_matrix(1000, 100)
    assert np.isfinite(matrix.data).all()
    assert (np.diff(matrix.indptr) == 0).any()


def test_machine_facts():
    facts = describe(1, floats=2**18)
    assert facts.threads == 1
    assert facts.bandwidth_gb_s > 0
    assert {"python", "torch", "scipy", "hoplite"} <= facts.versions.keys()
    assert 0 <= facts.busy_before <= 1
    assert facts.memory_gb > 0
