"""How fast the product Y = S X can be, given the bytes that must move.

    compulsory   CSR once + X once + Y once: a cache that never misses twice
    gather       CSR once + one row of X per entry of S + Y once: no cache at all

The time of a memory-bound product lies between the two divided by the memory bandwidth. A kernel
that works in column tiles reads the CSR once per tile, which neither bound counts.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Traffic:
    """The bytes and operations of one product: S is n x n with ``nonzeros``, X is n x columns.

    >>> Traffic(nodes=10, nonzeros=20, columns=4).compulsory
    568
    """

    nodes: int
    nonzeros: int
    columns: int
    number_bytes: int = 4
    index_bytes: int = 4

    @property
    def csr(self) -> int:
        return 8 * (self.nodes + 1) + self.nonzeros * (self.number_bytes + self.index_bytes)

    @property
    def dense(self) -> int:
        """X, and as much again for Y."""
        return self.nodes * self.columns * self.number_bytes

    @property
    def compulsory(self) -> int:
        return self.csr + 2 * self.dense

    @property
    def gather(self) -> int:
        return self.csr + self.nonzeros * self.columns * self.number_bytes + self.dense

    @property
    def flops(self) -> int:
        return 2 * self.nonzeros * self.columns

    def facts(self, seconds: float, bandwidth: float) -> dict[str, float]:
        """What a product that took ``seconds`` did, beside what ``bandwidth`` (B/s) allows."""
        return {
            "nonzeros": float(self.nonzeros),
            "gflop_per_s": self.flops / seconds / 1e9,
            "compulsory_gb": self.compulsory / 1e9,
            "compulsory_gb_per_s": self.compulsory / seconds / 1e9,
            "gather_gb": self.gather / 1e9,
            "gather_gb_per_s": self.gather / seconds / 1e9,
            "bandwidth_gb_per_s": bandwidth / 1e9,
            "roofline_ms_compulsory": 1e3 * self.compulsory / bandwidth,
            "roofline_ms_gather": 1e3 * self.gather / bandwidth,
        }
