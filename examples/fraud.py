"""Generate a bank's tables with known fraud, train on them, and score the predictions.

    python examples/fraud.py                      # 20,000 accounts, 80,000 transfers, 3 % fraud
    python examples/fraud.py --accounts 2000      # smaller
    python examples/fraud.py --folder bank        # keeps the tables, the model, the predictions

The accounts have mixed columns: amounts over several magnitudes, counts, dates, truth values,
numbers with missing values, text with many values, and a key. Nothing is scaled, filled or encoded
by hand, and no training option is set: `hoplite train` does all that and stores it in the model.
Fraudsters work in rings of about a dozen: part of their transfers, slightly larger than others,
stays in the ring, and their columns differ slightly; no single column says much. 5 % of the
accounts have a label; the score is measured on the others.

An oracle shows what is possible: it knows every parameter of the generator, the rings, and the
truth about all accounts except the one that it scores:

    P(fraud | its columns, all transfers, all others) ~ prior * columns * mean over rings(transfers)
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
RING, INSIDE, LARGER = 12, 0.65, 0.5  # accounts; share of transfers; shift of their log amount
NAMES = "--label fraud --id account"


class Columns:
    """Draws columns that differ by class, and sums their log P(x | fraud) / P(x)."""

    def __init__(self, rng: np.random.Generator, fraud: np.ndarray) -> None:
        self.rng, self.fraud, self.log_ratio = rng, fraud, np.zeros(len(fraud))

    def shifted(self, size: float, gaps: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """Normal values with mean 0, or ``size`` for fraudsters; and where they are missing."""
        values = self.rng.standard_normal(len(self.fraud)) + size * self.fraud
        return values, self._missing(size * values - size**2 / 2, gaps)

    def flag(self, normal: float, of_fraud: float, gaps: float) -> tuple[np.ndarray, np.ndarray]:
        """True with these probabilities."""
        values = self.rng.random(len(self.fraud)) < np.where(self.fraud, of_fraud, normal)
        ratio = np.where(values, of_fraud / normal, (1 - of_fraud) / (1 - normal))
        return values, self._missing(np.log(ratio), gaps)

    def count(self, normal: float, of_fraud: float) -> np.ndarray:
        """Poisson with these means."""
        values = self.rng.poisson(np.where(self.fraud, of_fraud, normal))
        self.log_ratio += values * np.log(of_fraud / normal) - (of_fraud - normal)
        return values

    def _missing(self, log_ratio: np.ndarray, gaps: float) -> np.ndarray:
        missing = self.rng.random(len(self.fraud)) < gaps
        self.log_ratio += np.where(missing, 0, log_ratio)
        return missing


def make_bank(folder: Path, accounts: int = 20_000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Write nodes.csv and edges.csv to ``folder``; return fraud flags and the oracle's scores."""
    rng = np.random.default_rng(seed)
    n = accounts
    rings = np.full(n, -1)  # the ring of each account
    fraudsters = rng.permutation(n)[: round(FRAUD * n)]
    rings[fraudsters] = np.arange(len(fraudsters)) // RING
    fraud = rings >= 0
    drawn = Columns(rng, fraud)
    towns = np.array([f"town {i}" for i in range(400)])
    often = 1 / np.arange(1, 401)
    balance, _ = drawn.shifted(-0.6)
    income, no_income = drawn.shifted(-0.5, gaps=0.15)
    age, no_age = drawn.shifted(-0.5, gaps=0.05)
    since, _ = drawn.shifted(-1.0)
    verified, not_known = drawn.flag(0.85, 0.65, gaps=0.1)
    opened = np.datetime64("2023-01-01") - (1500 + 400 * since).clip(5).astype(int)
    columns = {
        "account": pa.array([f"AC{i:07d}" for i in rng.permutation(10 * n)[:n]]),
        "balance": pa.array(np.round(np.exp(7 + 1.5 * balance), 2)),
        "monthly_income": pa.array(np.round(np.exp(8 + 0.5 * income), 2), mask=no_income),
        "age": pa.array((45 + 12 * age).clip(18, 99).round(), mask=no_age),
        "logins": pa.array(drawn.count(9, 13)),
        "opened": pa.array(opened),
        "last_login": pa.array(opened + rng.integers(0, 900, n), mask=rng.random(n) < 0.1),
        "verified": pa.array(verified, mask=not_known),
        "channel": pa.array(rng.choice(["app", "branch", "web"], n)),
        "town": pa.array(rng.choice(towns, n, p=often / often.sum()), mask=rng.random(n) < 0.05),
        "iban": pa.array([f"DE{i:018d}" for i in rng.integers(0, 10**15, n)]),
        "fraud": pa.array(np.where(fraud, "yes", "no"), mask=_hidden(rng, fraud)),
    }
    pairs, amounts, log_ratio = _transfers(rng, rings, TRANSFERS * n)
    names = columns["account"]
    edges = {
        "source": names.take(pa.array(pairs[:, 0])),
        "target": names.take(pa.array(pairs[:, 1])),
        "weight": pa.array(amounts),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in (("nodes", columns), ("edges", edges)):
        pyarrow.csv.write_csv(pa.table(table), folder / f"{name}.csv")
    return fraud, drawn.log_ratio + log_ratio


def _hidden(rng: np.random.Generator, fraud: np.ndarray) -> np.ndarray:
    """Which labels are hidden: all except a share of each class."""
    hidden = np.ones(len(fraud), bool)
    for flag in (True, False):
        nodes = rng.permutation(np.flatnonzero(fraud == flag))
        hidden[nodes[: max(6, round(LABELLED * len(nodes)))]] = False
    return hidden


def _transfers(
    rng: np.random.Generator, rings: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Senders and receivers, amounts, and the log likelihood ratio of each account.

    A transfer of a fraudster stays in its ring with probability q = INSIDE. Let pi be the share of
    transfers that an account receives, and f, g the densities of amounts outside and inside of
    rings. For an account v of the ring r, compared with an account of no ring,

        P(transfers | r) / P(transfers) = (1 - q)^sent prod (1 + q g / (|r| (1 - q) pi f)),

    with the product over the transfers between v and members of r.
    """
    n, last = len(rings), int(rings.max())
    activity = rng.pareto(2.5, n) + 0.5
    share = activity / activity.sum()
    sources, targets = (rng.choice(n, count, p=share) for _ in range(2))
    inside = (rings[sources] >= 0) & (rng.random(count) < INSIDE)
    members = [np.flatnonzero(rings == ring) for ring in range(last + 1)]
    targets[inside] = [rng.choice(members[ring]) for ring in rings[sources[inside]]]
    size = rng.standard_normal(count) + LARGER * inside
    density = np.exp(LARGER * size - LARGER**2 / 2)  # g / f
    sizes = np.array([len(ring) for ring in members])
    log_ratio = np.full(n, np.log1p(-INSIDE)) * np.bincount(sources, minlength=n)
    scores: dict[tuple[int, int], float] = {}
    for v, other in ((sources, targets), (targets, sources)):
        seen = np.flatnonzero((rings[other] >= 0) & (v != other))
        ring = rings[other[seen]]
        each = INSIDE * density[seen] / (sizes[ring] * (1 - INSIDE) * share[targets[seen]])
        for account, r, term in zip(v[seen].tolist(), ring.tolist(), np.log1p(each), strict=True):
            scores[account, r] = scores.get((account, r), 0.0) + term
    extra = np.full(n, last + 1.0)  # 1 for each ring without a transfer to v
    for (account, _), score in scores.items():
        extra[account] += np.expm1(score)
    log_ratio += np.log(extra / (last + 1))
    return np.column_stack([sources, targets]), np.round(np.exp(3 + size), 2), log_ratio


def scores(bank: Path, predictions: Path) -> tuple[np.ndarray, np.ndarray]:
    """Which labels were hidden, and the predicted probabilities of fraud."""
    labels = pyarrow.csv.read_csv(bank / "nodes.csv").column("fraud").to_pylist()
    table = pyarrow.csv.read_csv(predictions)
    return np.array([not label for label in labels]), table["p_yes"].to_numpy()


def hoplite(*words: str) -> dict[str, object]:
    """Run a command of Hoplite and return its JSON."""
    command = [sys.executable, "-m", "hoplite", *words, "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--accounts", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where to keep tables, model and predictions")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or Path(scratch)
        fraud, oracle = make_bank(folder / "bank", arguments.accounts, arguments.seed)
        bank, model, table = (str(folder / name) for name in ("bank", "model", "fraud.csv"))
        words = [*NAMES.split(), "--out", model, "--overwrite"]
        result = hoplite("train", bank, *words)
        hoplite("predict", model, bank, "--proba", "--out", table, "--overwrite")
        hidden, score = scores(Path(bank), Path(table))
    print(f"{arguments.accounts:,} accounts; prepared: {result['prepared']}")
    for name, values in (("hoplite", score), ("the oracle", oracle)):
        auc, ap = measured(fraud[hidden], values[hidden])
        print(f"{name}: ROC AUC {auc:.3f}, average precision {ap:.3f}")


def measured(truth: np.ndarray, score: np.ndarray) -> tuple[float, float]:
    """ROC AUC and average precision."""
    return float(roc_auc_score(truth, score)), float(average_precision_score(truth, score))


if __name__ == "__main__":
    main()
