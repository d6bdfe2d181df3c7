"""The commands of the README, the docs and the helps run, in a shell, on small tables.

``LITTLE`` is added to them, so that they are short; of the experiments and benchmarks, which have
tests of their own, only the options are checked. Reddit is a small one of a server here, and the
machines of a cluster are processes. Two programs are not run, as they would fetch gigabytes or take
hours: what ``pip`` is asked for must be our own package and its extras, and ``make`` says what it
would do (``make -n``).
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
import socket
import subprocess
import sys
import threading
import time
import tomllib
import urllib.request
from fnmatch import fnmatch
from pathlib import Path
from unittest.mock import patch

import pytest
from packaging.requirements import Requirement
from tests import commands, pyg
from tests.blocks import (
    DOCS,
    PAGES,
    ROOT,
    blocks,
    files_of,
    help_examples,
    is_built,
    name_of,
)
from tests.doc_tables import write_graphs, write_tables
from tests.io.test_fetch import Server
from tests.shell import run_script
from torch.distributed import run as torchrun

from hoplite.cli import app
from hoplite.models import MODELS, LabelModel

pytestmark = pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
LITTLE = {
    "train": "--epochs 4 --seeds 1",
    "search": "--epochs 4 --seeds 1 --samples 2 --workers 1",
    "explain": "--budget 5",
}
OTHERS = {"700MB": "4GB", "1GB": "4GB", "60s": "2s"}  # as pytest itself holds much
REFRESH = "import dask; dask.config.refresh()"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = {*PROJECT["optional-dependencies"]}
# Texts that are printed by no bash block above them: (page, first word) -> what tests it.
TEXTS = {
    ("README.md", "club/nodes.csv"): "test_the_tables_of_the_readme",
    ("docs/store.md", "manifest.json"): "test_the_folder_of_a_store",
    ("docs/command-line.md", "error:"): "test_what_a_stopped_command_says",
}
GIVEN = {name_of(page): blocks(page) for page in PAGES if not is_built(page)}
GIVEN = {name: found for name, found in GIVEN.items() if any(b.language == "bash" for b in found)}
GIVEN |= {block.page: [block] for block in help_examples().values()}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        return bound.getsockname()[1]


def answers(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


def little(words: list[str]) -> list[str]:
    """The words of a command, and what makes it short."""
    options = LITTLE.get(words[0], "").split()
    model = words[words.index("--model") + 1] if "--model" in words else ""
    if model in MODELS and issubclass(MODELS[model], LabelModel):
        options = options[2:]  # it has no epochs
    return [OTHERS.get(word, word) for word in words] + options


class Programs:
    """What the shell calls; processes that stay, such as servers, end with the page."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port, self.dask_port = folder, free_port(), free_port()
        self.staying: list[commands.Process] = []

    def table(self):
        names = ("hoplite", "dask", "torchrun", "python", "pip", "make", "curl")
        return {name: getattr(self, name) for name in names}

    def placed(self, text: str) -> str:
        """A script with the addresses and folders that there are here."""
        text = text.replace("127.0.0.1:8000", f"127.0.0.1:{self.port}")
        text = text.replace("10.0.0.1:8786", f"127.0.0.1:{self.dask_port}")
        return text.replace("/mnt/", f"{self.folder}/")

    def hoplite(self, words: list[str]) -> str:
        words = little(words)
        if words[0] == "serve":
            return self.serve(words)
        own = "--model" in words and words[words.index("--model") + 1] not in (*MODELS, "auto")
        if own or "--cluster" in words:  # in a process, where Dask reads its settings anew
            before = f"import sys; sys.path.append({str(self.folder)!r})\n{REFRESH}"
            return self.ended(commands.hoplite(*words, before=before))
        out = io.StringIO()
        argv = patch.object(sys, "argv", ["hoplite", *words])
        with contextlib.redirect_stdout(out), argv:
            code = app(words, standalone_mode=False)
        assert not code, f"hoplite {words} ended with {code}: {out.getvalue()}"
        return out.getvalue()

    def serve(self, words: list[str]) -> str:
        """A server that stays until the next one, and then must end as Ctrl-C ends it."""
        self.end()
        given = [*words, *(() if "--port" in words else ("--port", str(self.port)))]
        log = self.folder / "served.txt"
        log.write_text("")
        process = commands.start(*given, log=log, env={"BROWSER": "echo opened %s"})
        self.staying.append(process)
        address = self.wait(
            lambda: re.search(r"http://[\d.:]+/", log.read_text(encoding="utf-8")), process
        )[0]
        with urllib.request.urlopen(address) as answer:
            assert answer.status == 200
        if "--json" in words:
            assert json.loads(log.read_text(encoding="utf-8"))["address"] == address
        if "--open" in words:
            self.wait(lambda: f"opened {address}" in log.read_text(encoding="utf-8"), process)
        return log.read_text(encoding="utf-8")

    def dask(self, words: list[str]) -> str:
        """A worker, or instead of what was there a scheduler, that stays."""
        if words[0] == "scheduler":
            self.end()
        own = {"scheduler": ["--host", "127.0.0.1", "--port", str(self.dask_port)]}
        code = f"{REFRESH}\nfrom distributed.cli.dask_{words[0]} import main; main()"
        more = own.get(words[0], ["--nthreads", "1", "--no-nanny"])
        process = commands.Process(code, *words[1:], *more, "--no-dashboard")
        self.staying.append(process)
        if words[0] == "scheduler":
            self.wait(lambda: answers(self.dask_port), process)
        return ""

    def torchrun(self, words: list[str]) -> str:
        """Its processes, which it would let import torch anew; it says itself what it is asked."""
        asked = torchrun.parse_args(words)
        assert (asked.module, asked.training_script) == (True, "hoplite")
        size, given = int(asked.nproc_per_node), little(asked.training_script_args)
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        shared |= {"WORLD_SIZE": str(size)}
        ranks = [commands.start(*given, env=shared | {"RANK": str(i)}) for i in range(size)]
        self.staying += ranks
        texts = [process.communicate() for process in ranks]
        assert [process.returncode for process in ranks] == [0] * size, texts
        return "".join(out for out, _ in texts)

    def python(self, words: list[str]) -> str:
        if words[0] == "-m":
            importlib.import_module(f"{words[1]}.__main__").parser().parse_args(words[2:])
            return ""
        code = f"import runpy; runpy.run_path({words[0]!r}, run_name='__main__')"
        return self.ended(commands.run(code, *words[1:]))

    def curl(self, words: list[str]) -> str:
        command = ["curl", "--silent", "--show-error", "--fail-with-body", *words]
        said = self.ended(subprocess.run(command, capture_output=True, text=True, timeout=60))
        assert isinstance(json.loads(said), dict)
        return said

    def pip(self, words: list[str]) -> str:
        assert words[0] == "install"
        for wanted in map(Requirement, words[1:]):
            assert wanted.name == PROJECT["name"]
            assert wanted.extras <= EXTRAS
        return ""

    def make(self, words: list[str]) -> str:
        made = (ROOT / "Makefile").read_text(encoding="utf-8")
        for target in words:  # of a folder's name, make itself would say that it is there
            assert re.search(rf"^{target}:", made, re.MULTILINE), target
        command = ["make", "-n", "-C", str(ROOT), *words]
        env = {name: value for name, value in os.environ.items() if name != "MAKEFLAGS"}
        return self.ended(subprocess.run(command, env=env, capture_output=True, text=True))

    def end(self) -> None:
        for process in reversed(self.staying):
            if process.poll() is None:
                os.kill(process.pid, signal.SIGINT)
                process.wait(60)
        self.staying.clear()

    @staticmethod
    def ended(done: subprocess.CompletedProcess[str]) -> str:
        assert done.returncode == 0, f"{done.args} ended with {done.returncode}: {done.stderr}"
        return done.stdout

    @staticmethod
    def wait(look, process):
        deadline = time.monotonic() + 120
        while not (found := look()):
            assert process.poll() is None, f"{process.args}: {process.communicate()}"
            assert time.monotonic() < deadline, process.args
            time.sleep(0.01)
        return found


@pytest.fixture
def reddit(monkeypatch, tmp_path):
    """A server that has a small Reddit."""
    fetching = importlib.import_module("hoplite.io.fetch")
    monkeypatch.setenv("HOPLITE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("no_proxy", "*")
    with Server() as server:
        monkeypatch.setitem(fetching.ARCHIVES, "reddit", server.archive())
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield
        server.shutdown()


def write_keys() -> None:
    """Certificates for Dask, as its documentation makes them."""
    from distributed.security import Security

    security = Security.temporary()
    for name in ("ca.pem", "cert.pem"):
        Path(name).write_text(str(security.tls_client_cert))
    Path("key.pem").write_text(str(security.tls_client_key))


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
    lines = shown.splitlines()
    texts = [re.sub(number, "#", line.strip()) for line in lines]
    given = printed.splitlines()
    for start in range(len(given) - len(lines) + 1):
        part = given[start : start + len(lines)]
        if [re.sub(number, "#", line.strip()) for line in part] == texts:
            wanted = [float(each) for each in re.findall(number, shown)]
            found = [float(each) for each in re.findall(number, "\n".join(part))]
            return found == pytest.approx(wanted, rel=0.02, abs=0.005)
    return False


@pytest.mark.filterwarnings("ignore::hoplite.HopliteWarning")  # of the noise in these tables
@pytest.mark.parametrize("name", GIVEN)
def test_commands_run(name, programs, reddit, monkeypatch):
    given = GIVEN[name]
    text = "\n".join(block.text for block in given)
    own = {block.file for block in given}
    if "mine.toml" not in own:  # other pages speak of it, too
        given = [b for b in blocks(DOCS / "searching.md") if b.file == "mine.toml"] + given
    if "torch_geometric" in text:
        pyg.layers()
    for program in ("curl", "make"):
        if re.search(rf"^{program} ", text, re.MULTILINE) and not shutil.which(program):
            pytest.skip(f"there is no {program}")
    with files_of(given, programs.folder):
        if "pyproject.toml" in own:
            write_entry_points()
        if ".pem" in text:
            write_keys()
        printed = ""
        for block in given:
            if block.language == "bash":
                printed = run_script(programs.placed(block.text), programs.table())
            elif block.language == "text" and (block.page, block.text.split()[0]) not in TEXTS:
                assert same(block.text, printed), f"{block} is not what is printed:\n{printed}"


def text_of(page: str, first: str) -> str:
    """The text of a page that begins with a word."""
    assert (page, first) in TEXTS
    found = [block.text for block in blocks(ROOT / page) if block.language == "text"]
    return next(text for text in found if text.split()[0] == first)


def test_the_tables_of_the_readme(programs):
    """The columns that it names are those of the tables that its commands read."""
    for line in text_of("README.md", "club/nodes.csv").splitlines():
        path, columns = line.split()[:2]
        assert Path(path).read_text(encoding="utf-8").splitlines()[0] == columns


@pytest.mark.filterwarnings("ignore::hoplite.HopliteWarning")
def test_the_folder_of_a_store(programs):
    """Every file of a store is named, and every one that is named is there, or in such a case."""
    programs.hoplite(["propagate", "DATASET", "--hops", "1", "--out", "STORE"])
    store = Path("STORE")
    there = {path.relative_to(store).as_posix() for path in store.rglob("*") if path.is_file()}
    named: set[str] = set()
    for line in text_of("docs/store.md", "manifest.json").splitlines():
        names = [name for name in re.split(r"\s{2,}", line) if re.fullmatch(r"\S*[./]\S*", name)]
        assert names, line
        for name in names:
            first, _, more = name.partition("{")
            inner, _, last = more.partition("}")
            for each in inner.split(","):
                form = re.sub(r"\d+", "*", (first + each + last).replace("...", "r0-c0.npy"))
                found = {path for path in there if fnmatch(path, form)}
                named |= found
                assert found or re.search("only of imported tables|while nodes are", line), name
    assert named == there


@pytest.mark.skipif(sys.platform != "linux", reason="it needs signals")
def test_what_a_stopped_command_says(programs):
    shown = text_of("docs/command-line.md", "error:")
    words = shlex.split(shown.partition("Again: hoplite ")[2])
    process = commands.start(*words)
    programs.staying.append(process)
    programs.wait(lambda: [*programs.folder.glob("searches/*/cells/*.lock")], process)
    os.kill(process.pid, signal.SIGINT)
    assert process.communicate() == ("", shown + "\n")
