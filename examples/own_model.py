"""
Write your own model
====================

A model is one class: its settings, the coefficients of the hops, and their derivative. Training,
searches, the command line, saved models, stores and explanations then support it.

This one learns a weight w of a node's own features, and the other hops decay: c_0 = w and
c_i = (1 - w) q^i.
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
        decay: float = number_setting(0.5, "Decay per hop.", 0, 1)

    def initial_filter(self, rng):
        """Initial weights of the filter."""
        return {"own": np.array(0.5)}

    def coefficients(self, weights):
        """c_0 .. c_k: (k + 1,)."""
        return np.append(weights["own"], (1 - weights["own"]) * self.powers)

    def coefficients_vjp(self, weights, gradient):
        """The gradient with respect to the weights, from that with respect to c, (k + 1,)."""
        return {"own": gradient[0] - gradient[1:] @ self.powers}

    @property
    def powers(self):
        """q, q^2, .. q^k."""
        return self.config.decay ** np.arange(1, self.config.hops + 1)


# %%
# Train it like any other model, with its setting as an option:
graph = hoplite.load("cora")
for decay in (0.2, 0.5, 0.8):
    result = hoplite.train(graph, "damped", hops=5, decay=decay, lr=0.2, epochs=100)
    own = float(result.model.weights["own"])
    print(
        f"decay {decay}: validation {result.val_accuracy:.1%}, learned weight {own:+.2f}"
    )

# %%
# The last one is the best on validation, so read its test score:
print(f"test {result.test_accuracy:.1%}")
print("coefficients:", result.model.filter_coefficients_.round(3))

# %%
# Explanations are exact, without further code:
why = explain(result.model, graph, 1701)
print(f"{why.class_}: {why.by_hop.sum():.4f} from the hops, {why.margin:.4f} in total")

# %%
# Plots work, too:
result.plot_filter(density=True)
