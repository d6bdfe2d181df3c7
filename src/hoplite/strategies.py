"""Ways to choose a model that stand where ``train`` takes a model's name; they are no models.

A strategy has no weights and no settings: it tries models and keeps one. So commands that need a
model refuse its name, with the sentence that says what to do.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Strategy:
    """``module`` has its function ``run``; ``instead`` is told where a model is needed."""

    name: str
    module: str
    instead: str

    @property
    def offered(self) -> str:
        """How it is asked for, told where the name of a model was none."""
        return (
            f"{self.name}, which chooses among them, as `hoplite train --model {self.name}` or "
            f"hoplite.{self.name}(graph)"
        )


STRATEGIES = {
    one.name: one
    for one in (
        Strategy(
            name="auto",
            module="hoplite.search.halving",
            instead="model is 'auto', which chooses among the models and is none itself; run it as "
            "`hoplite train --model auto` or hoplite.auto(...), or give a model.",
        ),
    )
}
