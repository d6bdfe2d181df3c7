"""
Write your own model
====================

A model is one class: its settings, the coefficients of the hops, and their derivative. Training,
searches, the command line, files, stores and explanations then know it.

This one keeps a learned share w of a node's own features, and lets the rest fade with every hop:
c_0 = w and c_i = (1 - w) q^i.
"""

from dataclasses import dataclass

import numpy as np

import hoplite
from hoplite.explain import explain
from hoplite.models import LinearModel, PolynomialSettings, number_setting


@hoplite.register_model
class Damped(LinearModel):
    name = "damped"  # in commands and files
    title = "Damped"  # in tables

    @dataclass(frozen=True)
    class Settings(
        PolynomialSettings
    ):  # hops, operator, bias and standardize are inherited
        damping: float = number_setting(
            0.5, "Share of a signal that is left after a hop.", 0, 1
        )

    def initial_filter(self, rng):
        """First values of what is learned besides Theta."""
        return {"share": np.array(0.5)}

    def coefficients(self, weights):
        """c_0 .. c_k: (k + 1,)."""
        return np.append(weights["share"], (1 - weights["share"]) * self.fading)

    def coefficients_vjp(self, weights, gradient):
        """The gradient by each weight of the filter, from that by c: (k + 1,)."""
        return {"share": gradient[0] - gradient[1:] @ self.fading}

    @property
    def fading(self):
        """q, q^2, .. q^k."""
        return self.config.damping ** np.arange(1, self.config.hops + 1)


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
print("coefficients:", result.model.filter_coefficients_.round(3))

# %%
# Its explanations are exact, without a line for them.
why = explain(result.model, graph, 1701)
print(f"{why.class_}: {why.by_hop.sum():.4f} from the hops, {why.margin:.4f} in all")

# %%
# So are its pictures.
result.plot_filter(density=True)
