"""Linear algebra of complex Cholesky factors, in plain TensorFlow."""

from cgp.linalg.cholesky import (
    NotPositiveDefiniteError,
    cholesky,
    inverse,
    log_det,
    solve,
    stored_cholesky,
)
from cgp.linalg.composite import from_composite, join_parts, stack_parts, to_composite
from cgp.linalg.gradients import with_gradient
from cgp.linalg.semidefinite import semidefinite_factor, triangularize
from cgp.linalg.updates import (
    ScalarUpdate,
    cholesky_append,
    cholesky_condition,
    cholesky_remove,
    cholesky_update,
)

__all__ = [
    "NotPositiveDefiniteError",
    "ScalarUpdate",
    "cholesky",
    "cholesky_append",
    "cholesky_condition",
    "cholesky_remove",
    "cholesky_update",
    "from_composite",
    "inverse",
    "join_parts",
    "log_det",
    "semidefinite_factor",
    "solve",
    "stack_parts",
    "stored_cholesky",
    "to_composite",
    "triangularize",
    "with_gradient",
]
