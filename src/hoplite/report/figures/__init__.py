"""The figures of the pages, as Plotly's data and layout with named colours."""

from hoplite.report.figures.accuracy import accuracy_figures
from hoplite.report.figures.base import Figure
from hoplite.report.figures.coefficients import coefficient_figures
from hoplite.report.figures.contributions import class_figure, contribution_figure
from hoplite.report.figures.curves import curve_figures, curves_note
from hoplite.report.figures.neighbourhood import neighbourhood_figure, strongest
from hoplite.report.figures.spectrum import spectrum_figures

__all__ = [
    "Figure",
    "accuracy_figures",
    "class_figure",
    "coefficient_figures",
    "contribution_figure",
    "curve_figures",
    "curves_note",
    "neighbourhood_figure",
    "spectrum_figures",
    "strongest",
]
