"""Write constraints.txt: every package that `make` installs, with the hashes of all its files.

python scripts/lock.py              # for what pyproject.toml asks now; what is pinned stays
python scripts/lock.py --upgrade    # the newest versions

It needs uv (``pip install uv``). Not in the file is torch, whose builds for a CPU and for CUDA come
from several places with other bytes (the Makefile pins its version), and what only CUDA needs.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
LOCK = ROOT / "constraints.txt"
EXTRAS = ("test", "dev")
BUILD_TOOLS = ("scikit-build-core", "nanobind", "cmake", "ninja")  # the build is not isolated
APART = re.compile(r"^(torch|triton|cuda-\w+|nvidia-[\w-]+)==.*(\n +.*)*\n", re.MULTILINE)
HEAD = "# Written by `python scripts/lock.py`.\n"


def main() -> None:
    (torch,) = re.findall(r"^TORCH := (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    also = "\n".join((*BUILD_TOOLS, torch))
    command = ["uv", "pip", "compile", "pyproject.toml", "-", "--output-file", str(LOCK), "--quiet"]
    command += ["--generate-hashes", "--universal", "--python-version", "3.11"]
    command += ["--no-header", "--no-annotate", *(f"--extra={extra}" for extra in EXTRAS)]
    subprocess.run([*command, *sys.argv[1:]], input=also, text=True, cwd=ROOT, check=True)
    LOCK.write_text(HEAD + APART.sub("", LOCK.read_text()))


if __name__ == "__main__":
    main()
