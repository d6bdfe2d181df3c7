"""
Explaining a decision
=====================

The models are linear, so a decision is a sum: of hops, of neighbours, of columns, to the last
digit. Nothing is approximated, and nothing is left over.

Who will pay a loan back? The people here are drawn at random; income and age matter, and so do
the people that they vouch for.
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
print(f"the larger class for all: {result.baseline('val')['accuracy']:.1%}")

# %%
# Somebody is refused, and asks why.
scores = result.model.predict_proba(graph)[:, result.model.class_names.index("pays")]
node = min(range(n), key=lambda node: abs(scores[node] - 0.35))
person = graph.node_ids[node]
print(f"{person} pays it back with a probability of {scores[node]:.0%}")

# %%
# What is explained is the lead of the predicted class over the other one: the difference of their
# logits. Here are the hops, people and columns that give most to it.
why = explain(result.model, graph, person)
print(why)

# %%
# The parts add up. What is left is the rounding of 32-bit numbers.
for kind, parts in (
    ("hops", why.by_hop),
    ("people", why.by_node),
    ("columns", why.by_feature),
):
    print(
        f"{kind}: {why.constant:+.4f} {parts.sum():+.4f} = {why.constant + parts.sum():.4f}"
    )
print(f"the model's own lead: {why.margin:.4f}, so the residual is {why.residual:.0e}")

# %%
# What would change the decision? A value of the person itself, at exactly this number:
for change in why.changes().found:
    print(
        f"{change.name} {change.value} -> {change.to} {change.side}: {change.becomes}"
    )

# %%
# or a link, or a neighbour, that was not there. Every removal is computed, not estimated.
found = flips(result.model, graph, person)
for edge in found.edges.found[:3]:
    print(f"without the link {edge.source.id} - {edge.target.id}: {edge.becomes}")
for node in found.nodes.found[:3]:
    print(f"without {node.node.id}: {node.becomes}")
print(
    f"{found.edges.checked} of {found.edges.of} links and {found.nodes.checked} people were tried"
)

# %%
# The same as pictures: the columns,
why.plot("features")

# %%
# and the people around:
why.plot("nodes")
