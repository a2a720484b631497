"""Functions with a gradient replaced, or forbidden, for some of their inputs."""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import NoReturn

import tensorflow as tf

from cgp.linalg.arguments import nan


def with_gradient(
    f: Callable[..., tf.Tensor],
    x: tf.Tensor | tf.Variable,
    *rest: tf.Tensor | tf.Variable,
    grad: Callable[..., tf.Tensor],
) -> tf.Tensor:
    """Evaluates `f(x, *rest)`, with the gradient by `x` replaced by `grad`.

    In the backward pass `x` receives `grad(x, *rest, dy)`; the inputs in `rest`, and any variable
    that `f` captures, receive TensorFlow's gradient. `stored_cholesky` is made of this: its forward
    pass reads a stored factor, its backward pass leads to the covariance.

    Args:
        f: Function of `(x, *rest)` that returns a tensor.
        x: Tensor or variable whose gradient is replaced.
        *rest: The other inputs of `f`, tensors or variables.
        grad: Function of `(x, *rest, dy)` that returns a tensor shaped like `x`; `dy` is the
            cotangent of the value, and shaped like it. By TensorFlow's convention the gradient of
            a real loss by a complex input is ∂L/∂Re x + i ∂L/∂Im x. It may be differentiated again.

    Returns:
        The tensor `f(x, *rest)`.

    Raises:
        TypeError: f or grad is no function.
        ValueError: In the backward pass, a gradient that is not shaped like `x`.

    Example:
        >>> import tensorflow as tf
        >>> from cgp.linalg import with_gradient
        >>> x, w = tf.constant(3.0), tf.constant(2.0)
        >>> with tf.GradientTape() as tape:
        ...     tape.watch([x, w])
        ...     y = with_gradient(lambda x, w: w * tf.round(x), x, w, grad=lambda x, w, dy: w * dy)
        >>> [float(g) for g in tape.gradient(y, [x, w])]
        [2.0, 3.0]
    """
    for name, function in (("f", f), ("grad", grad)):
        if not callable(function):
            raise TypeError(f"{name} must be a function, got {function!r}")
    x = tf.convert_to_tensor(x)
    rest = tuple(tf.convert_to_tensor(r) for r in rest)
    y = f(tf.stop_gradient(x), *rest)

    # Adds zero to the value, and passes dy to `grad`. A tape inside the forward pass would give the
    # same gradient, but fails under persistent tapes and second derivatives.
    @tf.custom_gradient
    def carrier(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        def backward(dy: tf.Tensor) -> tf.Tensor:
            x_bar = tf.convert_to_tensor(grad(x, *rest, dy))
            if not x_bar.shape.is_compatible_with(x.shape):
                shapes = f"{x.shape}, got {x_bar.shape}"
                raise ValueError(f"grad must return a tensor shaped like x, {shapes}")
            return x_bar

        return tf.zeros_like(y), backward

    return y + carrier(x)


def without_gradient(
    values: Iterable[tf.Tensor], inputs: Iterable[tf.Tensor], message: str
) -> list[tf.Tensor]:
    """Returns `values`, whose gradient by `inputs`, on which they depend, raises an error.

    It is a `NotImplementedError` with this message, where a gradient would silently be zero.
    """
    values, inputs = [tf.stop_gradient(tensor) for tensor in values], list(inputs)

    @tf.custom_gradient
    def constant(*inputs: tf.Tensor) -> tuple[tuple[tf.Tensor, ...], Callable[..., NoReturn]]:
        def backward(*_: tf.Tensor) -> NoReturn:
            raise NotImplementedError(message)

        return tuple(map(tf.identity, values)), backward

    return list(constant(*inputs))


def of_first_order(gradient: tf.Tensor, message: str) -> tf.Tensor:
    """A gradient whose own derivative, which would lack terms, is an error when it is computed.

    Not when its graph is made, as an outer tape makes that of all trainable variables.
    """

    @tf.custom_gradient
    def identity(gradient: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        def backward(bar: tf.Tensor) -> tf.Tensor:
            with tf.control_dependencies([tf.debugging.Assert(False, [message])]):
                return nan(bar.dtype) * bar

        return tf.identity(gradient), backward

    return identity(gradient)


def without_tape() -> contextlib.AbstractContextManager:
    """A context that no eager tape records; in a graph the values are cut off from gradients."""
    return tf.init_scope() if tf.executing_eagerly() else contextlib.nullcontext()


@contextlib.contextmanager
def without_warnings_of_casts() -> Iterator[None]:
    """A context without the warning of an imaginary part that the gradient of a cast drops.

    For gradients of functions that others write. The gradient by a real x of `tf.cast(x,
    tf.complex128)` is a real part, and TensorFlow takes it by a cast back, of which it warns. Only
    this warning is left out, and only in this thread.
    """
    thread = threading.get_ident()

    def is_another(record: logging.LogRecord) -> bool:
        return record.thread != thread or "discard the imaginary part" not in record.getMessage()

    logger = tf.get_logger()
    logger.addFilter(is_another)
    try:
        yield
    finally:
        logger.removeFilter(is_another)
