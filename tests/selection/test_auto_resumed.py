"""auto with a budget, killed or called again: what is decided or finished stays so."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from tests.selection.test_auto import FEW, FILE, clusters, said

import hoplite
from hoplite.errors import LedgerError
from hoplite.graph import Graph
from hoplite.selection import halving
from hoplite.selection.budget import Clock

pytestmark = pytest.mark.filterwarnings("ignore:.*no better than:hoplite.HopliteWarning")


@pytest.fixture
def graph(graphs) -> Graph:
    return graphs(n=60, d=6, classes=3, seed=3, dtype=np.float32)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "candidates.toml"
    path.write_text(FILE)
    return path


class KilledError(BaseException):
    """Nothing catches it, as nothing catches a kill."""


def killed(*arguments, **options):
    raise KilledError


def time_is_up(self: Clock, share: float = 1.0) -> float:
    return math.inf if self.budget is None else -1.0


@pytest.mark.parametrize("at", ["_ranked", "last_training", "train"])
def test_what_is_finished_needs_no_time(graph, file, tmp_path, monkeypatch, at):
    """Killed when the tables, the finalists or all are done, and resumed when time is up."""
    call = {"budget": "1h", "candidates": file, **FEW}
    whole = hoplite.auto(graph, **call)
    with monkeypatch.context() as patch:
        patch.setattr(halving if at == "train" else halving._Race, at, killed)
        with pytest.raises(KilledError):
            hoplite.auto(graph, out=tmp_path / "m", **call)
    monkeypatch.setattr(Clock, "left", time_is_up)
    found = hoplite.auto(graph, out=tmp_path / "m", **call)
    if at == "_ranked":  # of rung 0: the others have no time, but all of it counts
        assert found.sizes[0] == 12
        assert found.trials != whole.trials
    else:
        assert said(found) == said(whole)
        assert not found.shortened
    again = hoplite.auto(graph, trials=found.trials, candidates=file, **FEW)
    assert again.chosen == found.chosen


@pytest.mark.parametrize("earlier", [False, True], ids=["now", "earlier"])
@pytest.mark.parametrize("alone", [False, True], ids=["several", "alone"])
def test_the_same_call_again_gives_the_same_model(
    graph, file, tmp_path, monkeypatch, alone, earlier
):
    """However much time was spent; also if an earlier version kept no sizes of the training."""
    if alone:  # then no rung tells how long its training takes
        file.write_text("[[try]]\nmodel = 'lgc'\nhops = 3\nlr = 0.2\n")
    out = tmp_path / "m"
    call = {"budget": "1h", "candidates": file, "seeds": 3, "epochs": 30, "out": out}
    first = hoplite.auto(graph, **call)
    wanted = first.model.predict_proba(graph)
    plan = out / "auto" / "plan.json"
    if earlier:
        kept = json.loads(plan.read_text())
        plan.write_text(json.dumps(kept | {"final": {}, "sizes": [1, 1, 1], "checksum": None}))
    monkeypatch.setattr(Clock, "left", time_is_up)
    for _ in range(2):
        again = hoplite.auto(graph, **call)
        assert said(again) == said(first)
        assert [run.epochs for run in again.trained.runs] == [r.epochs for r in first.trained.runs]
        assert again.shortened == first.shortened == []
        np.testing.assert_array_equal(again.model.predict_proba(graph), wanted)
        saved = hoplite.TrainedModel.load(out)
        np.testing.assert_array_equal(saved.predict_proba(graph), wanted)
    (out / "auto" / "auto.json").write_text('{"trials": "none"}')
    with pytest.raises(LedgerError, match=r"auto\.json is damaged; delete it"):
        hoplite.auto(graph, **call)


def test_a_shortened_training_is_as_short_again(graph, file, tmp_path, monkeypatch):
    call = {"budget": 10, "candidates": file, "seeds": 3, "epochs": 30, "out": tmp_path / "m"}
    with monkeypatch.context() as patch:
        patch.setattr(Clock, "left", time_is_up)
        first = hoplite.auto(graph, **call)
    assert first.trials == "1/1/1"
    assert (len(first.trained.runs), first.trained.training_config.epochs) == (1, 20)
    again = hoplite.auto(graph, **call)
    assert said(again) == said(first)
    assert again.shortened == first.shortened
    assert again.trained.training_config.epochs == 20


def test_few_candidates_go_on_in_the_order_of_the_first_rung(tmp_path, monkeypatch):
    """Three are tried and three are finalists; the best goes first, also after a kill."""
    file, graph = tmp_path / "c.toml", clusters(noise=False)
    file.write_text("[[try]]\nmodel = 'sgc'\nhops = [0, 1, 2]\nlr = 0.1\n")
    call = {"budget": "1h", "candidates": file, "out": tmp_path / "m", "seeds": 2, "epochs": 40}
    before, finals = halving._Race._train, []

    def train(self, rung, trials, check):
        finals.extend(trials if rung == 2 else [])
        return killed() if len(finals) == 2 else before(self, rung, trials, check)

    with monkeypatch.context() as patch:
        patch.setattr(halving._Race, "_train", train)
        with pytest.raises(KilledError):
            hoplite.auto(graph, **call)
    assert finals[0].options["hops"] > 0  # so it is not the first of the file
    monkeypatch.setattr(Clock, "left", time_is_up)
    found = hoplite.auto(graph, **call)
    assert (found.trials, found.chosen) == ("3/1/1", finals[0])
    again = hoplite.auto(graph, trials="3/1/1", candidates=file, seeds=2, epochs=40)
    assert again.chosen == found.chosen
