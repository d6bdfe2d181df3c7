// Draws the figures of the gallery, see docs/_ext/figures.py.
document.addEventListener("DOMContentLoaded", () => {
  for (const place of document.querySelectorAll(".plotly-figure")) {
    const { data, layout } = JSON.parse(place.dataset.figure);
    const options = { responsive: true, displaylogo: false, displayModeBar: false };
    Plotly.newPlot(place, data, { ...layout, width: undefined, autosize: true }, options);
  }
});
