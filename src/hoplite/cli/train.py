"""hoplite train: fit one configuration with several seeds, score it, keep the best model."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hoplite.cli.console import (
    format_score,
    print_description,
    print_json,
    print_line,
    print_note,
    print_table,
    report_and_fail,
    steps_bar,
    training_bar,
)
from hoplite.cli.options import (
    ClusterOption,
    DatasetArgument,
    JsonOption,
    LinkOption,
    ModelByDataOption,
    OverwriteOption,
    SplitIndexOption,
    SplitSeedOption,
    StructuralOption,
    ThreadsOption,
    table_options,
    with_settings,
)
from hoplite.errors import ConfigError, HopliteError, plural
from hoplite.models import check_default_options, split_options
from hoplite.models.settings import AUTO

if TYPE_CHECKING:  # importing it takes time
    from hoplite.search import AutoResult
    from hoplite.training import TrainingResult

MAX_CLASSES = 20  # in the table of classes


@with_settings(defaults=True)
def train(
    dataset: DatasetArgument,
    model: ModelByDataOption = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="Number of runs, with seeds 0, 1, 2, and so on.")
    ] = 5,
    budget: Annotated[
        str | None,
        typer.Option(help="Time budget for auto, e.g. 60s, 5m or 1h.", show_default="60s"),
    ] = None,
    trials: Annotated[
        str | None,
        typer.Option(help="For auto: number of candidates instead, or 48/16/6 for each rung."),
    ] = None,
    split_seed: SplitSeedOption = 0,
    split_index: SplitIndexOption = None,
    structural: StructuralOption = None,
    link: LinkOption = False,
    memory: Annotated[
        str | None,
        typer.Option(help="For a store: peak memory of the process.", show_default="4GB"),
    ] = None,
    cluster: ClusterOption = None,
    threads: ThreadsOption = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the model that is best on the validation nodes.")
    ] = None,
    overwrite: OverwriteOption = False,
    json: JsonOption = False,
    **settings: Any,
) -> None:
    """Train a model on DATASET and score it on the test nodes.

    With --model auto the models are tried and one is chosen on the validation nodes; --out/auto
    keeps what was tried, and the same command continues it.

    Example: hoplite train cora --model lgc --hops 20 --lr 0.2 --weight-decay 5e-4 --dropout 0.5
    """
    reading = {"seed": split_seed, "split": split_index, "structural": structural, "link": link}
    reading |= table_options(settings)
    options = {name: value for name, value in settings.items() if value is not None}
    only = {"memory": memory, "cluster": cluster} if model == AUTO else {}
    only |= {} if model == AUTO else {"budget": budget, "trials": trials}
    for option, value in only.items():
        if value is not None:
            raise ConfigError(f"cannot be combined with --model {model}.", option)
    if model != AUTO and not Path(dataset, "manifest.json").is_file():  # a store has its own
        check_default_options(options) if model is None else split_options(model, options)
    started = _process_start()
    from hoplite import open_data, set_num_threads  # only now, as importing it takes time
    from hoplite.models.saved import check_target

    if out is not None:
        check_target(out, overwrite=overwrite)  # before hours of training, not after
    if threads is not None:
        set_num_threads(threads)
    data = open_data(dataset, **reading)
    choice = None
    if model == AUTO:
        from hoplite import auto
        from hoplite.search.halving import BUDGET, parse_seconds

        left = None
        if trials is None:  # the time of this process counts
            seconds = parse_seconds(budget or BUDGET)
            left = max(0.2 * seconds, seconds - (time.time() - started))
        with steps_bar(f"{data.name} {model}") as progress:
            options |= {"budget": left, "trials": trials, "seeds": seeds, "progress": progress}
            choice = auto(data, out=out, overwrite=overwrite, **options)
        overwrite = True  # auto has written the folder
        result = choice.trained
    else:
        from hoplite import train as train_model
        from hoplite.training.results import with_default_model

        data, chosen, options = with_default_model(data, model, options)
        with training_bar(f"{data.name} {chosen}, {plural(seeds, 'seed')}") as progress:
            options |= {"seeds": seeds, "progress": progress, "memory": memory, "cluster": cluster}
            result = train_model(data, chosen, **options)
    _report(result, choice, out, overwrite=overwrite, json=json)


def _process_start() -> float:
    """When this process started: all of its time is in the budget."""
    import psutil

    return psutil.Process().create_time()


def _report(
    result: TrainingResult,
    choice: AutoResult | None,
    out: Path | None,
    *,
    overwrite: bool,
    json: bool,
) -> None:
    """Save and print the result, and how ``auto`` chose it."""
    from hoplite.training.results import number

    summary, failure = result.summary(), None
    if choice is not None:
        summary["auto"] = choice.summary()
    preparation = result.graph.preparation
    if preparation is not None and (prepared := preparation.summary()):
        summary["prepared"] = prepared
    if result.graph.relation_weights:
        summary["relations"] = list(result.graph.relation_weights)
    if out is not None:
        curves = {
            str(run.seed): {name: list(map(number, curve)) for name, curve in run.history.items()}
            for run in result.runs
        }
        try:
            result.model.save(out, overwrite=overwrite, result=summary | {"history": curves})
            summary["out"] = str(out)
        except HopliteError as error:  # a full disk must not take the scores with it
            failure = error
            summary["error"] = str(error)
    if json:
        print_json(summary)
    else:
        if choice is not None:
            print_description(choice._describe())
            print_line(f"Again: --trials {choice.trials} gives the same choice")
        _print(result, summary)
        if out is None:
            print_note("Note: nothing was kept; --out FOLDER keeps the model and these scores.")
    report_and_fail(failure)


def _print(result: TrainingResult, summary: dict[str, Any]) -> None:
    _print_runs(result, summary)
    _print_metrics(result, summary)
    sizes = ", ".join(f"{summary['split'][part]:,} {part}" for part in ("train", "val", "test"))
    note = f" ({summary['split']['note']})" if summary["split"]["note"] else ""
    lines: dict[str, Any] = {"Split": f"{sizes}{note}", "Note": summary["unvalidated"]}
    lines["Prepared"] = summary.get("prepared")
    if "relations" in summary:
        lines["Edges"] = f"{', '.join(summary['relations'])}, with a polynomial each"
    if result.model.correct_smooth is not None:
        lines["Correct and Smooth"] = result.model.correct_smooth.describe()
    if "protocol" in summary:
        lines["Protocol"] = f"{summary['protocol']}; validation scores are from before that"
    run = result.best_run
    if run.threshold is not None:
        how = f"chosen by {result.training_config.threshold} on the validation nodes"
        lines["Threshold"] = f"{run.threshold:.3f}, {how}"
    if run.calibration is not None:
        errors = [
            f"{part} {error['before']:.3f} before, {error['after']:.3f} after"
            for part in ("val", "test")
            if (error := run.calibration.get(part))
        ]
        temperature = f"temperature {run.calibration['temperature']:.3f}"
        lines["Calibrated"] = f"{temperature}; calibration error: {'; '.join(errors)}"
    lines["Time"] = f"{summary['ms_per_epoch']:.2f} ms per epoch and seed"
    if diverged := [str(run["seed"]) for run in summary["runs"] if run["diverged"]]:
        lines["Diverged"] = f"seeds {', '.join(diverged)}; their best epoch before that counts"
    lines["Model"] = summary.get("out")
    for name, text in lines.items():
        if text is not None:
            print_line(f"{name}: {text}")


def _print_runs(result: TrainingResult, summary: dict[str, Any]) -> None:
    """The scores of every seed, and their mean."""
    from hoplite.tasks.base import title_of

    config, task = result.model_config, result.task
    score, others = task.score, task.headline
    rows = [
        [
            str(run["seed"]),
            *[score.shown(run[f"{part}_{score.name}"]) for part in ("val", "test")],
            *[score.shown(run["metrics"].get("test", {}).get(name)) for name in others],
            f"{run['best_epoch']} of {run['epochs']}",
        ]
        for run in summary["runs"]
    ]
    if len(rows) > 1:  # one run has no deviation
        pairs = [
            (summary[f"{part}_{score.name}_mean"], summary[f"{part}_{score.name}_std"])
            for part in ("val", "test")
        ]
        spreads = [summary["metrics"]["test"].get(name, {}) for name in others]
        pairs += [(spread.get("mean"), spread.get("std")) for spread in spreads]
        means = [f"{score.shown(mean)} ± {score.shown(std)}" for mean, std in pairs]
        rows.append(["mean ± std", *means, f"of {summary['epochs_mean']:.0f}"])
    labels = "" if task.exclusive else f", {task.labels.task}"
    titles = [f"{title_of(name)} %" for name in others]
    columns = ["seed", f"val {score.title}", f"test {score.title}", *titles, "best epoch"]
    print_table(f"{summary['dataset']}: {config.model}, {config.size()}{labels}", columns, rows)


def _print_metrics(result: TrainingResult, summary: dict[str, Any]) -> None:
    """Every metric with that of the baseline, and the classes at the test nodes of one run."""
    from hoplite.tasks.base import title_of

    metrics, baseline = summary["metrics"], summary["baseline"]
    parts = [part for part in ("val", "test") if metrics[part]]
    if not parts:
        return
    last, several = parts[-1], len(summary["runs"]) > 1

    def spread(values: dict[str, Any]) -> str:
        deviation = f" ± {format_score(values['std'])}" if several else ""
        return format_score(values["mean"]) + deviation

    rows = [
        [
            title_of(name),
            *[spread(metrics[part][name]) for part in parts],
            format_score(baseline[last][name]),
        ]
        for name in metrics[last]
    ]
    print_table("metrics", ["", *parts, f"baseline, {last}"], rows)
    best = result.best_run.metrics(last)
    if best is None or not 0 < len(best.classes) <= MAX_CLASSES:
        return
    rows = [
        [name, format_score(c["precision"]), format_score(c["recall"]), f"{c['support']:,}"]
        for name, c in best.classes.items()
    ]
    columns = ["class", "precision", "recall", "nodes"]
    if best.confusion is not None:
        columns.append("mostly predicted as")
        wrong = best.confusion.copy()
        wrong[range(len(wrong)), range(len(wrong))] = 0
        for row, counts in zip(rows, wrong, strict=True):
            name = list(best.classes)[counts.argmax()]
            row.append(f"{name} ({counts.max():,})" if counts.any() else "")
    print_table(f"classes, {last} nodes, seed {result.best_run.seed}", columns, rows)
