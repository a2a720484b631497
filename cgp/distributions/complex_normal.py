"""The complex normal distribution, proper and improper, and the credible ellipses of components.

The methods of the distribution are named as in TensorFlow Probability, whose base classes refuse
complex values, so it does not inherit from them.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from cgp.autograph import as_it_stands
from cgp.distributions.forms import Form, SecondMoments, form_of
from cgp.linalg.arguments import (
    ArrayLike,
    as_complex_vector,
    as_matrix,
    as_numbers,
    as_sample_shape,
    check_batches,
    check_finite,
    has_positive_diagonal,
    hermitian_gap,
    squared_modulus,
    stateless_seed,
)
from cgp.linalg.cholesky import (
    NotPositiveDefiniteError,
    as_factor,
    assert_positive_definite,
    log_det,
)
from cgp.linalg.semidefinite import semidefinite_factor
from cgp.linalg.short_repr import short_repr


class ComplexNormal:
    """A multivariate normal of a complex vector z, proper or improper.

    With mean m, covariance `K = E[(z−m)(z−m)ᴴ]` and pseudo-covariance `C = E[(z−m)(z−m)ᵀ]`:

    - proper, `C = 0`: `log p = −n log π − log|K| − (z−m)ᴴ K⁻¹ (z−m)`;
    - improper: the real normal density of the composite [Re z; Im z], whose covariance is given in
      `cgp.linalg.to_composite`.

    (Schreier & Scharf, *Statistical Signal Processing of Complex-Valued Data*, 2010, §2.3.)

    The covariance may be singular, with zeros on the diagonal of its factor. Moments and samples
    exist then, but no density does, and `log_prob`, `entropy` and `kl_divergence` raise an error.

    A subclass may compute its moments lazily. It overrides `mean`, `is_proper`, `covariance` and
    `pseudo_covariance`, and also `variance` and `pseudo_variance` where they cost less. The factor
    is then computed from the covariances at first use, by `_factor`, which may be overridden too.
    All other methods use these.

    Args:
        loc: The mean m, complex64 or complex128, `[..., n]`.
        chol: A lower triangular factor, its diagonal real and not negative. With the complex dtype
            of `loc` it is a factor of K, `[..., n, n]` (proper); with the real dtype of the same
            precision it is a factor of the covariance of [Re z; Im z], `[..., 2n, 2n]`
            (improper). Batch axes broadcast with those of `loc`.

    Raises:
        TypeError: Another dtype.
        ValueError: Shapes that do not fit or, eagerly, a `chol` that is not such a factor.

    Example:
        >>> import numpy as np, cgp
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

    def __init__(self, loc: ArrayLike, chol: ArrayLike) -> None:
        loc = as_complex_vector(loc, "loc")
        chol = as_matrix(chol, "chol", square=True, like=loc)
        n = loc.shape[-1]
        if chol.dtype not in (loc.dtype, loc.dtype.real_dtype):
            z, real = loc.dtype.name, loc.dtype.real_dtype.name
            expected = f"{z} (proper) or {real} (improper) for a {z} loc"
            raise TypeError(f"chol must be {expected}, got {chol.dtype.name}")
        rows = n if chol.dtype.is_complex else None if n is None else 2 * n
        if not chol.shape[-1:].is_compatible_with([rows]):
            kind = "complex" if chol.dtype.is_complex else "real, composite"
            expected = f"[..., {rows}, {rows}] for a loc of shape {loc.shape}"
            raise ValueError(f"a {kind} chol must be {expected}, got shape {chol.shape}")
        if tf.executing_eagerly():
            check_finite(loc, "loc")
            check_finite(chol, "chol")
            as_factor(chol, singular=True)
        self._loc = broadcast_batch(loc, chol.shape[:-2], tf.shape(chol)[:-2], event_rank=1)
        self._chol = chol

    @classmethod
    def from_covariance(
        cls, loc: ArrayLike, covariance: ArrayLike, pseudo_covariance: ArrayLike | None = None
    ) -> "ComplexNormal":
        """The distribution of a given mean, covariance and, if improper, pseudo-covariance.

        Args:
            loc: Complex64 or complex128, `[..., n]`.
            covariance: `[..., n, n]`, Hermitian, like `loc` in dtype. It may be positive
                semidefinite up to rounding: see `cgp.linalg.semidefinite_factor`.
            pseudo_covariance: `[..., n, n]`, symmetric, like `loc` in dtype. Proper if None.

        Raises:
            TypeError: Dtypes that differ or are not complex.
            ValueError: Shapes that do not fit; eagerly, a covariance that is not Hermitian or a
                pseudo-covariance that is not symmetric.
            NotPositiveDefiniteError: The covariance is indefinite, or the pseudo-covariance too
                large for it. In a graph this is TensorFlow's `InvalidArgumentError`.

        Example:
            >>> import numpy as np, cgp
            >>> normal = cgp.ComplexNormal.from_covariance([0j], [[2.0 + 0j]], [[1.0j]])
            >>> bool(np.allclose(normal.pseudo_variance(), [1.0j]))
            True
            >>> cgp.ComplexNormal.from_covariance([0j], [[2.0 + 0j]], [[3.0j]])
            Traceback (most recent call last):
                ...
            cgp.NotPositiveDefiniteError: no process has ...
        """
        loc = as_complex_vector(loc, "loc")
        pair = [as_covariance(covariance, loc, "covariance")]
        if pseudo_covariance is not None:
            pair.append(as_covariance(pseudo_covariance, loc, "pseudo_covariance"))
            k, c = (moment.shape for moment in pair)
            if not k[-2:].is_compatible_with(c[-2:]):
                raise ValueError(f"pseudo_covariance must be shaped like covariance, {k}, got {c}")
        return cls(loc, _covariance_factor(SecondMoments(*pair)))

    # Methods that a subclass may override.

    @property
    def is_proper(self) -> bool:
        """Whether the pseudo-covariance is zero by construction."""
        return self.chol.dtype.is_complex

    def mean(self) -> tf.Tensor:
        """The mean, complex, `[..., n]`, with all batch axes."""
        return self._loc

    def covariance(self) -> tf.Tensor:
        """The covariance `K = E[(z−m)(z−m)ᴴ]`, complex, `[..., n, n]`, Hermitian."""
        return self._to_batch(self._covariances_of_factor().k, event_rank=2)

    def pseudo_covariance(self) -> tf.Tensor:
        """The pseudo-covariance `C = E[(z−m)(z−m)ᵀ]`, complex, symmetric; zeros if proper."""
        return self._to_batch(self._covariances_of_factor().c_or_zeros(), event_rank=2)

    @as_it_stands
    def variance(self) -> tf.Tensor:
        """The variance of each component, `E|z−m|²`, real, `[..., n]`: of both parts together."""
        return self._to_batch(tf.math.real(self._variances_of_factor().k), event_rank=1)

    @as_it_stands
    def pseudo_variance(self) -> tf.Tensor:
        """The pseudo-variance of each component, `E[(z−m)²]`, complex, `[..., n]`; 0 if proper."""
        return self._to_batch(self._variances_of_factor().c_or_zeros(), event_rank=1)

    def _factor(self) -> tf.Tensor:
        """The factor computed from the covariances: complex if proper, else real composite."""
        c = None if self.is_proper else self.pseudo_covariance()
        return _covariance_factor(SecondMoments(self.covariance(), c))

    # Methods computed from those above.

    @property
    def chol(self) -> tf.Tensor:
        """The Cholesky factor of K, complex `[..., n, n]`, or of the composite, `[..., 2n, 2n]`."""
        if self._chol is not None:
            return self._chol
        chol = self._factor()
        if not tf.is_symbolic_tensor(chol):  # a tensor of a graph must not outlive it
            self._chol = chol
        return chol

    @property
    def dtype(self) -> tf.DType:
        """The dtype of the mean and of samples, complex64 or complex128."""
        return self.mean().dtype

    @property
    def batch_shape(self) -> tf.TensorShape:
        """The static batch shape."""
        return self.mean().shape[:-1]

    @property
    def event_shape(self) -> tf.TensorShape:
        """The static shape of a sample, `[n]`."""
        return self.mean().shape[-1:]

    def batch_shape_tensor(self) -> tf.Tensor:
        """The batch shape as a tensor, int32."""
        return tf.shape(self.mean())[:-1]

    def event_shape_tensor(self) -> tf.Tensor:
        """The shape of a sample as a tensor, int32, `[n]`."""
        return tf.shape(self.mean())[-1:]

    @as_it_stands
    def log_prob(self, value: ArrayLike) -> tf.Tensor:
        """The log density.

        Args:
            value: z, of the dtype of the mean, `[..., n]`; sample axes come before batch axes.

        Returns:
            Real, `[...]`.

        Raises:
            TypeError: Another dtype.
            ValueError: A shape that does not fit or, eagerly, NaN.
            NotPositiveDefiniteError: The covariance is singular, so that no density exists. In a
                graph this is TensorFlow's `InvalidArgumentError`; under XLA the result is NaN. A
                covariance that is singular up to rounding, but has a Cholesky factor, gives a
                number that is mostly rounding: add noise.
        """
        value = as_complex_vector(value, "value", like=self.mean())
        if value.dtype != self.dtype:
            raise TypeError(f"value must be {self.dtype.name}, got {value.dtype.name}")
        if not value.shape[-1:].is_compatible_with(self.event_shape):
            raise ValueError(f"value must be [..., {self.event_shape[0]}], got shape {value.shape}")
        if tf.executing_eagerly():
            check_finite(value, "value")
        check_batches(value=(value, 1), mean=(self.mean(), 1))
        chol = self._density_chol()
        distance = self._squared_distance(chol, value - self.mean())
        return -self._negative_log_density(chol, distance)

    def prob(self, value: ArrayLike) -> tf.Tensor:
        """The density, real, `[...]`; see `log_prob`."""
        return tf.exp(self.log_prob(value))

    def mode(self) -> tf.Tensor:
        """The mode of the density, which is the mean."""
        return self.mean()

    def stddev(self) -> tf.Tensor:
        """The standard deviation of each component, real, `[..., n]`."""
        return tf.sqrt(self.variance())

    @as_it_stands
    def sample(self, sample_shape: ArrayLike = (), seed: ArrayLike | None = None) -> tf.Tensor:
        """Random samples, reproducible from a seed.

        Args:
            sample_shape: Integer or integers, not negative.
            seed: Integer, or the two integers of a stateless seed of TensorFlow. None draws one
                from TensorFlow's global generator, which `tf.random.set_seed` sets.

        Returns:
            Complex, `sample_shape + batch_shape + [n]`.

        Raises:
            ValueError: An invalid sample shape or seed.
        """
        loc = self.mean()
        shape = [as_sample_shape(sample_shape), tf.shape(loc)[:-1], [2 * tf.shape(loc)[-1]]]
        # With a fixed algorithm a seed gives the same samples eagerly, under XLA and on a GPU.
        normals = tf.random.stateless_normal(
            tf.concat(shape, axis=0), stateless_seed(seed), dtype=loc.dtype.real_dtype, alg="philox"
        )
        draws = apply_to_vectors(tf.linalg.matmul, self.chol, self._form.white(normals))
        return loc + self._form.join(draws)

    @as_it_stands
    def entropy(self) -> tf.Tensor:
        """The differential entropy, real, batch-shaped: `n log(πe) + log|K|` when proper.

        Raises:
            NotPositiveDefiniteError: The covariance is singular.
        """
        chol = self._density_chol()
        spread = self._size() / self._form.scale  # the expected squared distance of z
        return self._to_batch(self._negative_log_density(chol, spread), event_rank=0)

    @as_it_stands
    def kl_divergence(self, other: "ComplexNormal") -> tf.Tensor:
        """The Kullback-Leibler divergence `E_self[log p_self − log p_other]`, real, batch-shaped.

        Args:
            other: A normal of the same n and dtype, proper or not.

        Raises:
            TypeError: `other` has another dtype, or is not a `ComplexNormal`.
            ValueError: Another number of components, or batch shapes that do not fit.
            NotPositiveDefiniteError: One of the covariances is singular.
        """
        if not isinstance(other, ComplexNormal):
            raise TypeError(f"other must be a ComplexNormal, got {type(other).__name__}")
        if other.dtype != self.dtype:
            raise TypeError(f"other must be {self.dtype.name}, got {other.dtype.name}")
        shape = self.event_shape
        if not other.event_shape.is_compatible_with(shape):
            raise ValueError(f"other must have event shape {shape}, got {other.event_shape}")
        check_batches(mean=(self.mean(), 1), other_mean=(other.mean(), 1))
        # −E log p_other: the covariance of self, whitened by the factor of other, adds its trace to
        # the squared distance of the means. Any square root of it will do.
        chol = other._density_chol()
        root = tf.linalg.triangular_solve(chol, other._form.root(self.chol))
        spread = tf.reduce_sum(squared_modulus(root), axis=[-2, -1])
        distance = other._squared_distance(chol, self.mean() - other.mean())
        return other._negative_log_density(chol, distance + spread) - self.entropy()

    def ellipses(self, probability: float = 0.95) -> "Ellipses":
        """The credible ellipse of each component in the complex plane.

        The 2×2 covariance of its two parts has eigenvalues `(variance ± |pseudo_variance|)/2`,
        the larger one along `½ arg(pseudo_variance)`; the ellipse of probability p has semi-axes
        `sqrt(−2 ln(1−p) eigenvalue)` (Schreier & Scharf, 2010, §1.3).

        Args:
            probability: Between 0 and 1, exclusive.

        Returns:
            `Ellipses(center, semi_major, semi_minor, angle)`, each `[..., n]`; circles, with
            angle 0, if proper.

        Raises:
            ValueError: A probability out of range.
        """
        return ellipses(self.mean(), self.variance(), self.pseudo_variance(), probability)

    def __repr__(self) -> str:
        kind = "proper" if self.is_proper else "improper"
        shapes = f"batch_shape={self.batch_shape}, event_shape={self.event_shape}"
        return f"ComplexNormal({kind}, {shapes}, dtype={self.dtype.name})"

    @functools.cached_property
    def _form(self) -> Form:
        """The working form of the factor: complex if proper, else real composite."""
        return form_of(self.is_proper)

    def _variances_of_factor(self) -> SecondMoments:
        return self._form.marginal(tf.linalg.adjoint(self.chol))

    def _covariances_of_factor(self) -> SecondMoments:
        return self._form.moments(tf.linalg.matmul(self.chol, self.chol, adjoint_b=True))

    def _size(self) -> tf.Tensor:
        """The number of components n, real; it is also the mean of the quadratic term of −log p."""
        return tf.cast(tf.shape(self.mean())[-1], self.dtype.real_dtype)

    def _negative_log_density(self, chol: tf.Tensor, distance: tf.Tensor) -> tf.Tensor:
        """−log p at a squared distance `|L⁻¹ (z − m)|²` from the mean."""
        form = self._form
        return form.scale * (log_det(chol) + distance) + self._size() * form.log_normalizer

    def _squared_distance(self, chol: tf.Tensor, deviation: tf.Tensor) -> tf.Tensor:
        """The squared distance `|L⁻¹ (z − m)|²` of a complex deviation `z − m`."""
        deviation = self._form.split(deviation)
        white = apply_to_vectors(tf.linalg.triangular_solve, chol, deviation)
        return tf.reduce_sum(squared_modulus(white), axis=-1)

    def _density_chol(self) -> tf.Tensor:
        """The factor, or an error if the covariance is singular."""
        chol = self.chol
        return assert_positive_definite(has_positive_diagonal(chol), chol, _SINGULAR)

    def _to_batch(self, moment: tf.Tensor, event_rank: int) -> tf.Tensor:
        mean = self.mean()
        return broadcast_batch(moment, mean.shape[:-1], tf.shape(mean)[:-1], event_rank)


_SINGULAR = (
    "the covariance is singular, so that no density exists: add noise to its diagonal, or use what "
    "needs no density (moments, samples, ellipses)"
)


def _covariance_factor(moments: SecondMoments) -> tf.Tensor:
    is_proper = moments.c is None
    try:
        return semidefinite_factor(form_of(is_proper).covariance(moments))
    except NotPositiveDefiniteError as error:
        if is_proper:
            raise
        raise NotPositiveDefiniteError(
            "no process has this covariance and pseudo-covariance: the covariance of "
            f"[Re z; Im z] that follows from them must be positive semidefinite, but {error}"
        ) from None


def as_covariance(a: ArrayLike, loc: tf.Tensor, name: str) -> tf.Tensor:
    """Converts a covariance `[..., n, n]` to a tensor, and checks it against the mean `[..., n]`.

    It is Hermitian; symmetric if its name is "pseudo_covariance".

    Raises:
        TypeError: A dtype other than the dtype of `loc`.
        ValueError: A shape that does not fit; eagerly, NaN, or not Hermitian or symmetric.
    """
    a = as_matrix(a, name, square=True, like=loc)
    n = loc.shape[-1]
    if a.dtype != loc.dtype:
        raise TypeError(f"{name} must be {loc.dtype.name} like loc, got {a.dtype.name}")
    if not a.shape[-1:].is_compatible_with([n]):
        expected = f"[..., {n}, {n}] for a loc of shape {loc.shape}"
        raise ValueError(f"{name} must be {expected}, got shape {a.shape}")
    if tf.executing_eagerly():
        check_finite(a, name)
        symmetric = name == "pseudo_covariance"
        gap = hermitian_gap(a, symmetric)
        if gap:
            kind, mirrored = ("symmetric", "transpose") if symmetric else ("Hermitian", "adjoint")
            raise ValueError(f"{name} must be {kind}: it differs from its {mirrored} by {gap:.3g}")
    return a


def apply_to_vectors(
    operation: Callable[[tf.Tensor, tf.Tensor], tf.Tensor], matrix: tf.Tensor, vectors: tf.Tensor
) -> tf.Tensor:
    """Applies `operation(matrix, columns)` to vectors with sample axes before the batch axes.

    Vectors along the sample axes become columns, so that each matrix is used once.

    Args:
        operation: A product or a solve, as `tf.linalg.matmul` and `tf.linalg.triangular_solve`.
        matrix: `[..., d, d]`.
        vectors: `[..., d]`, with as many batch axes as `matrix`, or more.
    """
    extra = (vectors.shape.rank - 1) - (matrix.shape.rank - 2)
    if extra <= 0:
        return operation(matrix, vectors[..., None])[..., 0]
    shape = tf.shape(vectors)
    samples, event = shape[:extra], shape[extra:]
    count = tf.reduce_prod(samples)
    # This only swaps axes; no conjugation is meant.
    columns = tf.linalg.matrix_transpose(tf.reshape(vectors, [count, tf.reduce_prod(event)]))
    result = operation(matrix, tf.reshape(columns, tf.concat([event, [count]], axis=0)))
    event = tf.shape(result)[:-1]
    rows = tf.linalg.matrix_transpose(tf.reshape(result, [tf.reduce_prod(event), count]))
    return tf.reshape(rows, tf.concat([samples, event], axis=0))


def broadcast_batch(
    tensor: tf.Tensor, batch: tf.TensorShape, dynamic_batch: tf.Tensor, event_rank: int
) -> tf.Tensor:
    """Broadcasts the batch axes of `tensor` against a batch shape, given static and dynamic."""
    rank = tensor.shape.rank - event_rank
    tensor_batch, event = tensor.shape[:rank], tf.shape(tensor)[rank:]
    try:
        tf.broadcast_static_shape(tensor_batch, batch)
    except ValueError:
        raise ValueError(f"batch shapes {tensor_batch} and {batch} do not broadcast") from None
    if tensor_batch.is_fully_defined() and tensor_batch == batch:
        return tensor
    together = tf.broadcast_dynamic_shape(tf.shape(tensor)[:rank], dynamic_batch)
    return tf.broadcast_to(tensor, tf.concat([together, event], axis=0))


@short_repr
class Ellipses(NamedTuple):
    """Credible ellipses in the complex plane, one for each component."""

    center: tf.Tensor
    """The mean, complex, `[..., n]`."""
    semi_major: tf.Tensor
    """The semi-major axis, real, `[..., n]`, in the units of z."""
    semi_minor: tf.Tensor
    """The semi-minor axis, real, `[..., n]`, in the units of z."""
    angle: tf.Tensor
    """Angle of the major axis from the real axis, real, `[..., n]`, radians, in (−π/2, π/2]."""


@short_repr
class PrincipalAxes(NamedTuple):
    """The principal axes of the covariances of [Re z; Im z], one for each component."""

    larger: tf.Tensor
    """Variance along the major axis, real, `[...]`."""
    smaller: tf.Tensor
    """Variance along the minor axis, real, `[...]`, not negative."""
    angle: tf.Tensor
    """Angle of the major axis from the real axis, radians, in (−π/2, π/2]; 0 if proper."""


def principal_axes(variance: ArrayLike, pseudo_variance: ArrayLike) -> PrincipalAxes:
    """The principal axes of components of given variance and pseudo-variance.

    The eigenvalues of the covariance of [Re z; Im z] are `(variance ± |pseudo_variance|)/2`, the
    larger one along `½ arg(pseudo_variance)` (Schreier & Scharf, 2010, §1.3).

    Args:
        variance: `E|z−m|²`, real, `[...]`.
        pseudo_variance: `E[(z−m)²]`, complex, `[...]`. The result has its precision.

    Returns:
        `PrincipalAxes(larger, smaller, angle)`, each real, `[...]`.

    Raises:
        TypeError: A complex variance, or not numbers.
        ValueError: Two shapes; eagerly, a variance that is negative, or below the modulus of the
            pseudo-variance, beyond rounding.

    Example:
        >>> import numpy as np
        >>> from cgp.distributions import principal_axes
        >>> larger, smaller, angle = principal_axes(np.array([3.0]), np.array([1.0j]))
        >>> larger.numpy(), smaller.numpy(), angle.numpy().round(3)  # π/4
        (array([2.]), array([1.]), array([0.785]))
    """
    variance, pseudo_variance = _as_variances(variance, pseudo_variance)
    modulus = tf.abs(pseudo_variance)
    return PrincipalAxes(
        # Rounding may leave −1e-17, or −0.0, where the ellipse is a point or a line segment.
        larger=0.5 * tf.maximum(variance + modulus, 0.0),
        smaller=0.5 * tf.maximum(variance - modulus, 0.0),
        angle=0.5 * tf.math.angle(pseudo_variance),
    )


def _as_variances(variance: ArrayLike, pseudo_variance: ArrayLike) -> tuple[tf.Tensor, tf.Tensor]:
    """A variance and a pseudo-variance of one component, checked, as tensors of one precision."""
    v = tf.convert_to_tensor(as_numbers(variance, "variance"))
    w = tf.convert_to_tensor(as_numbers(pseudo_variance, "pseudo_variance"))
    if v.dtype.is_complex:
        raise TypeError(f"variance must be real, got {v.dtype.name}")
    shapes = f"{v.shape} and {w.shape}"
    if not v.shape.is_compatible_with(w.shape):
        raise ValueError(f"variance and pseudo_variance must have one shape, got {shapes}")
    if w.dtype.is_integer:
        w = tf.cast(w, tf.float64)
    v = tf.cast(v, w.dtype.real_dtype)
    if tf.executing_eagerly() and tf.size(v):
        # Wide, because a posterior variance has the rounding of the prior variance.
        tolerance = (1e-6 if v.dtype == tf.float64 else 1e-3) * tf.reduce_max(tf.abs(v))
        impossible = tf.math.count_nonzero(tf.abs(w) - v > tolerance)
        if impossible:
            raise ValueError(
                f"{int(impossible)} of {int(tf.size(v))} points have a variance that is negative, "
                "or less than the modulus of their pseudo-variance"
            )
    return v, w


def ellipses(
    center: ArrayLike, variance: ArrayLike, pseudo_variance: ArrayLike, probability: float
) -> Ellipses:
    """The credible ellipses of components of given mean, variance and pseudo-variance.

    The semi-axes are the standard deviations along the principal axes times the root of
    `squared_radius`.

    Args:
        center: Means, complex, `[...]`.
        variance: As for `principal_axes`.
        pseudo_variance: As for `principal_axes`.
        probability: Of the ellipse, between 0 and 1, exclusive.

    Returns:
        `Ellipses(center, semi_major, semi_minor, angle)`, each `[...]`.

    Raises:
        TypeError, ValueError: As for `principal_axes`; a probability out of range.

    Example:
        >>> import numpy as np
        >>> from cgp.distributions import ellipses
        >>> drawn = ellipses(np.array([0j]), np.array([3.0]), np.array([1.0j]), probability=0.95)
        >>> (drawn.semi_major / drawn.semi_minor).numpy().round(3)  # of variances 2 and 1
        array([1.414])
    """
    factor = squared_radius(probability)
    larger, smaller, angle = principal_axes(variance, pseudo_variance)
    center = tf.convert_to_tensor(as_numbers(center, "center"))
    if not center.shape.is_compatible_with(larger.shape):
        shapes = f"{larger.shape}, got {center.shape}"
        raise ValueError(f"center must have the shape of the variances, {shapes}")
    return Ellipses(center, tf.sqrt(factor * larger), tf.sqrt(factor * smaller), angle)


def squared_radius(probability: float) -> float:
    """The squared radius of the circle that holds a standard normal of two dimensions.

    This is the quantile `−2 ln(1−p)` of the chi-squared distribution with two degrees of freedom.

    Args:
        probability: p, between 0 and 1, exclusive.

    Raises:
        ValueError: A probability out of range.

    Example:
        >>> from cgp.distributions import squared_radius
        >>> round(squared_radius(0.95), 3)
        5.991
    """
    check_probability(probability)
    return -2.0 * math.log1p(-probability)


def check_probability(probability: float, name: str = "probability") -> None:
    """Raises unless a probability is a number between 0 and 1, exclusive."""
    if not isinstance(probability, int | float | np.number):
        raise TypeError(f"{name} must be a number between 0 and 1, got {probability!r}")
    if not 0.0 < probability < 1.0:
        percent = f": as a fraction, {probability / 100:g}" if 2 <= probability < 100 else ""
        raise ValueError(f"{name} must lie between 0 and 1, got {probability}{percent}")
