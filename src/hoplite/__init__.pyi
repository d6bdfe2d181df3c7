"""The names of the package and where they are, read by type checkers and by ``__init__.py``."""

# ruff: noqa: I001 - an import per module

from hoplite import io as io
from hoplite.config import TrainingConfig as TrainingConfig
from hoplite.engine.backend import set_num_threads as set_num_threads
from hoplite.engine.spectrum import (
    frequency_response as frequency_response,
    spectral_density as spectral_density,
)
from hoplite.errors import (
    ConfigError as ConfigError,
    DatasetError as DatasetError,
    GraphError as GraphError,
    HopliteError as HopliteError,
    HopliteWarning as HopliteWarning,
    ModelFileError as ModelFileError,
    StoreError as StoreError,
)
from hoplite.estimators import (
    AutoClassifier as AutoClassifier,
    DGCClassifier as DGCClassifier,
    DGCRegressor as DGCRegressor,
    EGCClassifier as EGCClassifier,
    EGCRegressor as EGCRegressor,
    GraphClassifier as GraphClassifier,
    GraphRegressor as GraphRegressor,
    HeatClassifier as HeatClassifier,
    HeatRegressor as HeatRegressor,
    HopBlocksClassifier as HopBlocksClassifier,
    HopBlocksRegressor as HopBlocksRegressor,
    HopFeatures as HopFeatures,
    HyperLGCClassifier as HyperLGCClassifier,
    HyperLGCRegressor as HyperLGCRegressor,
    JacobiConvClassifier as JacobiConvClassifier,
    JacobiConvRegressor as JacobiConvRegressor,
    LabelPropagationClassifier as LabelPropagationClassifier,
    LGCClassifier as LGCClassifier,
    LGCRegressor as LGCRegressor,
    PPRClassifier as PPRClassifier,
    PPRRegressor as PPRRegressor,
    S2GCClassifier as S2GCClassifier,
    S2GCRegressor as S2GCRegressor,
    SGCClassifier as SGCClassifier,
    SGCRegressor as SGCRegressor,
)
from hoplite.graph import (
    Graph as Graph,
    Split as Split,
)
from hoplite.graphs import (
    GraphModel as GraphModel,
    GraphSet as GraphSet,
    explain_graph as explain_graph,
    load_graphs as load_graphs,
    train_graphs as train_graphs,
    write_graphs as write_graphs,
)
from hoplite.io import load as load
from hoplite.models import (
    ModelConfig as ModelConfig,
    model_config as model_config,
    register_model as register_model,
)
from hoplite.models.trained import TrainedModel as TrainedModel
from hoplite.graph import NodeData as NodeData
from hoplite.predictions import predict_table as predict_table
from hoplite.preparation import (
    Preparation as Preparation,
    TableOptions as TableOptions,
)
from hoplite.search import (
    auto as auto,
    search as search,
)
from hoplite.store import (
    HopStore as HopStore,
    open_data as open_data,
    propagate as propagate,
    update_store as update_store,
)
from hoplite.theory.certificates import certify as certify
from hoplite.training import (
    TrainingResult as TrainingResult,
    train as train,
)

__version__: str
