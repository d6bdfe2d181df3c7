"""The hop store: hop features on disk, computed in bounded memory, for graphs of any size.

source -> manifest -> operator, hop 0 -> tasks (panels) -> blocks -> HopStore
"""

from hoplite.errors import StoreError
from hoplite.store.building import propagate
from hoplite.store.growth import update_store
from hoplite.store.opening import open_data
from hoplite.store.store import HopStore

__all__ = ["HopStore", "StoreError", "open_data", "propagate", "update_store"]
