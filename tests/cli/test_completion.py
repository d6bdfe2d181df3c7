"""What a shell is offered when it asks, as bash, zsh and fish ask; and how little is imported."""

from __future__ import annotations

from tests.commands import hoplite


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
        "hoplite propagate cora --operator l": ["laplacian"],
        "hoplite propagate cora --dtype b": ["bfloat16"],
        "hoplite datasets --fetch ": ["reddit"],
    }.items():
        assert set(some) <= set(offered(text).split()), text
