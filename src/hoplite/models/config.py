"""ModelConfig: which function a model computes, apart from its weights."""

from __future__ import annotations

from dataclasses import dataclass

from hoplite.errors import ConfigError, check_choice
from hoplite.filters import BASES, STARTS, check_hops
from hoplite.operators import OPERATORS

MODEL_NAMES = ("sgc", "egc", "lgc", "hlgc")
GATES = ("node", "class", "feature")


@dataclass(frozen=True)
class ModelConfig:
    """The settings of a linear graph convolution, checked once.

    Parameters
    ----------
    model : {"sgc", "egc", "lgc", "hlgc"}
        Which coefficients are learned: none, one diffusion rate, one per hop, a gate per node.
    hops : int
        The degree k of the polynomial.
    operator : {"renormalized", "adjacency", "laplacian"}
        The matrix S.
    basis : {"monomial", "chebyshev"}
        The polynomials whose coefficients LGC and hLGC learn. SGC and EGC are defined by powers.
    start : {"random", "lowpass"}
        First values of the coefficients: the paper's, or a smoothing filter.
    gate : {"node", "class", "feature"}
        The reading of hLGC: the paper's equation, its experimental section, or the public
        experiments. Only hLGC uses it.
    bias, standardize : bool
        Add b to the logits; scale each logit column to mean 0 and std 1 over the nodes first.
    """

    model: str = "lgc"
    hops: int = 10
    operator: str = "renormalized"
    basis: str = "monomial"
    start: str = "random"
    gate: str = "class"
    bias: bool = False
    standardize: bool = False

    def __post_init__(self) -> None:
        check_choice("model", self.model, MODEL_NAMES)
        check_choice("operator", self.operator, OPERATORS)
        check_choice("basis", self.basis, BASES)
        check_choice("start", self.start, STARTS)
        check_choice("gate", self.gate, GATES)
        object.__setattr__(self, "hops", check_hops(self.hops))
        if self.basis != "monomial" and self.model in ("sgc", "egc"):
            raise ConfigError(
                f"basis is {self.basis!r} but {self.model} is defined by powers of the operator; "
                "use basis 'monomial', or model 'lgc'."
            )
