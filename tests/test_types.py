"""What mypy and pyright see of an installed Hoplite: its types, and mistakes against them."""

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from tests import user_program

import hoplite

ROOT = Path(__file__).parent.parent
PROGRAM = ROOT / "tests" / "user_program.py"
HEAD = "import hoplite\ngraph = hoplite.load('cora')\nresult = hoplite.train(graph)\n"
WRONG = (  # a line each, of which every one must be refused
    "graph.nodes_that_do_not_exist",
    "text: str = result.test_accuracy",
    "hoplite.load(graph, 3.5, 4.5, 5.5)",
    "hoplite.lod('cora')",
    "model: hoplite.Graph = result.model",
)
# Types of other libraries but NumPy are taken for Any: reading them takes longer than all the rest.
ANY = "torch scipy sklearn pyarrow pandas polars networkx duckdb dask distributed plotly rich typer"
MYPY = "[mypy]\n[mypy-" + ".*,".join(ANY.split()) + ".*]\nfollow_imports = skip\n"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The Python of an environment where Hoplite is a package like any other.

    There a checker reads its types only if it has a py.typed, which an editable install hides.
    """
    folder = tmp_path_factory.mktemp("types")
    venv.create(folder / "env", symlinks=True)
    (packages,) = (folder / "env").glob("lib/python3*/site-packages")
    both = [ROOT / "src", sysconfig.get_paths()["purelib"]]
    (packages / "hoplite.pth").write_text("\n".join(map(str, both)), encoding="utf-8")
    (folder / "mypy.ini").write_text(MYPY, encoding="utf-8")
    return folder / "env" / "bin" / "python"


def mypy(python, *paths):
    pytest.importorskip("mypy")
    folder = python.parent.parent.parent
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary"]
    command += ["--config-file", folder / "mypy.ini", "--cache-dir", folder / "cache"]
    return check(folder, *command, "--python-executable", python, *paths)


def check(folder, *command):
    # elsewhere than in the checkout, whose own settings are not the user's
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, encoding="utf-8", timeout=600
    )
    return done.returncode, done.stdout + done.stderr


def test_a_users_program_has_types(installed, tmp_path):
    """The program and every public name pass, and each wrong line is refused, in one run.

    mypy's --strict refuses ``from hoplite import NAME`` of implicit re-exports.
    """
    names, wrong = tmp_path / "names.py", tmp_path / "wrong.py"
    lines = [f"from hoplite import {name} as {name}" for name in hoplite.__all__]
    names.write_text("\n".join(lines) + "\n", encoding="utf-8")
    wrong.write_text(HEAD + "\n".join(WRONG) + "\n", encoding="utf-8")
    code, output = mypy(installed, PROGRAM, names, wrong)
    assert code == 1, output
    assert "user_program.py:" not in output
    assert "names.py:" not in output
    first = HEAD.count("\n") + 1
    for number, line in enumerate(WRONG, start=first):
        assert f"wrong.py:{number}:" in output, line
    assert not any(f"wrong.py:{number}:" in output for number in range(1, first)), output


def test_the_program_runs(tmp_path):
    assert 0 < user_program.program(tmp_path) <= 1
