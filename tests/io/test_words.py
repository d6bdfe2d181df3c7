"""Texts of several words become TF-IDF, as of scikit-learn, with the terms of training rows."""

from __future__ import annotations

import warnings

import msgspec
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfVectorizer
from tests.io.test_sources import written

import hoplite
from hoplite import ConfigError, DatasetError, HopliteWarning, TrainedModel
from hoplite.io import import_tables
from hoplite.io.disk_graph import DiskGraph
from hoplite.io.extend import extend
from hoplite.preparation import Preparation, WordsColumn

WORDS = [
    *("graph", "library", "Straße", "naïve", "数据", "'quoted'", '"double"', "semi;colon", "the"),
    *("<b>bold</b>", "x", "a", "an", "don't", "e-mail", "C++", "under_score", "42", "ÜBER"),
    *("über", "emoji😀", "tab\tbed", "line\nbreak"),
]
PARTS = ("train", "val", "test")
NAME = 'on "it"; DROP TABLE cells; --'


def tables(seed=0, n=60, gaps=True):
    rng = np.random.default_rng(seed)
    text = [" ".join(rng.choice(WORDS, rng.integers(3, 12))) for _ in range(n)]
    text = [f"{one} only{i}" for i, one in enumerate(text)]  # a word that no other row has
    if gaps:
        text[3], text[4], text[5] = None, "", "   "
    y = [i % 3 for i in range(n)]
    text = [t and t.strip() and t + f" topic{k} topic{k}" for t, k in zip(text, y, strict=True)]
    nodes = pd.DataFrame(
        {
            "id": [f"n{i}" for i in range(n)],
            "label": [None if i % 4 == 1 else f"c{k}" for i, k in enumerate(y)],
            "split": [None if i % 4 == 1 else PARTS[i // 3 % 3] for i in range(n)],
            "age": rng.normal(size=n),
            NAME: text,
        }
    )
    ends = rng.integers(0, n - 2, (2 * n, 2))  # the last two have no edge
    edges = pd.DataFrame(
        {"source": [f"n{i}" for i in ends[:, 0]], "target": [f"n{i}" for i in ends[:, 1]]}
    )
    return nodes, edges


def reference(nodes, rows, **options):
    """TF-IDF of all rows with the terms of some, by scikit-learn."""
    text = nodes[NAME].fillna("").tolist()
    judge = TfidfVectorizer(sublinear_tf=True, min_df=2, **options)
    judge.fit([text[i] for i in rows])
    return judge.transform(text).toarray(), judge.get_feature_names_out().tolist()


@pytest.mark.parametrize("source", ["frames", "csv"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_it_is_the_tfidf_of_scikit_learn_with_the_terms_of_training_rows(tmp_path, source, seed):
    nodes, edges = tables(seed)
    data = (nodes, edges) if source == "frames" else written(tmp_path, (nodes, edges))
    graph = hoplite.load(data)
    train = np.flatnonzero(nodes["split"] == "train")
    assert graph.split.train.tolist() == train.tolist()
    expected, terms = reference(nodes, train)
    assert sp.issparse(graph.features)
    assert graph.features.dtype == np.float32
    assert graph.feature_names == ("age", *(f'{NAME}: "{term}"' for term in terms))
    np.testing.assert_allclose(graph.features.toarray()[:, 1:], expected, atol=1e-6)
    age = (nodes["age"] - nodes["age"].mean()) / nodes["age"].std(ddof=0)
    np.testing.assert_allclose(graph.features.toarray()[:, 0], age, atol=1e-5)
    assert not graph.features[[3, 4, 5], 1:].nnz  # gaps


def test_terms_depend_on_no_label_and_on_no_text_of_other_nodes():
    nodes, edges = tables()
    other = nodes.copy()
    hidden = (nodes["split"] != "train").to_numpy()
    other.loc[hidden, NAME] = [f"entirely other words {i}" for i in np.flatnonzero(hidden)]
    other.loc[nodes["split"] == "test", "label"] = "c0"
    first, second = (hoplite.load((one, edges)).preparation for one in (nodes, other))
    assert first.fitted[-1] == second.fitted[-1]


def test_without_a_split_column_the_nodes_that_train_give_the_terms():
    nodes, edges = tables()
    nodes = nodes.drop(columns="split")
    graph = hoplite.load((nodes, edges))
    expected, _ = reference(nodes, graph.split.train)
    np.testing.assert_allclose(graph.features.toarray()[:, 1:], expected, atol=1e-6)
    unlabelled = hoplite.load((nodes.drop(columns="label"), edges))
    expected, _ = reference(nodes, range(len(nodes)))
    np.testing.assert_allclose(unlabelled.features.toarray()[:, 1:], expected, atol=1e-6)


def test_the_most_frequent_terms_are_kept():
    nodes, edges = tables()
    rows = np.flatnonzero(nodes["split"] == "train")
    text = nodes[NAME].fillna("")
    judge = TfidfVectorizer(min_df=2, use_idf=False, norm=None)
    counts = np.asarray(judge.fit_transform([text[i] for i in rows]).sum(axis=0))[0]
    words = judge.get_feature_names_out()
    ranked = sorted(range(len(words)), key=lambda j: (-counts[j], words[j]))
    graph = hoplite.load((nodes, edges), terms=4)
    assert graph.preparation.fitted[-1].terms == tuple(sorted(words[j] for j in ranked[:4]))
    assert graph.num_features == 5


def test_options_force_a_text_and_leave_one_out():
    nodes, edges = tables()
    nodes["town"] = [("New York", "Ulm")[i % 2] for i in range(len(nodes))]
    nodes["code"] = [10 + i % 5 for i in range(len(nodes))]
    plain = hoplite.load((nodes, edges), drop=NAME)
    assert plain.feature_names == ("age", "town=New York", "town=Ulm", "code")
    assert not sp.issparse(plain.features)
    forced = hoplite.load((nodes, edges), drop=[NAME], text=["town", "code"])
    words = [name for name in forced.feature_names if ": " in name]
    assert words[:3] == ['town: "new"', 'town: "ulm"', 'town: "york"']
    assert words[3:] == [f'code: "{10 + i}"' for i in range(5)]
    for options, sentence in (
        ({"text": "twon"}, "contains 'twon', which is not a feature column"),
        ({"text": "town", "drop": "town"}, "contains 'town', which is not a feature column"),
    ):
        with pytest.raises(DatasetError, match=sentence):
            hoplite.load((nodes, edges), **options)
    with pytest.raises(ConfigError, match="terms is 0; it must be"):
        hoplite.load((nodes, edges), terms=0)


def test_keys_and_texts_that_share_no_word_are_left_out():
    nodes, edges = tables(gaps=False)
    nodes[NAME] = [f"a{i} b{i} c{i}" for i in range(len(nodes))]
    with pytest.warns(HopliteWarning, match="left out because it looks like an identifier"):
        graph = hoplite.load((nodes, edges))
    assert graph.feature_names == ("age",)
    with pytest.raises(DatasetError, match="has no word that 2 training nodes share"):
        hoplite.load((nodes, edges), text=[NAME])
    nodes[NAME] = [f"code{i}" for i in range(len(nodes))]
    with pytest.warns(HopliteWarning, match="left out because it looks like an identifier"):
        hoplite.load((nodes, edges))


def test_a_saved_model_prepares_new_nodes_with_its_own_terms(tmp_path):
    nodes, edges = tables()
    trained = hoplite.train((nodes, edges), "sgc", hops=1, epochs=30, dropout=0.0).model
    model = TrainedModel.load(trained.save(tmp_path / "model"))
    column = model.preparation.fitted[-1]
    assert isinstance(column, WordsColumn)
    assert column.name == NAME
    new = pd.DataFrame(
        {
            "id": ["x", "y", "z"],
            "age": [0.0, 1.0, 2.0],
            NAME: ["topic1 topic1 unheard of", None, "nothing known whatsoever"],
        }
    )
    links = pd.DataFrame({"source": ["x", "y"], "target": ["n0", "n7"]})
    grown = extend(hoplite.load((nodes, edges), prepare=model), (new, links))
    judge = TfidfVectorizer(vocabulary=list(column.terms), sublinear_tf=True)
    judge.idf_ = np.array(column.idf)
    expected = judge.transform(new[NAME].fillna("")).toarray()
    assert sp.issparse(grown.features)
    np.testing.assert_allclose(grown.features[-3:, 1:].toarray(), expected, atol=1e-6)
    assert not expected[1:].any()


def test_graphs_on_disk_have_words_only_if_they_are_named(tmp_path):
    nodes, edges = tables()
    data = written(tmp_path, (nodes, edges))
    with pytest.warns(HopliteWarning, match="graphs on disk and hop stores are dense"):
        import_tables(data, tmp_path / "out", memory=300 * 10**6)
    graph = DiskGraph(tmp_path / "out")
    assert graph.feature_names == ("age",)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        import_tables(data, tmp_path / "words", memory=300 * 10**6, text=[NAME], terms=7)
    memory = hoplite.load(data, text=[NAME], terms=7)
    graph = DiskGraph(tmp_path / "words")
    assert graph.feature_names == memory.feature_names
    np.testing.assert_array_equal(graph.in_memory().features, memory.features.toarray())


@pytest.mark.parametrize(
    "column",
    [
        {"terms": ["a"], "idf": []},
        {"terms": ["a", "a"], "idf": [1.0, 1.0]},
        {"terms": [], "idf": []},
        {"terms": ["a"], "idf": ["1"]},
    ],
)
def test_damaged_terms_are_refused(column):
    file = msgspec.json.encode({"columns": [{"kind": "words", "name": "x", **column}]})
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(file, type=Preparation)


COMMAS = ["0,5", "1,25", "-3", "10,75"]


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (COMMAS, [0.5, 1.25, -3, 10.75]),
        ([" 0,5 ", "", "NA", "+2,0"], [0.5, None, None, 2]),
        (["1,500", "0,5", "2,25", "3,0"], None),  # 1500 or 1.5
        (["1.5", "0,5", "2,25", "3,0"], None),
    ],
)
def test_decimal_commas(tmp_path, cells, numbers):
    nodes = pd.DataFrame({"id": range(4), "age": [1, 2, 3, 4], "x": cells})
    edges = pd.DataFrame({"source": [0], "target": [1]})
    data = written(tmp_path, (nodes, edges))
    if numbers is None:
        with pytest.warns(HopliteWarning, match="'x' .* is read as text because"):
            graph = hoplite.load(data, scale="none")
        assert len(graph.feature_names) == 5
        return
    graph = hoplite.load(data, scale="none")
    known = [i for i, one in enumerate(numbers) if one is not None]
    assert graph.features[known, 1].tolist() == [numbers[i] for i in known]
    with pytest.warns(HopliteWarning, match="could not be read reliably as a number"):
        hoplite.load((nodes.iloc[known], edges.iloc[:0]), scale="none")  # text in a frame is text
