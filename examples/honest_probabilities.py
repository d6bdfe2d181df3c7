"""
Probabilities that hold
=======================

Of the nodes to which a model gives 80 %, eight of ten should be right. And where one class is not
certain, a set of classes can be: one that holds the true class for 90 % of the nodes, whatever the
model is worth.
"""

import hoplite

graph = hoplite.load("pubmed")

# %%
# One number, the temperature, is fitted on the validation nodes. It changes no prediction.
options = {"hops": 2, "weight_decay": 1e-5, "dropout": 0, "lr": 0.2}
plain = hoplite.train(graph, "sgc", **options)
honest = hoplite.train(graph, "sgc", calibrate=True, **options)
for name, result in (("as trained", plain), ("calibrated", honest)):
    figures = result.metrics("test")
    print(
        f"{name}: accuracy {figures['accuracy'].mean:.1%}, calibration error "
        f"{figures['calibration_error'].mean:.3f}, log loss {figures['log_loss'].mean:.3f}"
    )

# %%
# Of the nodes that got a probability, how many are right? Before,
plain.plot_reliability()

# %%
# and after:
honest.plot_reliability()

# %%
# Sets by split conformal prediction. The promise is a probability over draws of validation nodes:
# with 500 of them 90 % are 90 % give or take 1.3.
model, test = honest.model, graph.split.test
truth = graph.labels[test]
for coverage in (0.8, 0.9, 0.95):
    sets = model.prediction_sets(graph, coverage)[test]
    covered = sets[range(len(test)), truth].mean()
    size = sets.sum(axis=1).mean()
    print(f"asked {coverage:.0%}: covered {covered:.1%}, {size:.2f} classes in a set")

# %%
# A node where the model is sure, and one where it is not:
sets = model.prediction_sets(graph, 0.9)
for size in (1, 2):
    node = test[sets[test].sum(axis=1) == size][0]
    classes = [
        name
        for name, inside in zip(model.class_names, sets[node], strict=True)
        if inside
    ]
    print(f"node {node}: {' or '.join(classes)}")
