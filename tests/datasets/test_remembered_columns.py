"""What a model remembers of its edge columns counts for whatever it reads next."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import hoplite
from hoplite import DatasetError, Graph, TrainedModel
from hoplite.errors import ConfigError
from hoplite.preparation import TableOptions

NAMES = {"source": "payer", "target": "payee", "weight": "euros"}


def shop(rng: np.random.Generator, *, features: bool) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Shuffled text ids, labels all over, weights over magnitudes, edges both ways, lone nodes."""
    n = int(rng.integers(30, 60))
    ids = [f"c{k:03d}x" for k in rng.permutation(900)[:n]]
    nodes = pd.DataFrame({"client": ids})
    if features:
        nodes["age"] = np.where(rng.random(n) < 0.1, np.nan, rng.normal(40, 12, n))
        nodes["town"] = rng.choice(["Ulm", "Bonn"], n)
    nodes["kind"] = rng.choice(["a", "b"], n, p=[0.7, 0.3])
    pairs = [(i, j) for i in range(n) for j in range(i) if i % 7 and j % 7 and rng.random() < 0.12]
    ends = [(ids[i], ids[j])[:: rng.choice([1, -1])] for i, j in pairs]
    edges = pd.DataFrame(ends, columns=["payer", "payee"])
    edges["euros"] = (10 ** rng.uniform(-2, 2, len(edges))).round(4)
    edges["note"] = "x"
    return nodes, edges.sample(frac=1, random_state=int(rng.integers(99)))


def written(folder: Path, nodes: pd.DataFrame, edges: pd.DataFrame) -> Path:
    folder.mkdir()
    nodes.to_csv(folder / "nodes.csv", index=False)
    edges.to_csv(folder / "edges.csv", index=False)
    return folder


@pytest.mark.filterwarnings("ignore::hoplite.HopliteWarning")
@pytest.mark.parametrize("features", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_tables_frames_and_networks_are_read_alike(tmp_path, features, seed):
    networkx = pytest.importorskip("networkx")
    nodes, edges = shop(np.random.default_rng(seed), features=features)
    folder = written(tmp_path / "shop", nodes, edges)
    graph = hoplite.load(folder, id="client", label="kind", **NAMES)
    trained = hoplite.train(graph, "sgc", hops=2, epochs=30, lr=0.5).model
    trained.save(tmp_path / "model")
    model = TrainedModel.load(tmp_path / "model")
    wanted = model.predict_proba(graph)
    plain = graph.adjacency.copy()
    plain.data[:] = 1
    unweighted = model.predict_proba(Graph(plain, graph.features, node_ids=graph.node_ids))
    assert np.abs(wanted - unweighted).max() > 1e-3  # so that weights forgotten would be seen
    network = networkx.Graph()
    for row in nodes.astype(object).where(nodes.notna(), None).to_dict("records"):
        network.add_node(row.pop("client"), **row)
    for payer, payee, euros, _ in edges.itertuples(index=False):
        network.add_edge(payer, payee, euros=euros)
    usual = edges.rename(columns={name: role for role, name in NAMES.items()})
    for given in (folder, (nodes, edges), (nodes, usual), network):
        found = hoplite.open_data(given, prepare=model)
        np.testing.assert_allclose(model.predict_proba(found), wanted, atol=1e-6)
    assert model.preparation is not None
    assert model.preparation.unused == ("note",)


@pytest.mark.filterwarnings("ignore::hoplite.HopliteWarning")
@pytest.mark.parametrize("header", ["source,target,weight", "payer,payee,euros", ""])
def test_a_list_of_edges_with_the_usual_names(tmp_path, header):
    nodes, edges = shop(np.random.default_rng(11), features=False)
    folder = written(tmp_path / "shop", nodes, edges)
    graph = hoplite.load(folder, id="client", label="kind", **NAMES)
    model = hoplite.train(graph, "sgc", hops=1, epochs=3).model
    rows = [",".join(map(str, row)) for row in edges[[*NAMES.values()]].itertuples(index=False)]
    (tmp_path / "web.csv").write_text("\n".join([*([header] if header else []), *rows]) + "\n")
    found = hoplite.open_data(tmp_path / "web.csv", prepare=model)
    ends = {*edges["payer"], *edges["payee"]}
    assert {*found.node_ids} == ends
    inside = [graph.node_ids.index(one) for one in found.node_ids]
    expected = graph.adjacency.toarray()[np.ix_(inside, inside)]
    np.testing.assert_allclose(found.in_memory().adjacency.toarray(), expected, rtol=1e-6)


@pytest.mark.filterwarnings("ignore::hoplite.HopliteWarning")
def test_names_given_to_frames_are_remembered(tmp_path):
    nodes, edges = shop(np.random.default_rng(7), features=True)
    graph = Graph.from_frames(nodes, edges, id="client", label="kind", **NAMES)
    model = hoplite.train(graph, "sgc", hops=1, epochs=20).model
    wanted = model.predict_proba(graph)
    for given in ((nodes, edges), written(tmp_path / "shop", nodes, edges)):
        found = hoplite.open_data(given, prepare=model)
        np.testing.assert_allclose(model.predict_proba(found), wanted, atol=1e-6)


def test_a_column_has_one_role():
    with pytest.raises(ConfigError, match="type is 'payer'; give each a column of its own"):
        TableOptions(source="payer", type="payer")


def test_a_first_line_that_names_a_column_twice(tmp_path):
    (tmp_path / "web.csv").write_text("source,target,source\na,b,c\n")
    with pytest.raises(DatasetError, match="a column twice"):
        hoplite.load(tmp_path / "web.csv")
