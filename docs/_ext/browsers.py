"""Which Chromium there is; the tests ask this file, too."""

from __future__ import annotations

import shutil

NAMES = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
)


def find_browser() -> str | None:
    """The path of the first that is installed."""
    return next(filter(None, map(shutil.which, NAMES)), None)
