"""
A PyTorch Geometric dataset
===========================

A ``Data`` object goes into ``hoplite.train`` as it is, masks too. And a network of PyTorch
Geometric is trained in the same protocol as the linear models, so that the two can be compared.
"""

import os

import torch
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv

import hoplite

epochs = 10 if os.environ.get("HOPLITE_EXAMPLES") == "small" else 200

# %%
# ``data = Planetoid(root, "Cora")[0]`` would be the same; this one needs no download.
cora = hoplite.io.to_pyg(hoplite.load("cora"))
data = Data(
    x=cora.x,
    edge_index=cora.edge_index,
    y=cora.y,
    train_mask=cora.train_mask,
    val_mask=cora.val_mask,
    test_mask=cora.test_mask,
)
print(data)

# %%
result = hoplite.train(data, "lgc", hops=10, lr=0.2, epochs=epochs, seeds=3)
print(result)
result.plot_history()


# %%
# A network of your own, with ``forward(x, edge_index)``; its arguments are settings of ``train``.
class Sage(torch.nn.Module):
    def __init__(self, in_channels, out_channels, hidden_channels=16, dropout=0.5):
        super().__init__()
        self.first = SAGEConv(in_channels, hidden_channels)
        self.second = SAGEConv(hidden_channels, out_channels)
        self.dropout = torch.nn.Dropout(dropout)

    def forward(self, x, edge_index):
        hidden = self.first(self.dropout(x), edge_index).relu()
        return self.second(self.dropout(hidden), edge_index)


network = hoplite.train(
    data, Sage, hidden_channels=16, lr=0.01, epochs=epochs // 2, seeds=1
)
for name, one in (("LGC", result), ("GraphSAGE", network)):
    weights = sum(value.size for value in one.model.weights.values())
    print(f"{name}: test {one.test_accuracy:.1%}, {weights:,} weights")

# %%
# Back again: the trained map is a ``torch.nn.Linear`` on the hop features.
linear = result.model.to_torch()
features = hoplite.HopFeatures(data, 10, stack=True).fit_transform(range(5))
logits = linear(torch.from_numpy(features))
difference = abs(logits.detach().numpy() - result.model.logits(data)[:5]).max()
print(f"{linear}, largest difference to Hoplite's own logits: {difference:.0e}")
