"""Choose settings with Optuna on the validation nodes; the test nodes are read once.

    pip install optuna
    python examples/with_optuna.py cora --trials 30

`hoplite search` does the same with a grid or random draws, many trials at once, and continues after
a crash. Use Optuna if you want its samplers, storage or dashboards.
"""

from __future__ import annotations

import argparse
from typing import Any

try:
    import optuna
except ModuleNotFoundError as error:
    raise SystemExit("this example needs optuna; run `pip install optuna`.") from error

import hoplite


def suggested(trial: optuna.Trial) -> dict[str, Any]:
    """The search space: options of ``hoplite.train``."""
    return {
        "hops": trial.suggest_int("hops", 1, 20),
        "lr": trial.suggest_float("lr", 1e-2, 0.5, log=True),
        "weight_decay": trial.suggest_float("weight_decay", 1e-6, 1e-1, log=True),
        "dropout": trial.suggest_float("dropout", 0.0, 0.9),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("dataset", help="a name or a path, as for hoplite train")
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--epochs", type=int, default=500)
    parser.add_argument("--out", help="folder for the chosen model")
    arguments = parser.parse_args()
    graph = hoplite.load(arguments.dataset)

    def score(trial: optuna.Trial) -> float:
        options = suggested(trial)
        result = hoplite.train(graph, "lgc", seeds=2, epochs=arguments.epochs, **options)
        return result.metrics("val")["accuracy"].mean

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.TPESampler(seed=0), study_name="hoplite"
    )
    study.optimize(score, n_trials=arguments.trials)
    result = hoplite.train(graph, "lgc", seeds=5, epochs=arguments.epochs, **study.best_params)
    if arguments.out:
        result.model.save(arguments.out)
    print(f"best of {arguments.trials} trials: {study.best_params}")
    print(f"validation {study.best_value:.3f}, test {result.test_accuracy:.3f}")


if __name__ == "__main__":
    main()
