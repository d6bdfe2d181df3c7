"""What commands that read a saved model share: which one, its own class, the memory for a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hoplite.models import find_model

if TYPE_CHECKING:  # importing it takes time
    from hoplite import TrainedModel

ModelArgument = Annotated[Path, typer.Argument(help="A folder that `hoplite train --out` wrote.")]
STORE_MEMORY = "For a store: peak memory of the process, such as 700MB."
StoreMemoryOption = Annotated[str | None, typer.Option(help=STORE_MEMORY)]
OwnClassOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="PACKAGE.MODULE:CLASS",
        help="The class of a model of your own, if no installed package names it.",
    ),
]


def load_model(folder: Path, own_class: str | None) -> TrainedModel:
    """The model of ``folder``, after its class was made known."""
    from hoplite import TrainedModel

    if own_class is not None:
        find_model(own_class)
    return TrainedModel.load(folder)
