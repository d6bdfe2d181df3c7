"""Why a prediction is what it is, exactly, and what would change it (see docs/explain.md)."""

from hoplite.explain.explainer import Explainer, explain
from hoplite.explain.explanation import Explanation
from hoplite.explain.removals import flips

__all__ = ["Explainer", "Explanation", "explain", "flips"]
