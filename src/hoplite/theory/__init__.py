"""Complexity and error bounds of linear models, certificates, and truncation errors.

The statements and their proofs are in ``docs/theory.md`` and ``docs/certificates.md``.
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
