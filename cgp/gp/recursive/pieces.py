"""Series in pieces: what `cgp.layers.Recursive` asks of a `RecursiveGP`, as its methods.

The state that is passed from piece to piece is the window, as a list of tensors. Hyperparameters
may have changed since a window was filled: each piece begins with its factor at the present ones.
"""

from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from cgp.distributions.marginals import Marginals, Step
from cgp.gp.data import arranged, as_inputs_and_targets, check_pair
from cgp.gp.recursive.block_likelihood import block_loss
from cgp.gp.recursive.window import Window
from cgp.linalg import stored_cholesky
from cgp.linalg.arguments import complex_dtype, is_nan
from cgp.training.serving import step_outputs

if TYPE_CHECKING:
    from cgp.gp.recursive.recursive_gp import RecursiveGP


def begin(gp: "RecursiveGP", inputs: tuple) -> list[tf.Tensor]:
    """The empty windows of series.

    Args:
        gp: The model.
        inputs: Inputs `[B, T, D]` and observations `[B, T]`.

    Raises:
        ValueError: No pair of such arrays; the policy "budget"; a number of series that is not
            known.
    """
    _check_pair(inputs)
    x, z = inputs
    if z.shape[0] is None:
        raise ValueError(
            "windows are of a number of series that is known: give the batch size, as in "
            f"keras.Input(batch_shape=(4, None)), got z of shape {z.shape}"
        )
    leaves = tf.nest.flatten(_empty(gp, x.shape[-1]))
    return [tf.broadcast_to(leaf, [z.shape[0], *leaf.shape[1:]]) for leaf in leaves]


def follow(
    gp: "RecursiveGP", inputs: tuple, state: list[tf.Tensor]
) -> tuple[dict[str, tf.Tensor], list[tf.Tensor]]:
    """The moments of a piece, whose loss it adds, and the windows after it.

    Args:
        gp: The model.
        inputs: Inputs `[B, T, D]` and observations `[B, T]`.
        state: The windows before it.
    """
    recursion = gp._recursion
    x, z = inputs
    x, z = as_inputs_and_targets(x, z, None, gp.variable_dtype)
    window = tf.nest.pack_sequence_as(_empty(gp, x.shape[-1]), state)
    coming = tf.reduce_sum(tf.cast(tf.logical_not(is_nan(z)), tf.int32), axis=-1)
    with tf.control_dependencies(recursion.policy.room(window, coming)):
        window = recursion.refactorized(window._replace(x=tf.identity(window.x)))
    chol = stored_cholesky(window.chol, recursion.covariance(window))
    block = arranged(x, z)
    gp.add_loss(block_loss(recursion, window, chol, block, gp.named_hyperparameters().values()))
    window, step = recursion.scan(window._replace(chol=chol), x, z)
    return step_outputs(step), tf.nest.flatten(window)


def state_spec(gp: "RecursiveGP", shape: tuple) -> list[keras.KerasTensor]:
    """The shapes and dtypes of windows, of series of these shapes."""
    (batch, *_, dimensions), _ = shape
    leaves = tf.nest.flatten(_empty(gp, dimensions))
    return [keras.KerasTensor((batch, *a.shape[1:]), a.dtype.name) for a in leaves]


def piece_spec(gp: "RecursiveGP", inputs: tuple) -> dict[str, keras.KerasTensor]:
    """The shapes and dtypes of the moments of a piece."""
    _check_pair(inputs)
    real, complex_ = gp.variable_dtype, complex_dtype(gp.variable_dtype).name
    moments = Marginals(complex_, real, complex_)
    dtypes = step_outputs(Step(moments, complex_, moments))
    return {name: keras.KerasTensor(inputs[1].shape, dtype) for name, dtype in dtypes.items()}


def _check_pair(inputs: Any) -> None:
    """Raises an error for what is no pair of inputs and observations, symbolic or not."""
    check_pair(inputs)
    shapes = [a.shape for a in inputs] if isinstance(inputs, tuple | list) else [inputs.shape]
    if [shape.rank for shape in map(tf.TensorShape, shapes)] != [3, 2]:
        found = " and ".join(map(str, shapes))
        raise ValueError(
            f"a process takes a pair of inputs [B, T, D] and observations [B, T], got {found}"
        )


def _empty(gp: "RecursiveGP", dimensions: int) -> Window:
    window = gp._recursion.empty(1, dimensions, gp.variable_dtype)
    if tf.nest.flatten(window.extra):
        raise ValueError(
            f"policy={gp.policy!r} keeps more than points, which all series share: take another "
            "policy, or fit(x, z) block after block"
        )
    return window
