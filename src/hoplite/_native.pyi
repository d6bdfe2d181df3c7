"""Types of the C++ core. Its functions check their arrays and release the GIL."""

import numpy as np

class Basis:
    """From the table of a :class:`hoplite.bases.Basis`: (hops, 3), float64."""

    def __init__(self, table: np.ndarray) -> None: ...

class Csr:
    """A CSR matrix, float32 or float64, that shares and keeps alive its arrays."""

    def __init__(
        self, indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, columns: int
    ) -> None: ...
    def spmm(
        self,
        x: np.ndarray,
        y: np.ndarray,
        scale: float,
        z: np.ndarray | None,
        a: np.ndarray | None,
        w: np.ndarray | None,
        b: float,
        u: np.ndarray | None,
        c: float,
        threads: int,
    ) -> None:
        """Y = scale S X + Z diag(a) + b W + c U."""

    def polynomial(
        self,
        basis: Basis,
        signal: np.ndarray,
        scales: np.ndarray,
        out: np.ndarray,
        threads: int,
    ) -> None:
        """out = sum_i p_i(S) (signal diag(scales_i)): (n, w)."""

    def polynomial_adjoint(
        self,
        basis: Basis,
        gradient: np.ndarray,
        signal: np.ndarray,
        scales: np.ndarray,
        out: np.ndarray,
        dots: np.ndarray,
        threads: int,
    ) -> None:
        """U_i = p_i(S) gradient; out = sum_i U_i diag(scales_i), dots_i = sums of U_i * signal."""

    def gather_hops(
        self,
        basis: Basis,
        rows: np.ndarray | None,
        signal: np.ndarray,
        out: np.ndarray,
        threads: int,
    ) -> None:
        """out_i = rows of p_i(S) signal: (hops + 1, rows, w)."""

    def scatter_hops(
        self,
        basis: Basis,
        rows: np.ndarray | None,
        hops: np.ndarray,
        out: np.ndarray,
        threads: int,
    ) -> None:
        """out = sum_i p_i(S) (hops_i at their rows, 0 elsewhere): (n, w)."""

    def times(
        self,
        transposed: bool,
        dense: np.ndarray,
        out: np.ndarray,
        row_numbers: np.ndarray | None,
        key0: int,
        key1: int,
        threshold: int,
        scale: float,
        whole: np.ndarray | None,
        threads: int,
    ) -> None:
        """out = X~ dense, or X~' dense if transposed; ``whole`` receives X dense."""

def drop_dense(
    x: np.ndarray,
    out: np.ndarray,
    row_numbers: np.ndarray | None,
    key0: int,
    key1: int,
    threshold: int,
    scale: float,
    threads: int,
) -> None:
    """out = X~ of a dense X."""

def adam(
    gradient: np.ndarray,
    weight: np.ndarray,
    mean: np.ndarray,
    square: np.ndarray,
    lr: float,
    decay: float,
    step: int,
    threads: int,
) -> None:
    """One step of Adam, in place."""

def softmax_cross_entropy(
    logits: np.ndarray,
    targets: np.ndarray,
    weights: np.ndarray | None,
    scale: float,
    gradient: np.ndarray | None,
    threads: int,
) -> float:
    """The sum of the rows' losses; the gradient is multiplied by ``scale``."""

def count_right(logits: np.ndarray, targets: np.ndarray) -> int:
    """Rows whose first largest logit is that of the target."""

def architectures() -> list[str]: ...
def architecture() -> str: ...
def set_architecture(name: str) -> None: ...
