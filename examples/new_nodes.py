"""
New nodes next week
===================

A model labels nodes that came after its training, without training again. Here 300 papers of Cora
are taken away, a model learns from the rest, and then they arrive, with their citations.
"""

import numpy as np
import pyarrow as pa
import scipy.sparse as sp

import hoplite

cora = hoplite.load("cora")
late = cora.split.test[-300:]
old = np.setdiff1d(np.arange(cora.num_nodes), late)

# %%
# As tables: a paper has an id, a list of numbers for its words, a label and a part of the split.
# Any other columns would do as well.
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
# This week: the old papers, and a model of them.
graph = hoplite.io.from_frames(papers(old), citations(~is_late), scale="none")
model = hoplite.train(graph, "lgc", hops=10, lr=0.2).model
print("this week:", graph)

# %%
# Next week: 300 papers without a label, and the citations among them and to the old ones. The new
# nodes are the last ones of the grown graph; nothing is fitted again.
grown = hoplite.io.extend(graph, (papers(late, known=False), citations(is_late)))
fields = model.predict(grown)[-len(late) :]
print("next week:", grown)

# %%
# How well are they labelled? Their true fields are known here.
names = np.array(model.class_names)
truth = np.array(cora.class_names)[cora.labels[late]]
print(f"right: {(names[fields] == truth).mean():.1%} of the new papers")

lonely = hoplite.io.extend(
    graph, (papers(late, known=False), None)
)  # without a citation
alone = model.predict(lonely)[-len(late) :]
print(f"by their words alone: {(names[alone] == truth).mean():.1%}")

# %%
# The answer is that of the whole graph, had it been there from the start: to the last bits of a
# 32-bit number.
table = hoplite.io.from_frames(
    pa.concat_tables([papers(old), papers(late)]), citations(slice(None)), prepare=model
)
difference = np.abs(model.logits(grown) - model.logits(table)).max()
print(f"largest difference of a logit: {difference:.0e}")
model.plot_confusion(table, np.arange(len(old), table.num_nodes))
