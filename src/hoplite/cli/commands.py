"""The commands by name, each imported when it is needed: a completion must not wait for the others.

What completions and ``hoplite --help`` tell of a command is its line here; the command itself is
the function of the same name in the module of the same name.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

SUMMARIES = {
    "datasets": "List the datasets that have a name, or download one with --fetch.",
    "train": "Train a model on DATASET and score it on the test nodes.",
    "search": "Train every configuration of a grid on DATASET, several seeds each, and choose one.",
    "predict": "Predict the label of every node of DATASET and write id, predicted label and "
    "probability.",
    "explain": "Explain predictions for nodes of DATASET: exact sums over hops, nodes and "
    "features.",
    "serve": "Serve a page where one looks a node of DATASET up and sees why it is predicted so.",
    "bounds": "Rademacher complexity of a model on DATASET's training nodes: the paper's bound, "
    "one that holds, and the complexity itself.",
    "propagate": "Compute the hop features p_0(S) X .. p_k(S) X of DATASET once and keep them in a "
    "folder.",
    "doctor": "Show what is installed, kernels, threads, memory and disk, and test the core.",
}


def command_function(name: str) -> Any:
    """The function that is the command ``name``."""
    return getattr(import_module(f"hoplite.cli.{name}"), name)


class Commands(MutableMapping[str, Any]):
    """Typer's commands by name; those of SUMMARIES are made when they are asked for."""

    def __init__(self, made: Any) -> None:
        self._made = dict(made)

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            if name not in SUMMARIES:
                raise KeyError(name)
            alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
            alone.command(name)(command_function(name))
            self._made[name] = typer.main.get_command(alone)
        return self._made[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._made[name] = command

    def __delitem__(self, name: str) -> None:
        del self._made[name]

    def __iter__(self) -> Iterator[str]:
        yield from {**SUMMARIES, **self._made}

    def __len__(self) -> int:
        return len({**SUMMARIES, **self._made})


class LazyGroup(TyperGroup):
    """The group of all commands, which lists them without importing them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = Commands(self.commands)
        self._lists = False

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if self._lists and cmd_name in SUMMARIES:
            return TyperCommand(cmd_name, help=SUMMARIES[cmd_name])
        return self.commands.get(cmd_name)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        self._lists = True
        return super().shell_complete(ctx, incomplete)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._lists = True
        super().format_help(ctx, formatter)
