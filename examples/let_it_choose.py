"""
Let Hoplite choose
==================

Which model, how many hops, how strong a penalty? ``auto`` tries families of linear models within a
time that you give it, and of those that are as good as the best it takes the simplest. The
validation nodes choose; the test nodes are read once, at the end.
"""

import os

import plotly.graph_objects as go

import hoplite

budget = "3s" if os.environ.get("HOPLITE_EXAMPLES") == "small" else "20s"
found = hoplite.auto("citeseer", budget=budget)
print(found.why)
print(f"after {found.seconds:.0f} s: test {found.trained.test_accuracy:.1%}")

# %%
# All that was tried, the best of each family, by its validation loss. (No test figure is there.)
best = {}
for one in found.candidates:
    best.setdefault(one.family, one)
for name, one in best.items():
    print(f"{name:22} loss {one.val:.3f}, accuracy {one.score:.1%} on validation")
for advice in found.advice:
    print(advice)

figure = go.Figure()
figure.add_bar(x=[one.score for one in best.values()], y=list(best), orientation="h")
figure.update_layout(xaxis_title="validation accuracy", xaxis_tickformat=".0%")
figure.update_yaxes(autorange="reversed")
figure

# %%
# A budget depends on the machine, a number of trials does not: this repeats the choice anywhere.
print(f'hoplite.auto("citeseer", trials="{found.trials}")')
