"""
Explain a decision
==================

The models are linear, so a decision is an exact sum over hops, neighbours and columns. Nothing is
approximated.

Who will repay a loan? These people are generated: income and age matter, and so do the people they
vouch for.
"""

import numpy as np
import pandas as pd

import hoplite
from hoplite.explain import explain, flips

rng = np.random.default_rng(1)
n = 800
vouch = rng.integers(0, n, (2, 3 * n))
income = rng.normal(2800, 700, n).round(-1)
age = rng.integers(19, 75, n)
jobs = rng.choice(["clerk", "driver", "nurse", "teacher"], n)
friends = np.zeros(n)
np.add.at(friends, vouch[0], income[vouch[1]] - 2800)
np.add.at(friends, vouch[1], income[vouch[0]] - 2800)
pays = (income - 2800) / 700 + (age - 45) / 25 + friends / 2500 + rng.normal(
    0, 0.8, n
) > 0
people = pd.DataFrame(
    {
        "id": [f"p{i}" for i in range(n)],
        "label": np.where(pays, "pays", "defaults"),
        "income": income,
        "age": age,
        "job": jobs,
    }
)
source, target = people["id"].to_numpy()[vouch]
links = pd.DataFrame({"source": source, "target": target})
graph = hoplite.io.from_frames(people, links)
result = hoplite.train(
    graph, "lgc", hops=2, operator="adjacency", bias=True, dropout=0, epochs=200
)
print(result)
print(f"always the larger class: {result.baseline('val')['accuracy']:.1%}")

# %%
# An applicant is refused and asks why.
scores = result.model.predict_proba(graph)[:, result.model.class_names.index("pays")]
node = min(range(n), key=lambda node: abs(scores[node] - 0.35))
person = graph.node_ids[node]
print(f"{person} repays with a probability of {scores[node]:.0%}")

# %%
# The explanation is of the margin: the logit of the predicted class minus that of the other one.
# These hops, people and columns contribute most to it:
why = explain(result.model, graph, person)
print(why)

# %%
# The contributions add up to the margin. The residual is rounding of 32-bit numbers.
for view, parts in (
    ("hops", why.by_hop),
    ("people", why.by_node),
    ("columns", why.by_feature),
):
    print(
        f"{view}: {why.constant:+.4f} {parts.sum():+.4f} = {why.constant + parts.sum():.4f}"
    )
print(f"the model's margin: {why.margin:.4f}, so the residual is {why.residual:.0e}")

# %%
# What would change the decision? Another value of one of the applicant's own columns:
for change in why.changes().found:
    print(
        f"{change.name} {change.value} -> {change.to} {change.side}: {change.becomes}"
    )

# %%
# Or a link or a neighbour less. Every removal is computed, not estimated.
found = flips(result.model, graph, person)
for edge in found.edges.found[:3]:
    print(f"without the link {edge.source.id} - {edge.target.id}: {edge.becomes}")
for node in found.nodes.found[:3]:
    print(f"without {node.node.id}: {node.becomes}")
print(
    f"{found.edges.checked} of {found.edges.of} links and {found.nodes.checked} people were checked"
)

# %%
# Plot the contributions of columns,
why.plot("features")

# %%
# and of the people nearby:
why.plot("nodes")
