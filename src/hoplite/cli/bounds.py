"""hoplite bounds: how complex a model's functions are on a graph, and what can be proved of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hoplite.bases import find_basis
from hoplite.cli.console import print_json, print_line, print_table, steps_bar
from hoplite.cli.options import (
    DatasetArgument,
    JsonOption,
    SplitIndexOption,
    SplitSeedOption,
    StructuralOption,
    complete,
    table_options,
    with_settings,
)
from hoplite.errors import ConfigError
from hoplite.models import MODELS, model_config

if TYPE_CHECKING:  # importing it takes time
    from hoplite.theory import FunctionClass

TOLERANCE = 1e-6
MEANINGS = {
    "most": "the largest value that any signs can give",
    "massart": "Massart's lemma, hop by hop",
    "chernoff": "every feature's own moments, all hops together",
    "hopwise": "every feature's own moments, hop by hop",
    "covering": "finitely many rates beta stand for all",
}


@with_settings(only=("hops", "operator", "basis", "alpha", "time"))
def bounds(
    dataset: DatasetArgument,
    model: Annotated[
        str | None,
        typer.Option(
            help="sgc, egc, lgc, s2gc, ppr, heat or dgc.  [default: lgc]",
            autocompletion=complete(MODELS),
        ),
    ] = None,
    coefficient_bound: Annotated[
        float | None,
        typer.Option(
            help="a: the largest |alpha_i|, or |beta| for egc.  [default: 1, or the trained "
            "model's own]"
        ),
    ] = None,
    weight_bound: Annotated[
        float | None,
        typer.Option(
            help="b: the largest l1 norm of Theta.  [default: 1, or the trained model's own, of "
            "one class]"
        ),
    ] = None,
    lipschitz: Annotated[float, typer.Option(help="Lipschitz constant of the activation.")] = 1.0,
    draws: Annotated[int, typer.Option(help="Draws of the estimate.")] = 2000,
    confidence: Annotated[
        float, typer.Option(help="Of the interval, and of the statement about a model.")
    ] = 0.95,
    seed: Annotated[int, typer.Option(help="Seed of the draws.")] = 0,
    trained: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL_DIR",
            help="A model that `hoplite train --out` wrote: its own class, and what its norms "
            "promise about the test error.",
        ),
    ] = None,
    split_seed: SplitSeedOption = 0,
    split_index: SplitIndexOption = None,
    structural: StructuralOption = None,
    json: JsonOption = False,
    **settings: Any,
) -> None:
    """Rademacher complexity of a model on DATASET's training nodes: the paper's bound, one that
    holds, and the complexity itself.

    Example: hoplite bounds cora --model lgc --hops 10
    """
    tables = table_options(settings)
    given = {name: value for name, value in settings.items() if value is not None}
    given |= {} if model is None else {"model": model}
    if trained is not None and given:
        raise ConfigError("cannot be combined with --trained.", min(given))
    config = model_config(**given)  # reject wrong settings before any work
    from hoplite import TrainedModel, open_data  # only now, as importing it takes time
    from hoplite.models.alignment import aligned_graph
    from hoplite.theory import FunctionClass, generalization, norms
    from hoplite.theory.function_class import other_settings

    own_coefficient, own_weight = 1.0, 1.0
    fitted = None if trained is None else TrainedModel.load(trained)
    data = open_data(
        dataset,
        seed=split_seed,
        split=split_index,
        structural=structural,
        prepare=fitted,
        **tables,
    )
    graph = data.in_memory()
    if fitted is not None:
        own_coefficient, weights = norms(fitted)
        extra = abs(fitted.weights["bias"]).tolist() if "bias" in fitted.weights else [0.0]
        own_weight = max(weights) + max(extra)
        graph = aligned_graph(graph, fitted.num_features, fitted.feature_names, fitted.loop_weight)
        config = fitted.config
    chosen = FunctionClass(
        graph,
        config.model,
        config.hops,
        config.operator,
        config.basis,
        settings=other_settings(config),
        coefficient_bound=own_coefficient if coefficient_bound is None else coefficient_bound,
        weight_bound=own_weight if weight_bound is None else weight_bound,
        lipschitz=lipschitz,
        bias=fitted is not None and fitted.config.bias,
    )
    with steps_bar(f"{graph.name} {chosen.model}") as progress:
        estimate = chosen.estimate(
            draws,
            seed=seed,
            confidence=confidence,
            progress=lambda share: progress("drawing signs", share),
        )
    values = chosen.summary(estimate)
    if chosen.coefficients.facts.exponential:
        values["truncation"] = _truncation(chosen)
    statement = None
    if fitted is not None:
        statement = generalization(fitted, graph, delta=1 - confidence, draws=draws, seed=seed)
        values["generalization"] = dataclasses.asdict(statement)
    if json:
        print_json(values)
        return
    _print(values)
    if statement is not None:
        print_line(statement.sentence())


def _truncation(chosen: FunctionClass) -> dict[str, Any]:
    """What the series of egc loses after its hops, at the largest rate, relative to ||X Theta||."""
    from hoplite.theory import hops_for, spectral_norm, truncation_error

    rate, norm = chosen.coefficient_bound, spectral_norm(chosen.graph, chosen.operator)
    error = truncation_error(rate, norm, chosen.hops) if chosen.hops + 2 > rate * norm else None
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
    rows = [["the complexity itself", f"{estimate['value']:.4g}", how]]
    for name, value in sorted(values["bounds"].items(), key=lambda pair: pair[1] or float("inf")):
        rows.append([f"bound: {name.replace('_', ' ')}", _figure(value), MEANINGS[name]])
    kind: Any = MODELS[values["model"]]  # a LinearModel
    basis = find_basis(values["basis"])
    if kind.facts.theorem and (paper is not None or basis.powers):
        low = paper is not None and paper < estimate["low"]
        note = "too low here: it does not hold" if low else "as stated; it need not hold"
        rows.append([f"the paper's theorem {kind.facts.theorem}", _figure(paper), note])
    fixed = ", ".join(f"{name} {values[name]}" for name in ("alpha", "time") if name in values)
    title = (
        f"{values['dataset']}: {values['model']}, {values['hops']} hops, {values['operator']}, "
        f"{basis.title}, {fixed or 'a = ' + format(values['coefficient_bound'], '.4g')}, "
        f"b = {values['weight_bound']:.4g}, {values['nodes']:,} nodes"
    )
    print_table(title, ["Rademacher complexity", "value", ""], rows)
    ratio = values["bound"] / estimate["value"] if estimate["value"] else 1.0
    print_line(
        f"The smallest bound that holds is {values['bound']:.4g}, {ratio:.1f} times the estimate."
    )
    if "truncation" in values:
        cut = values["truncation"]
        lost = f"at most {cut['error']:.2g}" if cut["error"] is not None else "an unknown part"
        print_line(
            f"Cut after {values['hops']} hops, exp(beta S) loses {lost} of ||X Theta|| at "
            f"|beta| = {values['coefficient_bound']:.3g}; "
            f"{cut['hops_needed'] or 'no number of'} hops lose at most {cut['tolerance']:g}."
        )


def _figure(value: float | None) -> str:
    return "infinite" if value is None else f"{value:.4g}"
