"""Hoplite without its extra ``lab``: the library does without, and the lab says what it needs."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "hoplite"
EARLIER = ROOT / "tests" / "earlier"
LAB = "hoplite.lab"
OWN_COMMANDS = {"bench", "report", "reproduce", "explain"}  # explain: for its page
LIBRARIES = ("plotly", "jinja2", "torch_geometric")
SERVING = ("starlette", "uvicorn", "jinja2")

# As if they were not installed: whoever looks for one is told that it is nowhere.
WITHOUT = """
import contextlib, io, json, sys

class Without:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, *rest):
        return None if name.split(".")[0] in LIBRARIES else self.finder.find_spec(name, *rest)

LIBRARIES, commands = json.loads(sys.argv[1])
sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
from hoplite.cli import main

for words in commands:
    sys.argv = ["hoplite", *words]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as error:
            code = error.code
    lab = sorted(name for name in sys.modules if f"{name}.".startswith("hoplite.lab."))
    print(json.dumps([code, out.getvalue(), err.getvalue(), lab]), file=sys.__stdout__)
"""


def parsed(path: Path) -> list[tuple[str, bool]]:
    """The modules that a file imports, and whether only while a function runs or for types."""
    found: list[tuple[str, bool]] = []

    def visit(node: ast.AST, later: bool) -> None:
        if isinstance(node, ast.Import):
            found.extend((alias.name, later) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = ".".join(path.relative_to(SOURCE.parent).parts[: -node.level or None])
            module = (above + "." if node.level else "") + (node.module or "")
            found.extend((f"{module}.{alias.name}", later) for alias in node.names)
        later = later or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        later = later or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
        for child in ast.iter_child_nodes(node):
            visit(child, later)

    visit(ast.parse(path.read_text(encoding="utf-8")), later=False)
    return found


def test_only_its_own_commands_import_the_lab_and_late() -> None:
    own = {"lab", "serve"}  # serve has an extra of its own, with one of these libraries
    files = [
        path for path in SOURCE.rglob("*.py") if not own & {*path.relative_to(SOURCE).parts[:1]}
    ]
    assert len(files) > 50
    importers = set()
    for path in files:
        for module, later in parsed(path):
            drawn = later and module.split(".")[0] == "plotly"  # which has an extra of its own
            assert drawn or module.split(".")[0] not in LIBRARIES, f"{path} imports {module}"
            if f"{module}.".startswith(f"{LAB}."):
                importers.add(path.relative_to(SOURCE).as_posix())
                assert later, f"{path} imports {module} at once"
    assert importers == {f"cli/{name}.py" for name in OWN_COMMANDS}


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, str, list[str]]]:
    """Exit code, streams and the lab's modules of each command, in one process without them."""
    folder = tmp_path_factory.mktemp("without")
    club = str(EARLIER / "club")
    made, page = str(folder / "model"), str(folder / "page.html")
    commands = {
        "train": ["train", club, "--model", "lgc", "--hops", "2", "--epochs", "2", "--out", made],
        "predict": ["predict", made, club, "--out", str(folder / "p.csv")],
        "explain": ["explain", made, club, "--node", "NODE", "--no-flips"],
        "serve": ["serve", made, club, "--port", "0"],
        "gat": ["train", club, "--model", "gat", "--epochs", "2"],
        "explain --out": ["explain", made, club, "--node", "NODE", "--out", page],
        "report": ["report", str(ROOT / "results"), "--out", page],
        "reproduce": ["reproduce", "--quick", "--out", str(folder / "run")],
    }
    node = (EARLIER / "club" / "nodes.csv").read_text(encoding="utf-8").splitlines()[1]
    words = [[node.split(",")[0] if w == "NODE" else w for w in c] for c in commands.values()]
    process = subprocess.run(
        [sys.executable, "-c", WITHOUT, json.dumps([LIBRARIES + SERVING, words])],
        capture_output=True, text=True, cwd=folder,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    answers = map(json.loads, process.stdout.splitlines())
    found = dict(zip(commands, map(tuple, answers), strict=True))
    assert not Path(page).exists()
    assert not (folder / "run").exists()
    return found


@pytest.mark.parametrize("command", ["train", "predict", "explain", "gat"])
def test_the_library_does_without(without, command: str) -> None:
    code, _, err, lab = without[command]
    assert code == 0, err
    assert lab == []


def test_serving_has_an_extra_of_its_own(without) -> None:
    code, out, err, lab = without["serve"]
    assert (code, out, lab) == (1, "", [])
    needed = "starlette and uvicorn and jinja2"
    assert f'needs {needed}; run `pip install "hoplite-graph[serve]"`.' in " ".join(err.split())


@pytest.mark.parametrize(
    ("command", "code", "names"),
    [
        ("explain --out", 1, "jinja2 and plotly"),
        ("report", 1, "jinja2 and plotly"),
        ("reproduce", 1, "jinja2 and plotly and torch_geometric"),
    ],
)
def test_what_needs_it_says_so(without, command: str, code: int, names: str) -> None:
    found, out, err, _ = without[command]
    assert (found, out) == (code, "")
    sentence = " ".join(err.split())
    assert f'needs {names}; run `pip install "hoplite-graph[lab]"`.' in sentence
    assert sentence.count(".") == 1
