"""hoplite bounds: the Rademacher complexity of a model on a graph, and error bounds."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Option

import hoplite
from hoplite.bases import find_basis
from hoplite.cli import console, options
from hoplite.errors import ConfigError, plural
from hoplite.models import MODELS, model_config
from hoplite.models.settings import find_model
from hoplite.operators import SYMMETRIC
from hoplite.progress import steps_bar

if TYPE_CHECKING:  # importing it takes time
    from hoplite.theory import FunctionClass

TOLERANCE = 1e-6
MEANINGS = {
    "trivial": "the largest value over all signs",
    "massart": "Massart's lemma, hop by hop",
    "chernoff": "every feature's own moments, all hops together",
    "hopwise": "every feature's own moments, hop by hop",
    "covering": "a finite net of rates beta",
}


@options.with_settings(only=("hops", "basis", "time"))
def bounds(
    dataset: options.Source,
    model: str | None = Option(
        None,
        help="sgc, egc, lgc, s2gc, ppr, heat, dgc, or MODULE:CLASS, also with --trained.",
        show_default="lgc",
        autocompletion=options.complete(MODELS),
    ),
    coefficient_bound: float | None = Option(
        None,
        help="Upper bound a on |alpha_i|, or on |beta| for egc.",
        show_default="1, or from --trained",
    ),
    weight_bound: float | None = Option(
        None,
        help="Upper bound b on the l1 norm of a column of Theta.",
        show_default="1, or from --trained",
    ),
    alpha: float | None = Option(
        None,
        help="Weight of a node's own features in every hop (s2gc, ppr).",
        rich_help_panel="Model",
    ),
    operator: str | None = Option(
        None,
        help=f"Graph operator: {', '.join(SYMMETRIC)}.",
        show_default="renormalized",
        autocompletion=options.complete(SYMMETRIC),
        rich_help_panel="Model",
    ),
    lipschitz: float = Option(1.0, help="Lipschitz constant of the activation."),
    draws: int = Option(2000, help="Random draws of the estimate."),
    confidence: float = Option(0.95, help="Confidence of the interval and of the error bound."),
    draw_seed: int = Option(0, "--seed", help="Seed of the random draws."),
    trained: Path | None = Option(
        None,
        metavar="MODEL_DIR",
        help="Trained model whose norms to use; also bounds its error.",
    ),
    json: options.Json = False,
    **settings: Any,
) -> None:
    """Bound the Rademacher complexity of a model on DATASET.

    The table has an estimate of the complexity, bounds that hold, and the paper's bound.

    Example: hoplite bounds cora --model lgc --hops 10
    """
    if trained is not None and model is not None and ":" in model:
        find_model(model)  # registers the class
        model = None
    reading, settings = options.split_settings(
        settings | {"model": model, "alpha": alpha, "operator": operator}
    )
    if trained is not None and settings:
        raise ConfigError("cannot be combined with --trained.", min(settings))
    config = model_config(**settings)  # reject wrong settings before any work
    from hoplite.theory import FunctionClass, generalization, norms  # only now: it takes time

    own_coefficient, own_weight = 1.0, 1.0
    fitted = None if trained is None else hoplite.TrainedModel.load(trained)
    graph = hoplite.open_data(dataset, prepare=fitted, **reading).in_memory()
    if fitted is not None:
        own_coefficient, weights = norms(fitted)
        extra = abs(fitted.weights["bias"]).tolist() if "bias" in fitted.weights else [0.0]
        own_weight = max(weights) + max(extra)
        graph, config = fitted.aligned(graph), fitted.config
    chosen = FunctionClass(
        graph,
        config,
        coefficient_bound=own_coefficient if coefficient_bound is None else coefficient_bound,
        weight_bound=own_weight if weight_bound is None else weight_bound,
        lipschitz=lipschitz,
        bias=fitted is not None and fitted.config.bias,
    )
    with steps_bar(f"{graph.name} {config.model}") as progress:
        estimate = chosen.estimate(
            draws,
            seed=draw_seed,
            confidence=confidence,
            progress=lambda share: progress("drawing signs", share),
        )
    values = chosen.summary(estimate)
    if chosen.coefficients.facts.exponential:
        values["truncation"] = _truncation(chosen)
    statement = None
    if fitted is not None:
        statement = generalization(fitted, graph, delta=1 - confidence, draws=draws, seed=draw_seed)
        values["generalization"] = dataclasses.asdict(statement)
    if json:
        console.print_json(values)
        return
    _print(values)
    if statement is not None:
        console.print_line(statement.sentence())


def _truncation(chosen: FunctionClass) -> dict[str, Any]:
    """Truncation error of the series of egc at the largest rate, relative to ||X Theta||."""
    from hoplite.theory import hops_for, spectral_norm, truncation_error

    rate, norm = chosen.coefficient_bound, spectral_norm(chosen.graph, chosen.config.operator)
    hops = chosen.config.hops
    error = truncation_error(rate, norm, hops) if hops + 2 > rate * norm else None
    try:
        needed = hops_for(TOLERANCE, rate, norm)
    except ConfigError:  # no number of hops will do
        needed = None
    return {"spectral_norm": norm, "error": error, "tolerance": TOLERANCE, "hops_needed": needed}


def _print(values: dict[str, Any]) -> None:
    estimate, paper = values["estimate"], values["paper_bound"]
    interval = f"{estimate['low']:.4g} to {estimate['high']:.4g}, {estimate['draws']:,} draws"
    how = f"{100 * estimate['confidence']:g} %: {interval}"
    how = "exact: all signs" if estimate["exact"] else how
    what = "estimate" if values["lipschitz"] == 1 else "estimate of an upper bound"
    rows = [[what, f"{estimate['value']:.4g}", how]]
    for name, value in sorted(values["bounds"].items(), key=lambda pair: pair[1] or float("inf")):
        rows.append([f"bound: {name.replace('_', ' ')}", _figure(value), MEANINGS[name]])
    family: Any = MODELS[values["model"]]  # a LinearModel
    basis = find_basis(values["basis"])
    if family.facts.theorem and (paper is not None or basis.powers):
        low = paper is not None and paper < estimate["low"]
        note = "too low here: it does not hold" if low else "as stated; not guaranteed to hold"
        rows.append([f"the paper's theorem {family.facts.theorem}", _figure(paper), note])
    fixed = ", ".join(f"{name} {values[name]}" for name in ("alpha", "time") if name in values)
    title = (
        f"{values['dataset']}: {values['model']}, {plural(values['hops'], 'hop')}, "
        f"{values['operator']}, {basis.title}, "
        f"{fixed or 'a = ' + format(values['coefficient_bound'], '.4g')}, b = "
        f"{values['weight_bound']:.4g}, {plural(values['nodes'], 'node')}"
    )
    console.print_table(title, ["Rademacher complexity", "value", ""], rows)
    ratio = values["bound"] / estimate["value"] if estimate["value"] else 1.0
    console.print_line(
        f"The smallest bound that holds is {values['bound']:.4g}, {ratio:.1f} times the estimate."
    )
    if "truncation" in values:
        cut = values["truncation"]
        changed = "an unknown multiple" if cut["error"] is None else f"at most {cut['error']:.2g}"
        needed = cut["hops_needed"]
        fewer = "no number of hops" if needed is None else plural(needed, "hop")
        console.print_line(
            f"Truncating exp(beta S) after {plural(values['hops'], 'hop')} changes the output by "
            f"{changed} times ||X Theta|| if |beta| <= {values['coefficient_bound']:.3g}. "
            f"With {fewer} it is at most {cut['tolerance']:g}."
        )


def _figure(value: float | None) -> str:
    return "infinite" if value is None else f"{value:.4g}"
