"""The rules that the code keeps beside those of `make lint`."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import hoplite
from hoplite.bases import KNOWN
from hoplite.models import MODELS

ROOT = Path(__file__).parent.parent


def run(*command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)


def test_nobody_asks_for_the_name_of_a_basis_or_a_model():
    """What others need to know of one is an attribute or a method of it."""
    names = "|".join((*(kind.name for kind in KNOWN), *MODELS))
    asks = re.compile(rf"""(==|!=|\bin) *[(\[{{]?["']({names})["']""")
    for path in (ROOT / "src").rglob("*.py"):
        assert not asks.search(path.read_text(encoding="utf-8")), path


def test_public_names_exist_and_are_few():
    assert len(hoplite.__all__) <= 60
    assert all(hasattr(hoplite, name) for name in hoplite.__all__)
    assert set(hoplite.__all__) <= set(dir(hoplite))
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        hoplite.lod  # noqa: B018 - the access is the test


def test_help_does_not_wait_for_torch():
    code = "import sys, hoplite.cli; print('torch' in sys.modules, 'sklearn' in sys.modules)"
    assert run(sys.executable, "-c", code).stdout.split() == ["False", "False"]


def test_what_is_installed_is_pinned_with_hashes():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").replace("\\\n", "").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert len(pins) > 50
    assert all("==" in pin and "--hash=sha256:" in pin for pin in pins)
    assert "--require-hashes -r constraints.txt" in (ROOT / "Makefile").read_text(encoding="utf-8")
