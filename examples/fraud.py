"""A bank's tables, made with a known truth, and the README's way from them to a score.

    python examples/fraud.py                      # 20,000 accounts, 80,000 transfers, 3 % fraud
    python examples/fraud.py --accounts 2000      # smaller
    python examples/fraud.py --folder bank        # keeps the tables, the model, the predictions

The accounts have mixed columns: amounts over magnitudes, counts, dates, truth values and numbers
with gaps, text with many values, a key. Nothing is scaled, filled or encoded by hand: that is done
by `hoplite train`, and kept in the model. Fraudsters work in rings: they send each other more
money than others do, and their columns are a little unusual. Five in a hundred accounts have a
label; the others are what the score is measured on.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
from sklearn.metrics import average_precision_score, roc_auc_score

FRAUD, LABELLED, TRANSFERS = 0.03, 0.05, 4  # share, share, transfers per account
NAMES = "--label fraud --id account"
TRAINING = "--model lgc --hops 2 --bias --seeds 3"


def make_bank(folder: Path, accounts: int = 20_000, seed: int = 0) -> np.ndarray:
    """Write nodes.csv and edges.csv to ``folder``; whether each account is fraudulent."""
    rng = np.random.default_rng(seed)
    n = accounts
    fraud = np.zeros(n, bool)
    fraud[rng.permutation(n)[: round(FRAUD * n)]] = True

    def gaps(values: np.ndarray, share: float) -> pa.Array:
        return pa.array(values.tolist(), mask=rng.random(n) < share)

    def shifted(size: float) -> np.ndarray:
        return rng.standard_normal(n) + size * fraud

    opened = np.datetime64("2023-01-01") - (900 + 500 * shifted(-1.0)).clip(5).astype(int)
    towns = np.array([f"town {i}" for i in range(400)])
    often = 1 / np.arange(1, 401)
    columns = {
        "account": pa.array([f"AC{i:07d}" for i in rng.permutation(10 * n)[:n]]),
        "balance": pa.array(np.round(np.exp(7 + 1.5 * shifted(-0.6)), 2)),
        "monthly_income": gaps(np.round(np.exp(8 + 0.5 * shifted(-0.5)), 2), 0.15),
        "age": gaps((45 + 15 * shifted(-0.5)).clip(18, 99).round(), 0.05),
        "logins": pa.array(rng.poisson(np.where(fraud, 15, 9))),
        "opened": pa.array(opened),
        "last_login": gaps(opened + rng.integers(0, 900, n), 0.1),
        "verified": gaps(rng.random(n) < np.where(fraud, 0.6, 0.85), 0.1),
        "channel": pa.array(rng.choice(["app", "branch", "web"], n)),
        "town": gaps(rng.choice(towns, n, p=often / often.sum()), 0.05),
        "iban": pa.array([f"DE{i:018d}" for i in rng.integers(0, 10**15, n)]),
        "fraud": pa.array(np.where(fraud, "yes", "no"), mask=_hidden(rng, fraud)),
    }
    pairs, amounts = _transfers(rng, fraud, TRANSFERS * n)
    names = columns["account"]
    edges = {
        "source": names.take(pa.array(pairs[:, 0])),
        "target": names.take(pa.array(pairs[:, 1])),
        "weight": pa.array(amounts),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in (("nodes", columns), ("edges", edges)):
        pyarrow.csv.write_csv(pa.table(table), folder / f"{name}.csv")
    return fraud


def _hidden(rng: np.random.Generator, fraud: np.ndarray) -> np.ndarray:
    """Which labels are not known: all but a share of each class."""
    hidden = np.ones(len(fraud), bool)
    for one in (True, False):
        nodes = rng.permutation(np.flatnonzero(fraud == one))
        hidden[nodes[: max(6, round(LABELLED * len(nodes)))]] = False
    return hidden


def _transfers(
    rng: np.random.Generator, fraud: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Who sends to whom, and how much: three of four transfers of a fraudster stay in its ring."""
    n, ring = len(fraud), np.flatnonzero(fraud)
    activity = rng.pareto(2.5, n) + 0.5
    sources = rng.choice(n, count, p=activity / activity.sum())
    targets = rng.choice(n, count, p=activity / activity.sum())
    inside = fraud[sources] & (rng.random(count) < 3 / 4)
    targets[inside] = rng.choice(ring, int(inside.sum()))
    amounts = np.exp(3 + rng.standard_normal(count) + 0.5 * inside)
    return np.column_stack([sources, targets]), np.round(amounts, 2)


def scores(bank: Path, predictions: Path, fraud: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of the accounts whose label was hidden: the truth, and the probability of fraud."""
    found = pyarrow.csv.read_csv(predictions).to_pydict()
    labels = pyarrow.csv.read_csv(bank / "nodes.csv").column("fraud").to_pylist()
    said, probability = np.array(found["predicted"]) == "yes", np.array(found["probability"])
    hidden = np.array([not label for label in labels])
    return fraud[hidden], np.where(said, probability, 1 - probability)[hidden]


def hoplite(*words: str) -> dict[str, object]:
    """Run a command of Hoplite; what it prints as JSON."""
    command = [sys.executable, "-m", "hoplite", *words, "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--accounts", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where tables, model and predictions stay")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.folder or Path(scratch)
        fraud = make_bank(folder / "bank", asked.accounts, asked.seed)
        bank, model, table = (str(folder / name) for name in ("bank", "model", "fraud.csv"))
        words = [*NAMES.split(), *TRAINING.split(), "--out", model, "--overwrite"]
        result = hoplite("train", bank, *words)
        hoplite("predict", model, bank, "--out", table)
        truth, score = scores(Path(bank), Path(table), fraud)
    print(f"{asked.accounts:,} accounts; prepared: {result['prepared']}")
    print(f"ROC AUC {roc_auc_score(truth, score):.3f}")
    print(f"average precision {average_precision_score(truth, score):.3f}")


if __name__ == "__main__":
    main()
