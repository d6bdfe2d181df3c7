"""The pictures: Plotly's data and layout, for notebooks and for pages alike.

A drawing names its colours ("@push", "@lgc/0.2"). A page looks them up in its style sheet;
:func:`hoplite.plots.base.figure` makes a ``plotly.graph_objects.Figure`` of them. What is drawn
comes as plain values, so this room knows no model, no graph and no result.
"""
