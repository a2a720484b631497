"""The loss of data in shards, summed over whatever engine maps a function over them.

A shard is a part of the data, or what an engine makes of it where it works: a future of Dask, for
instance. The loss of each is that of the model, in which a prior has an equal share, weighed by its
number of observations: their sum is the loss of all data, in which a prior counts once.
"""

import functools
import pickle
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from cgp.linalg import NotPositiveDefiniteError
from cgp.linalg.arguments import check_whole
from cgp.linalg.short_repr import short_repr
from cgp.training.objective import Objective, evaluate
from cgp.training.optimizers import LBFGS
from cgp.training.sharing import sharing_scope


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

    items: Sequence[Any]
    """Data as `fit` takes them, or what the engine turns into data."""
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
        raise TypeError(
            "a KalmanFilter, an ExactGP or a StateSpaceGP learns from shards, got "
            f"{type(model).__name__}"
        )
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
    weight = max(count, 1.0)  # what the loss was divided by: a share of priors is there without
    return ShardValue(weight * float(value), weight * gradient.numpy(), count)


class _RestoredModel(NamedTuple):
    """A model made from its description, with its compiled loss as a function of a point and a
    batch.
    """

    model: Any
    size: int
    """The number of values of a point."""
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
    function = tf.function(
        functools.partial(evaluate, model, model.trainable_variables),
        jit_compile=jit_compile,
        autograph=False,
        reduce_retracing=True,  # shards may be of any length
    )
    size = sum(v.shape.num_elements() for v in model.trainable_variables)
    return _RestoredModel(model, size, function, threading.Lock())


def shards_of(
    model: keras.Model, x: Any, y: Any, sample_weight: Any, validation_split: float, engine: Any
) -> Shards:
    """Checks the arguments of a `fit` with an engine, and returns the shards.

    Args:
        model: The model.
        x: The shards.
        y: None, as shards have their own targets.
        sample_weight: None.
        validation_split: Zero.
        engine: The engine.

    Raises:
        TypeError: No list, or targets beside it; an engine that maps nothing.
        ValueError: Another optimizer than `LBFGS`; weights, or a split.
    """
    per_sample = {"sample_weight": sample_weight, "validation_split": validation_split or None}
    for name, argument in per_sample.items():
        if argument is not None:
            raise ValueError(f"{name} is for one set of arrays, and has no meaning with an engine")
    if not isinstance(getattr(model, "optimizer", None), LBFGS):
        raise ValueError(
            "an engine sums the loss of all data at each step, for "
            "compile(optimizer=cgp.optimizers.LBFGS())"
        )
    if not isinstance(x, list | tuple) or y is not None:
        raise TypeError(
            "with an engine fit takes one list, of shards of the data, got "
            f"{type(x).__name__}{'' if y is None else ' and another argument'}"
        )
    if not (callable(engine) or hasattr(engine, "map")):
        raise TypeError(f"engine must be map, or have a method map, got {engine!r}")
    return Shards(list(x), engine)


class ShardedObjective(Objective):
    """The loss of data in shards, and its gradient, as a function of one float64 vector.

    Args:
        model: A model for `shard_spec`.
        shards: The data.

    Attributes:
        variables, start, epsilon: As of an `Objective`.

    Raises:
        TypeError: A model that cannot learn from shards.
        ValueError: No shards, or what an `Objective` refuses.
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
        return (
            sum(result.value for result in results) / count,
            np.sum([result.gradient for result in results], axis=0) / count,
        )
