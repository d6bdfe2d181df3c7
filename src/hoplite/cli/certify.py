"""hoplite certify: a bound on the error on the nodes without labels, with a stated confidence."""

from __future__ import annotations

import dataclasses
from typing import Any

from typer import Option

import hoplite
from hoplite.cli import console, options
from hoplite.progress import steps_bar

SUBJECTS = {
    "holdout": "For the model, from the test nodes",
    "pac_bayes": "For a randomised classifier like the model, without test nodes (PAC-Bayes)",
}


@options.with_reading
def certify(
    model_dir: options.ModelFolder,
    dataset: options.Source,
    confidence: float = Option(0.95, help="Confidence of each certificate."),
    halves_seed: int = Option(
        0,
        "--seed",
        min=0,
        help="Seed of the random halves of the labelled nodes; choose it beforehand.",
    ),
    own_class: options.OwnClass = None,
    json: options.Json = False,
    **reading: Any,
) -> None:
    """Bound the error on the nodes of DATASET outside the split.

    There are two bounds. Each holds with 95 % confidence if the split is a random draw from all
    nodes. The first one is computed from the errors on the test nodes. The second one (PAC-Bayes)
    needs no test nodes, but holds for a randomised classifier; if all nodes are in the split, it
    bounds the error on the test nodes.

    Example, with a random split in the column split:

    hoplite train club --bias --out club-model

    hoplite certify club-model club
    """
    model = options.load_model(model_dir, dataset, own_class)
    graph = hoplite.open_data(dataset, prepare=model, **reading).in_memory()
    with steps_bar(f"{graph.name} {model.config.model}") as progress:
        progress("certifying", 0.0)
        certificates = hoplite.certify(model, graph, confidence=confidence, seed=halves_seed)
    if json:
        console.print_json(dataclasses.asdict(certificates))
        return
    for name, subject in SUBJECTS.items():
        certificate, refusal = getattr(certificates, name), certificates.refusals.get(name)
        text = f"not available; {refusal}" if certificate is None else f"{certificate.sentence()}."
        console.print_line(f"{subject}: {text}")
