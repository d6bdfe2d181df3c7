"""
Labels as a signal
==================

Labels can be propagated along edges, as features can: by themselves (label propagation), or after a
model, to correct its errors (Correct and Smooth).
"""

import os

import plotly.graph_objects as go

import hoplite

small = os.environ.get("HOPLITE_EXAMPLES") == "small"  # the tests' size
results_of = {}
for name in ("cora",) if small else ("cora", "citeseer", "pubmed"):
    graph = hoplite.load(name)
    results_of[name] = {
        "only labels": hoplite.train(graph, "labelprop", hops=50, alpha=0.9),
        "only words": hoplite.train(graph, "sgc", hops=0, bias=True),
        "words, then labels": hoplite.train(
            graph, "sgc", hops=0, bias=True, correct_smooth=True
        ),
        "words over 2 hops": hoplite.train(graph, "sgc", hops=2, bias=True),
    }

# %%
# Label propagation uses no words and learns nothing, so it takes milliseconds. Try it first: if it
# does well, the edges are informative.
for name, results in results_of.items():
    accuracies = ", ".join(
        f"{how} {result.test_accuracy:.1%}" for how, result in results.items()
    )
    print(f"{name}: {accuracies}")

# %%
# Correct and Smooth propagates the errors at the labelled nodes to the others, then smooths. The
# validation nodes decide how strongly, and whether at all.
for name, results in results_of.items():
    print(f"{name}: {results['words, then labels'].model.correct_smooth.describe()}")

# %%
figure = go.Figure()
for how in results_of["cora"]:
    figure.add_bar(
        x=list(results_of),
        y=[results[how].test_accuracy for results in results_of.values()],
        name=how,
    )
figure.update_layout(
    barmode="group", yaxis_title="test accuracy", yaxis_tickformat=".0%"
)
figure
