"""``hoplite.train`` without options against scikit-learn on the node features alone.

Ten data sets, three splits each, the same for all methods: of graphs with public splits the first
three, of others 60/20/20 splits by seeds 0 to 2, and three banks of ``examples/fraud.py``, whose
labelled accounts train and all others test. The rivals are

    logistic    logistic regression; three folds of the training nodes choose the penalty
    boosting    histogram gradient boosting with its defaults, on the 300 most frequent columns

on the training nodes. A difference is default - rival, split by split, with its standard error
sd / sqrt(splits). No method reads the test nodes before it is scored; what the page says of how
the default came about limits what the table proves.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import scipy.sparse as sp
from examples.fraud import make_bank
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import accuracy_score, average_precision_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import hoplite
from benchmarks.machine import made_by
from experiments.problems import PROBLEMS
from experiments.report import fill_template
from experiments.trainings import Report
from hoplite.files import atomic_write_text

PAGE = Path(__file__).parents[1] / "results" / "defaults.md"
GRAPHS = (
    "cora-60", "citeseer-60", "pubmed-60", "amazon_photo-60", "amazon_computers-60", "actor",
    "chameleon_filtered", "squirrel_filtered", "tolokers",
)  # fmt: skip
BANK = "fraud tables"
ACCOUNTS, SPLITS = 15_000, 3
COLUMNS = 300  # of boosting at most, as every one of them costs time
SPARSE = 0.1  # share of nonzero features up to which they are not standardised
LOGISTIC: dict[str, Any] = {
    "Cs": (0.01, 0.1, 1.0, 10.0, 100.0), "cv": 3, "scoring": "neg_log_loss", "max_iter": 500,
    "l1_ratios": (0.0,), "use_legacy_attributes": False,
}  # fmt: skip
JUDGES: dict[str, Callable[[Any, Any], float]] = {
    "accuracy": lambda labels, chances: accuracy_score(labels, chances.argmax(axis=1)),
    "roc_auc": lambda labels, chances: roc_auc_score(labels, chances[:, 1]),
    "average_precision": lambda labels, chances: average_precision_score(labels, chances[:, 1]),
}
Case = tuple[hoplite.Graph, np.ndarray, np.ndarray, str]  # graph, labels, test nodes, judge


def bank(split: int) -> Case:
    """The tables of a bank; the accounts without a label test."""
    with TemporaryDirectory() as folder:
        fraud, _ = make_bank(Path(folder), ACCOUNTS, seed=split)
        graph = hoplite.load(folder, label="fraud", id="account")
    return graph, fraud.astype(int), np.flatnonzero(graph.labels < 0), "average_precision"


def graph_case(name: str, folder: Path | None, split: int) -> Case:
    """A graph with its split; its test nodes test."""
    problem = PROBLEMS[name]
    graph = problem.graph(folder, {}, split)
    return graph, graph.labels, graph.split.test, problem.score


def default(graph: hoplite.Graph) -> np.ndarray:
    """Probabilities of all nodes: (n, m)."""
    return hoplite.train(graph, test=False).model.predict_proba(graph)


def rival(model: Any, graph: hoplite.Graph) -> np.ndarray:
    """The same of a model of scikit-learn on the features alone."""
    features: Any = graph.features
    features = features.toarray() if sp.issparse(features) else np.asarray(features)
    nodes, chances = graph.split.train, np.zeros((graph.num_nodes, graph.num_classes))
    if isinstance(model, HistGradientBoostingClassifier):
        counts = np.count_nonzero(features, axis=0)
        features = features[:, np.sort(np.argsort(-counts, kind="stable")[:COLUMNS])]
    elif np.count_nonzero(features) > SPARSE * features.size:
        model = make_pipeline(StandardScaler(), model)
    else:
        features = sp.csr_array(features)
    model.fit(features[nodes], graph.labels[nodes])
    chances[:, model.classes_] = model.predict_proba(features)
    return chances


METHODS: dict[str, Callable[[hoplite.Graph], np.ndarray]] = {
    "default": default,
    "logistic": lambda graph: rival(LogisticRegressionCV(**LOGISTIC), graph),
    "boosting": lambda graph: rival(HistGradientBoostingClassifier(random_state=0), graph),
}


def score(name: str, folder: Path | None, split: int, method: str) -> float:
    """The figure of a method on the test nodes of a split."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case = bank(split) if name == BANK else graph_case(name, folder, split)
        graph, labels, test, judge = case
        return float(JUDGES[judge](labels[test], METHODS[method](graph)[test]))


def run(folder: Path | None, out: Path, datasets: Sequence[str] | None, report: Report) -> str:
    """Score what ``out`` lacks of this version; write its figures and the page; return the page."""
    figures = out / PAGE.with_suffix(".json").name
    out.mkdir(parents=True, exist_ok=True)
    known = json.loads(figures.read_text(encoding="utf-8")) if figures.exists() else {}
    table = known["scores"] if known.get("made_by") == made_by() else {}
    content = {"made_by": made_by(), "scores": table}
    names = datasets or (*GRAPHS, BANK)
    todo = [
        (name, split, method) for name in names for split in range(SPLITS) for method in METHODS
    ]
    for done, (name, split, method) in enumerate(todo):
        scores = table.setdefault(name, {}).setdefault(method, [])
        if len(scores) > split:
            continue
        report(f"{name}, split {split}, {method}", done / len(todo))
        scores.append(score(name, folder, split, method))
        atomic_write_text(figures, json.dumps(content, indent=1) + "\n")
    text = page(table)
    atomic_write_text(PAGE.with_suffix(".json"), json.dumps(content, indent=1) + "\n")
    atomic_write_text(PAGE, text)
    return text


def page(table: dict[str, dict[str, list[float]]]) -> str:
    """The figures, all of this version, as Markdown."""
    rows, worse = [], []
    whole = {name for name, scores in table.items() if {*map(len, scores.values())} == {SPLITS}}
    for name in (name for name in (*GRAPHS, BANK) if name in whole):
        figures = {method: 100 * np.array(table[name][method]) for method in METHODS}
        cells = [f"{values.mean():.1f}" for values in figures.values()]
        for method in ("logistic", "boosting"):
            difference = figures["default"] - figures[method]
            error = difference.std(ddof=1) / np.sqrt(len(difference))
            cells.append(f"{difference.mean():+.1f} ± {error:.1f}")
            worse += [f"{name} ({method})"] * bool(difference.mean() < -error)
        judge = "average_precision" if name == BANK else PROBLEMS[name].score
        rows.append(f"| {name} | {judge.replace('_', ' ')} | {' | '.join(cells)} |")
    sentence = f"It is worse on {', '.join(worse)}" if worse else "It is worse on none of them"
    parts = {"rows": "\n".join(rows), "worse": sentence, "splits": SPLITS}
    return fill_template(__file__, made_by=made_by(), **parts)
