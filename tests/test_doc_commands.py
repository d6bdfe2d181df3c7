"""The commands of the README and the docs are understood, and those on users' own data run."""

import re
import shlex
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest
import typer

from hoplite.cli import app
from hoplite.models import MODELS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("[a-z]*/*.md"))]
RUN = ("data.md", "explain.md", "install.md", "labels.md", "metrics.md", "models.md", "predict.md")
RUN += ("search.md",)  # those of tutorials/ are run by the site's build
LITTLE = {
    "train": "--epochs 4 --seeds 1",
    "search": "--epochs 4 --seeds 1 --samples 2 --workers 1",
    "explain": "--budget 5",
}
ELSEWHERE = ("bench", "report", "reproduce")  # run by the tests of the lab
PARTS = ("train", "val", "test")
FIRST = {  # what the pages speak of as being there
    "predict.md": [
        "propagate club --hops 5 --out STORE",
        "train houses --label price --task regression --bias --out price-model",
    ],
}


def commands(page: Path) -> list[list[str]]:
    """The words of every line `hoplite ...` in a block of bash, without its comment."""
    blocks = re.findall(r"```bash\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("hoplite ")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_are_understood(page):
    group = typer.main.get_command(app)
    for words in commands(page):
        command = group.commands[words[0]]  # pyright: ignore[reportAttributeAccessIssue]
        command.make_context(words[0], words[1:])  # raises where an option is unknown


def test_other_commands_name_what_there_is():
    """`make` and `pip install` of the pages are not run here, so their names are checked."""
    made = (ROOT / "Makefile").read_text(encoding="utf-8")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    known = {*extras["optional-dependencies"]}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"^make (\w+)", text, re.MULTILINE):
            assert re.search(rf"^{target}:", made, re.MULTILINE), f"{page.name}: make {target}"
        for named in re.findall(r"hoplite-graph\[([\w,]+)\]", text):
            assert {*named.split(",")} <= known, f"{page.name}: {named}"
    rows = re.findall(r"^\| `(\w+)` \|", (DOCS / "install.md").read_text(encoding="utf-8"), re.M)
    assert {*rows} == known - {"docs", "test", "dev", "mutation"}


def write(folder: Path, nodes: list[str], edges: list[str]) -> None:
    folder.mkdir()
    (folder / "nodes.csv").write_text("\n".join(nodes) + "\n", encoding="utf-8")
    (folder / "edges.csv").write_text("\n".join(edges) + "\n", encoding="utf-8")


def write_tables() -> None:
    """The folders that the pages name, small and with all columns that they speak of."""
    rng = np.random.default_rng(0)

    def table(name, ids, header, row, ends=None, kinds=False):
        ends = rng.choice(ids, (3 * len(ids), 2)) if ends is None else ends
        extra = [f",{rng.integers(1, 9)},{rng.choice(['card', 'cash'])}" for _ in ends]
        edges = [
            f"{a},{b}{more if kinds else ''}" for (a, b), more in zip(ends, extra, strict=True)
        ]
        head = "source,target" + (",weight,kind" if kinds else "")
        write(Path(name), [header, *(f"{i},{row(k)}" for k, i in enumerate(ids))], [head, *edges])

    def label(k, names):
        return "" if k % 3 == 2 else names[rng.integers(len(names))]

    def account(k):
        day = f"20{rng.integers(10, 24)}-0{rng.integers(1, 10)}-11"
        return f"{label(k, ['yes', 'no'])},{rng.normal():.3f},{day},DE{k:05d},note {k}"

    header, old = "account,fraud,amount,opened,iban,note", [f"AC{k:04d}" for k in range(90)]
    table("bank", old, header, account, kinds=True)
    edges = Path("bank/edges.csv").read_text(encoding="utf-8")
    shutil.copytree("bank", "payments")
    named = edges.replace("source,target,weight", "payer,payee,euros")
    Path("payments/edges.csv").write_text(named, encoding="utf-8")
    table("new-bank", [f"N{k}" for k in range(60)], header, account, kinds=True)
    new = [f"AC9{k}" for k in range(8)]
    table("new-accounts", new, header, account, [(n, old[k]) for k, n in enumerate(new)], True)
    club = [str(k) for k in range(80)]
    table("club", club, "id,label,age", lambda k: f"{label(k, ['fraud', 'ok'])},{rng.normal():.2f}")
    several = ["music|sport", "sport", "|", "music", "art|music"]
    table("people", club, "id,interests,age", lambda k: f"{label(k, several)},{rng.normal():.2f}")
    table(
        "houses", club, "id,price,size", lambda k: f"{rng.normal(300, 50):.4f},{rng.normal():.2f}"
    )
    for name in ("tolokers.npz", "web.npz"):
        ends = rng.integers(0, 90, (270, 2))
        arrays = {"node_features": rng.normal(size=(90, 4)), "node_labels": rng.integers(0, 2, 90)}
        parts = rng.permutation(np.arange(90) % 3)
        masks = {f"{part}_masks": np.tile(parts == i, (4, 1)) for i, part in enumerate(PARTS)}
        np.savez(name, **arrays, **masks, edges=ends)
    Path("mine.toml").write_text("[any]\nhops = [1, 2]\nlr = 0.1\n", encoding="utf-8")


def _little(words: list[str]) -> list[str]:
    """What makes a command short; models that learn nothing have no epochs."""
    model = words[words.index("--model") + 1] if "--model" in words else ""
    options = LITTLE.get(words[0], "").split()
    return options if model not in MODELS or MODELS[model].learns else options[2:]


def _forget(words: list[str]) -> None:
    """Remove what an earlier line of the page put where this one writes something else."""
    written = words[words.index("--out") + 1] if "--out" in words else ""
    if words[0] in ("propagate", "search", "train") and written and "--update" not in words:
        shutil.rmtree(written, ignore_errors=True)


@pytest.mark.filterwarnings("ignore::hoplite.HopliteWarning")  # of the noise in these tables
@pytest.mark.parametrize("name", RUN)
def test_commands_run(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_tables()
    given = [shlex.split(line) for line in FIRST.get(name, [])] + commands(ROOT / "docs" / name)
    for words in given:
        if "reddit" not in words and words[0] not in ELSEWHERE:  # a gigabyte
            _forget(words)
            roomy = ["4GB" if word == "700MB" else word for word in words]  # pytest holds much
            app([*roomy, *_little(words)], standalone_mode=False)
    capsys.readouterr()
