"""What a shell is offered when it asks, as bash, zsh and fish ask; and how little is imported."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from importlib import resources

import pytest
from tests.commands import hoplite

from hoplite.cli import app, completion
from hoplite.cli.commands import SUMMARIES, command_function

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
    for name in ("club", "cave.npz", "corner.txt", "two words", ".cache"):
        (tmp_path / name).mkdir() if "." not in name else (tmp_path / name).touch()
    here = offered("hoplite train c", cwd=tmp_path).split("\n")
    assert here == ["cora", "citeseer", "cave.npz", "club", ""]
    assert offered("hoplite train two", cwd=tmp_path) == "\n"  # the shell itself offers the file
    for text, some in {
        "hoplite tr": ["train"],
        "hoplite train --weight-d": ["--weight-decay"],
        "hoplite train cora --model h": ["hlgc", "heat"],
        "hoplite train cora --model a": ["auto"],
        "hoplite search cora --operator ": ["renormalized", "adjacency", "laplacian"],
        "hoplite train cora --basis j": ["jacobi:1,0.5"],
        "hoplite train cora --start l": ["lowpass"],
        "hoplite train cora --class-weight b": ["balanced"],
        "hoplite train bank --scale r": ["robust"],
        "hoplite search cora --grid p": ["paper", "published"],
        "hoplite bounds cora --operator r": ["renormalized"],
        "hoplite propagate cora --dtype b": ["bfloat16"],
        "hoplite datasets --fetch ": ["reddit"],
    }.items():
        assert offered(text).split() == some or set(some) < set(offered(text).split()), text
    assert offered("hoplite train cora --out x") == "\n"
    assert offered("hoplite no-such-command --x") == "\n"


def test_the_other_shells_are_answered_in_their_ways():
    assert offered("hoplite train cor", "zsh") == """_arguments '*: :(("cora"))'\n"""
    assert offered("hoplite train ./", "zsh") == "_files\n"
    assert "--task\tWhat the labels are" in offered("hoplite train --tas", "fish")
    assert offered("hoplite tra", "fish").startswith("train\tTrain a model on DATASET")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_shown(shell):
    text = offered_script(shell)
    assert f"complete_{shell}" in text
    assert "_HOPLITE_COMPLETE" in text


def offered_script(shell: str) -> str:
    done = hoplite(env={"_HOPLITE_COMPLETE": f"source_{shell}"})
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_bash_itself_completes(tmp_path):
    """The script in a real bash, with ``hoplite`` as it is installed."""
    (tmp_path / "hoplite").write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{PROGRAM}" "$@"\n')
    (tmp_path / "hoplite").chmod(0o755)
    (tmp_path / "script").write_text(offered_script("bash"))
    asks = "source ./script; COMP_WORDS=(hoplite train cora --model jac); COMP_CWORD=4; "
    done = subprocess.run(
        ["bash", "--norc", "-c", asks + '_hoplite_completion hoplite; echo "${COMPREPLY[*]}"'],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        check=True,
    )
    assert done.stdout == "jacobiconv\n"


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
    assert not imported & {"torch", "sklearn", "pandas", "plotly"}


def test_what_is_told_without_the_modules_is_what_they_have():
    import typer

    from hoplite.search.results import PROTOCOLS
    from hoplite.store.manifest import DTYPES

    assert tuple(PROTOCOLS) == completion.PROTOCOLS
    assert completion.DTYPES == DTYPES
    grids = {path.name for path in (resources.files("hoplite.search") / "grids").iterdir()}
    assert {f"{name}.toml" for name in completion.GRIDS} == grids - {"auto.toml"}
    for name, summary in SUMMARIES.items():
        text = inspect.getdoc(command_function(name)) or ""
        assert " ".join(text.split("\n\n")[0].split()) == summary
    group = typer.main.get_command(app)
    assert list(group.commands) == list(SUMMARIES)  # pyright: ignore[reportAttributeAccessIssue]
