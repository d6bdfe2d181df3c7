"""The commands of the README and the docs are understood, and those on users' own data run."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import typer

from hoplite.cli import app

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RUN = ("data.md", "metrics.md", "predict.md")
LITTLE = {"train": "--epochs 4 --seeds 1", "search": "--epochs 4 --seeds 1 --samples 2 --workers 1"}
FIRST = {  # what the pages speak of as being there
    "predict.md": [
        "propagate club --hops 5 --out STORE",
        "train houses --label price --task regression --bias --out price-model",
    ]
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
    Path("mine.toml").write_text("[any]\nhops = [1, 2]\nlr = 0.1\n", encoding="utf-8")


@pytest.mark.filterwarnings("ignore::hoplite.HopliteWarning")  # of the noise in these tables
@pytest.mark.parametrize("name", RUN)
def test_commands_run(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_tables()
    given = [shlex.split(line) for line in FIRST.get(name, [])] + commands(ROOT / "docs" / name)
    for words in given:
        if "reddit" not in words:  # a gigabyte
            roomy = ["4GB" if word == "700MB" else word for word in words]  # pytest holds much
            app([*roomy, *LITTLE.get(words[0], "").split()], standalone_mode=False)
    capsys.readouterr()
