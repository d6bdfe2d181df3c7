"""Benchmarks: Hoplite and its peers in one process, turn by turn, against stated goals.

``hoplite bench`` runs them. Nothing is imported here, so that the command's help, and the child
process that measures memory, load only what they need.
"""
