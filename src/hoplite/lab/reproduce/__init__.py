"""The paper's Results section, run again: searches, chosen models, times, and one report."""

from hoplite.lab.reproduce.run import reproduce

__all__ = ["reproduce"]
