"""A real shell in which some programs are functions of the test's own process."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from unittest.mock import patch

# Given the words behind the program's name, in the shell's environment: what it prints.
Program = Callable[[list[str]], str]

CALL = """
call() {{
    {{ printf '%s\\0' "$#" "$@"; env -0; printf '\\0'; }} >&{asked}
    read -r -u {told}
    cat {printed}
}}
"""


def run_script(text: str, programs: dict[str, Program]) -> str:
    """Run a script until its first error, and give what it printed.

    An error of a program is raised here, and then the shell ends. AssertionError if another
    command fails.
    """
    (asked, asked_end), (told_end, told) = os.pipe(), os.pipe()
    with (
        tempfile.NamedTemporaryFile("w+", encoding="utf-8") as printed,
        tempfile.TemporaryFile("w+", encoding="utf-8") as out,
    ):
        script = CALL.format(asked=asked_end, told=told_end, printed=printed.name)
        script += "".join(f'{name}() {{ call {name} "$@"; }}\n' for name in programs)
        shell = subprocess.Popen(
            ["bash", "-eu", "-c", script + text],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            pass_fds=(asked_end, told_end),
        )
        os.close(asked_end)
        os.close(told_end)
        try:
            for words, environment in _calls(asked):
                with patch.dict(os.environ, environment):
                    said = programs[words[0]](words[1:])
                printed.seek(0)
                printed.truncate()
                printed.write(said)
                printed.flush()
                os.write(told, b"\n")
        finally:
            os.close(told)  # if it still waits, it ends
            os.close(asked)
            code = shell.wait(600)
        out.seek(0)
        found = out.read()
    assert code == 0, f"{text}\nended with {code}:\n{found}"
    return found


def _calls(handle: int) -> Iterator[tuple[Sequence[str], dict[str, str]]]:
    texts = _texts(handle)
    for count in texts:
        words = [next(texts) for _ in range(int(count))]
        yield words, dict(text.split("=", 1) for text in iter(lambda: next(texts), ""))


def _texts(handle: int) -> Iterator[str]:
    """What comes, cut behind each NUL."""
    rest = b""
    while piece := os.read(handle, 1 << 16):
        *whole, rest = (rest + piece).split(b"\0")
        yield from map(os.fsdecode, whole)
