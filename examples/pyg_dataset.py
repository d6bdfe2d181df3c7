"""
A PyTorch Geometric dataset
===========================

``hoplite.train`` accepts a ``Data`` object with its masks. A network of PyTorch Geometric is
trained by the same protocol as the linear models, so you can compare the two.
"""

import os

import torch
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv

import hoplite

epochs = 10 if os.environ.get("HOPLITE_EXAMPLES") == "small" else 200

# %%
# The same as ``data = Planetoid(root, "Cora")[0]``, without a download:
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
# Train your own network with ``forward(x, edge_index)``; its arguments are options of ``train``.
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
for name, trained in (("LGC", result), ("GraphSAGE", network)):
    weights = sum(value.size for value in trained.model.weights.values())
    print(f"{name}: test {trained.test_accuracy:.1%}, {weights:,} weights")

# %%
# Export LGC: the trained map is a ``torch.nn.Linear`` on hop features.
linear = result.model.to_torch()
features = hoplite.HopFeatures(data, 10, stack=True).fit_transform(range(5))
logits = linear(torch.from_numpy(features))
difference = abs(logits.detach().numpy() - result.model.logits(data)[:5]).max()
print(f"{linear}, largest difference from Hoplite's logits: {difference:.0e}")
