"""The command line: a file per command; each parses, delegates and prints."""

from __future__ import annotations

import os
import sys
import warnings

import typer

from hoplite.cli.commands import SUMMARIES, LazyGroup, command_function
from hoplite.cli.console import print_error, show_warning
from hoplite.errors import ConfigError, GridError, HopliteError, is_shortage, nearest_hint
from hoplite.printable import prepare_streams
from hoplite.stopping import stopping

COMPLETING = "_HOPLITE_COMPLETE"  # by which a shell asks what may come next

app = typer.Typer(
    name="hoplite",
    cls=LazyGroup,
    help="Linear graph convolutions: classify the nodes of a graph in seconds, on a CPU.",
    epilog="Begin with: hoplite train cora. Every command has --help and --json.",
    no_args_is_help=True,
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
        False, "--version", "-V", callback=_show_version, is_eager=True, help="Show the version."
    ),
) -> None:
    """Linear graph convolutions: classify the nodes of a graph in seconds, on a CPU."""


def main() -> None:
    """Run the command line: 0 it worked, 1 it failed (one sentence), 2 wrong usage."""
    warnings.showwarning = show_warning
    stopping.imported = True
    prepare_streams()
    try:
        if any(word.startswith("--model") for word in sys.argv):
            _know_model(sys.argv)
        code = app(standalone_mode=False)
    except Exception as error:
        if stopping.number is not None:  # a signal has broken something on its way
            raise
        code = 1 if COMPLETING in os.environ else _explain(error)  # a shell shows all of it
    sys.exit(code if isinstance(code, int) else 0)


def _know_model(words: list[str]) -> None:
    """Let the command have the options of a model that only the command line names."""
    from hoplite.cli.settings import know_model

    if len(words) > 1 and words[1] in SUMMARIES:
        command_function(words[1])
    know_model(words)


def _explain(error: Exception) -> int:
    """Print one sentence for what the user can understand and return the exit code."""
    if isinstance(error, ConfigError) and not isinstance(error, GridError):
        print_error(_by_option(str(error)))
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
        if context is not None and hasattr(error, "possibilities"):  # of any likeness
            options = [one for parameter in context.command.params for one in parameter.opts]
            name = str(error.option_name)  # pyright: ignore[reportAttributeAccessIssue]
            message = f"No such option: {name}.{nearest_hint(name, options)}"
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


def _by_option(sentence: str) -> str:
    """A sentence on a flag that Python calls ``name``, of which it says that it ``is True``."""
    name, found, rest = sentence.partition(" is True")
    option = f"--{name.replace('_', '-')}"
    return f"{option} is given{rest}" if found and option in sys.argv else sentence
