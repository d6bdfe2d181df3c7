"""The site, built once for all workers without executing the gallery, and a browser."""

import functools
import http.server
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from filelock import FileLock

ROOT = Path(__file__).parent.parent.parent
# as `make docs`, but for the gallery, whose scripts tests/test_gallery.py runs, and for methods in
# the navigation, which Sphinx copies for every page
STRICT = "-q -W --keep-going -n -b html -D plot_gallery=0 -D toc_object_entries=0"


@pytest.fixture(scope="session")
def site(tmp_path_factory, worker_id):
    """The folder of the built pages. The build is strict, so it fails where a page is wrong."""
    for module in ("sphinx", "myst_parser", "furo", "sphinx_gallery"):
        pytest.importorskip(module)
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "site"
    with FileLock(f"{folder}.lock"):
        if not (folder / "built").exists():
            command = [sys.executable, "-m", "sphinx", *STRICT.split(), "docs", str(folder)]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800)
            assert done.returncode == 0, done.stderr[-5000:]
            (folder / "built").touch()
    return folder


@pytest.fixture(scope="session")
def worker_id(request):
    """As pytest-xdist has it; "master" without it."""
    return getattr(request.config, "workerinput", {}).get("workerid", "master")


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format, *args):
        return


@pytest.fixture(scope="session")
def address(site):
    """Where the pages are served, as a host would."""
    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()
