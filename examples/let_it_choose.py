"""
Let Hoplite choose
==================

Which model, how many hops, how strong a penalty? ``auto`` tries families of linear models within a
time budget, and takes the simplest of those that are as good as the best. The validation nodes
choose; the test nodes are read once, at the end.
"""

import os

import plotly.graph_objects as go

import hoplite

budget = "3s" if os.environ.get("HOPLITE_EXAMPLES") == "small" else "20s"
result = hoplite.auto("citeseer", budget=budget)
print(result.why)
print(f"after {result.seconds:.0f} s: test {result.trained.test_accuracy:.1%}")

# %%
# The best candidate of each family, by validation loss. The test nodes are not used.
best = {}
for candidate in result.candidates:
    best.setdefault(candidate.family, candidate)
for name, candidate in best.items():
    print(
        f"{name:22} validation loss {candidate.val:.3f}, accuracy {candidate.score:.1%}"
    )
for advice in result.advice:
    print(advice)

figure = go.Figure()
figure.add_bar(
    x=[candidate.score for candidate in best.values()], y=list(best), orientation="h"
)
figure.update_layout(xaxis_title="validation accuracy", xaxis_tickformat=".0%")
figure.update_yaxes(autorange="reversed")
figure

# %%
# A time budget depends on the machine, a number of trials does not. This repeats the choice:
print(f'hoplite.auto("citeseer", trials="{result.trials}")')
