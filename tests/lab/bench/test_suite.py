"""The suite and its reports: choice, JSON, Markdown, and the command itself."""

import json
import subprocess
import sys

import pytest
from tests.commands import hoplite

from hoplite import ConfigError
from hoplite.lab import machine
from hoplite.lab.bench import suite
from hoplite.lab.bench.measure import Figure, Goal, Outcome


def fake(context, size):
    context.report("half", 0.5)
    figures = [
        Figure("fast", 2.0, "ms", "peer", 8.0, 4.0, Goal.ratio_at_least(3), 5),
        Figure("slow", 20_000.0, "ms", goal=Goal.at_most(size, "ms")),
        Figure("free", 123.4, "ns"),
    ]
    return Outcome(figures, ["a note."], {"fact": 1.0})


AVAILABLE = (
    suite.Benchmark("one", "The first", fake, 3.0, 4.0),
    suite.Benchmark("two", "The second", fake, None, 4.0),
)


@pytest.fixture(params=[0.1])
def small_triad(monkeypatch, request):
    """The machine's facts without the seconds that an honest bandwidth takes, and its others."""
    whole = machine.describe
    monkeypatch.setattr(machine, "describe", lambda threads: whole(threads, floats=2**16))
    counts = [(0.0, 0.0, 0.0), (10.0, 9.0, 9.0 - 10 * request.param)]
    readings = iter(counts * 4)
    monkeypatch.setattr(machine, "_processor_seconds", lambda: next(readings))


@pytest.fixture
def result(small_triad):
    return suite.run_suite(quick=True, threads=1, available=AVAILABLE)


def test_choice():
    def names(quick, only):
        return [benchmark.name for benchmark in suite.chosen_benchmarks(quick, only, AVAILABLE)]

    assert names(True, []) == ["one"]
    assert names(False, []) == ["one", "two"]
    assert names(False, ["two"]) == ["two"]
    with pytest.raises(ConfigError, match="no quick size"):
        names(True, ["two"])
    with pytest.raises(ConfigError, match="Did you mean 'two'"):
        names(False, ["tow"])


def test_every_benchmark_has_its_own_name():
    names = [benchmark.name for benchmark in suite.BENCHMARKS]
    first = ["spmm", "spmm-reddit", "scaling", "epoch", "many", "hyper"]
    assert names == [*first, "family-epoch", "paper-times", "command", "serve", "grid"]
    assert [b.name for b in suite.BENCHMARKS if b.quick is None] == ["spmm-reddit", "grid"]


def test_progress_covers_all_benchmarks(small_triad):
    seen = []
    suite.run_suite(
        threads=1, progress=lambda what, share: seen.append((what, share)), available=AVAILABLE
    )
    assert seen == [("memory bandwidth", 0), ("one: half", 0.25), ("two: half", 0.75), ("done", 1)]


def test_json(result):
    values = json.loads(json.dumps(result.as_dict(), allow_nan=False))
    (benchmark,) = values["benchmarks"]
    assert benchmark["figures"][0] == {
        "case": "fast",
        "ours": 2.0,
        "unit": "ms",
        "peer": "peer",
        "theirs": 8.0,
        "ratio": 4.0,
        "goal": ">= 3x",
        "passed": True,
        "rounds": 5,
    }
    assert (values["goals_reached"], values["goals_missed"]) == (1, 1)
    assert benchmark["notes"] == ["a note."]
    assert values["machine"]["threads"] == 1


def test_markdown(result):
    page = suite.markdown(result, "hoplite bench --quick")
    assert "Written by `hoplite bench --quick`" in page
    assert "## The first (`one`)" in page
    assert "| fast | 2 ms | peer: 8 ms | 4x | >= 3x: pass |" in page
    assert "| slow | 20 s | - | - | <= 3 ms: miss |" in page
    assert "| free | 123 ns | - | - | - |" in page
    assert "- a note." in page
    assert "| fast | peer | >= 3x | 4x, pass |\n| slow | - | <= 3 ms | 20 s, miss |\n\n" in page
    assert "1 of 2 goals reached" in page
    assert "\n\n\n" not in page


@pytest.mark.parametrize("small_triad", [0.11, 1.0], indirect=True)
def test_a_busy_machine_gets_times_alone(small_triad, result):
    share = f"{100 * result.others['one']:.0f} %"
    page = suite.markdown(result, "hoplite bench --quick")
    assert "| fast | 2 ms | peer: 8 ms | - | >= 3x: not judged |" in page
    assert "| slow | 20 s | - | - | <= 3 ms: not judged |" in page
    assert f"others used {share} of the CPU meanwhile" in page
    assert "0 of 0 goals reached, 2 not judged" in page
    assert f"during a benchmark {share} at most" in page
    values = result.as_dict()
    (benchmark,) = values["benchmarks"]
    assert {f["ratio"] for f in benchmark["figures"]} == {None}
    assert {f["passed"] for f in benchmark["figures"]} == {None}
    assert (values["goals_reached"], values["goals_missed"]) == (0, 0)


def test_a_quiet_machine_is_told_of(result):
    line = suite.busy_line(result)
    assert line.endswith("and during a benchmark 10 % at most.")


def test_others_are_told_from_this_process():
    """Its own work, and that of a child it waited for, is not others'."""
    before = machine._processor_seconds()
    subprocess.run([sys.executable, "-c", "sum(range(3 * 10**7))"], check=True)
    sum(range(10**7))
    whole, worked, own = machine._processor_seconds()
    assert own - before[2] > 0.2
    assert 0 <= worked <= whole
    assert 0 <= machine.Others().share() <= 1


def test_command(tmp_path):
    process = hoplite(
        "bench",
        "--quick",
        "--only",
        "scaling",
        "--threads",
        "1",
        "--out",
        "B.md",
        "--json",
        cwd=tmp_path,
    )
    assert process.returncode == 0, process.stderr
    assert process.stderr == ""  # no terminal, no bar
    values = json.loads(process.stdout)
    assert (
        values["command"]
        == "hoplite bench --quick --only scaling --threads 1 --out B.md --overwrite"
    )
    page = (tmp_path / "B.md").read_text(encoding="utf-8")
    assert values["command"] in page
    assert "slope over hops" in page
    assert [path.name for path in tmp_path.iterdir()] == ["B.md"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--only", "smpm"], "Did you mean 'spmm'"),
        (["--quick", "--only", "grid"], "no quick size"),
        (["--out", "nowhere/B.md"], "in an existing folder"),
        (["--out", "B.txt"], "ending of --out"),
        (["--threads", "0"], "--threads"),
    ],
)
def test_wrong_use(tmp_path, arguments, sentence):
    process = hoplite("bench", *arguments, cwd=tmp_path)
    assert process.returncode == 2
    assert sentence in process.stderr
    assert "Traceback" not in process.stderr
