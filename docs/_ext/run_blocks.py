"""Run the code blocks of a page: JSON [[language, text], ...] in, JSON [output, ...] out.

Python blocks share their names; `hoplite` of bash blocks runs in this process, which saves seconds
a command, and other commands in a shell.
"""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import subprocess
import sys
from typing import Any


def run_python(text: str, names: dict[str, Any]) -> None:
    exec(compile(text, "block", "exec"), names)


def run_bash(text: str) -> None:
    from hoplite.cli import app

    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("hoplite "):
            app(shlex.split(line, comments=True)[1:], standalone_mode=False)
        elif line.strip() and not line.startswith("#"):
            print(
                subprocess.run(line, shell=True, check=True, capture_output=True, text=True).stdout
            )


def main() -> None:
    printed = []
    names: dict[str, Any] = {"__name__": "__main__"}
    for language, text in json.load(sys.stdin):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            if language == "python":
                run_python(text, names)
            else:
                run_bash(text)
        lines = [line.rstrip() for line in out.getvalue().rstrip().splitlines()]
        printed.append("\n".join(lines).strip("\n"))
    json.dump(printed, sys.stdout)


if __name__ == "__main__":
    main()
