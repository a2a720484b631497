"""Working forms of complex normals: complex matrices if proper, the real composite if improper.

A proper normal is computed with complex matrices of n rows. An improper one is computed in the real
composite [Re; Im] of 2n rows, with the factor ½ of the real normal density. The algebra is the same
in both forms; "working" matrices and vectors have n complex rows or 2n real rows.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from cgp.linalg.arguments import as_complex, real_as, squared_modulus
from cgp.linalg.composite import from_composite, join_parts, stack_parts, to_composite


class SecondMoments(NamedTuple):
    """Complex second moments: a pair of covariance and pseudo-covariance, or of variances."""

    k: tf.Tensor  # the covariance or variance `E[z z̄]`, in a complex dtype
    c: tf.Tensor | None = None
    """The pseudo-covariance or pseudo-variance `E[z z]`, like `k`; None if proper (zero)."""

    def map(self, function: Callable[..., tf.Tensor], *terms: "SecondMoments") -> "SecondMoments":
        """Applies a function to `k`, and to `c` unless proper, with the same fields of `terms`."""
        k = function(self.k, *(term.k for term in terms))
        if self.c is None:
            return SecondMoments(k, None)
        return SecondMoments(k, function(self.c, *(term.c_or_zeros() for term in terms)))

    def c_or_zeros(self) -> tf.Tensor:
        """The pseudo-covariance, as a tensor of zeros if proper."""
        return tf.zeros_like(self.k) if self.c is None else self.c


def clipped(moments: SecondMoments) -> SecondMoments:
    """Variances clipped to the valid range, k ≥ 0 and |c| ≤ k.

    Rounding can violate it where the posterior variance is far below the prior variance.
    """
    k = tf.maximum(tf.math.real(moments.k), 0.0)
    if moments.c is None:
        return SecondMoments(real_as(k, moments.k.dtype), None)
    modulus = tf.abs(moments.c)
    shrink = tf.where(modulus > k, k / tf.where(modulus > 0, modulus, tf.ones_like(k)), 1.0)
    return SecondMoments(real_as(k, moments.k.dtype), moments.c * real_as(shrink, moments.c.dtype))


def as_matrices(moments: SecondMoments) -> SecondMoments:
    """Reshapes variances, `[...]`, to covariance matrices of one row, `[..., 1, 1]`."""
    return moments.map(lambda a: a[..., None, None])


class ProperForm:
    """The form of proper normals: complex `[..., n, n]`; log p = −quad − log|K| − n log π."""

    scale = 1.0  # factor of the quadratic form and of the log determinant
    log_normalizer = math.log(math.pi)  # the normalising term for each complex dimension
    multiplicity = 1  # number of working dimensions for each complex dimension

    def covariance(self, moments: SecondMoments) -> tf.Tensor:
        """The working covariance of covariance and pseudo-covariance (K, C)."""
        return moments.k

    def moments(self, covariance: tf.Tensor) -> SecondMoments:
        """The covariance and pseudo-covariance (K, C) of a working covariance."""
        return SecondMoments(covariance, None)

    def split(self, z: tf.Tensor) -> tf.Tensor:
        """Converts a complex vector `[..., n]` to a working vector."""
        return z

    def join(self, vector: tf.Tensor) -> tf.Tensor:
        """Converts a working vector to a complex vector `[..., n]`."""
        return vector

    def basis(self, basis: tf.Tensor) -> tf.Tensor:
        """Converts a complex design matrix `[..., n, q]` to a working one."""
        return basis

    def marginal(self, columns: tf.Tensor) -> SecondMoments:
        """The diagonals of (K, C) of `columnsᴴ columns`, where columns is `[..., k, n]`."""
        return SecondMoments(as_complex(tf.reduce_sum(squared_modulus(columns), axis=-2)), None)

    def white(self, normals: tf.Tensor) -> tf.Tensor:
        """Converts real white noise `[..., 2n]` to working white noise of unit variance."""
        return math.sqrt(0.5) * join_parts(normals)  # each part has half of the variance

    def root(self, chol: tf.Tensor) -> tf.Tensor:
        """A square root S of the working covariance `S Sᴴ`, from a factor in either form."""
        return chol if chol.dtype.is_complex else tf.complex(*tf.split(chol, 2, axis=-2))

    def invert_blocks(
        self, precision: tf.Tensor, dual: tf.Tensor
    ) -> tuple[tf.Tensor, SecondMoments]:
        """Leave-one-out: `B⁻¹ a` and `B⁻¹`, where B is the diagonal block of each point of P.

        P is `precision`, `dual` is `a = P y`, working, `[..., n, S]`. The results are complex
        deviations `[..., n, S]`, and their variances and pseudo-variances `[..., n]`.
        """
        diagonal = tf.linalg.diag_part(precision)
        return dual / diagonal[..., None], SecondMoments(1.0 / diagonal, None)

    def whiten_points(self, noise: SecondMoments, vectors: tf.Tensor) -> tf.Tensor:
        """Working vectors of points, `[..., n]`, divided by the root of the noise of each."""
        return vectors * real_as(tf.math.rsqrt(tf.math.real(noise.k)), vectors.dtype)

    def log_det_of_points(self, noise: SecondMoments) -> tf.Tensor:
        """The log determinant of the working noise of each point, real, `[..., n]`."""
        return tf.math.log(tf.math.real(noise.k))

    def trace_of_points(self, noise: SecondMoments, signal: SecondMoments) -> tf.Tensor:
        """`tr(Σ⁻¹ K)` of the working blocks of noise Σ and signal K of each point, `[..., n]`."""
        return tf.math.real(signal.k) / tf.math.real(noise.k)


class CompositeForm:
    """The form of improper normals: real `[..., 2n, 2n]`; log p = −½(quad + log|R|) − n log 2π."""

    scale = 0.5
    log_normalizer = math.log(2.0 * math.pi)
    multiplicity = 2

    def covariance(self, moments: SecondMoments) -> tf.Tensor:
        """The real composite covariance of (K, C)."""
        return to_composite(moments.k, moments.c_or_zeros())

    def moments(self, covariance: tf.Tensor) -> SecondMoments:
        """The covariance and pseudo-covariance (K, C) of a real composite covariance."""
        return SecondMoments(*from_composite(covariance))

    def split(self, z: tf.Tensor) -> tf.Tensor:
        """Stacks real and imaginary parts of a complex vector, `[..., 2n]`."""
        return stack_parts(z)

    def join(self, vector: tf.Tensor) -> tf.Tensor:
        """The complex vector of stacked real and imaginary parts."""
        return join_parts(vector)

    def basis(self, basis: tf.Tensor) -> tf.Tensor:
        """The real composite of a complex design matrix, `[..., 2n, 2q]`."""
        # z = H β is [Re z; Im z] = [[Re H, −Im H], [Im H, Re H]] [Re β; Im β].
        return tf.concat([stack_columns(basis), stack_columns(1j * basis)], axis=-1)

    def marginal(self, columns: tf.Tensor) -> SecondMoments:
        """The diagonals of (K, C) of the composite `columnsᵀ columns`."""
        re, im = tf.split(columns, 2, axis=-1)
        rr, ii, ri = (tf.reduce_sum(a * b, axis=-2) for a, b in ((re, re), (im, im), (re, im)))
        return SecondMoments(as_complex(rr + ii), tf.complex(rr - ii, 2.0 * ri))

    def white(self, normals: tf.Tensor) -> tf.Tensor:
        """Real white noise, which is the working noise already."""
        return normals

    def root(self, chol: tf.Tensor) -> tf.Tensor:
        """A real square root of the composite covariance, from a factor in either form."""
        # A proper covariance has the composite covariance of z = L ξ with E|ξ|² = 1.
        return math.sqrt(0.5) * self.basis(chol) if chol.dtype.is_complex else chol

    def invert_blocks(
        self, precision: tf.Tensor, dual: tf.Tensor
    ) -> tuple[tf.Tensor, SecondMoments]:
        """Leave-one-out with blocks of two rows: `B⁻¹ a` and `B⁻¹` of each point."""
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

    def whiten_points(self, noise: SecondMoments, vectors: tf.Tensor) -> tf.Tensor:
        """Working vectors of points, multiplied by the inverse factor of the noise of each."""
        rr, ii, ri = _parts_of_points(noise)
        re, im = tf.split(vectors, 2, axis=-1)
        im = (im - ri / rr * re) * tf.math.rsqrt(ii - ri * ri / rr)
        return tf.concat([re * tf.math.rsqrt(rr), im], axis=-1)

    def log_det_of_points(self, noise: SecondMoments) -> tf.Tensor:
        """The log determinant of the block of two rows of each point."""
        rr, ii, ri = _parts_of_points(noise)
        return tf.math.log(rr * ii - ri * ri)

    def trace_of_points(self, noise: SecondMoments, signal: SecondMoments) -> tf.Tensor:
        """`tr(Σ⁻¹ K)` of the blocks of two rows of each point."""
        (rr, ii, ri), (k_rr, k_ii, k_ri) = _parts_of_points(noise), _parts_of_points(signal)
        return (ii * k_rr + rr * k_ii - 2.0 * ri * k_ri) / (rr * ii - ri * ri)


Form = ProperForm | CompositeForm


def form_of(is_proper: bool) -> Form:
    """The working form of a proper or improper normal."""
    return ProperForm() if is_proper else CompositeForm()


def _parts_of_points(moments: SecondMoments) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """E[re²], E[im²] and E[re im] of variance and pseudo-variance `[..., n]`."""
    k, c = tf.math.real(moments.k), moments.c_or_zeros()
    return 0.5 * (k + tf.math.real(c)), 0.5 * (k - tf.math.real(c)), 0.5 * tf.math.imag(c)


def stack_columns(basis: tf.Tensor) -> tf.Tensor:
    """Stacks real and imaginary parts of columns: complex `[..., n, q]` -> real `[..., 2n, q]`."""
    return tf.concat([tf.math.real(basis), tf.math.imag(basis)], axis=-2)
