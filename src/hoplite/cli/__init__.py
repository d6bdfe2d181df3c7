"""The command line: a file per command; each parses, delegates and prints."""

from __future__ import annotations

import os
import sys
import warnings

import typer

from hoplite.cli.bench import bench
from hoplite.cli.bounds import bounds
from hoplite.cli.console import print_error, show_warning
from hoplite.cli.datasets import datasets
from hoplite.cli.explain import explain
from hoplite.cli.predict import predict
from hoplite.cli.propagate import propagate
from hoplite.cli.report import report
from hoplite.cli.reproduce import reproduce
from hoplite.cli.search import search
from hoplite.cli.serve import serve
from hoplite.cli.settings import know_model
from hoplite.cli.train import train
from hoplite.errors import ConfigError, GridError, HopliteError, is_shortage
from hoplite.printable import prepare_streams
from hoplite.stopping import stopping

app = typer.Typer(
    name="hoplite",
    help="Linear graph convolutions: classify the nodes of a graph in seconds, on a CPU.",
    epilog="Begin with: hoplite train cora. Every command has --help and --json.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from hoplite.version import VERSION

        typer.echo(f"hoplite {VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Show the version."
    ),
) -> None:
    """Linear graph convolutions: classify the nodes of a graph in seconds, on a CPU."""


app.command()(datasets)
app.command()(train)
app.command()(search)
app.command()(reproduce)
app.command()(predict)
app.command()(explain)
app.command()(serve)
app.command()(bounds)
app.command()(propagate)
app.command()(report)
app.command()(bench)


def main() -> None:
    """Run the command line: 0 it worked, 1 it failed (one sentence), 2 wrong usage."""
    warnings.showwarning = show_warning
    stopping.imported = True
    prepare_streams()
    try:
        know_model(sys.argv)
        code = app(standalone_mode=False)
    except Exception as error:
        if stopping.number is not None:  # a signal has broken something on its way
            raise
        code = _explain(error)
    sys.exit(code if isinstance(code, int) else 0)


def _explain(error: Exception) -> int:
    """Print one sentence for what the user can understand and return the exit code."""
    if isinstance(error, ConfigError) and not isinstance(error, GridError):
        print_error(str(error))
        return 2
    if isinstance(error, HopliteError):
        print_error(str(error))
        return 1
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):  # typer's own
        context = getattr(error, "ctx", None)
        message = error.format_message().rstrip()  # pyright: ignore[reportAttributeAccessIssue]
        if type(error).__name__ == "NoArgsIsHelpError":
            typer.echo(message)
            return 0
        where = context.command_path if context else "hoplite"
        stop = "" if message.endswith((".", "?", "!")) else "."
        print_error(f"{message}{stop} See `{where} --help`.")
        return 2
    if is_shortage(error):
        print_error("there is not enough memory for this graph and these settings.")
        return 1
    if isinstance(error, BrokenPipeError):  # whoever read our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    if isinstance(error, OSError):
        named = f"{error.filename}: " if error.filename else ""
        print_error(f"{named}{error.strerror or error}.")
        return 1
    raise error
