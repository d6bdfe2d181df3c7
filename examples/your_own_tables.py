"""
Your own tables: fraud in a bank
================================

You have a table of accounts, a table of transfers, and labels for one account in ten. The columns
are amounts over several magnitudes, dates, truth values, text, and missing values. You need not
scale, fill or encode anything; the model stores how it was done.
"""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.metrics import average_precision_score, roc_auc_score

import hoplite

# %%
# The bank is generated, so the truth is known. Fraudsters work in rings of ten: two thirds of their
# transfers stay in the ring. Their columns differ slightly, and no single column says much.
rng = np.random.default_rng(0)
n = 4000
fraud = np.zeros(n, bool)
rings = rng.permutation(n)[:160].reshape(16, 10)  # 4 %
fraud[rings] = True
names = np.array([f"AC{i:05d}" for i in rng.permutation(n)])
opened = np.datetime64("2025-01-01") - rng.integers(5, 3000, n) // (1 + fraud)
accounts = pd.DataFrame(
    {
        "account": names,
        "balance": np.exp(rng.normal(7, 1.5, n) - 0.8 * fraud).round(2),
        "income": np.where(
            rng.random(n) < 0.15, np.nan, rng.normal(3000, 900, n).round()
        ),
        "opened": opened.astype(str),
        "logins": rng.poisson(9 + 4 * fraud),
        "verified": rng.random(n) > 0.15 + 0.2 * fraud,
        "channel": rng.choice(["app", "branch", "web"], n),
        "fraud": np.where(rng.random(n) < 0.1, np.where(fraud, "yes", "no"), None),
    }
)
senders, receivers = rng.integers(0, n, (2, 5 * n))
inside = fraud[senders] & (rng.random(5 * n) < 0.67)
ring_of = {account: ring for ring in rings for account in ring}
receivers[inside] = [rng.choice(ring_of[sender]) for sender in senders[inside]]
transfers = pd.DataFrame(
    {
        "source": names[senders],
        "target": names[receivers],
        "weight": np.exp(rng.normal(4, 1, 5 * n)).round(2),
    }
)
print(accounts.head(4).to_string(index=False))

# %%
# From here on, do the same with your own tables: a folder with ``nodes.csv`` and ``edges.csv``, or
# two data frames. For amounts over several magnitudes, use ``scale="log"``.
scratch = tempfile.TemporaryDirectory()
folder = Path(scratch.name) / "bank"
folder.mkdir()
accounts.to_csv(folder / "nodes.csv", index=False)
transfers.to_csv(folder / "edges.csv", index=False)
graph = hoplite.load(folder, id="account", label="fraud", scale="log")
print(graph.preparation.summary())

# %%
# With few labels and a rare class, use a convex fit with a strong penalty in which both classes
# count equally. ``bias`` lets the model represent the sizes of the classes.
options = {
    "operator": "adjacency",
    "bias": True,
    "dropout": 0,
    "class_weight": "balanced",
    "optimizer": "lbfgs",
    "lr": 1,
    "epochs": 50,
    "weight_decay": 0.05,
}
result = hoplite.train(graph, "lgc", hops=4, start="lowpass", **options)
columns = hoplite.train(graph, "sgc", hops=0, **options)
print(f"labelled: {(graph.labels >= 0).sum()}, of them {graph.split.sizes()}")

# %%
# How good are the predictions for unlabelled accounts? Here the truth is known. Random guessing has
# an average precision of 0.04.
unknown = graph.labels < 0
yes = result.model.class_names.index("yes")
for name, model in (
    ("columns and transfers", result.model),
    ("only columns", columns.model),
):
    score = model.predict_proba(graph)[unknown, yes]
    auc, ap = (
        roc_auc_score(fraud[unknown], score),
        average_precision_score(fraud[unknown], score),
    )
    print(f"{name}: ROC AUC {auc:.3f}, average precision {ap:.2f}")

# %%
# A table for investigators, with the most likely frauds first:
table = pd.DataFrame(hoplite.predict_table(result.model, graph, proba=True))
print(table.sort_values("p_yes", ascending=False).head(5).to_string(index=False))
scratch.cleanup()

# %%
# The confusion matrix of the accounts without a label in training:
truth = graph.with_labels(np.where(fraud, yes, 1 - yes), class_names=graph.class_names)
result.model.plot_confusion(truth, np.flatnonzero(unknown))
