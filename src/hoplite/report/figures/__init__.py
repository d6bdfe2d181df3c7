"""The figures of the page, as Plotly's data and layout with named colours."""

from hoplite.report.figures.accuracy import accuracy_figures
from hoplite.report.figures.base import Figure
from hoplite.report.figures.coefficients import coefficient_figures
from hoplite.report.figures.curves import curve_figures, curves_note
from hoplite.report.figures.spectrum import spectrum_figures

__all__ = [
    "Figure",
    "accuracy_figures",
    "coefficient_figures",
    "curve_figures",
    "curves_note",
    "spectrum_figures",
]
