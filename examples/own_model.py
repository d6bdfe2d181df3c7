"""
Write your own model
====================

A model is one class: its settings, and where the coefficients of the hops come from. Training,
searches, the command line, files, stores and explanations then know it.

This one keeps a learned share w of a node's own features, and lets the rest fade with every hop:
c_0 = w and c_i = (1 - w) q^i.
"""

from dataclasses import dataclass

import torch

import hoplite
from hoplite.explain import explain
from hoplite.models import Polynomial, PolynomialSettings, number_setting


@hoplite.register_model
class Damped(Polynomial):
    name = "damped"  # in commands and files
    title = "Damped"  # in tables

    @dataclass(frozen=True)
    class Settings(
        PolynomialSettings
    ):  # hops, operator, bias and standardize are inherited
        damping: float = number_setting(
            0.5, "What is left of a signal after a hop.", 0, 1
        )

    def initial_filter(self, generator):
        """First values of what is learned beside Theta, for one run."""
        return {"share": torch.tensor(0.5)}

    def coefficients(self, weights):
        """c_0 .. c_k of R runs at once, differentiable: (R, k + 1)."""
        share = weights["share"].unsqueeze(-1)
        hops = torch.arange(1, self.config.hops + 1, dtype=share.dtype)
        return torch.cat([share, (1 - share) * self.config.damping**hops], dim=-1)


# %%
# It trains like any other, its setting among the options.
graph = hoplite.load("cora")
for damping in (0.2, 0.5, 0.8):
    result = hoplite.train(graph, "damped", hops=5, damping=damping, lr=0.2, epochs=100)
    share = float(result.model.weights["share"])
    print(
        f"damping {damping}: validation {result.val_accuracy:.1%}, own share {share:+.2f}"
    )

# %%
# The last one is the best on validation, so its test figure is read:
print(f"test {result.test_accuracy:.1%}")
print("coefficients:", result.model.coefficients_.round(3))

# %%
# Its explanations are exact, without a line for them.
why = explain(result.model, graph, 1701)
print(f"{why.class_}: {why.by_hop.sum():.4f} from the hops, {why.logit:.4f} in all")

# %%
# So are its pictures.
result.plot_filter(density=True)
