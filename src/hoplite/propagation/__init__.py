"""Propagation over a graph: products with sparse matrices, and what is built on them."""
