"""
Calibrated probabilities and prediction sets
============================================

Of the nodes that a model predicts with 80 %, eight in ten should be right. If one class is not
certain, predict a set of classes that contains the true one for 90 % of the nodes, however good the
model is.
"""

import hoplite

graph = hoplite.load("pubmed")

# %%
# Calibration fits one number, the temperature, on the validation nodes. No prediction changes.
options = {"hops": 2, "weight_decay": 1e-5, "dropout": 0, "lr": 0.2}
plain = hoplite.train(graph, "sgc", **options)
calibrated = hoplite.train(graph, "sgc", calibrate=True, **options)
for name, result in (("as trained", plain), ("calibrated", calibrated)):
    figures = result.metrics("test")
    print(
        f"{name}: accuracy {figures['accuracy'].mean:.1%}, calibration error "
        f"{figures['calibration_error'].mean:.3f}, log loss {figures['log_loss'].mean:.3f}"
    )

# %%
# How many nodes of each predicted probability are right? Before calibration,
plain.plot_reliability()

# %%
# and after:
calibrated.plot_reliability()

# %%
# Prediction sets come from split conformal prediction. The coverage is an average over draws of the
# validation nodes: with 500 of them, 90 % means 90 ± 1.3 %.
model, test = calibrated.model, graph.split.test
truth = graph.labels[test]
for coverage in (0.8, 0.9, 0.95):
    sets = model.prediction_sets(graph, coverage)[test]
    covered = sets[range(len(test)), truth].mean()
    size = sets.sum(axis=1).mean()
    print(
        f"requested {coverage:.0%}: covered {covered:.1%}, {size:.2f} classes in a set"
    )

# %%
# One node of which the model is certain, and one of which it is not:
sets = model.prediction_sets(graph, 0.9)
for size in (1, 2):
    node = test[sets[test].sum(axis=1) == size][0]
    classes = [
        name
        for name, inside in zip(model.class_names, sets[node], strict=True)
        if inside
    ]
    print(f"node {node}: {' or '.join(classes)}")
