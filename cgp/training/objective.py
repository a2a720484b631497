"""The loss of a model as a function of one vector, for optimizers other than Keras's."""

import dataclasses
import functools
import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from cgp import native
from cgp.linalg.gradients import without_warnings_of_casts
from cgp.training.batches import require_one_replica
from cgp.training.post_updates import all_refreshed


class Objective:
    """The loss of one batch, and its gradient, as a function of one float64 vector.

    A single compiled function assigns the variables, recomputes what depends on them, and evaluates
    the loss and its gradient: one post update for each evaluation. The variables keep the last
    point that was evaluated; `assign` sets another. The compiled function is kept in the model for
    other batches of the same shapes, until the model is compiled again or other variables become
    trainable.

    Args:
        model: A compiled `cgp.Model` or `cgp.Functional`; built on the batch if it is not yet.
        batch: All the data, `(x, y, sample_weight)`; the last two may be None.

    Attributes:
        variables: The trainable variables; the vector concatenates their values.
        start: Their values when the objective was made.
        epsilon: The rounding of the coarsest variable.

    Raises:
        TypeError: Not a model.
        ValueError: A batch of other parts, no trainable variables, one with a constraint, or
            several replicas.

    Example:
        >>> import keras, numpy as np, cgp
        >>> from cgp.training import Objective
        >>> x = keras.Input((1,), dtype="float64")
        >>> y = keras.layers.Dense(1, kernel_initializer="ones", use_bias=False, dtype="float64")(x)
        >>> model = cgp.Functional(x, y)
        >>> model.compile(loss=keras.losses.MeanSquaredError(dtype="float64"))
        >>> objective = Objective(model, (np.ones((4, 1)), np.zeros((4, 1)), None))
        >>> objective(3.0 * objective.start)
        (9.0, array([6.]))
    """

    def __init__(self, model: keras.Model, batch: tuple):
        if not isinstance(model, keras.Model):
            raise TypeError(f"model must be a cgp.Model or cgp.Functional, got {model!r}")
        if len(batch) != 3:
            raise ValueError(f"batch must be (x, y, sample_weight), got {len(batch)} parts")
        require_one_replica(model, "LBFGS")
        self.model, self.batch = model, batch
        if not model.built:
            model(batch[0], training=False)  # makes the weights
        self.variables: list[keras.Variable] = model.trainable_variables
        if not self.variables:
            raise ValueError("the model has no trainable variables")
        for v in self.variables:
            if v.constraint is not None:
                raise ValueError(f"{v.path} has a constraint, which LBFGS would ignore")
        self.start = np.concatenate([v.numpy().astype("float64").ravel() for v in self.variables])
        coarse = any(v.dtype != "float64" for v in self.variables)
        self.epsilon = float(np.finfo(np.float32 if coarse else np.float64).eps)

    @functools.cached_property
    def _function(self) -> Callable:
        return _compiled(self.model, self.variables, self.batch)

    def assign(self, point: npt.ArrayLike) -> None:
        """Writes a point into the variables.

        Args:
            point: Float64, like `start`.
        """
        _assign(self.variables, point)

    def __call__(self, point: npt.ArrayLike) -> tuple[float, np.ndarray]:
        """Evaluates the loss and its gradient at a point; the variables keep it.

        Args:
            point: Float64, like `start`.

        Raises:
            InvalidArgumentError, NotPositiveDefiniteError: Where the loss has no value.
        """
        value, gradient = self._function(tf.constant(point, tf.float64), self.batch)
        return float(value), gradient.numpy()


def _assign(variables: list[keras.Variable], point: npt.ArrayLike) -> None:
    sizes = [v.shape.num_elements() for v in variables]
    for v, flat in zip(variables, tf.split(point, sizes), strict=True):
        v.assign(tf.cast(tf.reshape(flat, v.shape), v.dtype))


@dataclasses.dataclass(frozen=True)
class _CompiledObjective:  # a tuple of variables would be tracked as weights
    """A compiled function, and the variables, shapes and settings it was compiled for."""

    variables: list[keras.Variable]
    signature: tuple
    function: Any


def _compiled(model: Any, variables: list[keras.Variable], batch: tuple) -> Callable:
    """Returns the compiled function of a point and a batch that gives loss and gradient.

    Compiling takes seconds. The last function is cached; one for each shape of a batch would take
    too much memory.
    """
    if model.run_eagerly:
        return functools.partial(evaluate, model, variables)
    shapes = tf.nest.map_structure(
        lambda a: a if a is None else tf.TensorSpec(np.shape(a), a.dtype), batch
    )
    signature = (shapes, model.jit_compile)
    kept: _CompiledObjective | None = getattr(model, "_kept_objective", None)
    same = kept is not None and list(map(id, kept.variables)) == list(map(id, variables))
    if kept is None or not same or kept.signature != signature:
        function = tf.function(
            functools.partial(evaluate, model, variables),
            jit_compile=model.jit_compile,
            autograph=False,
        )
        kept = model._kept_objective = _CompiledObjective(variables, signature, function)
    return kept.function


def evaluate(
    model: Any, variables: list[keras.Variable], point: tf.Tensor, batch: tuple
) -> tuple[tf.Tensor, tf.Tensor]:
    """The loss of a batch and its gradient at a point, as a function to be compiled.

    Args:
        model: The model.
        variables: Its trainable variables.
        point: Their values, one after the other, float64.
        batch: `(x, y, sample_weight)`.
    """
    x, y, sample_weight = batch
    _assign(variables, point)
    # The context covers the gradients too: backward passes are traced there.
    with native.own_graph(not model.jit_compile):
        with all_refreshed(model, variables), tf.GradientTape() as tape:
            y_pred = model(x, training=True)
            loss = model.compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=sample_weight)
        with without_warnings_of_casts():
            gradients = tape.gradient(loss, variables)
    if all(g is None for g in gradients):
        raise ValueError("the loss depends on none of the trainable variables")
    missing = [v.path for v, g in zip(variables, gradients, strict=True) if g is None]
    if missing:
        warnings.warn(f"the loss does not depend on the variables {missing}", stacklevel=2)
    flat = [
        tf.zeros([v.shape.num_elements()], tf.float64)
        if g is None
        else tf.reshape(tf.cast(tf.convert_to_tensor(g), tf.float64), [-1])
        for v, g in zip(variables, gradients, strict=True)
    ]
    return tf.cast(loss, tf.float64), tf.concat(flat, axis=0)
