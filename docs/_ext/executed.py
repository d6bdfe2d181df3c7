"""Pages whose code is executed by the build, with what it prints and draws shown below it.

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
PAGES = ("tutorials/*", "plots")
LANGUAGES = ("python", "bash")
TIMEOUT = 600
LOGGER = logging.getLogger(__name__)


def is_executed(name: str) -> bool:
    return any(fnmatch(name, pattern) for pattern in PAGES)


def run(blocks: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """What each block prints, and the HTML of the figure that it ends with.

    RuntimeError with the traceback if one fails.
    """
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
        shown = run([(block["language"], block.astext()) for block in blocks])
    except RuntimeError as error:
        LOGGER.warning("a code block failed: %s", error, location=app.env.docname)
        return
    for block, (text, figure) in zip(blocks, shown, strict=True):
        made: list[nodes.Node] = [nodes.raw("", figure, format="html")] if figure else []
        if text.strip():
            output = nodes.literal_block(text, text, language="none")
            made.insert(0, nodes.container("", output, classes=["output"]))
        place = block.parent.index(block) + 1
        block.parent.insert(place, made)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-read", execute)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
