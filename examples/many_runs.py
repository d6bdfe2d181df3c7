"""
Many runs at once
=================

A run is one training on one thread, so a machine with N cores trains N settings or seeds at a time.
Runs are independent: each gives the same result as by itself.
"""

import os
import tempfile
import time
from pathlib import Path

import hoplite
from hoplite import TrainingConfig, model_config
from hoplite.engine.propagation import Propagation
from hoplite.models import build_model
from hoplite.training import NodeSet, Run, train_runs

small = os.environ.get("HOPLITE_EXAMPLES") == "small"
epochs, seeds = (10, 2) if small else (100, 5)

graph = hoplite.load("cora")
sets = {
    name: NodeSet(nodes, graph.labels[nodes])
    for name, nodes in (("train", graph.split.train), ("val", graph.split.val))
}
model = build_model(model_config("lgc", hops=10), graph.num_features, graph.num_classes)
propagation = Propagation(graph, hops=10)
runs = [
    Run(TrainingConfig(lr=lr, weight_decay=decay, epochs=epochs), seed)
    for lr in (0.2, 0.1, 0.05)
    for decay in (5e-3, 5e-4, 5e-5)
    for seed in range(seeds)
]

# %%
began = time.perf_counter()
together = train_runs(model, propagation, runs, sets)
at_once = time.perf_counter() - began
began = time.perf_counter()
alone = [train_runs(model, propagation, [run], sets)[0] for run in runs[:seeds]]
one_by_one = (time.perf_counter() - began) * len(runs) / seeds
print(f"{len(runs)} runs at once: {at_once:.1f} s; one by one about {one_by_one:.1f} s")

# %%
# The same runs, by themselves and together:
for one, same in list(zip(alone, together, strict=False))[:2]:
    print(
        f"best validation accuracy {one.best('val_accuracy'):.4f} {same.best('val_accuracy'):.4f}"
    )

# %%
# ``hoplite.search`` does this for a grid and stores every trial in a file, so the same call
# continues after an interruption. It chooses on validation and reads the test nodes once.
grid = {"hops": [5, 10], "lr": [0.2, 0.05], "weight_decay": [5e-3, 5e-4, 5e-5]}
with tempfile.TemporaryDirectory() as folder:
    result = hoplite.search(
        graph, "lgc", grid=grid, epochs=epochs, seeds=seeds, out=Path(folder) / "search"
    )
print({name: result.best.options[name] for name in ("hops", "lr", "weight_decay")})
print(f"validation {result.best.val_mean:.1%}, test {result.test_accuracy:.1%}")

# %%
# All twelve settings by validation accuracy:
result.plot()
