"""The complex normal distribution, proper and improper.

It uses the words of TensorFlow Probability's distributions without inheriting from them, for their
base classes refuse complex values.
"""

import math
from typing import NamedTuple

import tensorflow as tf

from cgp.distributions.arguments import (
    apply_to_vectors,
    as_covariance,
    as_vector,
    broadcast_batch,
    check_factor,
    check_finite,
    stateless_seed,
)
from cgp.linalg.cholesky import (
    NotPositiveDefiniteError,
    as_matrix,
    assert_positive_definite,
    log_det,
    real_diagonal,
)
from cgp.linalg.composite import from_composite, join_parts, stack_parts, to_composite
from cgp.linalg.semidefinite import semidefinite_factor


class Ellipses(NamedTuple):
    """Credible ellipses in the complex plane, one for each component; see `ComplexNormal`."""

    center: tf.Tensor
    """Complex, `[..., n]`."""
    semi_major: tf.Tensor
    """Real, `[..., n]`, in the units of z."""
    semi_minor: tf.Tensor
    """Real, `[..., n]`, in the units of z."""
    angle: tf.Tensor
    """Real, `[..., n]`: of the major axis from the real axis, radians, in (−π/2, π/2]."""


class ComplexNormal:
    """A multivariate normal of a complex vector z, proper or improper.

    With mean m, covariance `K = E[(z−m)(z−m)ᴴ]` and pseudo-covariance `C = E[(z−m)(z−m)ᵀ]`:

    - proper, `C = 0`: `log p = −n log π − log|K| − (z−m)ᴴ K⁻¹ (z−m)`;
    - improper: the real normal density of the composite [Re z; Im z], whose covariance is given in
      `cgp.linalg.to_composite`.

    (Schreier & Scharf, *Statistical Signal Processing of Complex-Valued Data*, 2010, §2.3.)

    The covariance may be singular, a factor having zeros on its diagonal: moments and samples are
    then as ever, but no density exists, and `log_prob`, `entropy` and `kl_divergence` raise.

    A subclass that would rather not compute everything at once overrides `mean`, `is_proper`,
    `covariance` and `pseudo_covariance`, and `variance` and `pseudo_variance` if it has them for
    less. The factor then follows from the covariances when something first asks for it, through
    `_factor`, which may be overridden too. All else goes through these.

    Args:
        loc: The mean m, complex64 or complex128, `[..., n]`.
        chol: A lower triangular factor with a real diagonal, not negative. Its dtype says which of
            two: complex like `loc`, `[..., n, n]`, a factor of K (proper); or real of the same
            precision, `[..., 2n, 2n]`, a factor of the covariance of [Re z; Im z] (improper).
            Batch axes broadcast with those of `loc`.

    Raises:
        TypeError: Another dtype.
        ValueError: Shapes that do not fit or, eagerly, a `chol` that is no such factor.

    Example:
        >>> import numpy as np
        >>> import cgp
        >>> normal = cgp.ComplexNormal.from_covariance(
        ...     loc=np.array([1.0 + 1.0j]), covariance=np.array([[2.0 + 0j]])
        ... )
        >>> normal.is_proper, normal.variance().numpy()
        (True, array([2.]))
        >>> round(float(normal.log_prob(np.array([1.0 + 2.0j]))), 6)  # -log(2π) - 1/2
        -2.337877
        >>> normal.sample(5, seed=1).shape
        TensorShape([5, 1])
    """

    _chol: tf.Tensor | None = None

    def __init__(self, loc, chol):
        loc, chol = as_vector(loc, "loc"), as_matrix(chol, "chol", square=True)
        n = loc.shape[-1]
        if chol.dtype not in (loc.dtype, loc.dtype.real_dtype):
            raise TypeError(
                f"chol must be {loc.dtype.name} (proper) or {loc.dtype.real_dtype.name} (improper) "
                f"for a {loc.dtype.name} loc, got {chol.dtype.name}"
            )
        rows = n if chol.dtype.is_complex else None if n is None else 2 * n
        if not chol.shape[-1:].is_compatible_with([rows]):
            kind = "complex" if chol.dtype.is_complex else "real, composite"
            raise ValueError(
                f"a {kind} chol must be [..., {rows}, {rows}] for a loc of shape {loc.shape}, "
                f"got shape {chol.shape}"
            )
        if tf.executing_eagerly():
            check_finite(loc, "loc")
            check_factor(chol)
        self._loc = broadcast_batch(loc, chol.shape[:-2], tf.shape(chol)[:-2], event_rank=1)
        self._chol = chol

    @classmethod
    def from_covariance(cls, loc, covariance, pseudo_covariance=None) -> "ComplexNormal":
        """The normal of a mean, a covariance and, if improper, a pseudo-covariance.

        Args:
            loc: Complex64 or complex128, `[..., n]`.
            covariance: `[..., n, n]`, Hermitian, like `loc` in dtype.
            pseudo_covariance: `[..., n, n]`, symmetric, like `loc` in dtype. Proper if None.

        Returns:
            A `ComplexNormal`. The covariances need be positive semidefinite to rounding only: see
            `cgp.linalg.semidefinite_factor`.

        Raises:
            TypeError: Dtypes that differ or are not complex.
            ValueError: Shapes that do not fit; eagerly, a covariance that is not Hermitian or a
                pseudo-covariance that is not symmetric.
            NotPositiveDefiniteError: No process has these covariances: the covariance is indefinite
                or the pseudo-covariance too large for it. In a graph, `InvalidArgumentError`.

        Example:
            >>> import numpy as np
            >>> import cgp
            >>> normal = cgp.ComplexNormal.from_covariance([0j], [[2.0 + 0j]], [[1.0j]])
            >>> bool(np.allclose(normal.pseudo_variance(), [1.0j]))
            True
            >>> cgp.ComplexNormal.from_covariance([0j], [[2.0 + 0j]], [[3.0j]])
            Traceback (most recent call last):
                ...
            cgp.linalg.cholesky.NotPositiveDefiniteError: no process has ...
        """
        loc = as_vector(loc, "loc")
        pair = [as_covariance(covariance, loc, "covariance")]
        if pseudo_covariance is not None:
            pair.append(as_covariance(pseudo_covariance, loc, "pseudo_covariance"))
            if not pair[0].shape[-2:].is_compatible_with(pair[1].shape[-2:]):
                raise ValueError(
                    f"pseudo_covariance must be shaped like covariance, {pair[0].shape}, "
                    f"got {pair[1].shape}"
                )
        return cls(loc, _covariance_factor(*pair))

    # What a subclass may override.

    @property
    def is_proper(self) -> bool:
        """Whether the pseudo-covariance is zero by construction."""
        return self.chol.dtype.is_complex

    def mean(self) -> tf.Tensor:
        """The mean, complex, `[..., n]`, with all the batch axes."""
        return self._loc

    def covariance(self) -> tf.Tensor:
        """`K = E[(z−m)(z−m)ᴴ]`, complex, `[..., n, n]`, Hermitian."""
        root = self._complex_root()
        return self._to_batch(tf.linalg.matmul(root, root, adjoint_b=True), event_rank=2)

    def pseudo_covariance(self) -> tf.Tensor:
        """`C = E[(z−m)(z−m)ᵀ]`, complex, `[..., n, n]`, symmetric; zeros when proper."""
        if self.is_proper:
            return tf.zeros_like(self.covariance())
        composite = tf.linalg.matmul(self.chol, self.chol, adjoint_b=True)
        return self._to_batch(from_composite(composite)[1], event_rank=2)

    def variance(self) -> tf.Tensor:
        """`E|z−m|²` of each component, real, `[..., n]`; the real and imaginary parts' added."""
        return self._to_batch(tf.reduce_sum(_squared_modulus(self._complex_root()), -1), 1)

    def pseudo_variance(self) -> tf.Tensor:
        """`E[(z−m)²]` of each component, complex, `[..., n]`; zeros when proper."""
        if self.is_proper:
            return tf.zeros_like(self.mean())
        # With real white noise ξ, z − m = root ξ, and E[(root ξ)²] is a plain square.
        return self._to_batch(tf.reduce_sum(self._complex_root() ** 2, -1), 1)

    def _factor(self) -> tf.Tensor:
        """The factor, from the covariances: complex if proper, real composite if not."""
        if self.is_proper:
            return _covariance_factor(self.covariance())
        return _covariance_factor(self.covariance(), self.pseudo_covariance())

    # What follows from it.

    @property
    def chol(self) -> tf.Tensor:
        """The factor: of K, complex `[..., n, n]`, or of the composite, real `[..., 2n, 2n]`."""
        if self._chol is not None:
            return self._chol
        chol = self._factor()
        if not tf.is_symbolic_tensor(chol):  # a tensor of a graph must not outlive it
            self._chol = chol
        return chol

    @property
    def dtype(self) -> tf.DType:
        """complex64 or complex128."""
        return self.mean().dtype

    @property
    def batch_shape(self) -> tf.TensorShape:
        """The shape of a batch of distributions."""
        return self.mean().shape[:-1]

    @property
    def event_shape(self) -> tf.TensorShape:
        """The shape of one draw, `[n]`."""
        return self.mean().shape[-1:]

    def log_prob(self, value) -> tf.Tensor:
        """The log density.

        Args:
            value: z, like the mean in dtype, `[..., n]`: sample axes, if any, before batch axes.

        Returns:
            Real, `[...]`.

        Raises:
            TypeError: Another dtype.
            ValueError: A shape that does not fit or, eagerly, NaN.
            NotPositiveDefiniteError: The covariance is singular, so that no density exists. In a
                graph, `InvalidArgumentError`; under XLA, NaN. What is singular to rounding, yet
                passed for definite, gives a number that is mostly rounding: add noise.
        """
        value = as_vector(value, "value")
        if value.dtype != self.dtype:
            raise TypeError(f"value must be {self.dtype.name}, got {value.dtype.name}")
        if not value.shape[-1:].is_compatible_with(self.event_shape):
            raise ValueError(f"value must be [..., {self.event_shape[0]}], got shape {value.shape}")
        if tf.executing_eagerly():
            check_finite(value, "value")
        deviation = value - self.mean()
        return -self._cross_entropy(deviation if self.is_proper else stack_parts(deviation))

    def sample(self, sample_shape=(), seed=None) -> tf.Tensor:
        """Draws, reproducible from a seed.

        Args:
            sample_shape: Integer or integers.
            seed: Integer, or the two integers of a stateless seed of TensorFlow. None draws one
                from TensorFlow's global generator, which `tf.random.set_seed` sets.

        Returns:
            Complex, `sample_shape + batch_shape + [n]`.
        """
        chol = self.chol
        loc = self.mean()
        shape = tf.reshape(tf.convert_to_tensor(sample_shape, tf.int32), [-1])
        shape = tf.concat([shape, tf.shape(loc)[:-1], [2 * tf.shape(loc)[-1]]], axis=0)
        # The algorithm is named so that a seed draws the same in a graph, under XLA and on a GPU.
        white = tf.random.stateless_normal(
            shape, stateless_seed(seed), dtype=loc.dtype.real_dtype, alg="philox"
        )
        if self.is_proper:  # half of a unit variance to either part
            white = join_parts(math.sqrt(0.5) * white)
        draws = apply_to_vectors(tf.linalg.matmul, chol, white)
        return loc + (draws if self.is_proper else join_parts(draws))

    def entropy(self) -> tf.Tensor:
        """The differential entropy, real, batch-shaped: `n log(πe) + log|K|` when proper.

        Raises:
            NotPositiveDefiniteError: The covariance is singular.
        """
        return self._to_batch(self._log_normaliser(self._density_chol()) + self._dimension(), 0)

    def kl_divergence(self, other: "ComplexNormal") -> tf.Tensor:
        """The Kullback-Leibler divergence `E_self[log p_self − log p_other]`, real, batch-shaped.

        Args:
            other: A normal of the same n and dtype, proper or not.

        Raises:
            TypeError: Another dtype, or no `ComplexNormal`.
            ValueError: Another number of components.
            NotPositiveDefiniteError: A covariance of the two is singular.
        """
        if not isinstance(other, ComplexNormal):
            raise TypeError(f"other must be a ComplexNormal, got {type(other).__name__}")
        if other.dtype != self.dtype:
            raise TypeError(f"other must be {self.dtype.name}, got {other.dtype.name}")
        if not other.event_shape.is_compatible_with(self.event_shape):
            raise ValueError(
                f"other must have event shape {self.event_shape}, got {other.event_shape}"
            )
        # −E log p_other: the spread of self, through a square root of it (need not be triangular)
        # in the coordinates of other, adds to the squared distance of the means.
        deviation = self.mean() - other.mean()
        root = self._complex_root() if other.is_proper else self._real_root()
        chol = other._density_chol()
        spread = _squared_modulus(tf.linalg.triangular_solve(chol, root))
        cross = other._cross_entropy(deviation if other.is_proper else stack_parts(deviation))
        return (cross + other._half() * tf.reduce_sum(spread, axis=[-2, -1])) - self.entropy()

    def ellipses(self, probability: float = 0.95) -> Ellipses:
        """The ellipse of each component that holds it with a probability.

        A component is a normal vector of the plane. Its 2×2 covariance has the eigenvalues
        `(variance ± |pseudo_variance|)/2`, the larger one along `½ arg(pseudo_variance)`; the
        ellipse of probability p has semi-axes `sqrt(−2 ln(1−p) eigenvalue)` (Schreier & Scharf,
        2010, §1.3).

        Args:
            probability: Between 0 and 1, exclusive.

        Returns:
            `Ellipses(center, semi_major, semi_minor, angle)`, each `[..., n]`; circles, with
            angle 0, when proper.

        Raises:
            ValueError: A probability out of range.
        """
        squared_radius = chi_squared_radius(probability)
        variance, pseudo_variance = self.variance(), self.pseudo_variance()
        modulus = tf.abs(pseudo_variance)
        smaller = tf.maximum(variance - modulus, 0.0)  # −0.0 and rounding, of a line segment
        return Ellipses(
            center=self.mean(),
            semi_major=tf.sqrt(0.5 * squared_radius * (variance + modulus)),
            semi_minor=tf.sqrt(0.5 * squared_radius * smaller),
            angle=0.5 * tf.math.angle(pseudo_variance),
        )

    def __repr__(self) -> str:
        kind = "proper" if self.is_proper else "improper"
        return (
            f"ComplexNormal({kind}, batch_shape={self.batch_shape}, "
            f"event_shape={self.event_shape}, dtype={self.dtype.name})"
        )

    # The two densities differ in their coordinates (z or its composite, d of them) and in a half:
    # −log p = half · (d log(π / half) + log|A| + |L⁻¹ deviation|²).

    def _half(self) -> float:
        return 1.0 if self.is_proper else 0.5

    def _dimension(self) -> tf.Tensor:
        """n, which is what the quadratic term of −log p is on average in either case."""
        return tf.cast(tf.shape(self.mean())[-1], self.dtype.real_dtype)

    def _log_normaliser(self, chol: tf.Tensor) -> tf.Tensor:
        half = self._half()
        size = tf.cast(tf.shape(chol)[-1], self.dtype.real_dtype)
        return half * (size * math.log(math.pi / half) + log_det(chol))

    def _cross_entropy(self, deviation: tf.Tensor) -> tf.Tensor:
        """−log p at a deviation from the mean in the coordinates of the factor."""
        chol = self._density_chol()
        white = apply_to_vectors(tf.linalg.triangular_solve, chol, deviation)
        distance = tf.reduce_sum(_squared_modulus(white), axis=-1)
        return self._log_normaliser(chol) + self._half() * distance

    def _density_chol(self) -> tf.Tensor:
        """The factor, when it is one of a density."""
        chol = self.chol
        return assert_positive_definite(
            tf.reduce_all(real_diagonal(chol) > 0, axis=-1), chol, _SINGULAR
        )

    def _complex_root(self) -> tf.Tensor:
        """`S` with `K = S Sᴴ`: the factor, or if improper `[..., n, 2n]` with `C = S Sᵀ` too."""
        if self.chol.dtype.is_complex:
            return self.chol
        return tf.complex(*tf.split(self.chol, 2, axis=-2))

    def _real_root(self) -> tf.Tensor:
        """A square root of the composite covariance, `[..., 2n, 2n]`, triangular or not."""
        if not self.is_proper:
            return self.chol
        re, im = tf.math.real(self.chol), tf.math.imag(self.chol)
        rows = [tf.concat([re, -im], axis=-1), tf.concat([im, re], axis=-1)]
        return math.sqrt(0.5) * tf.concat(rows, axis=-2)

    def _to_batch(self, moment: tf.Tensor, event_rank: int) -> tf.Tensor:
        mean = self.mean()
        return broadcast_batch(moment, mean.shape[:-1], tf.shape(mean)[:-1], event_rank)


_SINGULAR = (
    "the covariance is singular, so that no density exists: give the distribution some noise, or "
    "ask for what needs no density (moments, samples, ellipses)"
)


def chi_squared_radius(probability: float) -> float:
    """The squared radius that holds a two-dimensional unit normal with a probability."""
    if not 0.0 < probability < 1.0:
        raise ValueError(f"probability must lie between 0 and 1, got {probability}")
    return -2.0 * math.log1p(-probability)


def _covariance_factor(covariance: tf.Tensor, pseudo_covariance=None) -> tf.Tensor:
    if pseudo_covariance is None:
        return semidefinite_factor(covariance)
    try:
        return semidefinite_factor(to_composite(covariance, pseudo_covariance))
    except NotPositiveDefiniteError as error:
        raise NotPositiveDefiniteError(
            "no process has this covariance and pseudo-covariance: the covariance of "
            f"[Re z; Im z] that they make must be positive semidefinite, but {error}"
        ) from None


def _squared_modulus(z: tf.Tensor) -> tf.Tensor:
    """|z|², whose gradient is finite at 0, where that of the modulus is not."""
    return tf.math.real(z * tf.math.conj(z)) if z.dtype.is_complex else z * z
