"""Rank-one operations on Cholesky factors by compiled ops: the eager path of `cgp.linalg.updates`.

Each function answers None where the ops do not serve, and where they refuse their input. The
TensorFlow path then does the work, or says what is wrong: no error is written twice.
"""

import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from cgp import native
from cgp.linalg import tensorflow_updates as reference
from cgp.linalg.arguments import ArrayLike, is_lower_triangular
from cgp.linalg.tensorflow_updates import ScalarUpdate


def update(
    chol: ArrayLike, update_vector: ArrayLike, multiplier: ArrayLike = 1.0
) -> tf.Tensor | None:
    """`cgp.linalg.cholesky_update` by a compiled op; None where it does not serve."""
    return _call("cgp_cholesky_update", chol, [update_vector], [multiplier])


def condition(chol: ArrayLike, h: ArrayLike, noise_variance: ArrayLike) -> ScalarUpdate | None:
    """`cgp.linalg.cholesky_condition` by a compiled op; None where it does not serve."""
    conditioned = _call("cgp_cholesky_condition", chol, [h], [noise_variance])
    return None if conditioned is None else ScalarUpdate(*conditioned)


def append(
    chol: ArrayLike, cross: ArrayLike, variance: ArrayLike, size: ArrayLike | None = None
) -> tf.Tensor | None:
    """`cgp.linalg.cholesky_append` by a compiled op; None where it does not serve."""
    name, sizes = "cgp_cholesky_append", []
    if size is not None:
        name, sizes = f"{name}_in_buffer", [size]
    return _call(name, chol, [cross], [variance], sizes)


def remove(chol: ArrayLike, index: ArrayLike, size: ArrayLike | None = None) -> tf.Tensor | None:
    """`cgp.linalg.cholesky_remove` by a compiled op; None where it does not serve."""
    if size is None:
        return _call("cgp_cholesky_remove", chol, integers=[index])
    return _call("cgp_cholesky_remove_from_buffer", chol, integers=[index, size])


def _reals(x: Any, like: Any) -> Any:
    """Real numbers in the precision of a factor; None if the TensorFlow path is to refuse them."""
    precision = native.precision(like)
    if type(x) in (float, int, np.float64, np.float32):
        return _constant(float(x), precision)
    if native.is_array(x) and x.dtype == precision.as_numpy_dtype:
        return x
    return None


@functools.lru_cache(maxsize=64)
def _constant(x: float, dtype: tf.DType) -> tf.Tensor:
    """A scalar tensor, kept: to convert it takes longer than a small update."""
    return tf.constant(x, dtype)


def _integers(x: Any) -> Any:
    """Integers as int32; None if the TensorFlow path is to refuse them."""
    if type(x) is int or isinstance(x, np.integer):
        return np.asarray(x, np.int32) if abs(int(x)) < 2**31 else None
    if native.is_array(x) and x.dtype == np.int32:
        return x
    return None


def _call(name: str, chol: Any, vectors: Any = (), reals: Any = (), integers: Any = ()) -> Any:
    """Calls an op of a factor that is zero above its diagonal, broadcast with other arguments."""
    if not native.serves(chol, *vectors) or not is_lower_triangular(chol):
        return None
    numbers = [*(_reals(x, chol) for x in reals), *map(_integers, integers)]
    if any(x is None for x in numbers):
        return None
    arguments = [(chol, 2), *((v, 1) for v in vectors), *((x, 0) for x in numbers)]
    if any(x.ndim != event_rank for x, event_rank in arguments):
        batches = [tuple(x.shape)[: x.ndim - event_rank] for x, event_rank in arguments]
        try:
            batch = np.broadcast_shapes(*batches)
        except ValueError:
            return None
        if any(shape != batch for shape in batches):
            arguments = [
                (tf.broadcast_to(x, [*batch, *x.shape[x.ndim - event_rank :]]), event_rank)
                for x, event_rank in arguments
            ]
    return native.attempt(name, *[x for x, _ in arguments])


# --- gradients ------------------------------------------------------------------------------------


def _register_gradients(
    name: str, function: Callable[..., Any], differentiable: int, integers: int = 0
) -> None:
    """Registers the pullback of an op as its gradient, and the gradient of that pullback.

    Args:
        name: Name of the op, as in `CgpCholeskyUpdate`.
        function: The same function of its inputs, in TensorFlow.
        differentiable: The number of its differentiable inputs, which come first.
        integers: The number of its integer inputs.
    """
    pullback = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() + "_pullback"

    @tf.RegisterGradient(name)
    def _first(op: tf.Operation, *bars: tf.Tensor) -> list[tf.Tensor | None]:
        gradients = native.op(pullback)(*op.inputs, *bars)
        return [*(gradients if isinstance(gradients, tuple) else [gradients]), *[None] * integers]

    @tf.RegisterGradient(f"{name}Pullback")
    def _second(op: tf.Operation, *seconds: tf.Tensor) -> list[tf.Tensor | None]:
        count = differentiable + integers
        inputs, bars = op.inputs[:count], op.inputs[count:]
        by = list(inputs[:differentiable])
        with tf.GradientTape() as outer:
            outer.watch([*by, *bars])
            with tf.GradientTape() as tape:
                tape.watch(by)
                values = tf.nest.flatten(function(*inputs))
            firsts = tape.gradient(values, by, output_gradients=list(bars))
        gradients = outer.gradient(firsts, [*by, *bars], output_gradients=list(seconds))
        return [*gradients[:differentiable], *[None] * integers, *gradients[differentiable:]]


_register_gradients("CgpCholeskyUpdate", reference.update, 3)
_register_gradients("CgpCholeskyCondition", reference.condition, 3)
_register_gradients("CgpCholeskyAppend", reference.append, 3)
_register_gradients("CgpCholeskyAppendInBuffer", reference.append, 3, integers=1)
_register_gradients("CgpCholeskyRemove", reference.remove, 1, integers=1)
_register_gradients("CgpCholeskyRemoveFromBuffer", reference.remove, 1, integers=2)
