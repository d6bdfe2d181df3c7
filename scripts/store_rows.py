"""Does training from a hop store read the right rows, whatever the memory?

    python scripts/store_rows.py

Pubmed with a random split (66 % training, 10 % validation, 24 % test, scattered over the nodes),
SGC, 30 epochs: once in memory, then from a store with budgets from the least that the training
accepts to 4 GB. One line each; exit code 1 unless all have the same accuracies.
"""

from __future__ import annotations

import sys
import tempfile

import numpy as np

import hoplite
from hoplite import ConfigError, ModelConfig, Split, TrainingConfig
from hoplite.models import build_model
from hoplite.store import HopStore, propagate
from hoplite.training.stored import HopRows

OPTIONS = {"hops": 2, "epochs": 30, "dropout": 0.0}
MOST = 4 * 10**9
BUDGETS = 12


def main() -> int:
    """Print an accuracy per budget; 0 if they are all the same."""
    graph = hoplite.load("pubmed")
    order = np.random.default_rng(0).permutation(graph.num_nodes)
    cuts = [round(0.66 * len(order)), round(0.76 * len(order))]
    train, val, test = np.split(order, cuts)
    graph = graph.with_split(Split(train, val, test))
    with tempfile.TemporaryDirectory() as folder:
        store = propagate(graph, folder, hops=OPTIONS["hops"])
        found = [tell("in memory", hoplite.train(graph, "sgc", **OPTIONS))]
        start = least(store)
        more = np.geomspace(10**6, MOST - start, BUDGETS - 1).round().astype(int).tolist()
        found += [
            tell(f"{memory / 1e6:,.1f} MB", from_store(store, memory))
            for memory in [start, *(start + amount for amount in more)]
        ]
    same = len(set(found)) == 1
    print("one accuracy for all" if same else "the accuracies differ")
    return 0 if same else 1


def least(store: HopStore) -> int:
    """The smallest budget that the training accepts now, to a kilobyte."""
    model = build_model(
        ModelConfig("sgc", OPTIONS["hops"]), store.num_features, len(store.class_names)
    )
    low, high = 0, MOST
    while high - low > 1000:
        middle = (low + high) // 2
        try:
            training = TrainingConfig(epochs=OPTIONS["epochs"], dropout=0)
            HopRows(store, model, memory=middle, training=training)
            high = middle
        except ConfigError:
            low = middle
    return high


def from_store(store: HopStore, memory: int) -> hoplite.TrainingResult:
    """Trained within ``memory``, or a little more if Python itself has grown since it was found."""
    while True:
        try:
            return hoplite.train(store, "sgc", memory=memory, **OPTIONS)
        except ConfigError:
            memory = max(memory, least(store)) + 10**6


def tell(name: str, result: hoplite.TrainingResult) -> tuple[float, float]:
    """Print and return the accuracies of a training."""
    found = result.val_accuracy, result.test_accuracy
    print(f"{name:>12}: validation {found[0]:.4%}, test {found[1]:.4%}", flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
