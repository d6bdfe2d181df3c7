"""hoplite explain as a user meets it: a real process, its two streams and its exit code."""

import json

import pytest
from tests.commands import fail, succeed

from hoplite.cli import main
from hoplite.explain import RemovalsUnavailableError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A graph with ids and names of its own, and a small model of it."""
    folder = tmp_path_factory.mktemp("explain")
    (folder / "club").mkdir()
    lines = [f"p{i},{['red', 'blue'][i % 2]},{i % 2},{i % 3}" for i in range(20)]
    text = "\n".join(["id,label,age,[b]town[/b]", *lines])
    (folder / "club" / "nodes.csv").write_text(text + "\n")
    edges = [f"p{i},p{(i + 2) % 20}" for i in range(20)]
    (folder / "club" / "edges.csv").write_text("\n".join(["source,target", *edges]) + "\n")
    options = ["--model", "lgc", "--hops", 2, "--epochs", 20, "--seeds", 1]
    succeed("train", "club", *options, "--out", "club-model", cwd=folder)
    return folder


def test_several_nodes(folder):
    options = ["--node", "p3", "p8", "--out", "why.html"]
    report = succeed("explain", "club-model", "club", *options, cwd=folder)
    for place, node in ((1, "p3"), (2, "p8")):
        assert f" for node {node} of club" in report
        assert f"Page: why-{place}.html" in report
        page = (folder / f"why-{place}.html").read_text(encoding="utf-8")
        assert f"<h1>Why node {node} is predicted as " in page
        assert "By a value of the node itself" in page
    values = json.loads(
        succeed("explain", "club-model", "club", *options[:3], "--json", cwd=folder)
    )["explanations"]
    assert [one["node"]["id"] for one in values] == ["p3", "p8"]
    again = ["--node", "p3", "--node", "p8", "--json"]
    assert json.loads(succeed("explain", "club-model", "club", *again, cwd=folder)) == {
        "explanations": values
    }
    alone = succeed("explain", "club-model", "club", *options[:2], "--json", cwd=folder)
    assert json.loads(alone) == values[0]
    assert values[0]["against"] == "red"


def test_a_store_instead_of_the_tables(folder):
    succeed("propagate", "club", "--hops", 2, "--out", "club-store", cwd=folder)
    node = ["--node", "p3"]
    whole = json.loads(succeed("explain", "club-model", "club", *node, "--json", cwd=folder))
    words = ["explain", "club-model", "club-store", *node, "--memory"]
    stored = json.loads(succeed(*words, "700MB", "--json", cwd=folder))
    assert list(stored) == list(whole)
    assert stored["node"]["id"] == "p3"
    for part in ("class", "against", "model"):
        assert stored[part] == whole[part]
    assert "increase --memory" in fail(1, *words, "1MB", cwd=folder)


def test_the_reason_for_a_single_node_without_removals_is_a_note(folder, monkeypatch, capsys):
    def flips(model, data, node, **limits):
        if node == "p3":
            raise RemovalsUnavailableError("too many edges are within reach.")

    monkeypatch.setattr("hoplite.explain.flips", flips)
    monkeypatch.setattr("signal.signal", lambda number, handler: None)
    monkeypatch.setattr("warnings.showwarning", None)
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.argv", ["hoplite", "explain", "club-model", "club", "p3", "p8"])
    with pytest.raises(SystemExit, match="0"):
        main()
    assert "Too many edges are within reach." in capsys.readouterr().err
