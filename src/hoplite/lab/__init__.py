"""The lab: what serves the paper, the benchmarks and the pages, and nothing else needs.

    reproduce   the paper's experiments, one after the other
    report      results and explanations -> HTML pages, RESULTS.md, tables
    bench       Hoplite and its peers, measured in turn
    pyg         networks of PyTorch Geometric, to be searched as any model

Its libraries come with ``pip install "hoplite-graph[lab]"``; the rest of Hoplite does without them.
"""
