"""Networks, which need PyTorch (extra ``torch``): hLGC, GCN, GAT and any torch.nn.Module.

They are listed, and their settings are checked, without it.
"""

import hoplite.models as _models  # noqa: F401 - it loads these models, so it comes first
