"""The figures of the pages, as Plotly's data and layout with named colours."""

from hoplite.lab.report.figures.base import Figure
from hoplite.lab.report.figures.contributions import class_figure, contribution_figure
from hoplite.lab.report.figures.mistakes import mistake_figures
from hoplite.lab.report.figures.neighbourhood import neighbourhood_figure
from hoplite.lab.report.figures.results import (
    accuracy_figures,
    coefficient_figures,
    comparison_figures,
    curve_figures,
    curves_note,
    spectrum_figures,
)

__all__ = [
    "Figure",
    "accuracy_figures",
    "class_figure",
    "coefficient_figures",
    "comparison_figures",
    "contribution_figure",
    "curve_figures",
    "curves_note",
    "mistake_figures",
    "neighbourhood_figure",
    "spectrum_figures",
]
