"""How many examples hypothesis draws: few in `make test`, at least 500 in `make test-thorough`."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

THOROUGH = bool(os.environ.get("HOPLITE_THOROUGH"))
SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)  # both depend on how busy a machine is


def load_hypothesis_profile() -> None:
    """The same examples in every `make test`; other and more ones in each `make test-thorough`."""
    settings.register_profile(
        "fixed", derandomize=True, deadline=None, database=None, suppress_health_check=SLOW
    )
    settings.register_profile(
        "thorough",
        derandomize=False,
        deadline=None,
        database=None,
        max_examples=500,
        print_blob=True,
        suppress_health_check=SLOW,
    )
    settings.load_profile("thorough" if THOROUGH else "fixed")


def examples(count: int, **more) -> settings:
    """Settings for a property test that draws ``count`` examples, or at least 500 if thorough."""
    return settings(
        max_examples=max(count, 500) if THOROUGH else count,
        suppress_health_check=[*SLOW, *more.pop("suppress_health_check", [])],
        **more,
    )
