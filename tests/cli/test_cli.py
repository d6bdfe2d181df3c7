"""The command line as a user meets it: a real process, its two streams and its exit code."""

import json
import subprocess
import sys

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest
from tests.commands import fail, hoplite, succeed

from hoplite import TrainedModel, load


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A small model of Cora, trained through the command line."""
    folder = tmp_path_factory.mktemp("cli") / "model"
    arguments = ["--model", "lgc", "--hops", 3, "--seeds", 2, "--epochs", 15, "--lr", 0.2]
    text = succeed("train", "cora", *arguments, "--out", folder, "--json")
    return folder, json.loads(text)


def test_help_and_version():
    assert "train" in succeed("--help")
    assert "--weight-decay" in succeed("train", "--help")
    assert succeed("--version").startswith("hoplite 0.")


def test_help_of_train_has_the_options_of_the_named_model():
    brief, own = succeed("train", "--help"), succeed("train", "--model", "gat", "--help")
    assert "--heads" in own
    assert "--heads" not in brief
    assert "--lr" in brief
    assert "--basis" in brief
    assert "--basis" not in own


def test_datasets():
    records = json.loads(succeed("datasets", "--json"))["datasets"]
    edges = {record["name"]: record["edges"] for record in records}
    assert edges == {"cora": 5278, "citeseer": 4552, "pubmed": 44324}
    assert "5,278" in succeed("datasets")


def test_train_json_and_files(trained):
    folder, result = trained
    for name in ("dataset", "model", "config", "test_accuracy_mean", "test_accuracy_std"):
        assert name in result
    assert result["dataset"] == "cora"
    assert len(result["runs"]) == 2
    assert result["config"]["lr"] == 0.2
    saved = json.loads(next(folder.glob("result-*.json")).read_text())
    assert saved["runs"] == result["runs"]
    assert saved["metrics"] == result["metrics"]
    for run in result["runs"]:
        assert run["metrics"]["test"]["accuracy"] == pytest.approx(run["test_accuracy"])
    assert 0 < result["baseline"]["test"]["accuracy"] < result["test_accuracy_mean"]
    assert len(saved["history"]["0"]["val_accuracy"]) == result["runs"][0]["epochs"]
    best = max(run["val_accuracy"] for run in result["runs"])
    assert TrainedModel.load(folder).training["val_accuracy"] == pytest.approx(best)


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_predict(trained, tmp_path, ending):
    folder, result = trained
    out = tmp_path / f"labels.{ending}"
    summary = json.loads(succeed("predict", folder, "cora", "--out", out, "--json"))
    assert summary["nodes"] == sum(summary["predicted"].values()) == 2708
    reader = pyarrow.parquet.read_table if ending == "parquet" else pyarrow.csv.read_csv
    table = reader(out)
    classes = ["predicted", "probability", "runner_up", "margin"]
    assert table.column_names == ["id", *classes, "neighbours", "split"]
    graph = load("cora")
    names = np.array(graph.class_names)[graph.labels]
    predicted = np.array(table["predicted"].to_pylist())
    accuracy = np.mean(predicted[graph.split.test] == names[graph.split.test])
    assert accuracy == pytest.approx(
        max(result["runs"], key=lambda run: run["val_accuracy"])["test_accuracy"]
    )


@pytest.mark.parametrize(
    ("code", "arguments", "sentence"),
    [
        (1, ["train", "coar"], "Did you mean 'cora'"),
        (2, ["train", "cora", "--model", "lcg"], "Did you mean 'lgc'"),
        (2, ["train", "cora", "--hops", "-1"], "--hops is -1"),
        (2, ["train", "cora", "--order", "hops-first"], "dropout is not 0"),
        (2, ["train"], "Missing argument"),
        (2, ["trian", "cora"], "No such command"),
        (2, ["train", "cora", "--bogus"], "No such option: --bogus"),
        (2, ["train", "cora", "--wieght-decay", "1"], "Did you mean --weight-decay?"),
        (2, ["train", "cora", "--threads", "100000"], "threads is 100000"),
        (1, ["train", "cora", "--out", "/dev/null/x"], "not a writable folder"),
        (1, ["predict", "nowhere", "cora", "--out", "x.csv"], "does not exist"),
        (2, ["predict", "nowhere", "cora", "--out", "x.xls"], "file extension of --out"),
        (2, ["predict", "nowhere", "cora", "--out", "x.csv", "--sets", "90"], "mean 0.9?"),
    ],
)
def test_wrong_use_gets_one_sentence(tmp_path, code, arguments, sentence):
    assert sentence in fail(code, *arguments, cwd=tmp_path)


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (["coar"], 1, "Did you mean 'cora'"),
        (["cora", "--seeds", "abc"], 2, "'abc'; it must be an"),
    ],
)
def test_errors_are_json_too(tmp_path, words, code, part):
    process = hoplite("train", *words, "--json", cwd=tmp_path)
    assert process.returncode == code
    assert part in json.loads(process.stdout)["error"]


def test_output_that_cannot_be_written():
    process = subprocess.run(
        f"{sys.executable} -m hoplite datasets --json > /dev/full",
        shell=True,
        capture_output=True,
        text=True,
    )
    assert process.returncode == 1
    assert process.stderr.strip() == "error: No space left on device."
