"""The loss of a model as a function of one vector, for optimizers other than Keras's.

The loss of data in shards is a sum, by any engine that maps a function over them. A shard is a part
of the data, or the object that an engine makes of it: a future of Dask, for instance. Each shard
has the loss of the model, with an equal share of each prior, weighed by its number of
observations: the sum is the loss of all data, in which a prior counts once.
"""

import dataclasses
import functools
import pickle
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from cgp import native
from cgp.graphs import called_as_op
from cgp.linalg import NotPositiveDefiniteError
from cgp.linalg.arguments import check_whole
from cgp.linalg.gradients import without_warnings_of_casts
from cgp.linalg.short_repr import short_repr
from cgp.training.batches import require_one_replica
from cgp.training.keras_private import stored
from cgp.training.optimizers import LBFGS
from cgp.training.post_updates import all_refreshed
from cgp.training.sharing import sharing_scope


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
            ValueError: A point of another size.
        """
        point = np.asarray(point, np.float64)
        if point.shape != self.start.shape:
            raise ValueError(
                f"point must have {len(self.start)} values, got shape {list(point.shape)}"
            )
        value, gradient = self._function(point, self.batch)
        return float(value), gradient.numpy()


def _assign(variables: list[keras.Variable], point: npt.ArrayLike) -> None:
    sizes = [v.shape.num_elements() for v in variables]
    for v, flat in zip(variables, tf.split(point, sizes), strict=True):
        v.assign(tf.cast(tf.reshape(flat, v.shape), v.dtype))


@dataclasses.dataclass(frozen=True)
class _CompiledObjective:  # a tuple of variables would be tracked as weights
    """A compiled function, and the variables, shapes and settings it was compiled for."""

    variables: list[tf.Variable]
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
    present = [stored(v) for v in variables]  # a Keras variable may have got another
    same = kept is not None and list(map(id, kept.variables)) == list(map(id, present))
    if kept is None or not same or kept.signature != signature:
        graph = tf.function(
            functools.partial(evaluate, model, variables),
            jit_compile=model.jit_compile,
            autograph=False,
        )
        size = sum(v.shape.num_elements() for v in variables)
        concrete = graph.get_concrete_function(tf.TensorSpec([size], tf.float64), shapes)
        kept = model._kept_objective = _CompiledObjective(
            present, signature, called_as_op(concrete)
        )
    call = kept.function

    def of_batch(point: np.ndarray, batch: tuple) -> list[tf.Tensor]:
        return call(point, *(a for a in tf.nest.flatten(batch) if a is not None))

    return of_batch


def evaluate(
    model: Any, variables: list[keras.Variable], point: tf.Tensor, batch: tuple
) -> tuple[tf.Tensor, tf.Tensor]:
    """The loss of a batch and its gradient at a point, as a function to be compiled.

    The point has the values of the trainable variables, one after the other, float64.
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
    pairs = zip(variables, gradients, strict=True)
    dense = [
        tf.zeros(v.shape, tf.float64) if g is None else tf.convert_to_tensor(g) for v, g in pairs
    ]
    flat = [tf.reshape(tf.cast(g, tf.float64), [-1]) for g in dense]
    return tf.cast(loss, tf.float64), tf.concat(flat, axis=0)


@short_repr
class ShardValue(NamedTuple):
    """The loss of a shard, a term of the loss of all data."""

    value: float
    """The negative log likelihood of its series, plus its share of the priors; NaN where it has no
    value."""
    gradient: np.ndarray
    """Its gradient by the trainable variables, one after the other, float64."""
    observations: float
    """The number of its observations."""


class Shards(NamedTuple):
    """Data in shards, in place of data in `fit`."""

    items: Sequence[Any]  # data as `fit` takes them, or objects that the engine turns into data
    engine: Any
    """`map`, or an object with a method `map`, of a function and a list; and `gather` where that
    returns futures."""


def shard_spec(model: keras.Model, shards: int) -> bytes:
    """Describes a model as bytes for `value_and_gradient`, also in another process.

    Args:
        model: A `KalmanFilter`, `ExactGP` or `StateSpaceGP`.
        shards: The number of shards of all the data, of which priors count one share in each.

    Raises:
        TypeError: A model that cannot learn from shards.
        ValueError: A number of shards that is no whole number, at least 1.

    Example:
        >>> import cgp
        >>> from cgp.training import shard_spec
        >>> gp = cgp.ExactGP(cgp.kernels.RBF(1.0, 2.0), noise_variance=0.1)
        >>> type(shard_spec(gp, shards=3))
        <class 'bytes'>
    """
    if not hasattr(model, "batch_of_shard"):
        kinds = "a KalmanFilter, an ExactGP or a StateSpaceGP"
        raise TypeError(f"{kinds} learns from shards, got {type(model).__name__}")
    check_whole(shards, "shards")
    config = keras.saving.serialize_keras_object(model)
    config.pop("compile_config", None)
    return pickle.dumps((config, model.get_weights(), model.jit_compile, shards))


def value_and_gradient(spec: bytes, point: npt.ArrayLike, shard: Any) -> ShardValue:
    """The loss of a shard and its gradient: a pure function, which any engine may map.

    The model of the description, and its compiled function, are kept by the process that calls it.

    Args:
        spec: From `shard_spec`.
        point: The values of the trainable variables, one after the other.
        shard: Data as `fit` takes them: series of a `KalmanFilter`, `(x, z)` of a process. Or a
            function without arguments that returns them.

    Raises:
        TypeError, ValueError: Data that `fit` refuses; a note of the error says which shard it is.

    Example:
        >>> import numpy as np, cgp
        >>> from cgp.training import shard_spec, value_and_gradient
        >>> model = cgp.statespace.LinearGaussian([[0.9]], [[0.2]], [[1.0]], [[1.0 + 0j]])
        >>> kf = cgp.KalmanFilter(model, learn=("Q", "R"))
        >>> spec, point = shard_spec(kf, shards=2), np.zeros(2)
        >>> parts = [value_and_gradient(spec, point, z) for z in ([1j, 2.0], [0.5j, np.nan])]
        >>> [part.observations for part in parts]
        [2.0, 1.0]
        >>> sum(part.gradient for part in parts).shape
        (2,)
    """
    restored, point = _restored(spec), np.asarray(point, np.float64)
    if point.shape != (restored.size,):
        raise ValueError(f"point must have {restored.size} values, got shape {point.shape}")
    data = shard() if callable(shard) else shard
    try:
        x, count = restored.model.batch_of_shard(data)
    except (TypeError, ValueError) as error:
        shapes = [np.shape(a) for a in (data if isinstance(data, tuple | list) else [data])]
        error.add_note(f"It is the shard of arrays of the shapes {shapes}")
        raise
    try:
        with restored.mutex:
            value, gradient = restored.function(tf.constant(point), (x, None, None))
    except (tf.errors.InvalidArgumentError, NotPositiveDefiniteError):
        return ShardValue(np.nan, np.full(restored.size, np.nan), count)
    weight = max(count, 1.0)  # the divisor of the loss, which may be a share of priors alone
    return ShardValue(weight * float(value), weight * gradient.numpy(), count)


class _RestoredModel(NamedTuple):
    """A model made from its description, with its compiled loss of a point and a batch."""

    model: Any
    size: int  # the number of values of a point
    function: Callable[..., Any]
    mutex: threading.Lock
    """A lock of its variables, which a call assigns: threads of a process take turns."""


@functools.lru_cache(maxsize=2)
def _restored(spec: bytes) -> _RestoredModel:
    config, weights, jit_compile, shards = pickle.loads(spec)
    with sharing_scope():
        model = keras.saving.deserialize_keras_object(config)
    model.set_weights(weights)
    model.compile(LBFGS(), jit_compile=jit_compile)
    if model.batch_count is not None:
        model.batch_count.assign(shards)
    variables = model.trainable_variables
    function = tf.function(  # of shards of any length
        functools.partial(evaluate, model, variables),
        **{"jit_compile": jit_compile, "autograph": False, "reduce_retracing": True},
    )
    size = sum(v.shape.num_elements() for v in variables)
    return _RestoredModel(model, size, function, threading.Lock())


def shards_of(
    model: keras.Model, x: Any, y: Any, sample_weight: Any, validation_split: float, engine: Any
) -> Shards:
    """Checks the arguments of a `fit` with an engine, and returns the shards."""
    per_sample = {"sample_weight": sample_weight, "validation_split": validation_split or None}
    for name, argument in per_sample.items():
        if argument is not None:
            raise ValueError(f"{name} is for one set of arrays, and has no meaning with an engine")
    if not isinstance(getattr(model, "optimizer", None), LBFGS):
        optimizer = "compile(optimizer=cgp.optimizers.LBFGS())"
        raise ValueError(f"an engine sums the loss of all data at each step, for {optimizer}")
    if not isinstance(x, list | tuple) or y is not None:
        arguments = f"{type(x).__name__}{'' if y is None else ' and another argument'}"
        expected = "one list, of shards of the data"
        raise TypeError(f"with an engine fit takes {expected}, got {arguments}")
    if not (callable(engine) or hasattr(engine, "map")):
        raise TypeError(f"engine must be map, or have a method map, got {engine!r}")
    return Shards(list(x), engine)


class ShardedObjective(Objective):
    """The loss of data in shards, and its gradient, as a function of one float64 vector.

    Raises:
        TypeError: A model that cannot learn from shards.
        ValueError: No shards; and as for `Objective`.
    """

    def __init__(self, model: keras.Model, shards: Shards):
        if len(shards.items) == 0:
            raise ValueError("there are no shards: at least one part of the data was expected")
        self._shards, self._spec = shards, shard_spec(model, len(shards.items))
        super().__init__(model, (None, None, None))

    def __call__(self, point: npt.ArrayLike) -> tuple[float, np.ndarray]:
        """Evaluates the loss and its gradient at a point; NaN where a shard has no value."""
        self.assign(point)
        items, engine = self._shards
        task = functools.partial(value_and_gradient, self._spec, np.array(point, float))
        mapped = (engine.map if hasattr(engine, "map") else engine)(task, items)
        results = list(engine.gather(mapped) if hasattr(engine, "gather") else mapped)
        if len(results) != len(items):
            raise ValueError(
                f"the engine returned {len(results)} results for {len(items)} shards: one "
                "for each was expected, in their order"
            )
        count = sum(result.observations for result in results)
        if count == 0.0:
            raise ValueError("every element of all shards is missing: nothing to learn from")
        # In the order of the shards: the same sum whoever was first.
        gradient = np.sum([result.gradient for result in results], axis=0) / count
        return sum(result.value for result in results) / count, gradient
