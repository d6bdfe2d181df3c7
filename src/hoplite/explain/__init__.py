"""Exact explanations of predictions, and the changes that would give another prediction.

See docs/explain.md.
"""

from hoplite.explain.exact import RemovalsUnavailableError
from hoplite.explain.explanation import Explainer, Explanation, explain
from hoplite.explain.removals import flips
from hoplite.explain.summary import Flips, Summary

__all__ = [
    "Explainer",
    "Explanation",
    "Flips",
    "RemovalsUnavailableError",
    "Summary",
    "explain",
    "flips",
]
