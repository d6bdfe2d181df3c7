"""hoplite bounds, as a user calls it."""

import json

import pytest
from tests.commands import hoplite


def test_json():
    done = hoplite("bounds", "cora", "--model", "lgc", "--hops", "10", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    estimate = found["estimate"]
    assert estimate["low"] < estimate["value"] < estimate["high"] < found["bound"]
    assert found["bound"] == min(found["bounds"].values()) < found["paper_bound"]
    assert (found["nodes"], found["hops"], found["features"]) == (140, 10, 1433)


def test_table_and_truncation():
    done = hoplite("bounds", "cora", "--model", "egc", "--hops", "5", "--draws", "100")
    assert done.returncode == 0, done.stderr
    assert "the paper's theorem 2" in done.stdout
    assert "egc, 5 hops, renormalized, monomial, a = 1" in done.stdout
    assert "Cut after 5 hops, exp(beta S) loses at most 0.0016" in done.stdout
    far = hoplite("bounds", "cora", "--model", "egc", "--hops", "2", "--coefficient-bound", "9")
    assert "loses an unknown part" in far.stdout
    farther = hoplite("bounds", "cora", "--model", "egc", "--coefficient-bound", "1e6", "--json")
    assert json.loads(farther.stdout)["truncation"]["hops_needed"] is None


def test_a_trained_model(tmp_path):
    model = str(tmp_path / "model")
    options = ["--hops", "3", "--seeds", "1", "--epochs", "20", "--bias", "--out", model]
    assert hoplite("train", "cora", *options).returncode == 0
    done = hoplite("bounds", "cora", "--trained", model, "--draws", "100", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    statement = found["generalization"]
    assert found["hops"] == 3
    assert found["coefficient_bound"] == statement["coefficient_norm"]
    assert found["weight_bound"] > max(statement["weight_norms"])  # the bias is in it
    assert found["bias"]
    assert statement["vacuous"] == (statement["bound"] >= 1)
    assert "vacuous" in hoplite("bounds", "cora", "--trained", model, "--draws", "100").stdout


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--model", "hlgc"], 2, "no complexity is known"),
        (["--model", "lcg"], 2, "Did you mean 'lgc'?"),
        (["--hops", "-1"], 2, "hops is -1"),
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
    done = hoplite("bounds", "cora", *options)
    assert done.returncode == code
    assert message in done.stderr
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
