"""The graphs that have a name; whoever only lists them needs nothing of :mod:`hoplite.datasets`."""

from __future__ import annotations

EMBEDDED = ("cora", "citeseer", "pubmed")
REDDIT = "reddit"
REDDIT_LIKE = "reddit-like"
NAMES = (*EMBEDDED, REDDIT, REDDIT_LIKE)
