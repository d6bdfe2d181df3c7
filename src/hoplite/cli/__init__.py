"""The command line: a file per command; each parses, delegates and prints."""

from __future__ import annotations

import difflib
import os
import re
import signal
import sys
import warnings
from typing import Any

import typer

from hoplite.cli.bounds import bounds
from hoplite.cli.certify import certify
from hoplite.cli.console import Command, Group, prepare_streams, print_error, show_warning
from hoplite.cli.datasets import datasets
from hoplite.cli.doctor import doctor
from hoplite.cli.explain import explain
from hoplite.cli.options import register_named_model
from hoplite.cli.predict import predict
from hoplite.cli.propagate import propagate
from hoplite.cli.search import search
from hoplite.cli.serve import serve
from hoplite.cli.train import train
from hoplite.errors import (
    SYNONYMS,
    ConfigError,
    GridError,
    HopliteError,
    command_line_names,
    is_shortage,
)

COMMANDS = {
    "Start here": (train, predict, explain),
    "Models": (search, serve),
    "Large graphs": (propagate,),
    "Theory": (bounds, certify),
    "Help": (datasets, doctor),
}

app = typer.Typer(
    name="hoplite",
    cls=Group,
    help="Linear graph convolutions: classify the nodes of a graph in seconds, on a CPU.",
    epilog="Start with: hoplite train cora. Every command has --help and --json.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for panel, commands in COMMANDS.items():
    for command in commands:
        app.command(cls=Command, rich_help_panel=panel)(command)


def _show_version(requested: bool) -> None:
    if requested:
        from hoplite.machine import VERSION

        typer.echo(f"hoplite {VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", "-V", callback=_show_version, is_eager=True, help="Show the version."
    ),
) -> None:
    """Linear graph convolutions: classify the nodes of a graph in seconds, on a CPU."""


class _Interrupted(KeyboardInterrupt):
    """A signal; Python ends by SIGINT, whatever the exit code, if it sees a plain KeyboardInterrupt
    leave source that is executed, as that of a dataclass is."""


def main() -> None:
    """Run the command line; exit code 0, 1 (failed, one sentence) or 2 (wrong usage).

    SIGINT, SIGTERM and SIGHUP end it with one sentence and 128 + the number of the signal.
    """
    warnings.showwarning = show_warning
    prepare_streams()
    received: list[int] = []

    def interrupt(number: int, frame: Any) -> None:
        received.append(number)
        if len(received) == 1:
            raise _Interrupted

    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP; nohup ignores it
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    code: Any = 0
    with command_line_names():
        try:
            register_named_model(sys.argv[1:])
            code = app(standalone_mode=False)
        except (Exception, KeyboardInterrupt) as error:
            if not received:
                code = _report(error)
    if received:  # Typer, or a library, may have replaced the interrupt by another error
        code = _report_signal(received[0])
    sys.exit(code if isinstance(code, int) else 0)


def _report_signal(number: int) -> int:
    words = sys.argv[1:]
    resumable = {"search", "propagate", "--fetch"} & {*words} or {"auto", "--out"} <= {*words}
    hint = "; run the same command again to resume" if resumable else ""
    print_error(f"stopped by {signal.Signals(number).name}{hint}.")
    return 128 + number


def _report(error: BaseException) -> int:
    """Print one sentence for an error that the user can understand; return the exit code."""
    if isinstance(error, HopliteError):
        print_error(error.command_line_message())
        return 2 if isinstance(error, ConfigError) and not isinstance(error, GridError) else 1
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):  # Typer's own
        return _report_usage(error)
    if is_shortage(error):
        print_error("there is not enough memory for this graph and these settings.")
        return 1
    if isinstance(error, BrokenPipeError):  # the reader of our output has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    if isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename else ""
        print_error(f"{name}{error.strerror or error}.")
        return 1
    raise error


def _report_usage(error: Any) -> int:
    context, message = getattr(error, "ctx", None), error.format_message().rstrip()
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(message)
        return 0
    if context is not None and hasattr(error, "possibilities"):
        names = [name for parameter in context.command.params for name in parameter.opts]
        meant = SYNONYMS.get(str(error.option_name), str(error.option_name))
        matches = difflib.get_close_matches(meant, names, n=1, cutoff=0.7)
        hint = f" Did you mean {matches[0]}?" if matches else ""
        message = f"No such option: {error.option_name}.{hint}"
    unknown = re.match("No such command '(.+?)'", message)
    if unknown and context is not None:
        flag, commands = f"--{unknown[1]}", context.command.commands.items()
        owners = [name for name, c in commands if any(flag in option.opts for option in c.params)]
        message += f" Did you mean `hoplite {owners[0]} {flag}`?" if len(owners) == 1 else ""
    tables = context is not None and any(p.name == "nodes" for p in context.command.params)
    if tables and message.startswith("Got unexpected extra argument"):
        message = f"{message.rstrip('.')}; pass one folder with both tables, or --nodes and --edges"
        message += "; separate several values of an option by commas, e.g. --drop A,B"
    message = message.replace("'DATASET'.", "'DATASET'; pass the folder of the tables, or a name.")
    if hasattr(error.__cause__, "errors"):  # pydantic's, of a value that is not of the type
        detail = error.__cause__.errors()[0]
        reason = detail["msg"].partition(",")[0].replace("Input should be", "it must be")
        reason = reason.replace("a valid", "an" if "integer" in reason else "a")
        message = f"{error.param.opts[0]} is {detail['input']!r}; {reason}."
    where = context.command_path if context else "hoplite"
    stop = "" if message.endswith((".", "?", "!")) else "."
    print_error(f"{message}{stop} See `{where} --help`.")
    return 2
