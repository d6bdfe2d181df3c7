"""What is shipped, and what is said of it: sdist, metadata, versions, sizes, the Dockerfile."""

import json
import re
import runpy
import subprocess
import sys
import tarfile
import tomllib
from email import message_from_bytes
from pathlib import Path
from types import SimpleNamespace

import pytest

from hoplite.machine import format_bytes

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
VERSION = PROJECT["project"]["version"]


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def script():
    return SimpleNamespace(**runpy.run_path(str(ROOT / "scripts/test_wheel.py")))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    pytest.importorskip("scikit_build_core")
    folder = tmp_path_factory.mktemp("sdist")
    code = "from scikit_build_core.build import build_sdist as b; import sys; b(sys.argv[1])"
    command = [sys.executable, "-c", code, folder]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)
    (path,) = folder.glob("*.tar.gz")
    return path


def test_the_sdist_has_what_builds_and_nothing_else(script, sdist):
    sizes = script.sdist_files(sdist)
    assert script.wrong_in_sdist(sizes) == []
    assert {"CHANGELOG.md", "CITATION.cff"} <= set(sizes)
    without = {name: size for name, size in sizes.items() if name != "native/spmm.cpp"}
    assert script.wrong_in_sdist(without) == ["lacks native/spmm.cpp"]
    strange = {**sizes, "results/runs.parquet": 5, "src/hoplite/left.npz": 10**8}
    found = script.wrong_in_sdist(strange)
    assert found[:2] == ["has results/runs.parquet", "has src/hoplite/left.npz"]
    assert len(found) == 3
    assert found[2].endswith("bytes")


def test_metadata(sdist):
    with tarfile.open(sdist) as archive:
        (member,) = [m for m in archive.getmembers() if m.name.endswith("/PKG-INFO")]
        report = message_from_bytes(archive.extractfile(member).read())
    assert (report["Name"], report["Version"]) == ("hoplite-graph", VERSION)
    extras = {"torch", "plot", "serve", "convert", "databases", "export", "cluster", "all"}
    assert extras <= set(report.get_all("Provides-Extra"))
    needs = [line for line in report.get_all("Requires-Dist") if "extra ==" not in line]
    names = {re.match(r"[\w-]+", line)[0] for line in needs}
    assert names == {
        "numpy", "scipy", "scikit-learn", "threadpoolctl", "safetensors", "typer", "rich",
        "msgspec", "psutil", "filelock", "ml_dtypes", "duckdb", "pooch", "jinja2",
    }  # fmt: skip
    assert PROJECT["project"]["scripts"] == {"hoplite": "hoplite.__main__:main"}
    for extra in extras:
        assert f"\n| `{extra}` |" in read("docs/install.md")


def test_versions_agree():
    citation = read("CITATION.cff")
    assert re.findall(r"^version: (\S+)$", citation, re.MULTILINE) == [VERSION]
    heads = re.findall(r"^## \[([^\]]+)\]", read("CHANGELOG.md"), re.MULTILINE)
    assert heads[0] == "Unreleased"
    released = heads[1:]
    assert released == sorted(released, key=lambda v: [*map(int, v.split("."))], reverse=True)
    if released:
        assert released[0] == VERSION
    else:
        assert f"the first will be {VERSION}." in read("CHANGELOG.md")
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.+)$", read("CHANGELOG.md"), re.MULTILINE)) <= kinds


def test_sizes_in_the_readme_are_the_measured_ones(script):
    if not (ROOT / "results/wheel.json").exists():
        pytest.skip("`make wheel` has not measured any")
    found = json.loads(read("results/wheel.json"))
    assert found["command"] == script.COMMAND
    assert found["hoplite"] == VERSION
    assert script.sizes_for_readme(found) in read("README.md")
    assert format_bytes(found["core"]["bytes"]) in script.sizes_for_readme(found)
    assert found["core"]["bytes"] < found["all"]["bytes"]
