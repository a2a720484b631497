"""Factors and inverses of Hermitian matrices by LAPACK, through compiled ops.

Both functions answer None where the ops do not serve. The TensorFlow path then does the work.
"""

import tensorflow as tf

from cgp import native
from cgp.linalg.pullbacks import cholesky_pullback, inverse_pullback
from cgp.native import lapack

# Below this size LAPACK gains little, eagerly, for which its first use would import SciPy's.
_SMALL = 64


def factor(a: tf.Tensor) -> tf.Tensor | None:
    """The lower triangular factor of Hermitian matrices `[..., n, n]`, of their lower triangles.

    NaN in every element of a matrix that is not positive definite.
    """
    return _call("cgp_cholesky_factor", a)


def inverse(chol: tf.Tensor) -> tf.Tensor | None:
    """The inverse of `A = L Lᴴ`, Hermitian, from factors `[..., n, n]` with real diagonals."""
    return _call("cgp_cholesky_inverse", chol)


def _call(name: str, a: tf.Tensor) -> tf.Tensor | None:
    if tf.executing_eagerly():
        serves = native.serves(a) and a.shape[-1] >= _SMALL
    else:
        serves = native.serves_own_graph()
    if not serves or not lapack.is_there():
        return None
    # Ops do not infer shapes.
    return tf.ensure_shape(native.op(name)(a), a.shape)


# --- gradients ------------------------------------------------------------------------------------


@tf.RegisterGradient("CgpCholeskyFactor")
def _of_factor(op: tf.Operation, bar: tf.Tensor) -> tf.Tensor:
    return cholesky_pullback(op.outputs[0], bar)


@tf.RegisterGradient("CgpCholeskyInverse")
def _of_inverse(op: tf.Operation, bar: tf.Tensor) -> tf.Tensor:
    return inverse_pullback(op.inputs[0], op.outputs[0], bar)
