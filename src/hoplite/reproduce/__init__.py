"""The paper's Results section, run again: searches, chosen models, times, and one report."""

from hoplite.reproduce.run import reproduce

__all__ = ["reproduce"]
