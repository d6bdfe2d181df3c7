"""Log a training run to MLflow: settings, metrics, curves and the saved model.

pip install mlflow
python examples/with_mlflow.py cora --tracking sqlite:///runs.db
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

try:
    import mlflow
except ModuleNotFoundError as error:
    raise SystemExit("this example needs mlflow; run `pip install mlflow`.") from error

import hoplite


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("dataset", help="a name or a path, as for hoplite train")
    parser.add_argument("--tracking", help="MLflow's tracking URI")
    parser.add_argument("--epochs", type=int, default=500)
    arguments = parser.parse_args()
    if arguments.tracking:
        mlflow.set_tracking_uri(arguments.tracking)
    mlflow.set_experiment("hoplite")
    options = {"hops": 10, "lr": 0.1, "weight_decay": 5e-4, "dropout": 0.5}
    options["epochs"] = arguments.epochs
    with mlflow.start_run() as run:
        mlflow.log_params({"dataset": arguments.dataset, "model": "lgc", **options})
        result = hoplite.train(arguments.dataset, "lgc", seeds=3, **options)
        for part in ("val", "test"):
            for name, spread in result.metrics(part).items():
                mlflow.log_metric(f"{part}_{name}", spread.mean)
        for step, value in enumerate(result.best_run.history["val_loss"]):
            mlflow.log_metric("best_run_val_loss", value, step=step)
        with tempfile.TemporaryDirectory() as folder:
            mlflow.log_artifacts(str(result.model.save(Path(folder) / "model")), "model")
    print(f"run {run.info.run_id}: test {result.test_accuracy:.3f}")


if __name__ == "__main__":
    main()
