"""The paper's experiments, and the comparison of linear models on many graphs.

``python -m experiments reproduce | linear | report | imbalanced | defaults | ...``
"""
