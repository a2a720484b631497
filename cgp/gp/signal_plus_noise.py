"""A complex Gaussian process observed in noise, and the log marginal likelihood of its data.

With y the targets, K their covariance and H the basis of a trend whose coefficients have a flat
prior (Rasmussen & Williams, 2006, §2.7; without a trend P = K⁻¹, and A is absent),

    log p = −s (yᴴ P y + log|K| + log|A|) + constant,    A = Hᴴ K⁻¹ H,
    P = K⁻¹ − K⁻¹ H A⁻¹ Hᴴ K⁻¹,

s being 1 for a proper complex normal and ½ for a real one. Its gradient by K is −s (P − a aᴴ) with
a = P y: one inverse from the factor at hand, where a tape through the factorisation would cost
several. Everything is computed from the factor, L Lᴴ = K, and in whitened coordinates,
where H becomes L⁻¹ H = Q R with orthonormal columns Q.
"""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from cgp.distributions.forms import SecondMoments, form_of, stack_columns
from cgp.gp.data import Data
from cgp.gp.means import Mean
from cgp.gp.noise import COMMON_NOISE, SampleNoise
from cgp.kernels.base import Kernel, Sum
from cgp.kernels.functionals import VALUES, Functional, moments_of_samples
from cgp.likelihoods.base import Likelihood
from cgp.linalg import cholesky, inverse, log_det, stored_cholesky, toeplitz
from cgp.linalg.arguments import as_complex, is_nan, squared_modulus
from cgp.linalg.composite import interleave
from cgp.training.parameters import Parameter, named_parameters


class SignalPlusNoise:
    """The observation model `z = f(x) + n`, `f ~ GP(mean, kernel)`, complex or real composite.

    Args:
        kernel: Second moments of f.
        mean: Mean of f, or None for zero.
        noise_variance: `E|n|²`, or one for each group of samples. The known part of the noise of
            a sample is added to it.
        noise_circularity: `E[n²] / E|n|²` of the learned part, or None for circular noise. The
            known part is circular.
        noise_scale: What the known part is multiplied by, or None for 1.
        noise_fraction: The deviation of the noise that follows the signal, over `|f|`, or None for
            none. It is circular.
        by_point: Whether the working coordinates of data come point after point, for factors that
            gain and lose points at the end; the composite has all real parts first otherwise. New
            points of predictions keep the order of the form.
        likelihood: The likelihood of the data given the signal; None for normal noise.
    """

    def __init__(
        self,
        kernel: Kernel,
        mean: Mean | None,
        noise_variance: Parameter,
        noise_circularity: Parameter | None,
        noise_scale: Parameter | None = None,
        noise_fraction: Parameter | None = None,
        by_point: bool = False,
        likelihood: Likelihood | None = None,
    ):
        self._covariance_function, self._mean_function = kernel, mean
        of_kernel = (p for layer in kernel.walk() for p in layer.own_parameters)
        self._left_out_at_first = tuple(p for p in of_kernel if p.initial is None)
        self.noise_variance, self.noise_circularity = noise_variance, noise_circularity
        self.noise_scale, self.noise_fraction = noise_scale, noise_fraction
        self._has_real_coefficients = mean is not None and mean.has_real_coefficients
        self.likelihood = likelihood
        self.is_proper = (
            kernel.is_proper
            and noise_circularity is None
            and not self._has_real_coefficients
            and (likelihood is None or likelihood.is_circular)
        )
        self.form = form_of(self.is_proper)
        self._by_point = by_point and self.form.multiplicity > 1

    @property
    def outputs(self) -> int | None:
        """The number of outputs of the kernel; None for one signal."""
        return self._covariance_function.outputs

    @property
    def noise_is_by_output(self) -> bool:
        """Whether each of several outputs has a noise variance of its own."""
        return tuple(self.noise_variance.variable.shape) == (self.outputs,)

    @property
    def noise_is_of_samples(self) -> bool:
        """Whether the noise of a sample is normal, and does not depend on the signal."""
        return self.likelihood is None and self.noise_fraction is None

    @property
    def is_toeplitz(self) -> bool:
        """Whether the covariance of a regular line of samples is Toeplitz, in double precision."""
        is_plain = self.noise_is_of_samples and not len(self.noise_variance.variable.shape)
        is_scalar = self.is_proper and self.outputs is None
        is_double = self.noise_variance.variable.dtype == "float64"
        return is_plain and is_scalar and is_double and self._covariance_function.is_stationary

    @property
    def weights(self) -> list[keras.Variable]:
        """The weights that covariances of observations depend on.

        The weights of the mean are included only under a likelihood, whose normal noise depends on
        the signal.
        """
        mean = None if self.likelihood is None else self._mean_function
        of_mean = [] if mean is None else mean.weights
        of_noise = [v for p in self._noise_parameters for v in p.variables]
        return [*of_noise, *self._covariance_function.weights, *of_mean]

    @property
    def _noise_parameters(self) -> list[Parameter]:
        """The hyperparameters of the noise."""
        variance, circularity = self.noise_variance, self.noise_circularity
        parameters = variance, circularity, self.noise_scale, self.noise_fraction
        return [p for p in parameters if p is not None]

    # All computations read kernel, mean and noise here, so that none of them uses the placeholder
    # of a hyperparameter that was left out.

    @property
    def kernel(self) -> Kernel:
        """Second moments of f; a ValueError where a value was left out and is not learned yet."""
        is_left_out = any(p.is_left_out for p in self._left_out_at_first)
        if is_left_out and self._covariance_function.left_out():
            self._refuse_left_out()
        return self._covariance_function

    @property
    def mean(self) -> Mean | None:
        """Mean of f, or None for zero; errors as for `kernel`."""
        mean = self._mean_function
        if mean is not None and mean.left_out():
            self._refuse_left_out()
        return mean

    def learned_noise_variance(self) -> tf.Tensor:
        """The learned part of the noise variance, a number or `[G]`; errors as for `kernel`."""
        return self._value_of(self.noise_variance)

    def known_noise_variance(self, variance: Any) -> Any:
        """The known part of noise variances, times its learned scale; errors as for `kernel`."""
        return variance if self.noise_scale is None else self._value_of(self.noise_scale) * variance

    def _value_of(self, parameter: Parameter) -> tf.Tensor:
        if parameter.is_left_out:
            self._refuse_left_out()
        return parameter.value

    def left_out(self) -> list[Parameter]:
        """The hyperparameters that were left out, and that no fit has initialised yet."""
        of_noise = [p for p in self._noise_parameters if p.is_left_out]
        of_mean = [] if self._mean_function is None else self._mean_function.left_out()
        return [*self._covariance_function.left_out(), *of_noise, *of_mean]

    def _refuse_left_out(self) -> None:
        left_out = {id(parameter) for parameter in self.left_out()}
        layers = [*self._covariance_function.named_layers()]
        if self._mean_function is not None:
            layers.extend(self._mean_function.named_layers())
        names = [name for name, p in named_parameters(layers).items() if id(p) in left_out]
        arguments = {
            type(layer).__name__: [
                f"{p.name}=..." for p in layer.own_parameters if id(p) in left_out
            ]
            for _, layer in layers
        }
        examples = [f"{kind}({', '.join(names)})" for kind, names in arguments.items() if names]
        for parameter in self._noise_parameters:
            if id(parameter) in left_out:
                names.append(parameter.name)
                examples.append(f"{parameter.name}=...")
        raise ValueError(
            f"left out, and not learned yet: {', '.join(names)}. The first fit(x, z) of a Gaussian "
            f"process starts them from the data: fit first, or give values, as in {examples[0]}"
        )

    def of_terms(self, terms: Kernel | None) -> "SignalPlusNoise":
        """The process of some terms of the kernel, without the mean, in the form of the whole.

        None stands for the process itself.
        """
        if terms is None:
            return self
        process = copy.copy(self)
        process._covariance_function, process._mean_function = terms, None
        return process

    def with_mean(self, mean: Mean | None) -> "SignalPlusNoise":
        """The process with another mean."""
        process = copy.copy(self)
        process._mean_function = mean
        return process

    def in_data_order(self, a: tf.Tensor, axis: int = -2) -> tf.Tensor:
        """Reorders an axis from the order of the form to the order of data."""
        return interleave(a, axis) if self._by_point else a

    def with_noise(
        self, moments: SecondMoments, noise: SampleNoise = COMMON_NOISE
    ) -> SecondMoments:
        """Adds the noise of samples to variances of f, complex, against which it broadcasts."""
        k, c = moments
        if noise.total_variance is not None:
            if noise.total_pseudo_variance is not None:
                c = moments.c_or_zeros() + noise.total_pseudo_variance
            return SecondMoments(k + as_complex(noise.total_variance), c)
        learned = self.learned_noise_variance()
        if noise.group is not None:
            learned = tf.gather(learned, noise.group)
        elif learned.shape.rank and learned.shape != [self.outputs]:
            raise ValueError("a model of several groups of noise needs the group of each sample")
        learned = as_complex(learned)
        added = self.added_noise_variance(noise)
        variance = learned if added is None else learned + as_complex(added)
        if self.noise_circularity is not None:
            c = moments.c_or_zeros() + learned * self.noise_circularity.value
        k += variance
        if c is not None and not noise.is_common:
            c += tf.zeros_like(k)  # of each series, where k is
        return SecondMoments(k, c)

    def added_noise_variance(self, noise: SampleNoise) -> tf.Tensor | None:
        """The noise variances of samples beside the learned one: known, and by the signal."""
        added = None if noise.variance is None else self.known_noise_variance(noise.variance)
        if self.noise_fraction is None:
            return added
        if noise.signal_power is None:
            raise ValueError(
                "noise_fraction is of samples that fit or condition takes in, and of predictions "
                "given these: step, process and other methods have no noise that follows the signal"
            )
        by_signal = tf.square(self._value_of(self.noise_fraction)) * noise.signal_power
        return by_signal if added is None else added + by_signal

    def following(self, noise: SampleNoise, mean: tf.Tensor, moments: SecondMoments) -> SampleNoise:
        """The noise of observations of a signal of this mean and these moments about it."""
        if self.noise_fraction is None:
            return noise
        return noise._replace(signal_power=squared_modulus(mean) + tf.math.real(moments.k))

    def noise_variances(self, noise: SampleNoise) -> tf.Tensor:
        """The noise variances of samples, real, of a shape that broadcasts against theirs."""
        zero = tf.zeros([], self.learned_noise_variance().dtype)
        return tf.math.real(self.with_noise(SecondMoments(as_complex(zero)), noise).k)

    def matrix_with_noise(
        self, moments: SecondMoments, noise: SampleNoise = COMMON_NOISE
    ) -> SecondMoments:
        """Adds the noise to covariances of f between points, `[..., n, n]`."""
        k, c = moments
        noisy = self.with_noise(moments.map(tf.linalg.diag_part), noise)
        if noisy.c is not None:
            c = moments.c_or_zeros()
        if not noise.is_common:  # series with noise of their own have covariances of their own
            k, c = (None if a is None else _of_batch(a, noisy.k) for a in (k, c))
        if noisy.c is not None:
            c = tf.linalg.set_diag(c, noisy.c)
        return SecondMoments(tf.linalg.set_diag(k, noisy.k), c)

    def keep(self, data: Data, dtype: tf.DType) -> tf.Tensor:
        """The mask of observed elements in the working form, 1 or 0, `[G, n]`."""
        keep = tf.concat([data.keep] * self.form.multiplicity, axis=-1)
        return tf.cast(self.in_data_order(keep, axis=-1), dtype)

    def covariance(self, data: Data) -> tf.Tensor:
        """The working covariance of data, `[G, n, n]`; a row of the identity where missing.

        Of a line its first column, `[1, n, 1]`, as if no sample were missing.
        """
        if data.on_line is not None:
            # Rounded positions would make a matrix that is not Toeplitz, nor positive definite. In
            # the branch of a graph for lines the data may be none, of no step and more dimensions.
            count, dimensions = tf.unstack(tf.shape(data.x)[1:])
            along = tf.one_hot(0, dimensions, dtype=data.x.dtype)
            step = tf.reduce_sum(data.on_line.step) * along
            lags = tf.range(count, dtype=data.x.dtype)[None, :, None] * step
            column = self.kernel.moments_matrix(lags, lags[:, :1]).k
            noise = as_complex(self.noise_variances(data.noise))
            is_first = tf.range(tf.shape(column)[-2])[:, None] == 0
            return column + tf.where(is_first, noise, tf.zeros_like(noise))
        gram = self._masked(data, self.matrix_with_noise(self._sample_moments(data), data.noise))
        diagonal = tf.linalg.diag_part(gram) + (1.0 - self.keep(data, gram.dtype))
        return tf.linalg.set_diag(gram, diagonal)

    def factor(self, data: Data) -> tf.Tensor:
        """The factor of the covariance of data; of a line the first column of its inverse."""
        covariance = self.covariance(data)
        if data.on_line is None:
            return cholesky(covariance)
        no_vectors = tf.zeros([0, tf.shape(covariance)[1]], covariance.dtype)
        return toeplitz.factorize(covariance[0, :, 0], no_vectors).inverse_column[None, :, None]

    def signal_covariance(self, data: Data) -> tf.Tensor:
        """The working covariance of f where there are data, `[G, n, n]`; zero where missing."""
        return self._masked(data, self._sample_moments(data))

    def _sample_moments(self, data: Data, x: tf.Tensor | None = None) -> SecondMoments:
        """The moments of f between what samples measure, or with its values at points x."""
        if data.is_of_values:
            return self.kernel.moments_matrix(data.x, x)
        samples = data.x, data.functional
        return moments_of_samples(self.kernel, *samples, *(samples if x is None else (x, VALUES)))

    def _masked(self, data: Data, moments: SecondMoments) -> tf.Tensor:
        gram = self.in_data_order(self.in_data_order(self.form.covariance(moments), axis=-1))
        keep = self.keep(data, gram.dtype)
        return gram * keep[..., :, None] * keep[..., None, :]

    def targets(self, data: Data) -> tf.Tensor:
        """The working targets less the mean function, zero where missing, `[G, n, S]`."""
        function = self.sample_mean(data)
        residual = data.z if function is None else data.z - function
        residual = tf.where(data.present, residual, tf.zeros_like(residual))
        return self.in_data_order(data.columns(self.form.split(residual)))

    def complex_targets(self, targets: tf.Tensor) -> tf.Tensor:
        """Converts working vectors in the order of data, `[..., n]`, to complex ones."""
        if self._by_point:
            re, im = tf.unstack(tf.reshape(targets, [*targets.shape[:-1], -1, 2]), axis=-1)
            return tf.complex(re, im)
        return self.form.join(targets)

    def cross(self, data: Data, x: tf.Tensor) -> tf.Tensor:
        """The working covariance between data and points `[..., M, D]`, zero where missing."""
        cross = self.in_data_order(self.form.covariance(self._sample_moments(data, x)))
        return cross * self.keep(data, cross.dtype)[..., None]

    def sample_mean(self, data: Data) -> tf.Tensor | None:
        """What the samples of data measure of the mean function, `[X, N]`; None for zero."""
        mean = None if self.mean is None else self.mean.evaluate_samples(data.x, data.functional)
        if mean is None:
            return None
        # NaN marks missing observations, and the mean must not make one.
        if tf.executing_eagerly() and np.isnan(mean).any():
            raise ValueError(f"the mean function {self.mean!r} is NaN at some of the samples")
        return tf.where(is_nan(mean), tf.constant(complex(np.inf, np.inf), mean.dtype), mean)

    def basis(self, x: tf.Tensor, functional: Functional = VALUES) -> tf.Tensor | None:
        """The working basis of a marginalised trend at points, `[..., m, q]`, or None."""
        basis = None if self.mean is None else self.mean.sample_basis(x, functional)
        if basis is None:
            return None
        return stack_columns(basis) if self._has_real_coefficients else self.form.basis(basis)

    def data_basis(self, data: Data) -> tf.Tensor | None:
        """The working basis of the trend at data, zero where missing, `[G, n, q]`, or None."""
        basis = self.basis(data.x, data.functional)
        if basis is None:
            return None
        return self.in_data_order(basis) * self.keep(data, basis.dtype)[..., None]

    def _coefficients(self, basis: tf.Tensor) -> tf.Tensor:
        """The number of complex coefficients of a trend with this working basis, a real tensor."""
        used = tf.reduce_any(basis != 0.0, axis=tf.range(tf.rank(basis) - 1))
        return tf.reduce_sum(tf.cast(used, basis.dtype.real_dtype)) / self.form.multiplicity

    def log_likelihood(self, data: Data, covariance: tf.Tensor, chol: tf.Tensor) -> tf.Tensor:
        """The log marginal likelihood of each series, real, `[B]`.

        The gradient passes through the covariance, `self.covariance(data)`, and not the factor.
        """
        basis = self.data_basis(data)
        density = log_density(covariance, self.targets(data), basis, chol, self.form.scale)
        return self.normalized(density, data, basis)

    def normalized(self, density: tf.Tensor, data: Data, basis: tf.Tensor | None) -> tf.Tensor:
        """The log marginal likelihood of each series, `[B]`, from `log_density`."""
        dimensions = data.counts if basis is None else data.counts - self._coefficients(basis)
        return tf.reshape(density, [-1]) - dimensions * self.form.log_normalizer

    def plus_function(self, mean: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        """Adds the mean function to values at points `[..., M, D]`."""
        function = None if self.mean is None else self.mean.evaluate(x)
        return mean if function is None else mean + function

    def marginal(self, x: tf.Tensor) -> SecondMoments:
        """The prior variances of f, with a pseudo-variance unless the model is proper."""
        moments = self.kernel.moments_diagonal(x)
        return moments if self.is_proper else SecondMoments(moments.k, moments.c_or_zeros())

    def while_unchanged(self, function: Callable[[], tf.Tensor]) -> Callable[[], tf.Tensor]:
        """A function that reads hyperparameters, made to raise once they have changed."""
        if not tf.executing_eagerly():
            return function
        weights = self.weights
        arrays = [w.numpy() for w in weights]

        def checked() -> tf.Tensor:
            if not all(np.array_equal(w, a) for w, a in zip(weights, arrays, strict=True)):
                raise RuntimeError(
                    "the hyperparameters have changed since this posterior was made, and its "
                    "covariance had not been asked for: make it again"
                )
            return function()

        return checked


def _of_batch(a: tf.Tensor, diagonal: tf.Tensor) -> tf.Tensor:
    """Matrices `[..., n, n]` under the batch axes of a diagonal `[..., n]`."""
    if a.shape[:-1].is_fully_defined() and a.shape[:-1] == diagonal.shape:
        return a
    return tf.broadcast_to(a, tf.concat([tf.shape(diagonal), tf.shape(diagonal)[-1:]], axis=0))


class Whitened(NamedTuple):
    """Targets and trend of data, whitened: multiplied by L⁻¹, which makes their noise white."""

    residual: tf.Tensor
    """`(I − Q Qᴴ) L⁻¹ y`, `[..., n, S]`: the targets of S series without their trend."""
    q: tf.Tensor | None
    """`[..., n, q]`, or None without a trend."""
    r: tf.Tensor | None
    """`[..., q, q]`, upper triangular, or None without a trend."""
    coefficients: tf.Tensor | None
    """The coefficients of the trend by generalised least squares, `[..., q, S]`, or None."""


def whiten(chol: tf.Tensor, targets: tf.Tensor, basis: tf.Tensor | None) -> Whitened:
    """Targets `[..., n, S]` and basis `[..., n, q]` whitened by a factor `[..., n, n]`."""
    white = tf.linalg.triangular_solve(chol, targets)
    if basis is None:
        return Whitened(white, None, None, None)
    q, r = orthonormal(tf.linalg.triangular_solve(chol, basis))
    inside = tf.linalg.matmul(q, white, adjoint_a=True)
    coefficients = tf.linalg.triangular_solve(r, inside, lower=False)
    return Whitened(white - tf.linalg.matmul(q, inside), q, r, coefficients)


def orthonormal(a: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Q and R of `a = Q R`, `[..., n, q]`, by Cholesky QR twice; columns are independent or zero.

    A column of zeros stays zero, with 1 on the diagonal of R, and has no effect. As accurate as
    Householder reflections where the columns, scaled to one length, have a condition of less than
    1e8 (Yamamoto et al., ETNA 44, 2015), and differentiable for any n: TensorFlow's gradient of a
    QR factorisation needs the shape.
    """
    # The squares of small columns, of x³ in float32 and nanoseconds, underflow.
    largest = tf.stop_gradient(tf.reduce_max(tf.abs(a), axis=-2, keepdims=True))
    is_zero = largest == 0.0
    unit = tf.where(is_zero, tf.ones_like(largest), largest)
    squares = tf.reduce_sum(squared_modulus(a / tf.cast(unit, a.dtype)), axis=-2, keepdims=True)
    lengths = unit * tf.sqrt(tf.where(is_zero, tf.ones_like(squares), squares))
    ones_of_zeros = tf.linalg.diag(tf.cast(is_zero[..., 0, :], a.dtype))
    q = a / tf.cast(lengths, a.dtype)
    r = tf.linalg.diag(tf.cast(lengths[..., 0, :], a.dtype))
    for _ in range(2):
        gram = tf.linalg.matmul(q, q, adjoint_a=True) + ones_of_zeros
        factor = tf.linalg.adjoint(cholesky(gram))
        # q R⁻¹ = (R⁻ᴴ qᴴ)ᴴ
        q = tf.linalg.adjoint(
            tf.linalg.triangular_solve(factor, tf.linalg.adjoint(q), lower=False, adjoint=True)
        )
        r = tf.linalg.matmul(factor, r)
    return q, r


def dual(chol: tf.Tensor, white: Whitened) -> tf.Tensor:
    """The dual weights `a = P y`, `[..., n, S]`."""
    return tf.linalg.triangular_solve(chol, white.residual, adjoint=True)


def log_density(
    covariance: tf.Tensor,
    targets: tf.Tensor,
    basis: tf.Tensor | None,
    chol: tf.Tensor,
    scale: float,
) -> tf.Tensor:
    """The log marginal likelihood of each series, but for its constant.

    Args:
        covariance: K, `[..., n, n]`. Only the gradient passes through it.
        targets: y, `[..., n, S]`.
        basis: H, `[..., n, q]`, or None.
        chol: The Cholesky factor of K, which is not checked.
        scale: s, 1 for complex and ½ for real normals.

    Returns:
        `−s (yᴴ P y + log|K| + log|A|)`, real, `[..., S]`, with gradients by covariance, targets and
        basis, which may be differentiated again.
    """
    chol = tf.stop_gradient(chol)

    def evaluate(
        covariance: tf.Tensor, targets: tf.Tensor, *bases: tf.Tensor
    ) -> tuple[tf.Tensor, Callable]:
        white = whiten(chol, targets, bases[0] if bases else None)
        value = tf.reduce_sum(squared_modulus(white.residual), axis=-2) + log_det(chol)[..., None]
        if bases:
            log_diagonal = tf.math.log(tf.abs(tf.linalg.diag_part(white.r)))
            value += 2.0 * tf.reduce_sum(log_diagonal, axis=-1)[..., None]

        def backward(dy: tf.Tensor) -> list[tf.Tensor]:
            # This factor leads back to the covariance, for second derivatives.
            factor = stored_cholesky(chol, covariance)
            white = whiten(factor, targets, bases[0] if bases else None)
            a = dual(factor, white)
            weighted = a * tf.cast(dy[..., None, :], a.dtype)
            total = tf.cast(tf.reduce_sum(dy, axis=-1)[..., None, None], a.dtype)
            precision = projected_precision(factor, white)
            outer = tf.linalg.matmul(weighted, a, adjoint_b=True)
            bars = [-scale * (total * precision - outer), -2.0 * scale * weighted]
            if bases:
                # K⁻¹ H A⁻¹ = L⁻ᴴ Q R⁻ᴴ
                leverage = tf.linalg.adjoint(white.q)
                leverage = tf.linalg.triangular_solve(white.r, leverage, lower=False)
                leverage = tf.linalg.adjoint(leverage)
                leverage = tf.linalg.triangular_solve(factor, leverage, adjoint=True)
                fitted = tf.linalg.matmul(weighted, white.coefficients, adjoint_b=True)
                bars.append(-2.0 * scale * (total * leverage - fitted))
            return bars

        return -scale * value, backward

    arguments = (covariance, targets) if basis is None else (covariance, targets, basis)
    return tf.custom_gradient(evaluate)(*arguments)


def projected_precision(chol: tf.Tensor, white: Whitened) -> tf.Tensor:
    """P, `[..., n, n]`: the inverse covariance, with the trend projected out."""
    precision = inverse(chol)
    if white.q is None:
        return precision
    u = tf.linalg.triangular_solve(chol, white.q, adjoint=True)
    return precision - tf.linalg.matmul(u, u, adjoint_b=True)


# --- terms of a sum ------------------------------------------------------------------------------
# Terms are independent a priori, but correlated given the data: the covariance of term j with the
# data is its own kernel, and all information of the data comes through the whole covariance
# (Duvenaud, Automatic Model Construction with Gaussian Processes, 2014, §2.4.5).


def check_terms(kernel: Kernel, part: Kernel | None, observed: bool) -> None:
    """Raises a ValueError unless a part is None, a term of a kernel itself, or a sum of terms."""
    if part is None:
        return
    if not _terms_of_part(kernel, part):
        raise ValueError(
            f"part must be one of the terms of the kernel, the same object, or a sum of some: "
            f"{', '.join(map(repr, _terms(kernel)))}; got {part!r}"
        )
    if observed:
        raise ValueError("a measurement is of the whole signal: observed must be False for a part")


def states_of(kernel: Kernel, part: Kernel) -> np.ndarray:
    """Whether each state of the Markov form of a kernel belongs to a part, bool `[n]`."""
    chosen_terms = _terms_of_part(kernel, part)
    is_of_part = np.zeros(kernel.markov_form().size, bool)
    first = 0
    for term in _terms(kernel):
        size = term.markov_form().size
        if any(term is chosen for chosen in chosen_terms):
            is_of_part[first : first + size] = True
        if not isinstance(term, Sum):  # the terms of a sum inside follow it
            first += size
    return is_of_part


def _terms_of_part(kernel: Kernel, part: Kernel) -> list[Kernel]:
    """The terms of a kernel in a part; none if it is neither a term nor a sum of some."""
    terms = _terms(kernel)
    if any(part is term for term in terms):
        return [part]
    summands = part.parts if isinstance(part, Sum) else []
    are_terms = all(any(summand is term for term in terms) for summand in summands)
    ids = [id(term) for summand in summands for term in _terms(summand)]
    return [*summands] if are_terms and len(set(ids)) == len(ids) else []


def _terms(kernel: Kernel) -> list[Kernel]:
    """A kernel and, if it is a sum, its terms, nested sums included, in order."""
    summands = kernel.parts if isinstance(kernel, Sum) else ()
    return [kernel, *(term for summand in summands for term in _terms(summand))]
