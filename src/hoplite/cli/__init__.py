"""The command line: a file per command; each parses, delegates and prints."""

from __future__ import annotations

import os
import sys
import warnings

import typer

from hoplite.cli.console import print_error, show_warning
from hoplite.cli.datasets import datasets
from hoplite.cli.predict import predict
from hoplite.cli.train import train
from hoplite.errors import ConfigError, HopliteError

app = typer.Typer(
    name="hoplite",
    help="Linear graph convolutions: classify the nodes of a graph in seconds, on a CPU.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from hoplite import __version__

        typer.echo(f"hoplite {__version__}")
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
app.command()(predict)


def main() -> None:
    """Run the command line: 0 it worked, 1 it failed (one sentence), 2 wrong usage."""
    warnings.showwarning = show_warning
    try:
        app()
    except BrokenPipeError:  # the reader of our output has gone; keep Python's exit quiet too
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except KeyboardInterrupt:
        print_error("stopped by the keyboard.")
        sys.exit(130)
    except ConfigError as error:
        print_error(str(error))
        sys.exit(2)
    except HopliteError as error:
        print_error(str(error))
        sys.exit(1)
    except OSError as error:
        what = f"{error.filename}: {error.strerror}." if error.filename else f"{error}."
        print_error(what)
        sys.exit(1)
    except MemoryError:
        print_error("not enough memory for this graph and these settings.")
        sys.exit(1)
