"""What can be proved of the linear models: how complex they are, how often they err,
and what cutting a series costs.

The statements with their proofs are in ``docs/theory.md``.
"""

from hoplite.theory.certificates import Certificate, Certificates, PacBayes, certify
from hoplite.theory.complexity import Estimate, hops_for, spectral_norm, truncation_error
from hoplite.theory.function_class import FunctionClass
from hoplite.theory.generalization import Generalization, generalization, norms

__all__ = [
    "Certificate",
    "Certificates",
    "Estimate",
    "FunctionClass",
    "Generalization",
    "PacBayes",
    "certify",
    "generalization",
    "hops_for",
    "norms",
    "spectral_norm",
    "truncation_error",
]
