"""Every model of the registry in every command, on a table as people have them: it works, or one
sentence says why not, and which of the two follows from what the model says of itself."""

import json

import numpy as np
import pytest
from tests import pyg
from typer.testing import CliRunner

import hoplite as library
from hoplite.cli import app
from hoplite.models import MODELS, LabelModel, LinearModel

NODES = 60


@pytest.fixture(scope="module")
def club(tmp_path_factory):
    """Text ids in no order, gaps, a rare class, isolated nodes, a split that is scattered."""
    folder, rng = tmp_path_factory.mktemp("club"), np.random.default_rng(5)
    ids = [f"m-{number}" for number in rng.permutation(900)[:NODES]]
    classes = rng.choice(["gold", "red", "a, b"], NODES, p=[0.55, 0.35, 0.1])
    classes[:6] = ["gold", "red", "a, b"] * 2
    parts = rng.permutation(["train"] * 30 + ["val"] * 14 + ["test"] * 10 + [""] * 6)
    parts[:6] = ["train"] * 3 + ["val"] * 3
    place = {"gold": 0, "red": 1, "a, b": 2}
    rows = ["id,label,split,age,town"]
    for i, own in enumerate(ids):
        label = "" if parts[i] == "" else f'"{classes[i]}"'
        age = "" if i % 9 == 4 else f"{20 + 9 * place[classes[i]] + rng.normal():.2f}"
        rows.append(f"{own},{label},{parts[i]},{age},{rng.choice(['x', 'y', ''])}")
    (folder / "nodes.csv").write_text("\n".join(rows) + "\n")
    linked = rng.permutation(NODES)[: NODES - 7]
    pairs = rng.choice(linked, (150, 2))
    edges = [f"{ids[a]},{ids[b]},{rng.uniform(0.01, 9):.3f}" for a, b in pairs if a != b]
    (folder / "edges.csv").write_text("source,target,weight\n" + "\n".join(edges) + "\n")
    (folder.parent / "grid.toml").write_text("[any]\noperator = ['adjacency', 'renormalized']\n")
    run("propagate", folder, "--hops", 2, "--out", folder.parent / "store")
    return folder


def run(*words):
    """What a command says as JSON, or its one sentence."""
    done = CliRunner().invoke(app, [*map(str, words), "--json"])
    if done.exception is None:
        return json.loads(done.stdout)
    assert isinstance(done.exception, library.HopliteError), done.exception
    assert "\n" not in str(done.exception)
    return str(done.exception)


@pytest.mark.filterwarnings("ignore::hoplite.HopliteWarning")
@pytest.mark.parametrize("name", MODELS)
def test_every_model_in_every_command(name, club, tmp_path):
    kind = MODELS[name]
    if name == "gat":
        pyg.layers()
    short = ["--epochs", 3] if not issubclass(kind, LabelModel) else []
    small = ["--hops", 2] if "hops" in kind.settings() else []
    trained = run(
        "train", club, "--model", name, *short, *small, "--seeds", 2, "--out", tmp_path / "m"
    )
    table = (club / "nodes.csv").read_text()
    assert {part: trained["split"][part] for part in ("train", "val", "test")} == {
        part: table.count(f",{part},") for part in ("train", "val", "test")
    }
    assert len(trained["runs"]) == 2

    run("predict", tmp_path / "m", club, "--proba", "--out", tmp_path / "p.csv")
    graph = library.load(club)
    model = library.TrainedModel.load(tmp_path / "m")
    assert model.training["refit"]  # a kept model has learned from validation labels, too
    again = library.open_data(club, prepare=model).in_memory()
    expected = [model.class_names[i] for i in model.predict(again)]
    rows = (tmp_path / "p.csv").read_text().splitlines()
    assert len(rows) == 1 + NODES
    shown = dict(row.replace('"', "").split(",", 1) for row in rows[1:])
    for own, label in zip(graph.node_ids, expected, strict=True):
        assert shown[own].startswith(label), own

    why = run("explain", tmp_path / "m", club, "--node", graph.node_ids[7])
    explained = isinstance(why, dict)
    assert explained == issubclass(kind, LinearModel), why

    bound = run("bounds", club, "--model", name, *small, "--draws", 3)
    assert isinstance(bound, dict) or name in bound or kind.title in bound, bound

    found = run(
        "search", club, "--model", name, "--grid", club.parent / "grid.toml", *short, *small,
        "--seeds", 1, "--workers", 1, "--out", tmp_path / "s",
    )  # fmt: skip
    if "operator" in kind.settings():
        assert found["configurations"] == 2
        assert found["model"] == name

    stored = run("train", club.parent / "store", "--model", name, *short, "--seeds", 1)
    assert isinstance(stored, dict) == kind.reads_rows(), stored
