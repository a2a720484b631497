"""Replacing the gradient of a function for one of its inputs."""

from collections.abc import Callable

import tensorflow as tf


def with_gradient(f: Callable, x, *rest, grad: Callable):
    """Evaluates `f(x, *rest)`, with a gradient of your own for `x` alone.

    The value is that of `f`. Backwards, `x` receives `grad(x, *rest, dy)`, while the inputs in
    `rest`, and any variable that `f` captures, receive what TensorFlow would give them. It is how
    a stored factor stands in for a fresh factorisation (`stored_cholesky`): the forward pass reads
    the factor, the backward pass reaches the covariance.

    Args:
        f: Function of `(x, *rest)` that returns one tensor.
        x: Tensor or variable whose gradient is replaced.
        *rest: The other inputs of `f`, tensors or variables.
        grad: Function of `(x, *rest, dy)`, `dy` shaped like the value; returns a tensor shaped like
            `x`. It follows TensorFlow's convention for a real loss of a complex input: the
            gradient is ∂L/∂Re x + i ∂L/∂Im x. It may be differentiated again.

    Returns:
        The tensor `f(x, *rest)`.

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
    x = tf.convert_to_tensor(x)
    rest = tuple(tf.convert_to_tensor(r) for r in rest)
    y = f(tf.stop_gradient(x), *rest)

    # A carrier that adds nothing to the value but brings dy back to x. A tape inside the forward
    # pass would do the same, and break under persistent tapes and second derivatives.
    @tf.custom_gradient
    def carrier(x):
        def backward(dy):
            return grad(x, *rest, dy)

        return tf.zeros_like(y), backward

    return y + carrier(x)


def without_gradient(values, inputs, message: str) -> list[tf.Tensor]:
    """Values that depend on inputs in a way that is not to be differentiated: an error, not zero.

    Args:
        values: Tensors.
        inputs: Tensors that they depend on.
        message: What `NotImplementedError` says, when a gradient is asked for.
    """
    values, inputs = [tf.stop_gradient(value) for value in values], list(inputs)

    @tf.custom_gradient
    def constant(*inputs):
        def backward(*_):
            raise NotImplementedError(message)

        return tuple(map(tf.identity, values)), backward

    return list(constant(*inputs))
