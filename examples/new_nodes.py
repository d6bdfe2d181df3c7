"""
Predict new nodes
=================

A model predicts nodes that were added after training, without retraining. Here a model is trained
without 300 of Cora's papers, which are then added with their citations.
"""

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

import hoplite

cora = hoplite.load("cora")
late = cora.split.test[-300:]
old = np.setdiff1d(np.arange(cora.num_nodes), late)

# %%
# Write tables: a paper has an id, a list of numbers for its words, a label and its part of the
# split. Other columns would work as well.
words = cora.features.toarray()
part = np.full(cora.num_nodes, None)
for name in ("train", "val", "test"):
    part[getattr(cora.split, name)] = name


def papers(nodes, *, known=True):
    columns = {"id": nodes, "words": list(words[nodes])}
    if known:
        columns["label"] = [cora.class_names[label] for label in cora.labels[nodes]]
        columns["split"] = list(part[nodes])
    return pa.table(columns)


source, target = sp.triu(cora.adjacency).coords
is_late = np.isin(source, late) | np.isin(target, late)


def citations(chosen):
    return pa.table({"source": source[chosen], "target": target[chosen]})


# %%
# This week: train on the old papers.
graph = hoplite.io.from_frames(papers(old), citations(~is_late), scale="none")
model = hoplite.train(graph, "lgc", hops=10, lr=0.2).model
print("this week:", graph)

# %%
# Next week: add 300 papers without labels, with citations among them and to old papers. The new
# nodes come last in the extended graph; nothing is fitted again.
extended = hoplite.io.extend(graph, (papers(late, known=False), citations(is_late)))
fields = model.predict(extended)[-len(late) :]
print("next week:", extended)

# %%
# How many predictions are right? The true fields are known here.
names = np.array(model.class_names)
truth = np.array(cora.class_names)[cora.labels[late]]
print(f"correct: {(names[fields] == truth).mean():.1%} of the new papers")

isolated = hoplite.io.extend(
    graph, (papers(late, known=False), None)
)  # without citations
alone = model.predict(isolated)[-len(late) :]
print(f"correct by words only: {(names[alone] == truth).mean():.1%}")

# %%
# The predictions are those of the complete graph, up to rounding of 32-bit numbers.
table = hoplite.io.from_frames(
    pa.concat_tables([papers(old), papers(late)]), citations(slice(None)), prepare=model
)
difference = np.abs(model.logits(extended) - model.logits(table)).max()
print(f"largest difference of a logit: {difference:.0e}")
model.plot_confusion(table, np.arange(len(old), table.num_nodes))
