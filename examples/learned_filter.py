"""
Read a learned filter
=====================

A filter multiplies the part of a signal at eigenvalue x of the operator S by p(x) = sum of c_i x^i.
Eigenvalues near 1 belong to smooth signals, which neighbours share; those near -1 to rough ones.
The coefficients are all that LGC learns besides its linear map, so one curve shows what it does.
"""

import numpy as np
import plotly.graph_objects as go

import hoplite

graph = hoplite.load("cora")
models = {
    "SGC, 2 hops": hoplite.train(graph, "sgc", hops=2).model,
    "personalised PageRank": hoplite.train(graph, "ppr", hops=10, alpha=0.1).model,
    "LGC, learned": hoplite.train(graph, "lgc", hops=10, lr=0.2).model,
}
lgc = models["LGC, learned"]
print("coefficients of LGC:", lgc.filter_coefficients_.round(2))

# %%
# (If all of them are negative, the linear map has the opposite sign: only the product matters.)
lgc.plot_filter()

# %%
# Compare it with two fixed filters. Each response is divided by its value at 1; the grey area shows
# the density of Cora's eigenvalues, because a filter matters only there.
eigenvalues, density = hoplite.spectral_density(graph)
figure = go.Figure()
figure.add_scatter(
    x=eigenvalues,
    y=density / density.max(),
    name="eigenvalues",
    fill="tozeroy",
    line={"color": "rgba(128, 128, 128, 0.4)"},
)
for name, model in models.items():
    response = hoplite.frequency_response(model, eigenvalues)
    figure.add_scatter(x=eigenvalues, y=response / response[-1], name=name)
figure.update_layout(xaxis_title="eigenvalue: rough to smooth", yaxis_title="response")
figure

# %%
# All of them keep smooth signals, because papers cite papers of their own field. How much of the
# power comes from the rough half of the spectrum?
for name, model in models.items():
    power = density * hoplite.frequency_response(model, eigenvalues) ** 2
    print(
        f"{name}: {power[eigenvalues < 0].sum() / power.sum():.1%} from eigenvalues below 0"
    )

# %%
# The response is the polynomial of the coefficients, here evaluated with NumPy.
polynomial = np.polynomial.polynomial.polyval(eigenvalues, lgc.filter_coefficients_)
difference = np.abs(polynomial - hoplite.frequency_response(lgc, eigenvalues)).max()
print(f"largest difference from NumPy's polynomial: {difference:.0e}")
