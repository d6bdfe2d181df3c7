"""Benchmarks: Hoplite and its strongest peers in one process, in turn, against stated goals.

``python -m benchmarks [--quick] [--large] [--only NAME] [--out FILE]``
"""
