"""hoplite bounds, as a user calls it."""

import json

from tests.commands import succeed


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
