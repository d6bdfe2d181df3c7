"""hoplite train: fit one configuration with several seeds, score it, keep the best model."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Option

import hoplite
from hoplite.cli import console, graphs, options
from hoplite.cli.console import SETS_OF_GRAPHS
from hoplite.errors import ConfigError, option_name, some_of
from hoplite.models import find_model, split_options
from hoplite.models.settings import AUTO, check_default_options, switch_note

if TYPE_CHECKING:  # importing it takes time
    from hoplite.models import Model
    from hoplite.search import AutoResult


@options.with_settings(defaults=True)
def train(
    dataset: options.Dataset,
    model: options.ModelByData = None,
    seeds: int = Option(
        5, min=1, metavar="N", help="Number of seeds; path trains one.", rich_help_panel="Training"
    ),
    budget: str | None = Option(
        None,
        help="Time budget for auto, e.g. 60s, 5m or 1h.",
        show_default="60s",
        rich_help_panel="Model",
    ),
    trials: str | None = Option(
        None,
        help="Candidates for auto, instead of --budget: how many, or which, e.g. 1,2,5.",
        rich_help_panel="Model",
    ),
    memory: options.StoreMemory = None,
    cluster: options.Cluster = None,
    threads: options.Threads = None,
    test: bool = Option(
        True,
        "--test/--no-test",
        help="Score the test nodes.",
        rich_help_panel="Output",
    ),
    depth: int | None = Option(
        None, help="Rounds of refinement (colours).", rich_help_panel=SETS_OF_GRAPHS
    ),
    structure: str | None = Option(
        None, help="Degrees as node features: auto, none or add.", rich_help_panel=SETS_OF_GRAPHS
    ),
    frequency: float | None = Option(
        None, help="Scale of the random weights (fourier).", rich_help_panel=SETS_OF_GRAPHS
    ),
    out: Path | None = Option(None, help="Folder for the trained model."),
    overwrite: options.Overwrite = False,
    json: options.Json = False,
    **settings: Any,
) -> None:
    """Train a model on DATASET and report its scores.

    For tables you may leave out --model: cross-validation chooses the model. With validation
    nodes, it is blocks. --model NAME --help shows a model's defaults.

    Example: hoplite train bank --label fraud --id account --out fraud-model

    Example: hoplite train cora --model lgc --hops 20 --lr 0.2 --out cora-lgc
    """
    reading, settings = options.split_settings(settings)
    of_graphs = {"depth": depth, "structure": structure, "frequency": frequency}
    of_graphs = options.without_none(of_graphs)
    if graphs.is_set(dataset, reading):
        more = {"test": test, "out": out, "overwrite": overwrite, "json": json}
        graphs.train(dataset, model, reading, settings | of_graphs, **more)
        return
    for option in of_graphs:
        raise ConfigError("requires a set of graphs.", option)
    not_for_auto = {"memory": memory, "cluster": cluster, "no_test": not test or None}
    only_for_auto, chooses = {"budget": budget, "trials": trials}, model == AUTO
    for option in options.without_none(not_for_auto if chooses else only_for_auto):
        verb = "cannot be used with" if chooses else "requires"
        advice = "leave it out" if chooses else "add that, or leave it out"
        raise ConfigError(f"{verb} --model {AUTO}; {advice}.", option)
    if model != AUTO and not Path(dataset, "manifest.json").is_file():  # a store has its own
        if model is None:
            check_default_options(settings)
        else:
            split_options(model, settings)
            _print_notes(find_model(model), settings)
    from hoplite.models.saved import check_target

    if out is not None:
        check_target(out, overwrite=overwrite)  # before hours of training, not after
    if threads is not None:
        hoplite.set_num_threads(threads)
    data = hoplite.open_data(dataset, **reading)
    choice = None
    if model == AUTO:
        import psutil

        from hoplite.search.auto import BUDGET, parse_seconds

        left = None
        if trials is None:  # the time of this process counts
            seconds = parse_seconds(budget or BUDGET)
            left = max(0.2 * seconds, seconds - time.time() + psutil.Process().create_time())
        settings |= {"budget": left, "trials": trials, "seeds": seeds, "progress": True}
        choice = hoplite.auto(data, out=out, overwrite=overwrite, **settings)
        overwrite = True  # auto has written the folder
        result = choice.trained
    else:
        from hoplite.training.comparison import is_tables, with_default_model

        saved = out is not None and settings.get("preset", "default") == "default"
        if saved and is_tables(data) and data.split.val.size:  # learn from all labels
            settings = {"refit": True} | settings
        _, chosen, complete = with_default_model(data, model, settings)
        if data.stored is None and split_options(chosen, complete)[1].optimizer == "path":
            seeds = 1  # an optimum does not depend on it
        settings |= {"seeds": seeds, "memory": memory, "cluster": cluster, "test": test}
        result = hoplite.train(data, model, progress=True, **settings)
    tables = [f"--{name}={reading[name]}" for name in ("nodes", "edges") if name in reading]
    following = ["hoplite", "predict", str(out), dataset, *tables, "--out", "labels.csv"]
    _report(result, choice, out, following, overwrite=overwrite, json=json)


def _print_notes(family: type[Model], settings: dict[str, Any]) -> None:
    """Print notes on options that have no effect or change other defaults."""
    for name in sorted(settings.keys() - family.settings()):  # others than the defaults are errors
        console.print_note(f"note: {option_name(name)} has no effect: {family.name} has no {name}.")
    if note := switch_note(family, settings):
        console.print_note(f"note: {note}")


def _report(
    result: hoplite.TrainingResult,
    choice: AutoResult | None,
    out: Path | None,
    following: list[str],
    *,
    overwrite: bool,
    json: bool,
) -> None:
    """Save and print the result, how ``auto`` chose it, and the ``following`` command."""
    from hoplite.files import without_nan
    from hoplite.structural import log_degrees_of

    summary = result.summary()
    if choice is not None:
        summary["auto"] = choice.summary()
    preparation = result.graph.preparation
    if preparation is not None and preparation.summary():
        summary["prepared"] = preparation.summary(log_degrees_of(result.model))
    if preparation is not None and preparation.unused:
        summary["unused_edge_columns"] = list(preparation.unused)
    if result.graph.relation_weights:
        summary["relations"] = list(result.graph.relation_weights)
    curves = {
        str(run.seed): {name: curve.tolist() for name, curve in run.history.items()}
        for run in result.runs
    }
    details = {"overwrite": overwrite, "history": without_nan(curves)}
    failure = options.save_model(result.model, out, summary, **details)
    if json:
        console.print_json(summary)
    else:
        if choice is not None:
            console.print_description(choice._describe())
            console.print_line(f"To repeat this choice, use --trials {choice.trials}")
        _print_runs(result, summary)
        for table in result._describe().tables:
            console.print_table(table.title or "metrics", table.columns, table.rows)
        for name, text in _facts(result, summary).items():
            if text is not None:
                console.print_line(f"{name}{'' if name.endswith('?') else ':'} {text}")
        if failure is None and out is not None:
            console.print_line(f"Next: {shlex.join(following)}")
        if out is None:
            console.print_note(
                "The model was not saved; run the command again with --out FOLDER to save it."
            )
    console.report_and_fail(failure)


def _facts(result: hoplite.TrainingResult, summary: dict[str, Any]) -> dict[str, str | None]:
    """The lines below the tables; None for those that do not apply."""
    run, split = result.best_run, summary["split"]
    sizes = ", ".join(f"{split[part]:,} {part}" for part in ("train", "val", "test"))
    facts: dict[str, Any] = {"Split": sizes + (f" ({split['note']})" if split["note"] else "")}
    if result.out_of_fold and "test" not in run.outputs:
        unbiased = f"{option_name('split_seed', 0)} gives an unbiased test score"
        facts["Scores"] = f"slightly optimistic, as the same folds chose the model; {unbiased}"
    facts |= {"Note": summary["unvalidated"], "Prepared": summary.get("prepared")}
    if unused := summary.get("unused_edge_columns"):
        weight = "To weight the edges by a column of numbers, pass --weight COLUMN."
        facts["Edge columns not used"] = f"{some_of(unused)}. {weight}"
    if "relations" in summary:
        facts["Edges"] = f"{', '.join(summary['relations'])}, each with its own polynomial"
    if result.model.correct_smooth is not None:
        facts["Correct and Smooth"] = result.model.correct_smooth.describe()
    if "protocol" in summary:
        tested = ", test scores after it" if "test" in run.outputs else ""
        before = f"{result.part_titles['val']} scores were computed before the refit"
        facts["Protocol"] = f"{summary['protocol']}; {before}{tested}"
    if result.graph_gain is not None:
        facts["Does the graph help?"] = result.graph_gain.describe()
    if run.threshold is not None:
        rule = result.training_config.threshold
        where = result.part_titles["val"]
        how = f", chosen by {rule} of the {where} scores" if isinstance(rule, str) else ""
        facts["Threshold"] = f"{run.threshold:.3f}{how}"
    if run.calibration is not None:
        errors = [
            f"{title} {error['before']:.3f} before, {error['after']:.3f} after"
            for part, title in result.part_titles.items()
            if (error := run.calibration.get(part))
        ]
        temperature = f"temperature {run.calibration['temperature']:.3f}"
        facts["Calibrated"] = f"{temperature}; calibration error: {'; '.join(errors)}"
    if result.training_config.optimizer == "path":  # solved, not trained in epochs
        facts["Time"] = f"{sum(run.seconds for run in result.runs):.2f} s for the model shown"
    else:
        facts["Time"] = f"{summary['ms_per_epoch']:.2f} ms per epoch and seed"
    if diverged := [str(run.seed) for run in result.runs if run.diverged]:
        facts["Diverged"] = f"seeds {', '.join(diverged)}; the best epoch before that is used"
    return facts | {"Model": summary.get("out")}


def _print_runs(result: hoplite.TrainingResult, summary: dict[str, Any]) -> None:
    """The scores of every seed, and their mean."""
    from hoplite.tasks.base import title_of

    config, task = result.model_config, result.task
    score, others = task.score, task.headline
    parts = [part for part in result.part_titles if result.metrics(part)] or ["val"]
    last, names = parts[-1], [f"{part}_{score.name}" for part in parts]
    rows = []
    for scored, run in zip(result.runs, summary["runs"], strict=True):
        values = [run[name] for name in names]
        values += [run["metrics"].get(last, {}).get(name) for name in others]
        rows.append([str(run["seed"]), *map(score.format, values), result.best_step(scored)])
    if len(rows) > 1:  # one run has no deviation
        pairs = [(summary[f"{name}_mean"], summary[f"{name}_std"]) for name in names]
        spreads = [summary["metrics"][last].get(name, {}) for name in others]
        pairs += [(spread.get("mean"), spread.get("std")) for spread in spreads]
        means = [f"{score.format(mean)} ± {score.format(std)}" for mean, std in pairs]
        rows.append(["mean ± std", *means, ""])
    labels = "" if task.exclusive else f", {task.labels.task}"
    titles = [f"{result.part_titles[part]} {score.title}" for part in parts]
    titles += [f"{title_of(name)} %" for name in others]
    columns = ["seed", *titles, f"best {result.training_config.step_title}"]
    chosen = "chosen model " if result.candidates else ""
    title = f"{summary['dataset']}: {chosen}{config.model}, {config.size()}{labels}"
    console.print_table(title, columns, rows)
