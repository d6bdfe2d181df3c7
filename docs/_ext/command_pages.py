"""The command line reference: a page for every command, written from the commands themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from api_pages import title, write_changed
from sphinx.application import Sphinx

from hoplite.cli import app as hoplite_app

EXAMPLE = re.compile(r"^ *(?:Examples?: *)?(hoplite \S.*)$")
FACTS = re.compile(r"  \[((?:required|default|env var|x|\d).*)\]$")  # as Typer writes them
NAME = "hoplite"


def commands() -> dict[str, Any]:
    """Every command that is not hidden by its whole name, such as ``hoplite train``; groups too."""
    return dict(_walk(NAME, typer.main.get_command(hoplite_app)))


def _walk(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield name, command
    if hasattr(command, "list_commands"):
        context = command.make_context(name, [], resilient_parsing=True)
        for word in command.list_commands(context):
            inner = command.get_command(context, word)
            if not inner.hidden:
                yield from _walk(f"{name} {word}", inner)


def escaped(text: str) -> str:
    """Text of a help that is none of reStructuredText's, but for `commands`."""
    parts = text.split("`")
    shown = [re.sub(r"([\\*|_])", r"\\\1", part) for part in parts]
    for i in range(1, len(shown) - 1, 2):
        shown[i] = f"``{parts[i]}``"
    return "".join(shown)


def about(text: str) -> list[str]:
    """The help of a command; its examples as blocks."""
    found: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        lines = paragraph.splitlines()
        matches = [EXAMPLE.match(line) for line in lines]
        if all(matches):
            found += [".. code-block:: bash", ""]
            found += [f"   {match[1].strip()}" for match in matches if match]
        else:
            found += [escaped(" ".join(line.strip() for line in lines))]
        found.append("")
    return found


def described(text: str) -> tuple[str, str]:
    """What an option is, and the facts that the help adds in brackets.

    >>> described("Learning rate.  [default: (0.05)]")
    ('Learning rate.', 'Default: 0.05')
    """
    found = FACTS.search(text)
    if found is None:
        return text, ""
    facts = re.sub(r"default: \((.*?)\)(?=$|; )", r"default: \1", found[1]).strip()
    said = "" if facts == "default:" else facts[0].upper() + facts[1:]
    return text[: found.start()], said


def page(name: str, command: Any) -> str:
    """The page of one command: its usage, what it does, its arguments and its options."""
    context = command.make_context(name, [], resilient_parsing=True)
    usage = command.get_usage(context).partition(":")[2].strip()
    usage = " ".join(re.sub(r"\{(\w+)\}", lambda m: m[1].upper(), usage).split())
    lines = [*title(name), f".. program:: {name}", "", *about(command.help or "")]
    lines += [".. code-block:: text", "", f"   {usage}", ""]
    records = [(param, param.get_help_record(context)) for param in command.get_params(context)]
    kinds = {"argument": "Arguments", "option": "Options"}
    for kind, heading in kinds.items():
        chosen = [record for param, record in records if record and param.param_type_name == kind]
        if chosen:
            lines += title(heading, "-")
        for flags, text in chosen:
            shown = flags.upper().split()[0] if kind == "argument" else flags
            words, facts = described(text)
            lines += [f".. option:: {shown}", "", f"   {escaped(words)}", ""]
            lines += [f"   *{escaped(facts)}*", ""] if facts else []
    if command.epilog:
        lines += about(command.epilog)
    return "\n".join(lines)


def pages() -> dict[str, str]:
    """The text of every page by its name."""
    found = {name.replace(" ", "-"): page(name, command) for name, command in commands().items()}
    index = [*title("Command line"), "Every command takes ``--help``. Exit codes: 0 it worked,"]
    index += ["1 it failed, with one sentence that says why, 2 wrong usage.", ""]
    index += [".. list-table::", "   :class: api-table", "   :widths: 35 65", ""]
    for name, command in commands().items():
        first = re.split(r"\n\s*\n", (command.help or "").strip())[0]
        index += [f"   * - :doc:`{name} <{name.replace(' ', '-')}>`"]
        index += [f"     - {escaped(' '.join(first.split()))}"]
    index += ["", ".. toctree::", "   :hidden:", "", *(f"   {each}" for each in found), ""]
    return found | {"index": "\n".join(index)}


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", lambda app: write_changed(Path(app.srcdir) / "cli", pages()))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
