"""The two forms in which a complex normal is computed: complex when proper, real when improper.

A proper normal is worked out with complex matrices of its own size. An improper one has no density
in them alone; it is worked out in the real composite [Re; Im] of twice the size, with the ½ of the
real normal. Everything between `covariance` and `join` is the same algebra in both: what says
"working" here is complex of n in the one form, real of 2n in the other.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from cgp.linalg.arguments import squared_modulus
from cgp.linalg.composite import (
    as_complex,
    from_composite,
    join_parts,
    real_as,
    stack_parts,
    to_composite,
)


class SecondMoments(NamedTuple):
    """Complex second moments: covariances of points, or the variances of each."""

    k: tf.Tensor
    """`E[z z̄]`, complex whether or not it is real."""
    c: tf.Tensor | None = None
    """`E[z z]`, complex and like `k`; None when proper, which is zero."""

    def map(self, function: Callable[..., tf.Tensor], *others: "SecondMoments") -> "SecondMoments":
        """A function of `k` and of `c`, and of those of others; not of `c` when proper."""
        k = function(self.k, *(other.k for other in others))
        if self.c is None:
            return SecondMoments(k, None)
        return SecondMoments(k, function(self.c, *(other.c_or_zeros() for other in others)))

    def c_or_zeros(self) -> tf.Tensor:
        """`c`, written out when it is zero."""
        return tf.zeros_like(self.k) if self.c is None else self.c


def clipped(moments: SecondMoments) -> SecondMoments:
    """The moments, c cut to what a variable of variance k ≥ 0 can have: |c| ≤ k.

    Rounding leaves others where data pin a signal down.
    """
    k = tf.maximum(tf.math.real(moments.k), 0.0)
    if moments.c is None:
        return SecondMoments(real_as(k, moments.k.dtype), None)
    modulus = tf.abs(moments.c)
    shrink = tf.where(modulus > k, k / tf.where(modulus > 0, modulus, tf.ones_like(k)), 1.0)
    return SecondMoments(real_as(k, moments.k.dtype), moments.c * real_as(shrink, moments.c.dtype))


def as_matrices(moments: SecondMoments) -> SecondMoments:
    """Moments of single variables, `[...]`, as covariances of one, `[..., 1, 1]`."""
    return moments.map(lambda a: a[..., None, None])


class ProperForm:
    """Complex matrices `[..., n, n]`; log p = −quad − log|K| − n log π."""

    scale = 1.0
    """What the quadratic form and the log determinant are multiplied by."""
    log_normalizer = math.log(math.pi)
    """Of one complex dimension."""
    multiplicity = 1
    """Working dimensions of one complex dimension."""

    def covariance(self, moments: SecondMoments) -> tf.Tensor:
        """The working covariance of a pair (K, C)."""
        return moments.k

    def moments(self, covariance: tf.Tensor) -> SecondMoments:
        """The pair (K, C) of a working covariance."""
        return SecondMoments(covariance, None)

    def split(self, z: tf.Tensor) -> tf.Tensor:
        """A complex vector `[..., n]` as a working one."""
        return z

    def join(self, vector: tf.Tensor) -> tf.Tensor:
        """A working vector as the complex one, `[..., n]`."""
        return vector

    def basis(self, basis: tf.Tensor) -> tf.Tensor:
        """A matrix of complex coefficients, `[..., n, q]`, as one of working coefficients."""
        return basis

    def marginal(self, columns: tf.Tensor) -> SecondMoments:
        """The diagonals of the pair (K, C) of `columnsᴴ columns`, columns `[..., k, n]`."""
        return SecondMoments(as_complex(tf.reduce_sum(squared_modulus(columns), axis=-2)), None)

    def white(self, parts: tf.Tensor) -> tf.Tensor:
        """Working white noise from real white noise of `[..., 2n]`."""
        return math.sqrt(0.5) * join_parts(parts)  # half of a unit variance to either part

    def root(self, chol: tf.Tensor) -> tf.Tensor:
        """S with `S Sᴴ` the working covariance, from a factor in either form."""
        return chol if chol.dtype.is_complex else tf.complex(*tf.split(chol, 2, axis=-2))

    def invert_blocks(
        self, precision: tf.Tensor, dual: tf.Tensor
    ) -> tuple[tf.Tensor, SecondMoments]:
        """Each point given all others: `B⁻¹ a` and `B⁻¹`, B the block of P that belongs to it.

        Args:
            precision: P, working, `[..., n, n]`.
            dual: `a = P y`, working, `[..., n, S]`.

        Returns:
            Complex deviation `[..., n, S]`; its variance and pseudo-variance `[..., n]`.
        """
        diagonal = tf.linalg.diag_part(precision)
        return dual / diagonal[..., None], SecondMoments(1.0 / diagonal, None)


class CompositeForm:
    """Real matrices `[..., 2n, 2n]`; log p = −½(quad + log|R|) − n log 2π."""

    scale = 0.5
    log_normalizer = math.log(2.0 * math.pi)
    multiplicity = 2

    def covariance(self, moments: SecondMoments) -> tf.Tensor:
        """See `ProperForm.covariance`."""
        return to_composite(moments.k, moments.c_or_zeros())

    def moments(self, covariance: tf.Tensor) -> SecondMoments:
        """See `ProperForm.moments`."""
        return SecondMoments(*from_composite(covariance))

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

    def marginal(self, columns: tf.Tensor) -> SecondMoments:
        """See `ProperForm.marginal`."""
        re, im = tf.split(columns, 2, axis=-1)
        rr, ii, ri = (tf.reduce_sum(a * b, axis=-2) for a, b in ((re, re), (im, im), (re, im)))
        return SecondMoments(as_complex(rr + ii), tf.complex(rr - ii, 2.0 * ri))

    def white(self, parts: tf.Tensor) -> tf.Tensor:
        """See `ProperForm.white`."""
        return parts

    def root(self, chol: tf.Tensor) -> tf.Tensor:
        """See `ProperForm.root`."""
        # The composite of a proper covariance is that of z = L ξ with E|ξ|² = 1.
        return math.sqrt(0.5) * self.basis(chol) if chol.dtype.is_complex else chol

    def invert_blocks(
        self, precision: tf.Tensor, dual: tf.Tensor
    ) -> tuple[tf.Tensor, SecondMoments]:
        """See `ProperForm.invert_blocks`."""
        rr, ii = tf.split(tf.linalg.diag_part(precision), 2, axis=-1)
        ri = tf.linalg.diag_part(tf.split(tf.split(precision, 2, axis=-2)[0], 2, axis=-1)[1])
        re, im = tf.split(dual, 2, axis=-2)
        # The inverse block is [[ii, −ri], [−ri, rr]] / determinant.
        determinant = rr * ii - ri * ri
        rr, ii, ri = rr / determinant, ii / determinant, ri / determinant
        deviation = tf.complex(
            ii[..., None] * re - ri[..., None] * im, rr[..., None] * im - ri[..., None] * re
        )
        return deviation, SecondMoments(as_complex(rr + ii), tf.complex(ii - rr, -2.0 * ri))


Form = ProperForm | CompositeForm


def form_of(is_proper: bool) -> Form:
    """The form in which a normal is computed."""
    return ProperForm() if is_proper else CompositeForm()


def _stack_columns(basis: tf.Tensor) -> tf.Tensor:
    """`[Re; Im]` of each column of a matrix: complex `[..., n, q]` -> real `[..., 2n, q]`."""
    return tf.concat([tf.math.real(basis), tf.math.imag(basis)], axis=-2)
