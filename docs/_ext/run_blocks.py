"""Run the code blocks of a page: JSON [[language, text], ...] in, JSON [[printed, html], ...] out.

Python blocks share their names, and one that ends with a figure shows it, as in a notebook; the
html is that of the figure. `hoplite` of bash blocks runs in this process, which saves seconds a
command, and other commands in a shell.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import shlex
import subprocess
import sys
from typing import Any

import plotly.graph_objects as go
import plotly.io as pio
from figures import figure_html, template

SHOWN = "_"  # the name of what a block ends with


def run_python(text: str, names: dict[str, Any]) -> str:
    """Run it; the figure that its last line is, if it is one."""
    tree = ast.parse(text)
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr):
        tree.body[-1] = ast.copy_location(
            ast.Assign([ast.Name(SHOWN, ast.Store())], last.value), last
        )
    exec(compile(ast.fix_missing_locations(tree), "block", "exec"), names)
    shown = names.pop(SHOWN, None)
    return figure_html(shown) if isinstance(shown, go.Figure) else ""


def run_bash(text: str) -> None:
    from hoplite.cli import app
    from hoplite.errors import command_line_names

    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("hoplite "):
            with command_line_names():
                app(shlex.split(line, comments=True)[1:], standalone_mode=False)
        elif line.strip() and not line.startswith("#"):
            print(
                subprocess.run(line, shell=True, check=True, capture_output=True, text=True).stdout
            )


def main() -> None:
    found = []
    pio.templates["docs"] = template()
    pio.templates.default = "docs"
    names: dict[str, Any] = {"__name__": "__main__"}
    for language, text in json.load(sys.stdin):
        out, figure = io.StringIO(), ""
        with contextlib.redirect_stdout(out):
            if language == "python":
                figure = run_python(text, names)
            else:
                run_bash(text)
        lines = [line.rstrip() for line in out.getvalue().rstrip().splitlines()]
        found.append(("\n".join(lines).strip("\n"), figure))
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
