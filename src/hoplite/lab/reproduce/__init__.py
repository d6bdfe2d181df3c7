"""The paper's Results section, run again: searches, chosen models, times, and one report."""

from hoplite.lab.reproduce.run import compare_again, reproduce

__all__ = ["compare_again", "reproduce"]
