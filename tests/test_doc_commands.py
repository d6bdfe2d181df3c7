"""The commands of the README, the docs and the helps run on small tables.

``LITTLE`` is added to them, so that they are short. ``pip`` must ask for our own package and its
extras, ``make`` for targets that exist; lines of a shell's own syntax, and of other machines, are
left out.
"""

import contextlib
import importlib
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import tomllib
import urllib.request
from pathlib import Path
from unittest.mock import patch

import pytest
from packaging.requirements import Requirement
from tests import commands
from tests.blocks import DOCS, PAGES, ROOT, blocks, files_of, help_examples, is_built, name_of
from tests.doc_tables import write_graphs, write_tables
from tests.io.test_fetch import Server

from hoplite.cli import app
from hoplite.models import MODELS, LabelModel

LITTLE = {
    "train": "--epochs 4 --seeds 1",
    "search": "--epochs 4 --seeds 1 --samples 2 --workers 1",
    "explain": "--budget 5",
}
OTHERS = {"700MB": "4GB", "1GB": "4GB", "60s": "2s"}  # as pytest itself holds much
LEFT_OUT = ("for ", "done", "export ", "dask ", "git ", "cd ", "source ", "docker ", "python -m ")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = {*PROJECT["optional-dependencies"]}
# Texts that are printed by no bash block above them: (page, first word).
TEXTS = {("README.md", "club/nodes.csv"), ("docs/store.md", "manifest.json")}
GIVEN = {name_of(page): blocks(page) for page in PAGES if not is_built(page)}
GIVEN = {name: found for name, found in GIVEN.items() if any(b.language == "bash" for b in found)}
EXAMPLES = help_examples()
MODEL = EXAMPLES["train"].text.split()[-1]  # which the examples of other commands read
GIVEN |= {
    block.page: [EXAMPLES["train"], block] if f" {MODEL} " in block.text else [block]
    for block in EXAMPLES.values()
}


def little(words: list[str]) -> list[str]:
    """The words of a command, and what makes it short."""
    options = LITTLE.get(words[0], "").split()
    model = words[words.index("--model") + 1] if "--model" in words else ""
    if model in MODELS and issubclass(MODELS[model], LabelModel):
        options = options[2:]  # it has no epochs
    return [OTHERS.get(word, word) for word in words] + options


class Programs:
    """What the lines of a page call; a server stays until the next one, or the end of the page."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.address = folder, ""
        self.server: commands.Process | None = None

    def run(self, script: str) -> str:
        """Run the lines of a script, and return what they print."""
        printed = []
        for line in script.replace("\\\n", " ").splitlines():
            outside = "tcp://" in line or "tls://" in line
            words = shlex.split(line, comments=True)
            if words and not outside and not line.strip().startswith(LEFT_OUT):
                printed.append(getattr(self, words[0])(words[1:]))
        return "".join(printed)

    def hoplite(self, words: list[str]) -> str:
        words = little(words)
        if words[0] == "serve":
            return self.serve(words)
        own = "--model" in words and words[words.index("--model") + 1] not in (*MODELS, "auto")
        if own or "--cluster" in words:
            before = f"import sys; sys.path.append({str(self.folder)!r})"
            return self.ended(commands.hoplite(*words, before=before))
        out = io.StringIO()
        with contextlib.redirect_stdout(out), patch.object(sys, "argv", ["hoplite", *words]):
            code = app(words, standalone_mode=False)
        assert not code, f"hoplite {words} ended with {code}: {out.getvalue()}"
        return out.getvalue()

    def serve(self, words: list[str]) -> str:
        self.end()
        log = self.folder / "served.txt"
        log.write_text("")
        given = [*words, *(() if "--port" in words else ("--port", "0"))]
        self.server = commands.start(*given, log=log, env={"BROWSER": "echo opened %s"})
        found = self.server.wait_until(
            lambda: re.search(r"http://[\d.:]+/", log.read_text(encoding="utf-8"))
        )
        self.address = found[0]
        with urllib.request.urlopen(self.address) as answer:
            assert answer.status == 200
        return log.read_text(encoding="utf-8")

    def python(self, words: list[str]) -> str:
        code = f"import runpy; runpy.run_path({words[0]!r}, run_name='__main__')"
        return self.ended(commands.run(code, *words[1:]))

    def curl(self, words: list[str]) -> str:
        words = [word.replace("http://127.0.0.1:8000/", self.address) for word in words]
        command = ["curl", "--silent", "--show-error", "--fail-with-body", *words]
        text = self.ended(subprocess.run(command, capture_output=True, text=True, timeout=600))
        assert isinstance(json.loads(text), dict)
        return text

    def pip(self, words: list[str]) -> str:
        assert words[0] == "install"
        own = [re.sub(r"^\.", PROJECT["name"], word) for word in words[1:]]  # "." is the repository
        for wanted in map(Requirement, own):
            assert wanted.name == PROJECT["name"]
            assert wanted.extras <= EXTRAS
        return ""

    def make(self, words: list[str]) -> str:
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        for target in words:
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
        return ""

    def end(self) -> None:
        if self.server is not None and self.server.poll() is None:
            os.kill(self.server.pid, signal.SIGINT)
            self.server.wait(600)

    @staticmethod
    def ended(done: subprocess.CompletedProcess[str]) -> str:
        assert done.returncode == 0, f"{done.args} ended with {done.returncode}: {done.stderr}"
        return done.stdout


@pytest.fixture
def reddit(monkeypatch, tmp_path):
    """A server that has a small Reddit."""
    fetching = importlib.import_module("hoplite.io.datasets")
    monkeypatch.setenv("HOPLITE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("no_proxy", "*")
    with Server() as server:
        monkeypatch.setitem(fetching.ARCHIVES, "reddit", server.archive())
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield
        server.shutdown()


def write_entry_points() -> None:
    """What pip leaves of a package whose pyproject.toml is here."""
    groups = tomllib.loads(Path("pyproject.toml").read_text())["project"]["entry-points"]
    folder = Path("my_models-1.0.dist-info")
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: my-models\nVersion: 1.0\n")
    lines = [
        line
        for group, entries in groups.items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in entries.items()))
    ]
    (folder / "entry_points.txt").write_text("\n".join(lines) + "\n")


@pytest.fixture
def programs(tmp_path, monkeypatch):
    folder = tmp_path / "page"
    folder.mkdir()
    monkeypatch.chdir(folder)  # what the commands write must not land in the repository
    write_tables()
    write_graphs()
    found = Programs(folder)
    yield found
    found.end()


def same(shown: str, printed: str) -> bool:
    """Whether lines were printed one after another, with numbers that differ by little."""
    number = r"\d+(?:\.\d+)?"
    lines, given = shown.splitlines(), printed.splitlines()
    texts = [re.sub(number, "#", line.strip()) for line in lines]
    for start in range(len(given) - len(lines) + 1):
        part = given[start : start + len(lines)]
        if [re.sub(number, "#", line.strip()) for line in part] == texts:
            wanted = [float(each) for each in re.findall(number, shown)]
            found = [float(each) for each in re.findall(number, "\n".join(part))]
            return found == pytest.approx(wanted, rel=0.02, abs=0.005)
    return False


@pytest.mark.filterwarnings("ignore::hoplite.HopliteWarning")  # of the noise in these tables
@pytest.mark.parametrize("name", GIVEN)
def test_commands_run(name, programs, reddit):
    given = GIVEN[name]
    text, own = "\n".join(block.text for block in given), {block.file for block in given}
    if "mine.toml" not in own:  # other pages use it, too
        given = [b for b in blocks(DOCS / "searching.md") if b.file == "mine.toml"] + given
    if re.search(r"^curl ", text, re.MULTILINE) and not shutil.which("curl"):
        pytest.skip("there is no curl")
    with files_of(given, programs.folder):
        if "pyproject.toml" in own:
            write_entry_points()
        printed = ""
        for block in given:
            if block.language == "bash":
                printed = programs.run(block.text)
            elif block.language == "text" and (block.page, block.text.split()[0]) not in TEXTS:
                assert same(block.text, printed), f"{block} is not what is printed:\n{printed}"
