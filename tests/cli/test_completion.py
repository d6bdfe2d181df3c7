"""What a shell is offered when it asks, as bash, zsh and fish ask; and how little is imported."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.commands import hoplite

PROGRAM = "import sys; sys.argv[0] = 'hoplite'; from hoplite.__main__ import main; main()"


def asked(text: str, shell: str) -> dict[str, str]:
    """The environment in which the script of ``--show-completion`` runs ``hoplite``."""
    if shell == "bash":
        words = text.split(" ")
        about = {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    else:
        about = {"_TYPER_COMPLETE_ARGS": text, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    return {"_HOPLITE_COMPLETE": f"complete_{shell}", **about}


def offered(text: str, shell: str = "bash", **options) -> str:
    done = hoplite(env=asked(text, shell), **options)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_names_are_offered(tmp_path):
    for name in ("club", "cave.npz", ".cache"):
        (tmp_path / name).touch()
    here = offered("hoplite train c", cwd=tmp_path).split()
    assert here == ["cora", "citeseer", "cave.npz", "club"]
    for text, some in {
        "hoplite tr": ["train"],
        "hoplite train --weight-d": ["--weight-decay"],
        "hoplite train cora --model h": ["hlgc", "heat"],
        "hoplite train cora --model a": ["auto"],
        "hoplite search cora --operator ": ["renormalized", "adjacency", "laplacian"],
        "hoplite train cora --class-weight b": ["balanced"],
        "hoplite train bank --scale r": ["robust"],
        "hoplite search cora --grid p": ["paper", "published"],
        "hoplite bounds cora --operator re": ["renormalized"],
        "hoplite propagate cora --dtype b": ["bfloat16"],
        "hoplite datasets --fetch ": ["reddit"],
    }.items():
        assert set(some) <= set(offered(text).split()), text


def test_it_waits_for_no_large_library():
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", PROGRAM],
        capture_output=True,
        text=True,
        env=os.environ | asked("hoplite train cora --model lg", "bash"),
        check=True,
    )
    assert done.stdout == "lgc\n"
    imported = {line.split("|")[-1].strip().split(".")[0] for line in done.stderr.splitlines()}
    assert {"hoplite", "typer"} < imported
    assert not imported & {"torch", "sklearn", "pandas", "plotly", "pyarrow", "fastapi", "duckdb"}
