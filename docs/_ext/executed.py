"""Pages whose code is executed by the build, with what it prints shown below it.

The blocks of a page run one after another in one process and one temporary folder; a block that
fails is a warning, and so ends a strict build.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from fnmatch import fnmatch
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

RUNNER = Path(__file__).parent / "run_blocks.py"
PAGES = ("tutorials/*",)
LANGUAGES = ("python", "bash")
TIMEOUT = 600
LOGGER = logging.getLogger(__name__)


def is_executed(name: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in PAGES)


def run(blocks: list[tuple[str, str]]) -> list[str]:
    """What each block prints. RuntimeError with the traceback if one fails."""
    environment = os.environ | {"COLUMNS": "86", "PYTHONWARNINGS": "ignore", "NO_COLOR": "1"}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(RUNNER)]
        done = subprocess.run(
            command,
            input=json.dumps(blocks),
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    return json.loads(done.stdout)


def execute(app: Sphinx, doctree: nodes.document) -> None:
    if not is_executed(app.env.docname):
        return
    blocks = [n for n in doctree.findall(nodes.literal_block) if n.get("language") in LANGUAGES]
    try:
        printed = run([(block["language"], block.astext()) for block in blocks])
    except RuntimeError as error:
        LOGGER.warning("a code block failed: %s", error, location=app.env.docname)
        return
    for block, text in zip(blocks, printed, strict=True):
        if text.strip():
            output = nodes.literal_block(text, text, language="none")
            box = nodes.container("", output, classes=["output"])
            block.parent.insert(block.parent.index(block) + 1, box)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-read", execute)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
