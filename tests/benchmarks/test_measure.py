"""Timing: turns, budgets, medians, ratios, goals and the page, on numbers known beforehand."""

import time

import pytest

from benchmarks.measure import Contestant, Effort, Figure, Goal, Samples, race, timed


def test_contestants_take_turns_after_a_warm_up():
    calls = []

    def contestant(name, warm_up=None):
        return Contestant(name, lambda: calls.append(name) or 1.0, warm_up)

    race([contestant("a"), contestant("b", lambda: calls.append("warm b"))], Effort(2), 1)
    assert calls == ["a", "warm b", "a", "b", "a", "b"]


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
