"""
Your own tables: fraud in a bank
================================

A table of accounts, a table of transfers, and a label for one account in ten. The columns are as
they come: amounts over magnitudes, dates, truth values, text, gaps. No line of this page scales,
fills or encodes anything; the model keeps how it was done.
"""

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.metrics import average_precision_score, roc_auc_score

import hoplite

# %%
# The bank is made here, so that the truth is known. Fraudsters work in rings of ten: two of three
# of their transfers stay in the ring. Their columns are a little unusual, and no column tells much.
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
# From here on it is what you would do with tables of your own: a folder with ``nodes.csv`` and
# ``edges.csv``, or the two frames themselves. Amounts over magnitudes want ``scale="log"``.
scratch = tempfile.TemporaryDirectory()
folder = Path(scratch.name) / "bank"
folder.mkdir()
accounts.to_csv(folder / "nodes.csv", index=False)
transfers.to_csv(folder / "edges.csv", index=False)
graph = hoplite.load(folder, id="account", label="fraud", scale="log")
print(graph.preparation.summary())

# %%
# Few labels and a rare class: a convex fit with a strong penalty, in which both classes count the
# same. ``bias`` tells the model how large the classes are.
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
# The accounts without a label are what the model is for. Here, and only here, the truth about them
# is known. An average precision of 0.04 is what guessing gets.
unknown = graph.labels < 0
yes = result.model.class_names.index("yes")
for told, model in (
    ("columns and transfers", result.model),
    ("columns alone", columns.model),
):
    score = model.predict_proba(graph)[unknown, yes]
    auc, ap = (
        roc_auc_score(fraud[unknown], score),
        average_precision_score(fraud[unknown], score),
    )
    print(f"{told}: ROC AUC {auc:.3f}, average precision {ap:.2f}")

# %%
# The table for those who look into it, the likeliest frauds first:
table = pd.DataFrame(hoplite.predict_table(result.model, graph, proba=True))
print(table.sort_values("p_yes", ascending=False).head(5).to_string(index=False))
scratch.cleanup()

# %%
# Who is taken for whom, of the accounts whose label nobody showed the model:
truth = graph.with_labels(np.where(fraud, yes, 1 - yes), class_names=graph.class_names)
result.model.plot_confusion(truth, np.flatnonzero(unknown))
