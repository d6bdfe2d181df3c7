"""hoplite reproduce on the real Cora with few epochs: every section, honest and repeatable."""

from __future__ import annotations

import json
import multiprocessing
import os
import shlex
import shutil
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import hoplite
from hoplite.engine.propagation import Propagation
from hoplite.errors import ConfigError, HopliteError
from hoplite.lab.bench import peers
from hoplite.lab.machine import Machine
from hoplite.lab.report.findings import missing
from hoplite.lab.reproduce import comparison, reproduce, sections
from hoplite.lab.reproduce.chosen import Examination, Job, Trainings, hop_coefficients, train_all
from hoplite.lab.reproduce.gates import gated_coefficients
from hoplite.lab.reproduce.run import check_datasets, full_jobs, quick_jobs
from hoplite.lab.results import Accuracy, Results, Spectrum, load_results
from hoplite.selection import Ledger, rank, read_space
from hoplite.version import build

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
MACHINE = Machine(cpu="a test's", threads=1)  # measuring the real one takes seconds
EFFORT = sections.TimingEffort(epochs=2, slow_epochs=2, rounds=1)


@pytest.fixture
def grid(tmp_path: Path) -> str:
    path = tmp_path / "grid.toml"
    path.write_text(GRID)
    return str(path)


@pytest.fixture
def small(grid: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Few jobs on a small grid; everything else is as in a real run."""

    def jobs(datasets: tuple[str, ...]) -> list[Job]:
        plain = [Job(data, model, grid) for data in datasets for model in ("sgc", "lgc", "gcn")]
        return plain + [Job(data, "hlgc", grid, "class") for data in datasets]

    monkeypatch.setattr("hoplite.lab.reproduce.run.full_jobs", jobs)
    monkeypatch.setattr("hoplite.lab.reproduce.run.quick_jobs", jobs)
    monkeypatch.setattr(sections, "FULL", EFFORT)
    monkeypatch.setattr(sections, "QUICK", EFFORT)
    monkeypatch.setattr(comparison, "SPLITS", 2)
    monkeypatch.setattr("hoplite.lab.reproduce.run.describe", lambda threads: MACHINE)
    return grid


def leave_out_times_and_spectra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They take most of a small run, and one test of them is enough."""
    nothing = Spectrum(dataset="cora", points=[], responses=[])
    monkeypatch.setattr(sections, "time_jobs", lambda *arguments: [])
    monkeypatch.setattr(sections, "spectrum", lambda *arguments: nothing)


def test_a_full_run_has_every_section(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, stages = tmp_path / "full", []
    results = reproduce(
        out, datasets=["cora"], seeds=2, workers=1, notes="A *note*.",
        progress=lambda what, share: stages.append(share),
    )  # fmt: skip
    assert load_results(out) == results
    assert stages == sorted(stages)
    assert stages[-1] == 1
    by_protocol = {
        protocol: {entry.model: entry for entry in results.of(protocol)}
        for protocol in ("validation", "test")
    }
    assert (
        set(by_protocol["validation"]) == set(by_protocol["test"]) == {"sgc", "lgc", "gcn", "hlgc"}
    )
    assert by_protocol["validation"]["lgc"].runs == 8
    for model, entry in by_protocol["test"].items():
        ledger = Ledger.read(next((out / "searches").glob(f"cora-{model}*")))
        assert entry.test_mean == max(one.test_mean for one in rank(ledger, "test"))
        assert by_protocol["validation"][model].config == rank(ledger, "validation")[0].options
    assert {e.model for e in results.timing} == set(by_protocol["test"])
    for entry in results.timing:  # beside the same model by others, with the CPU's use meanwhile
        plain = [peer for peer in entry.peers if peer.name.startswith("plain torch")]
        assert len(plain) == (entry.model in peers.PLAIN)
        assert 0 <= entry.others <= 1
    assert {e.model for e in results.curves} == {"sgc", "lgc", "hlgc"}
    assert {e.model for e in results.coefficients} == {"lgc", "hlgc"}
    (spectrum,) = results.spectrum
    assert {r.model for r in spectrum.responses} == {"sgc", "lgc", "hlgc"}
    assert np.max(spectrum.responses[0].mean) == pytest.approx(1)  # SGC is exactly x^3
    assert [(e.label, len(e.test)) for e in results.comparison] == [
        ("LGC", 2), ("hLGC, class gate", 2),
    ]  # fmt: skip
    runs = pq.read_table(out / "runs.parquet")
    assert "test_accuracy" not in runs.column_names
    assert len(runs) == sum(e.runs for e in by_protocol["test"].values())
    assert "A *note*." in (out / "RESULTS.md").read_text()
    assert "biased" in (out / "report.html").read_text().lower()
    check_nothing_is_trained_again(out, results, monkeypatch)


def test_the_commands_repeat_the_figures(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each number says the command that gives it again."""
    leave_out_times_and_spectra(monkeypatch)
    results = reproduce(tmp_path / "q", quick=True, datasets=["cora"], seeds=2)
    entry = next(e for e in results.accuracy if e.model == "lgc")
    words = shlex.split(entry.command)
    assert words[:5] == ["hoplite", "train", "cora", "--model", "lgc"]
    pairs = dict(zip(words[5::2], words[6::2], strict=True))
    options = {name[2:].replace("-", "_"): float(value) for name, value in pairs.items()}
    whole = {name: int(options.pop(name)) for name in ("hops", "seeds", "epochs")}
    again = hoplite.train("cora", "lgc", **whole, **options)
    assert again.test_accuracy == pytest.approx(entry.test_mean)
    assert {e.protocol for e in results.accuracy} == {"validation"}


def check_nothing_is_trained_again(
    out: Path, first: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no(*arguments: object, **options: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr("hoplite.lab.reproduce.chosen.train", no)
    monkeypatch.setattr(comparison, "train", no)
    leave_out_times_and_spectra(monkeypatch)
    again = reproduce(out, datasets=["cora"], seeds=2, workers=1)
    for section in ("accuracy", "curves", "coefficients", "comparison"):
        assert getattr(again, section) == getattr(first, section)
    with pytest.raises(ConfigError, match="holds a run with seeds 2, and this one has 1"):
        reproduce(out, datasets=["cora"], seeds=1, workers=1)


def test_one_model_again_beside_what_is_there(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others stay as they are, without their searches; all are timed again."""
    timed: list[list[tuple[str, str | None]]] = []
    points = np.linspace(-1, 1, 5)
    monkeypatch.setattr(sections, "spectral_density", lambda *arguments: (points, points**2))
    monkeypatch.setattr(
        sections, "time_jobs", lambda graph, all, *_: timed.append([(e.model, e.gate) for e in all])
        or [],
    )  # fmt: skip
    first = reproduce(tmp_path, datasets=["cora"], seeds=1, workers=1)
    rows = pq.read_table(tmp_path / "runs.parquet")
    shutil.rmtree(tmp_path / "searches")
    shutil.rmtree(tmp_path / "chosen")
    content = first.as_dict()
    for entry in content["accuracy"]:  # as earlier versions wrote it
        del entry["date"], entry["hoplite"]
    content["provenance"] = {"date": "2020-02-29", "machine": {"versions": {"hoplite": "0.0.1"}}}
    (tmp_path / "results.json").write_text(json.dumps(content))
    with pytest.raises(ConfigError, match="models is 'hlcg'"):
        reproduce(tmp_path, datasets=["cora"], models=["hlcg"], seeds=1)
    again = reproduce(tmp_path, datasets=["cora"], models=["hlgc"], seeds=1, workers=1)
    assert load_results(tmp_path) == again
    assert [path.name for path in (tmp_path / "searches").iterdir()] == ["cora-hlgc-class"]

    def plain(results: Results) -> list[Accuracy]:
        return [replace(e, date=None, hoplite=None, minutes=0) for e in results.accuracy]

    assert plain(again) == plain(first)
    assert {e.date == "2020-02-29": e.hoplite for e in again.accuracy} == {
        True: "0.0.1", False: build(),
    }  # fmt: skip
    for section in ("curves", "coefficients", "spectrum", "comparison"):
        assert getattr(again, section) == getattr(first, section)
    assert again.command == first.command
    assert timed[0] == timed[1]
    times = ["seconds"]
    runs = pq.read_table(tmp_path / "runs.parquet").drop_columns(times).to_pylist()
    assert runs == rows.drop_columns(times).to_pylist()
    text = (tmp_path / "RESULTS.md").read_text()
    assert "those of SGC, LGC and GCN on 2020-02-29, Hoplite 0.0.1; those of hLGC on " in text


@dataclass(frozen=True)
class Deadly(Job):
    """Its first process is killed as soon as it looks at the job."""

    marks: str = ""

    @property
    def name(self) -> str:
        mark = Path(self.marks) / self.model
        if multiprocessing.parent_process() is not None and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().name


def test_a_killed_worker_is_replaced(graphs, tmp_path: Path) -> None:
    graph = graphs(n=40, d=6, dtype=np.float32)
    jobs = [Deadly("cora", model, "quick", marks=str(tmp_path)) for model in ("lgc", "gcn")]
    tasks = [Examination(graph, job, {"epochs": 2}, [0]) for job in jobs]
    folder, shares = tmp_path / "chosen", []
    found = train_all(tasks, folder, 2, lambda what, share: shares.append(share))
    assert [len(seen.val) for seen in found] == [1, 1]
    assert {path.name for path in tmp_path.iterdir()} >= {"lgc", "gcn"}  # both were killed
    assert sorted(path.name for path in folder.iterdir()) == ["cora-gcn.json", "cora-lgc.json"]
    assert shares == sorted(shares)


def test_what_cannot_be_written_is_told_in_a_sentence(graphs, tmp_path: Path) -> None:
    work = Trainings(tmp_path, [Examination(graphs(), Job("cora", "sgc", "quick"), {}, [0])])
    (tmp_path / ".cora-sgc.lock").mkdir()
    with pytest.raises(HopliteError, match=r"^cannot write to .*: Is a directory\. What was"):
        work.work()


def test_what_another_command_is_at_stays(graphs, tmp_path: Path) -> None:
    jobs = [Job("cora", model, "quick") for model in ("sgc", "lgc")]
    work = Trainings(tmp_path, [Examination(graphs(), job, {}, [0]) for job in jobs])
    for name in (".cora-sgc.json.tmp", ".cora-lgc.json.tmp", ".cora-lgc.json.0123456789abcdef.tmp"):
        (tmp_path / name).touch()
    with work._locked(work.tasks[0]) as locked:
        assert locked
        work.tidy()
    assert {path.name for path in tmp_path.iterdir()} == {".cora-sgc.json.tmp", ".cora-sgc.lock"}
    work.tidy()
    assert not list(tmp_path.iterdir())


def test_an_interrupted_quick_run_can_be_shown(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hoplite.lab.reproduce.run.train_all", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reproduce(tmp_path, quick=True, datasets=["cora"])
    found = load_results(tmp_path)
    assert found.quick
    assert "reproduce --quick --dataset cora" in str(found.command)
    assert "Time per epoch." in missing(found)
    with pytest.raises(ConfigError, match="holds a run with kind 'quick', and this one has 'full'"):
        reproduce(tmp_path, datasets=["cora"])


def test_unknown_datasets_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'coar'"):
        reproduce(tmp_path, datasets=["coar"])
    assert check_datasets(["pubmed", "cora"]) == ("cora", "pubmed")


def test_the_jobs_have_grids() -> None:
    jobs = full_jobs(check_datasets(None)) + quick_jobs(check_datasets(None))
    for job in jobs:
        found = read_space(job.grid).configurations(job.dataset, job.model, job.fixed)
        assert len(found) == 1 if job.grid == "quick" else len(found) >= 1
    assert len({job.name for job in full_jobs(check_datasets(None))}) == len(
        full_jobs(check_datasets(None))
    )


def test_quick_grid_is_what_a_full_run_chose() -> None:
    sys.path.insert(0, str(Path(__file__).parents[3] / "scripts"))
    try:
        from update_quick_grid import quick_grid
    finally:
        sys.path.pop(0)
    from hoplite.selection.space import parse_space

    config = {"hops": 7, "hidden": 4, "lr": 0.05, "weight_decay": 5e-06, "dropout": 0.2}
    entries = [
        Accuracy(protocol=p, dataset="cora", model=m, config=config, test_mean=0.8, test_std=0.0)
        for p in ("test", "validation")
        for m in ("lgc", "gcn")
    ]
    space = parse_space(quick_grid(Results(accuracy=entries)), "quick")
    rest = {name: config[name] for name in ("lr", "weight_decay", "dropout")}
    assert space.configurations("cora", "lgc") == [{"hops": 7, **rest}]
    assert space.configurations("cora", "gcn") == [{"hidden": 4, **rest}]
    gates = [("class", 0.7, 0.1), ("node", 0.8, 0.9), ("feature", 0.9, 300.0)]
    gated = [
        replace(
            entries[-1], model="hlgc", gate=gate, config=config | {"gate": gate},
            val_mean=val, runs=10, minutes=minutes,
        )
        for gate, val, minutes in gates
    ]  # fmt: skip
    for count, gate in ((3, "node"), (1, "class")):  # the best of those that are not too dear
        space = parse_space(quick_grid(Results(accuracy=gated[:count])), "quick")
        assert space.configurations("cora", "hlgc") == [{"hops": 7, **rest, "gate": gate}]
    space = parse_space(quick_grid(Results(accuracy=gated[2:])), "quick")
    assert space.configurations("cora", "hlgc")[0]["gate"] == "feature"


@pytest.mark.parametrize("gate", ["node", "class", "feature"])
def test_gated_coefficients_are_those_that_act(graphs, gate: str) -> None:
    """With a gate that is the same for every node, they are alpha_i times that number."""
    graph = graphs(n=20, d=4, classes=3, dtype=np.float32)
    model = hoplite.train(graph, "hlgc", gate=gate, hops=3, epochs=1, dropout=0).model
    factor = 0.5 if gate == "node" else 2.0  # sigmoid(0) is a half; the others have a bias
    weights = {
        name: np.full_like(value, factor if name == "gate_bias" else 0)
        if name.startswith("gate")
        else value
        for name, value in model.weights.items()
    }
    same = replace(model, weights=weights)
    mean, spread = hop_coefficients(same, graph)
    alpha = np.ones(4) if gate == "feature" else weights["alpha"]  # that gate has none
    assert mean == pytest.approx(factor * alpha, rel=1e-5)
    assert spread == pytest.approx(np.zeros(4), abs=1e-6)


@pytest.mark.parametrize("gate", ["node", "class", "feature"])
def test_gated_coefficients_give_the_outputs_of_the_network(graphs, gate: str) -> None:
    graph = graphs(n=20, d=4, classes=3, dtype=np.float32)
    model = hoplite.train(graph, "hlgc", gate=gate, hops=3, epochs=3, lr=0.5).model
    nodes, theta = np.array([3, 0, 11]), model.weights["theta"]
    hops = Propagation.of(graph, model.config).hop_features(nodes)
    gates = list(gated_coefficients(model, graph, nodes))
    assert len(gates) == len(hops) == 4
    total = sum(
        (hop * one) @ theta if gate == "feature" else one * (hop @ theta)
        for hop, one in zip(hops, gates, strict=True)
    )
    np.testing.assert_allclose(total, model.logits(graph)[nodes], rtol=1e-4, atol=1e-5)
