"""The two forms in which a complex normal is computed: complex when proper, real when improper.

A proper process is worked out with complex matrices of its own size. An improper one has no
density in them alone; it is worked out in the real composite [Re; Im] of twice the size, with the
½ of the real normal. Everything between `covariance` and `join` is the same algebra in both.
"""

import math

import tensorflow as tf

from cgp.kernels.base import Moments, as_complex
from cgp.linalg import from_composite, join_parts, stack_parts, to_composite


class ProperForm:
    """Complex matrices `[..., n, n]`; log p = −quad − log|K| − n log π."""

    scale = 1.0
    """What the quadratic form and the log determinant are multiplied by."""
    log_normalizer = math.log(math.pi)
    """Of one complex dimension."""
    multiplicity = 1
    """Working dimensions of one complex dimension."""

    def covariance(self, moments: Moments) -> tf.Tensor:
        """The working covariance of a pair (K, C)."""
        return moments[0]

    def moments(self, covariance: tf.Tensor) -> Moments:
        """The pair (K, C) of a working covariance."""
        return covariance, None

    def split(self, z: tf.Tensor) -> tf.Tensor:
        """A complex vector `[..., n]` as a working one."""
        return z

    def join(self, vector: tf.Tensor) -> tf.Tensor:
        """A working vector as the complex one, `[..., n]`."""
        return vector

    def basis(self, basis: tf.Tensor) -> tf.Tensor:
        """A matrix of complex coefficients, `[..., n, q]`, as one of working coefficients."""
        return basis

    def marginal(self, columns: tf.Tensor) -> Moments:
        """The diagonals of the pair (K, C) of `columnsᴴ columns`, columns `[..., k, n]`."""
        square = tf.reduce_sum(tf.abs(columns) ** 2, axis=-2)
        return as_complex(square), None


class CompositeForm:
    """Real matrices `[..., 2n, 2n]`; log p = −½(quad + log|R|) − n log 2π."""

    scale = 0.5
    log_normalizer = math.log(2.0 * math.pi)
    multiplicity = 2

    def covariance(self, moments: Moments) -> tf.Tensor:
        """See `ProperForm.covariance`."""
        k, c = moments
        return to_composite(k, tf.zeros_like(k) if c is None else c)

    def moments(self, covariance: tf.Tensor) -> Moments:
        """See `ProperForm.moments`."""
        return from_composite(covariance)

    def split(self, z: tf.Tensor) -> tf.Tensor:
        """See `ProperForm.split`."""
        return stack_parts(z)

    def join(self, vector: tf.Tensor) -> tf.Tensor:
        """See `ProperForm.join`."""
        return join_parts(vector)

    def basis(self, basis: tf.Tensor) -> tf.Tensor:
        """See `ProperForm.basis`."""
        # z = H β is [Re z; Im z] = [[Re H, −Im H], [Im H, Re H]] [Re β; Im β].
        return tf.concat([_stack_columns(basis), _stack_columns(1j * basis)], axis=-1)

    def marginal(self, columns: tf.Tensor) -> Moments:
        """See `ProperForm.marginal`."""
        re, im = tf.split(columns, 2, axis=-1)
        rr, ii, ri = (tf.reduce_sum(a * b, axis=-2) for a, b in ((re, re), (im, im), (re, im)))
        return as_complex(rr + ii), tf.complex(rr - ii, 2.0 * ri)


Form = ProperForm | CompositeForm


def _stack_columns(basis: tf.Tensor) -> tf.Tensor:
    """`[Re; Im]` of each column of a matrix: complex `[..., n, q]` -> real `[..., 2n, q]`."""
    return tf.concat([tf.math.real(basis), tf.math.imag(basis)], axis=-2)
