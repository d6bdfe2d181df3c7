"""How columns become features: as scikit-learn's transformers do, kept and applied again."""

from __future__ import annotations

import datetime
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, RobustScaler, StandardScaler

import hoplite
from hoplite import ConfigError, DatasetError, Graph, HopliteWarning, ModelFileError
from hoplite.explain import explain
from hoplite.preparation import MISSING, OTHER, squeezed
from hoplite.store import opening

N = 120
SCALERS = {
    "standard": StandardScaler,
    "robust": RobustScaler,
    "log": partial(make_pipeline, FunctionTransformer(squeezed), StandardScaler()),
}


def columns(seed: int = 0, n: int = N) -> dict[str, pa.Array]:
    """Untidy ones: unsorted text ids, gaps everywhere, dates, amounts, rare words, a key."""
    rng = np.random.default_rng(seed)

    def gaps(values: Any) -> pa.Array:
        return pa.array(list(values), mask=rng.random(n) < 0.2)

    days = [datetime.date(2020, 1, 1) + datetime.timedelta(int(i)) for i in rng.integers(0, 900, n)]
    return {
        "town": gaps(
            rng.choice(["Ulm", "Bonn", "Köln", "Rome", "Oslo"], n, p=[4 / 8, *[1 / 8] * 4])
        ),
        "who": pa.array([f"p{i}" for i in rng.permutation(n)]),
        "amount": pa.array(np.round(np.exp(6 + 2 * rng.standard_normal(n)), 2)),
        "debt": gaps(np.round(-1e4 * rng.random(n), 2)),
        "member": gaps(rng.random(n) < 0.3),
        "since": gaps(days),
        "key": pa.array([f"k{i}" for i in range(n)]),
        "kind": gaps(rng.choice(["cat", "dog"], n)),
    }


def write(folder: Path, nodes: dict[str, pa.Array], kind: str = "csv", id: str = "who") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(len(nodes[id]))
    ends = {
        end: nodes[id].take(pa.array(rng.integers(0, len(nodes[id]), 300)))
        for end in ("source", "target")
    }
    for stem, table in (("nodes", pa.table(nodes)), ("edges", pa.table(ends))):
        if kind == "csv":
            csv.write_csv(table, folder / f"{stem}.csv")
        else:
            parquet.write_table(table, folder / f"{stem}.parquet")
    return folder


def read(folder: Path, **options: Any) -> Graph:
    with pytest.warns(HopliteWarning, match="'key' of .* it is left out"):
        return hoplite.load(folder, **{"id": "who", "label": "kind"} | options)


def dense(graph: Graph) -> np.ndarray:
    return graph.feature_rows(0, graph.num_nodes)


def column(graph: Graph, name: str) -> np.ndarray:
    return dense(graph)[:, (graph.feature_names or ()).index(name)]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("scale", sorted(SCALERS))
def test_numbers_are_scaled_as_scikit_learn_does(tmp_path: Path, scale: str, kind: str) -> None:
    made = columns()
    graph = read(write(tmp_path / "t", made, kind), scale=scale)
    since = made["since"].cast(pa.int32()).cast(pa.float64())
    for name, cells in (("amount", made["amount"]), ("debt", made["debt"]), ("since", since)):
        raw = cells.to_numpy(zero_copy_only=False).astype(float)[:, None]
        wanted = SCALERS[scale]().fit_transform(raw)[:, 0]
        known = ~np.isnan(wanted)
        np.testing.assert_allclose(column(graph, name)[known], wanted[known], rtol=2e-5, atol=1e-5)
        assert known.all() or np.array_equal(column(graph, f"{name}={MISSING}"), ~known)
        assert np.abs(column(graph, name)[~known]).max(initial=0) < 1e-6  # a gap is the centre
    member = column(graph, "member")[made["member"].is_valid().to_numpy(zero_copy_only=False)]
    assert set(member) == {0, 1}  # is not scaled


def test_text_is_one_hot_as_scikit_learn_does(tmp_path: Path) -> None:
    made = columns()
    folder, towns = write(tmp_path / "t", made), np.array(made["town"].to_pylist(), object)
    known = towns != None  # noqa: E711 - of every element
    for limit in (2, 3, 5):
        graph = read(folder, categories=limit) if limit == 5 else None
        if graph is None:
            with pytest.warns(
                HopliteWarning, match=r"most frequent become features.*town=\(other\)"
            ):
                graph = read(folder, categories=limit)
        encoder = OneHotEncoder(max_categories=limit if limit < 5 else None, sparse_output=False)
        wanted = encoder.fit_transform(towns[known][:, None])
        names = [name for name in graph.feature_names or () if name.startswith("town=")]
        found = np.column_stack([column(graph, name) for name in names])
        np.testing.assert_array_equal(found[known], wanted)
        assert not found[~known].any()
        assert (names[-1] == f"town={OTHER}") == (limit < 5)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, hoplite.TrainedModel]:
    """A model whose folder was written and read again, and the tables that it was trained on."""
    folder = tmp_path_factory.mktemp("trained")
    graph = read(write(folder / "t", columns()))
    trained = hoplite.train(graph, "lgc", hops=2, epochs=5).model
    trained.save(folder / "m")
    return folder / "t", hoplite.TrainedModel.load(folder / "m")


def test_predict_takes_columns_in_any_order_and_of_another_type(
    model: tuple[Path, hoplite.TrainedModel], tmp_path: Path
) -> None:
    folder, trained = model
    wanted = dense(hoplite.load(folder, prepare=trained))
    made = columns()
    stamps = made["since"].cast(pa.timestamp("us", "UTC"))
    numbers = pa.array([None if x is None else float(x) for x in made["member"].to_pylist()])
    mixed = {name: made[name] for name in sorted(made, reverse=True) if name != "kind"}
    mixed |= {"since": stamps, "member": numbers, "town": made["town"].dictionary_encode()}
    other = write(tmp_path / "t", mixed, "parquet")
    found = hoplite.load(other, prepare=trained)
    np.testing.assert_array_equal(dense(found), wanted)
    assert not found.num_classes


def test_another_preparation_is_refused(
    model: tuple[Path, hoplite.TrainedModel], tmp_path: Path
) -> None:
    """Features of the same names mean something else if they were scaled otherwise."""
    folder, trained = model
    for graph in (read(folder, scale="log"), read(write(tmp_path / "t", columns(5)))):
        with pytest.raises(ModelFileError, match=r"'amount' was prepared differently for t than"):
            trained.predict(graph)
    with pytest.raises(ConfigError, match="scale is determined by the trained model"):
        hoplite.load(folder, prepare=trained, scale="none")


@pytest.mark.parametrize("share", [1, 10**9], ids=["in memory", "imported"])
def test_a_store_keeps_the_preparation(
    model: tuple[Path, hoplite.TrainedModel],
    tmp_path: Path,
    share: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(opening, "TABLE_SHARE", share)
    folder, trained = model
    other = write(tmp_path / "t", {**columns(5), "kind": columns(5)["kind"]})
    store = hoplite.propagate(other, tmp_path / "s", hops=2, prepare=trained)
    assert trained.preparation is not None
    known = replace(trained.preparation.options, task="classification")  # by the model
    assert store.preparation == replace(trained.preparation, options=known)
    np.testing.assert_allclose(
        trained.logits(store), trained.logits(hoplite.load(other, prepare=trained)), atol=1e-5
    )
    again = hoplite.train(store, "lgc", epochs=3).model
    again.save(tmp_path / "m")
    assert hoplite.TrainedModel.load(tmp_path / "m").preparation == store.preparation
    grown = hoplite.propagate(other, tmp_path / "s", hops=3)  # prepared as it was
    assert grown.preparation == store.preparation
    fresh = hoplite.propagate(folder, tmp_path / "f", hops=1, prepare=read(folder))
    assert fresh.preparation == trained.preparation


def test_columns_are_chosen(tmp_path: Path) -> None:
    folder = write(tmp_path / "t", columns())
    names = {"id": "who", "label": "kind"}
    graph = hoplite.load(folder, only=["amount", "town"], **names)
    assert {name.split("=")[0] for name in graph.feature_names or ()} == {"amount", "town"}
    dropped = hoplite.load(folder, drop="key, since,debt,member", **names)
    assert dropped.feature_names == graph.feature_names
    model = hoplite.train(graph, "sgc", hops=1, epochs=2).model
    again = hoplite.load(folder, prepare=model)  # which columns it takes is remembered
    assert again.feature_names == graph.feature_names


def test_lists_with_gaps(tmp_path: Path) -> None:
    lists = [[1.0, 2.0], None, [3.0, None], [5.0, 8.0]]
    made = {
        "who": pa.array(list("abcd")),
        "e": pa.array(lists),
        "f": pa.array(lists[::3] * 2, pa.list_(pa.float32(), 2)),
    }
    graph = hoplite.load(write(tmp_path / "t", made, "parquet"), id="who")
    assert graph.feature_names == ("e[0]", "e[1]", f"e={MISSING}", "f[0]", "f[1]")
    raw = np.array([[1, 2], [np.nan] * 2, [3, np.nan], [5, 8]])
    wanted = np.nan_to_num(StandardScaler().fit_transform(raw))
    np.testing.assert_allclose(dense(graph)[:, :2], wanted, rtol=1e-5, atol=1e-7)
    assert dense(graph)[:, 2].tolist() == [0, 1, 1, 0]


def test_a_transformer_of_ones_own(tmp_path: Path) -> None:
    """Fitted by the user, on the columns as an Arrow table; the model is saved without it."""
    folder = write(tmp_path / "t", columns(), "parquet")
    own = ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), ["amount"]),
            ("words", OneHotEncoder(handle_unknown="ignore"), ["town"]),
        ]
    )
    table = parquet.read_table(folder / "nodes.parquet")
    own.fit(table)
    graph = hoplite.load(folder, prepare=own, id="who", label="kind")
    names = graph.feature_names or ()
    assert names[:2] == ("numbers__amount", "words__town_Bonn")
    wanted = StandardScaler().fit_transform(table["amount"].to_numpy()[:, None])[:, 0]
    np.testing.assert_allclose(column(graph, names[0]), wanted, rtol=1e-5, atol=1e-6)
    model = hoplite.train(graph, "sgc", hops=1, epochs=2).model
    model.save(tmp_path / "m")
    model = hoplite.TrainedModel.load(tmp_path / "m")
    model.predict(hoplite.load(folder, prepare=own, id="who", label="kind"))
    model.predict(Graph(graph.adjacency, graph.features, feature_names=names))  # made by hand
    for use in (model, graph, hoplite.propagate(graph, tmp_path / "s", hops=1)):
        with pytest.raises(
            ConfigError, match=r"come from ColumnTransformer, a .*prepare=transformer"
        ):
            hoplite.load(folder, prepare=use)
    with pytest.raises(ConfigError, match="come from ColumnTransformer"):
        explain(model, str(folder), "p3")
    with pytest.raises(DatasetError, match=r"a ColumnTransformer, fails on .*; fit it on the same"):
        hoplite.load(folder, prepare=ColumnTransformer([]), id="who", label="kind")


def test_a_transformer_that_keeps_the_names(tmp_path: Path) -> None:
    """Raw numbers of the same names are not its features, even if nothing is scaled."""
    made = {name: columns()[name] for name in ("who", "amount", "kind")}
    folder, names = write(tmp_path / "t", made, "parquet"), {"id": "who", "label": "kind"}
    own = ColumnTransformer(
        [("n", StandardScaler(), ["amount"])], verbose_feature_names_out=False
    ).fit(parquet.read_table(folder / "nodes.parquet"))
    raw = hoplite.load(folder, scale="none", **names)
    graphs = [hoplite.load(folder, prepare=own, **names), raw]
    assert graphs[0].feature_names == graphs[1].feature_names == ("amount",)
    for ours, theirs in (graphs, graphs[::-1]):
        model = hoplite.train(ours, "sgc", hops=1, epochs=2).model
        with pytest.raises(ModelFileError, match=r"made by (Hoplite|Column.*) but those of the"):
            model.predict(theirs)


@pytest.mark.parametrize("scale", sorted(SCALERS))
def test_what_never_changed_stays_zero(tmp_path: Path, scale: str) -> None:
    """The weights of a feature that is 0 in training are chance; later cells must not meet them."""
    rng = np.random.default_rng(3)
    made = {
        "who": columns()["who"],
        "amount": columns()["amount"],
        "snapshot": pa.array([datetime.date(2026, 1, 1)] * N),
        "never": pa.array([0] * N),
        "one": pa.array([1] * N),
        "holes": pa.array([None if x < 0.3 else 7.5 for x in rng.random(N)]),
        "e": pa.array([[float(x), 3.0, None] for x in rng.random(N)]),
        "bits": pa.array([[float(x > 0.5), 0.0, 1.0] for x in rng.random(N)]),
    }
    graph = hoplite.load(write(tmp_path / "t", made, "parquet"), id="who", scale=scale)
    made |= {
        "snapshot": pa.array([datetime.date(2026, 6, 1)] * N),
        "never": pa.array(rng.integers(0, 900, N)),
        "holes": pa.array(rng.random(N)),
        "e": pa.array([[0.5, float(x), float(x)] for x in rng.random(N)]),
        "bits": pa.array([[0.0, float(x > 0.5), 0.0] for x in rng.random(N)]),
    }
    later = hoplite.load(write(tmp_path / "l", made, "parquet"), prepare=graph)
    for one in (graph, later):
        for name in ("snapshot", "never", "holes", "e[1]", "e[2]", "bits[1]"):
            assert not column(one, name).any()
        assert column(one, "one").all()
    assert column(graph, "e[0]").std() == pytest.approx(1, rel=0.6)
    assert set(column(graph, "bits[0]")) == {0, 1}
    assert column(graph, f"holes={MISSING}").any()
    assert column(graph, "bits[2]").all()
    assert not column(later, "bits[2]").any()


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_text_that_never_changes_is_no_feature(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In memory, on disk and in later tables, whatever these have there."""
    made = {
        "who": columns()["who"],
        "amount": columns()["amount"],
        "country": pa.array(["DE"] * N),
        "holes": pa.array(["EUR", None] * (N // 2)),  # a gap is another value
        "open": pa.array([True] * N),
        "label": columns()["kind"],
    }
    folder = write(tmp_path / "t", made, kind)
    graph = hoplite.load(folder, id="who")
    assert graph.feature_names == ("amount", "holes=EUR", "open")
    assert not column(graph, "open").any()
    preparation = graph.preparation
    assert preparation is not None
    assert preparation.constant == ("country", "open")
    monkeypatch.setattr(opening, "TABLE_SHARE", 10**9)  # imported piece by piece
    stored = hoplite.propagate(folder, tmp_path / "store", hops=1, id="who")
    assert stored.preparation == preparation

    model = hoplite.train(graph, "sgc", hops=1, epochs=3).model
    model.save(tmp_path / "model")
    model = hoplite.TrainedModel.load(tmp_path / "model")
    before = model.predict_proba(hoplite.load(folder, prepare=model))
    made |= {"country": pa.array(["FR", "DE"] * (N // 2)), "open": pa.array([False, None] * 60)}
    with pytest.warns(
        HopliteWarning, match=r"missing values in columns that had none in training: open \(60\)"
    ):
        later = hoplite.load(write(tmp_path / "l", made, kind), prepare=model)
    np.testing.assert_array_equal(model.predict_proba(later), before)
    del made["country"]
    made["amount"] = pa.array(1e6 + np.arange(N))
    with pytest.warns(HopliteWarning) as warned:
        hoplite.load(write(tmp_path / "m", made, kind), prepare=model)
    assert "outside the range of training: amount (120)" in str(warned[-1].message)

    alone = hoplite.load(folder, id="who", only="country")  # the only column
    assert alone.feature_names == ("country=DE",)


def test_other_words_and_fillings_are_another_preparation(tmp_path: Path) -> None:
    """The same names, but a rare word is one of the others for one and new for the other."""
    towns = ["Ulm", "Ulm", "Bonn", "Bonn", "Rome", "Oslo"] * 20
    member = [True, False, None] * 40
    made = {**columns(), "town": pa.array(towns), "member": pa.array(member)}
    more = [
        ("town", [*towns[:-6], *["Köln"] * 2, *towns[-4:]]),
        ("member", [*member[:-3], *[True] * 3]),
    ]
    options: dict = {"id": "who", "label": "kind", "only": ["town", "member"], "categories": 4}
    graph = hoplite.load(write(tmp_path / "t", made), **options)
    model = hoplite.train(graph, "sgc", hops=1, epochs=2).model
    for name, cells in more:
        folder = write(tmp_path / name, {**made, name: pa.array(cells)})
        with pytest.warns(HopliteWarning) if name == "town" else nullcontext():
            other = hoplite.load(folder, **options)
        with pytest.raises(ModelFileError, match=f"column '{name}' was prepared differently"):
            model.predict(other)
