"""Build the sdist, from it the wheel, and use the wheel where there is no compiler: `make wheel`.

python scripts/test_wheel.py            # writes results/wheel.json and the README's sizes
python scripts/test_wheel.py --core     # without the second environment, of hoplite-graph[all]

What is in both archives is checked. Then the wheel and what it needs, at the versions of
constraints.txt, go into a new environment in which no compiler is found, and the README's first
Python block, `hoplite train`, `predict` and `explain` run there. It takes minutes and gigabytes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hoplite.files import atomic_write_text, write_json
from hoplite.machine import format_bytes

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "wheel.json"
COMMAND = "python scripts/test_wheel.py"
COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "clang++", "cl", "cmake", "ninja", "make", "ld")
TO_BUILD = {"CMakeLists.txt", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml"}
TO_READ = {"CHANGELOG.md", "CITATION.cff"}
BUILT = (".so", ".pyd")
MAX_SDIST = 8_000_000  # bytes, of which the three datasets are 3 million
SHIPPED = re.compile(
    r"hoplite/("
    r"(.+/)?[a-z0-9_]+\.py|py\.typed|(__init__|_native)\.pyi"
    r"|_native\.[a-z0-9_.-]+\.(so|pyd)"
    r"|io/data/(cora|citeseer|pubmed)\.npz"
    r"|search/grids/[a-z]+\.toml"
    r"|[a-z_/]+/(paper\.json|[a-z]+\.(toml|html|css|js|svg))"
    r")"
)


class Failed(Exception):
    """One sentence about what is wrong."""


def needed_files() -> set[str]:
    """The files of the package in this checkout, as a wheel names them."""
    paths = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*")}
    return {name for name in paths if SHIPPED.fullmatch(name) and Path(name).suffix not in BUILT}


def differences(files: set[str], needed: set[str], allowed: Callable[[str], object]) -> list[str]:
    """What an archive of ``files`` lacks, and has without being ``allowed`` to."""
    others = sorted(name for name in files - needed if not allowed(name))
    return [f"lacks {name}" for name in sorted(needed - files)] + [f"has {name}" for name in others]


def wrong_in_sdist(sizes: dict[str, int]) -> list[str]:
    """What an sdist of these files, name to bytes without its top folder, has too much or lacks."""
    needed = {*TO_BUILD, *(f"native/{path.name}" for path in (ROOT / "native").iterdir())}
    needed |= {f"src/{name}" for name in needed_files()}
    found = differences({*sizes}, needed, TO_READ.__contains__)
    total = sum(sizes.values())
    return found + ([f"has {total:,} bytes"] if total > MAX_SDIST else [])


def wrong_in_wheel(names: list[str]) -> list[str]:
    """What a wheel of these files has too much or lacks."""
    own = {name for name in names if ".dist-info/" not in name}
    lacks = [] if any(Path(name).suffix in BUILT for name in own) else ["lacks the C++ core"]
    return differences(own, needed_files(), SHIPPED.fullmatch) + lacks


def sdist_files(path: Path) -> dict[str, int]:
    """Files of an sdist, without its top folder, and their bytes."""
    with tarfile.open(path) as archive:
        members = [member for member in archive.getmembers() if member.isfile()]
        return {member.name.split("/", 1)[1]: member.size for member in members}


def readme_block() -> str:
    """The first Python block of the README: the ten lines that everybody tries first."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]


def pins() -> str:
    """constraints.txt without its hashes, which pip would ask of the wheel itself, too."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return "\n".join(line.removesuffix(" \\") for line in lines if re.match(r"\w", line))


def torch_pin() -> str:
    """As the Makefile has it."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return re.findall(r"^TORCH := (\S+)$", text, re.MULTILINE)[0]


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> str:
    """What a command prints; Failed, with its last words, if it fails."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    if done.returncode:
        words = (done.stderr or done.stdout).strip()[-2000:]
        raise Failed(f"`{' '.join(map(str, command))}` failed ({done.returncode}):\n{words}")
    return done.stdout


def build(folder: Path) -> tuple[Path, Path]:
    """The sdist of this checkout, and the wheel of what was unpacked from it; both checked."""
    tools = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    make = (sys.executable, "-m", "build", "--no-isolation", "--outdir", folder)
    print("building the sdist")
    run(*make, "--sdist", ROOT, cwd=folder, env=tools)
    (sdist,) = folder.glob("*.tar.gz")
    if found := wrong_in_sdist(sdist_files(sdist)):
        raise Failed(f"{sdist.name} {', '.join(found)}.")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "source", filter="data")
    print("building the wheel from it")
    (source,) = (folder / "source").iterdir()
    run(*make, "--wheel", source, cwd=folder, env=tools)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        if found := wrong_in_wheel(archive.namelist()):
            raise Failed(f"{wheel.name} {', '.join(found)}.")
    return sdist, wheel


class Environment:
    """A new virtual environment with a wheel in it, where no compiler is found."""

    def __init__(self, folder: Path, wheel: Path, extra: str = "") -> None:
        print(f"installing {wheel.name}{extra} into a new environment")
        self.folder = folder
        run(sys.executable, "-m", "venv", folder, cwd=folder.parent)
        self.bin = folder / ("Scripts" if os.name == "nt" else "bin")
        constraints = folder / "pins.txt"
        constraints.write_text(pins(), encoding="utf-8")
        pip = (self.bin / "python", "-m", "pip", "install", "--quiet", "--only-binary", ":all:")
        torch = [torch_pin()] if extra else []  # the CPU build, where an extra wants it
        run(*pip, *torch, f"{wheel}{extra}", "-c", constraints, cwd=folder)
        run(self.bin / "python", "-m", "pip", "check", cwd=folder)
        kept = {"HOME", "TMPDIR", "LANG", "SYSTEMROOT", "OMP_NUM_THREADS"}
        self.env = {name: value for name, value in os.environ.items() if name in kept}
        self.env["PATH"] = str(self.bin)
        if found := [name for name in COMPILERS if shutil.which(name, path=self.env["PATH"])]:
            raise Failed(f"{', '.join(found)} can be found in the clean environment.")

    def python(self, code: str, cwd: Path) -> str:
        return run(self.bin / "python", "-I", "-c", code, cwd=cwd, env=self.env)

    def hoplite(self, *words: str, cwd: Path) -> dict[str, Any]:
        """The JSON object that the command prints."""
        return json.loads(run(self.bin / "hoplite", *words, "--json", cwd=cwd, env=self.env))

    def sizes(self) -> dict[str, int]:
        """Bytes of the environment without pip, of torch in it, and its distributions."""
        code = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
        packages = Path(self.python(code, self.folder).strip())
        mine = [p for p in packages.iterdir() if not re.match(r"(pip|setuptools)\b", p.name)]
        each = {path.name: _bytes(path) for path in mine}
        return {
            "bytes": sum(each.values()),
            "torch_bytes": sum(size for name, size in each.items() if re.match(r"torch\b", name)),
            "distributions": sum(name.endswith(".dist-info") for name in each),
        }


def _bytes(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.lstat().st_size for file in files if file.is_file())


def try_out(core: Environment, folder: Path) -> dict[str, Any]:
    """What a user does first, with the core alone."""
    print("running the README's first block, train, predict and explain")
    folder.mkdir()
    facts = core.python(
        "import hoplite\n"
        "from importlib.util import find_spec\n"
        "from hoplite.engine import backend\n"
        "print(hoplite.__version__, backend.has_native(), find_spec('torch'), hoplite.__file__)",
        folder,
    ).split()
    if facts[1] != "True":
        raise Failed("the C++ core does not load in the clean environment.")
    if facts[2] != "None":
        raise Failed("the core brought torch, which only an extra should.")
    if str(core.folder) not in facts[3]:
        raise Failed(f"hoplite was imported from {facts[3]} and not from the wheel.")
    core.python(readme_block(), folder)
    setting = ("--hops", "20", "--lr", "0.2", "--dropout", "0.5", "--weight-decay", "5e-4")
    core.hoplite(
        "train", "cora", "--model", "lgc", *setting, "--seeds", "2", "--out", "model", cwd=folder
    )
    core.hoplite("predict", "model", "cora", "--out", "labels.csv", cwd=folder)
    if len((folder / "labels.csv").read_text(encoding="utf-8").splitlines()) != 2709:
        raise Failed("`hoplite predict` did not write a line for each of Cora's 2,708 nodes.")
    core.hoplite("explain", "model", "cora", "--node", "17", cwd=folder)
    return {"hoplite": facts[0]}


def sizes_for_readme(found: dict[str, Any]) -> str:
    """What the README says of the sizes, from what was measured."""
    core, full = (format_bytes(found[what]["bytes"]) for what in ("core", "all"))
    torch = format_bytes(found["all"]["torch_bytes"])
    return (
        f"Installed sizes, measured by `make wheel`: {core} for the core with its dependencies, "
        f"{full} with\nthe extra `all`, {torch} of it PyTorch. "
        f"The wheel itself is {format_bytes(found['wheel_bytes'])}."
    )


def update_readme(found: dict[str, Any]) -> None:
    """Put them between its marks."""
    path = ROOT / "README.md"
    begin, end = "<!-- sizes: results/wheel.json -->\n", "\n<!-- end of sizes -->"
    before, rest = path.read_text(encoding="utf-8").split(begin)
    after = rest.split(end, 1)[1]
    atomic_write_text(path, f"{before}{begin}{sizes_for_readme(found)}{end}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--core", action="store_true", help="without hoplite-graph[all]")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hoplite-wheel-") as name:
        folder = Path(name).resolve()
        try:
            sdist, wheel = build(folder)
            core = Environment(folder / "core", wheel)
            versions = try_out(core, folder / "used")
            found: dict[str, Any] = {
                "command": COMMAND,
                **versions,
                "python": platform.python_version(),
                "machine": f"{platform.system()} {platform.machine()}",
                "wheel": wheel.name,
                "wheel_bytes": wheel.stat().st_size,
                "sdist_bytes": sdist.stat().st_size,
                "core": core.sizes(),
            }
            if not options.core:
                shutil.rmtree(core.folder)
                found["all"] = Environment(folder / "all", wheel, "[all]").sizes()
        except Failed as error:
            sys.exit(f"error: {error}")
    if not options.core:
        write_json(RESULTS, found)
        update_readme(found)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
