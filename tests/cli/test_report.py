"""hoplite report as a user meets it: a real process, its two streams and its exit code."""

import json

import pytest
from tests.commands import hoplite

ENTRY = {
    "protocol": "validation",
    "dataset": "cora",
    "model": "lgc",
    "gate": None,
    "grid": "quick",
    "config": {"hops": 20},
    "seeds": [0],
    "val_mean": 0.81,
    "val_std": 0.0,
    "test_mean": 0.82,
    "test_std": 0.0,
    "command": "hoplite train cora",
}


@pytest.fixture
def folder(tmp_path):
    results = {"format": 1, "kind": "quick", "accuracy": [ENTRY]}
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "results.json").write_text(json.dumps(results), encoding="utf-8")
    return tmp_path


def test_report(folder):
    process = hoplite("report", "run", "--out", "page.html", cwd=folder)
    assert process.returncode == 0, process.stderr
    assert "82.0 (paper 82.0, +0.0)" in process.stdout  # one seed has no deviation
    assert "settings chosen beforehand" in process.stdout
    assert "1 of 1 accuracy within 1.0 point" in process.stdout
    assert "Not in this run: Time per epoch" in process.stdout
    assert "Page: page.html" in process.stdout
    assert (folder / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_report_json(folder):
    process = hoplite("report", "run", "--json", cwd=folder)
    values = json.loads(process.stdout)
    assert values["out"] == "report.html"
    assert values["headline"].startswith("1 of 1")
    assert values["missing"]
    assert (folder / "report.html").exists()


@pytest.mark.parametrize(
    ("code", "arguments", "message"),
    [
        (1, ["elsewhere"], "does not exist"),
        (2, ["run", "--out", "page.pdf"], "'.pdf'; it must be one of .html"),
        (2, ["run", "--out", "no/page.html"], "existing folder"),
        (2, [], "Missing argument"),
    ],
)
def test_mistakes_are_one_sentence(folder, code, arguments, message):
    process = hoplite("report", *arguments, cwd=folder)
    assert process.returncode == code
    assert message in process.stderr
    assert "Traceback" not in process.stderr


def test_damaged_results(folder):
    (folder / "run" / "results.json").write_text('{"format": 1, "timing": 3}', encoding="utf-8")
    process = hoplite("report", "run", cwd=folder)
    assert process.returncode == 1
    assert "Expected `array`, got `int` - at `$.timing`" in process.stderr
    assert not (folder / "report.html").exists()


def test_what_cannot_be_shown_is_one_sentence(folder):
    path = folder / "run" / "results.json"
    path.write_text(path.read_text().replace('"test_mean": 0.82', '"test_mean": NaN'))
    process = hoplite("report", "run", cwd=folder)
    assert process.returncode == 1
    assert "results.json is not valid JSON" in process.stderr
    assert "Traceback" not in process.stderr


def test_a_busy_machine_is_told(folder):
    path = folder / "run" / "results.json"
    results = json.loads(path.read_text(encoding="utf-8"))
    results["timing"] = [{"dataset": "cora", "model": "lgc", "ms_median": 2.0}]
    results["provenance"] = {"machine": {"busy_before": 0.5}}
    path.write_text(json.dumps(results), encoding="utf-8")
    process = hoplite("report", "run", cwd=folder)
    assert "The machine was up to 50 % busy with other" in process.stdout
