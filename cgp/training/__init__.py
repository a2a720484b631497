"""Training machinery: models, post-gradient updates, sharing, optimizers."""

from cgp.training import optimizers
from cgp.training.model import Functional, Model
from cgp.training.sharing import Shareable, clone_model, sharing_scope
from cgp.training.updates import confirm, invalidate, refresh, register_post_update

__all__ = [
    "Functional",
    "Model",
    "Shareable",
    "clone_model",
    "confirm",
    "invalidate",
    "optimizers",
    "refresh",
    "register_post_update",
    "sharing_scope",
]
