"""
Cora in ten lines
=================

Cora is 2,708 papers of seven fields that cite each other. Of 140 of them the field is known; the
words of every paper and the citations shall tell the others. The graph comes with the package.
"""

import hoplite

graph = hoplite.load("cora")
print(graph)

# %%
# LGC learns one number for each of 20 hops, and one linear map of the words. Five seeds train at
# once. Validation nodes choose the epoch, and the test nodes are read when all is decided.
result = hoplite.train(graph, "lgc", hops=20, lr=0.2, seeds=5)
print(f"LGC: {result.test_accuracy:.1%} of the test papers are in their field")

# %%
# Is that much? Without a hop the same model is a logistic regression on the words alone; and the
# least is to say the most frequent field every time.
words = hoplite.train(graph, "sgc", hops=0)
print(f"the words alone: {words.test_accuracy:.1%}")
print(f"one field for all: {result.baseline('test')['accuracy']:.1%}")

# %%
# The model is small, saved as plain JSON and safetensors, and predicts on any graph with the same
# words: ``hoplite.TrainedModel.load(folder).predict(graph)``.
model = result.model
print(model)
print("the first paper:", model.class_names[model.predict(graph)[0]])

# %%
# How the training went:
result.plot_history()
