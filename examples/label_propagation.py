"""
Labels as a signal
==================

Features can be carried along edges, and so can labels: alone (label propagation), or after a model,
to mend what it missed (Correct and Smooth).
"""

import os

import plotly.graph_objects as go

import hoplite

small = os.environ.get("HOPLITE_EXAMPLES") == "small"  # the tests' size
found = {}
for name in ("cora",) if small else ("cora", "citeseer", "pubmed"):
    graph = hoplite.load(name)
    found[name] = {
        "labels alone": hoplite.train(graph, "labelprop", hops=50, alpha=0.9),
        "words alone": hoplite.train(graph, "sgc", hops=0, bias=True),
        "words, then labels": hoplite.train(
            graph, "sgc", hops=0, bias=True, correct_smooth=True
        ),
        "words over 2 hops": hoplite.train(graph, "sgc", hops=2, bias=True),
    }

# %%
# Label propagation reads no word and learns nothing, so it takes a few milliseconds. It is the
# first thing to try: if it does well, the edges say much.
for name, results in found.items():
    told = ", ".join(
        f"{how} {result.test_accuracy:.1%}" for how, result in results.items()
    )
    print(f"{name}: {told}")

# %%
# Correct and Smooth carries the error at the labelled nodes to the others, then smooths. The
# validation nodes decide how far, and whether at all; so it is never used against the evidence.
for name, results in found.items():
    print(f"{name}: {results['words, then labels'].model.correct_smooth.describe()}")

# %%
figure = go.Figure()
for how in found["cora"]:
    figure.add_bar(
        x=list(found), y=[found[name][how].test_accuracy for name in found], name=how
    )
figure.update_layout(
    barmode="group", yaxis_title="test accuracy", yaxis_tickformat=".0%"
)
figure
