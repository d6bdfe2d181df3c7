"""How many examples hypothesis draws: few in every run, 500 with HOPLITE_THOROUGH=1."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings


def examples(usual: int, **more) -> settings:
    """Settings for a property test that draws ``usual`` examples, or 500 if asked for."""
    thorough = bool(os.environ.get("HOPLITE_THOROUGH"))
    unhurried = [HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(
        max_examples=max(usual, 500) if thorough else usual,
        deadline=None,
        suppress_health_check=[*unhurried, *more.pop("suppress_health_check", [])],
        **more,
    )
