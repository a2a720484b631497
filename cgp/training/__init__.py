"""Training machinery: models, post-gradient updates, sharing, hyperparameters, optimizers."""

from cgp.training import optimizers
from cgp.training.hyperparameters import Hyperparameter, declared, setting
from cgp.training.model import Functional, Model
from cgp.training.objective import Objective, shard_spec, value_and_gradient
from cgp.training.parameters import COMPLEX, POSITIVE, REAL, UNIT_DISK, Parameter, Parameterized
from cgp.training.post_updates import confirm, invalidate, refresh, register_post_update
from cgp.training.saving import load_model
from cgp.training.sharing import Shareable, clone_model, sharing_scope

__all__ = [
    "COMPLEX",
    "POSITIVE",
    "REAL",
    "UNIT_DISK",
    "Functional",
    "Hyperparameter",
    "Model",
    "Objective",
    "Parameter",
    "Parameterized",
    "Shareable",
    "clone_model",
    "confirm",
    "declared",
    "invalidate",
    "load_model",
    "optimizers",
    "refresh",
    "register_post_update",
    "setting",
    "shard_spec",
    "sharing_scope",
    "value_and_gradient",
]
