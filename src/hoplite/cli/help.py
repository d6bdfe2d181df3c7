"""The layout of ``--help``: groups in a fixed order, whole paragraphs, flags without types."""

from __future__ import annotations

import inspect
import re
from typing import Any

from typer import rich_utils
from typer.core import TyperCommand, TyperGroup

rich_utils.OPTIONS_PANEL_TITLE = "Basics"
SETS_OF_GRAPHS = "Sets of graphs: --model auto (default), hops, pool, colours or fourier"
PANELS = (
    None,  # Basics
    "Model",
    "Training",
    "Unlabelled nodes",
    "Data",
    "Tables",
    "Output",
    "Large graphs",
    SETS_OF_GRAPHS,
)


def _lay_out(command: Any, ctx: Any) -> None:
    """Change what the help shows of a command's options, not what they do."""
    text = inspect.cleandoc(command.help or "")
    command.help = re.sub(r"(?<!\n)\n(?!\n)", " ", text)
    for parameter in command.get_params(ctx):
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
            if not parameter.default:  # --no-x is for scripts
                parameter.secondary_opts = []
        elif isinstance(getattr(parameter, "show_default", None), str):  # without parentheses
            parameter.default, parameter.show_default = parameter.show_default, True
    command.params.sort(key=_panel_rank)


def _panel_rank(parameter: Any) -> int:
    """The place of an option's group; the groups of your own models come last."""
    panel = getattr(parameter, "rich_help_panel", None)
    return PANELS.index(panel) if panel in PANELS else len(PANELS)


class Command(TyperCommand):
    """A command of Hoplite."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        _lay_out(self, ctx)
        super().format_help(ctx, formatter)


class Group(TyperGroup):
    """Hoplite's list of commands."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        _lay_out(self, ctx)
        super().format_help(ctx, formatter)
