"""
Cora in ten lines
=================

Cora is a graph of 2,708 papers from seven fields that cite each other. The field of 140 papers is
known; predict the others from words and citations. The graph is included in the package.
"""

import hoplite

graph = hoplite.load("cora")
print(graph)

# %%
# LGC learns one coefficient for each of 20 hops, and one linear map of the words. Five seeds are
# trained. The validation nodes choose the epoch, and the test nodes are read once, at the end.
result = hoplite.train(graph, "lgc", hops=20, lr=0.2, seeds=5)
print(f"LGC: {result.test_accuracy:.1%} of the test papers are predicted correctly")

# %%
# Is that good? Without hops, the model is a logistic regression on the words. The baseline always
# predicts the most frequent field.
words = hoplite.train(graph, "sgc", hops=0)
print(f"only words: {words.test_accuracy:.1%}")
print(f"always the most frequent field: {result.baseline('test')['accuracy']:.1%}")

# %%
# The model is saved as JSON and safetensors, and predicts any graph with the same words:
# ``hoplite.TrainedModel.load(folder).predict(graph)``.
model = result.model
print(model)
print("the first paper:", model.class_names[model.predict(graph)[0]])

# %%
# Training curves:
result.plot_history()
