"""hoplite bounds, as a user calls it."""

import json

import pytest
from tests.commands import fail, succeed


def test_json():
    found = json.loads(succeed("bounds", "cora", "--model", "lgc", "--hops", "10", "--json"))
    estimate = found["estimate"]
    assert estimate["low"] < estimate["value"] < estimate["high"] < found["bound"]
    assert found["bound"] == min(found["bounds"].values()) < found["paper_bound"]
    assert (found["nodes"], found["hops"], found["features"]) == (140, 10, 1433)


def test_a_trained_model(tmp_path):
    model = str(tmp_path / "model")
    succeed("train", "cora", "--hops", 3, "--seeds", 1, "--epochs", 20, "--bias", "--out", model)
    words = ["bounds", "cora", "--trained", model, "--draws", "100"]
    found = json.loads(succeed(*words, "--json"))
    statement = found["generalization"]
    assert found["hops"] == 3
    assert found["coefficient_bound"] == statement["coefficient_norm"]
    assert found["weight_bound"] > max(statement["weight_norms"])  # the bias is in it
    assert found["bias"]
    assert statement["vacuous"] == (statement["bound"] >= 1)
    assert "vacuous" in succeed(*words)


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--model", "hlgc"], 2, "no bound is known"),
        (["--hops", "100000"], 2, "at most 5000"),
        (["--hops", "400", "--operator", "laplacian"], 2, "too large to compute with"),
        (["--coefficient-bound", "1e308"], 2, "--coefficient-bound is 1e+308"),
        (["--draws", "1"], 2, "draws is 1"),
        (["--confidence", "1"], 2, "confidence is 1.0"),
        (["--trained", "nowhere"], 1, "nowhere"),
        (["--trained", "nowhere", "--hops", "3"], 2, "--hops cannot be combined with --trained"),
    ],
)
def test_one_sentence(options, code, message):
    assert message in fail(code, "bounds", "cora", *options)
