"""
Reading a learned filter
========================

A filter multiplies the part of a signal at eigenvalue x of the graph's matrix S by p(x) = sum of
c_i x^i. Eigenvalues near 1 are smooth signals, which neighbours share; those near -1 are rough. The
coefficients are all that LGC learns besides its linear map, so one curve tells what it does.
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
print("what LGC learned:", lgc.filter_coefficients_.round(2))

# %%
# (If all of them are negative, so is the map behind them: only their product counts.)
lgc.plot_filter()

# %%
# Beside two filters that are fixed: the responses, each divided by its value at 1, and in grey
# where the eigenvalues of Cora are, since a filter matters only there.
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
# All of them keep what is smooth: papers cite papers of their own field. How much of the rough half
# is left, as a share of the whole (in the square)?
for name, model in models.items():
    power = density * hoplite.frequency_response(model, eigenvalues) ** 2
    print(
        f"{name}: {power[eigenvalues < 0].sum() / power.sum():.1%} from eigenvalues below 0"
    )

# %%
# The filter is what the model computes: the coefficients, evaluated by hand, are the response.
by_hand = np.polynomial.polynomial.polyval(eigenvalues, lgc.filter_coefficients_)
difference = np.abs(by_hand - hoplite.frequency_response(lgc, eigenvalues)).max()
print(f"largest difference to the polynomial by hand: {difference:.0e}")
