"""A kernel learned from earlier series over the same places."""

import math
from typing import Any, NamedTuple, Self

import keras
import numpy as np
import tensorflow as tf

from cgp.kernels.base import Kernel
from cgp.kernels.data_scales import StartRules
from cgp.kernels.markov import Pair
from cgp.kernels.points import as_array, as_points, coordinate
from cgp.kernels.rotation import cosine_and_sine
from cgp.linalg.arguments import ArrayLike, as_complex, check_whole
from cgp.observations import as_observations, check_same_labels
from cgp.training.hyperparameters import Hyperparameter, declared, one_number, setting
from cgp.training.parameters import POSITIVE, split
from cgp.training.saving import check_size

_NODES = 4  # places between which the series are interpolated, by a cubic polynomial
_TONES_OF_EACH = 8  # at most, tones for each place
_ITERATIONS = 15  # of the powers of tones, which then change by less than they err
_FLOOR = 1e-6  # of the mean square of the series, the least noise that tones are told from
_OUTSIDE = 1e-6  # of the range of the places, by which rounding may move a point outside
_NOISE_OF_USE = 0.1  # of the mean square of the series, in which intensities are compared
_INTENSITIES = 1.0 / (1.0 + 10.0 ** np.arange(3.0, -2.1, -0.25))  # below 1, which no series moves


class Tones(NamedTuple):
    """Independent tones, whose sum is a stationary process."""

    frequencies: np.ndarray  # [K], in cycles per unit of x
    powers: np.ndarray  # [K]

    def at(self, x: np.ndarray) -> np.ndarray:
        """The values of unit tones at points `[N]`, complex `[N, K]`."""
        return np.exp(2j * np.pi * x[:, None] * self.frequencies)

    def covariance(self, x: np.ndarray) -> np.ndarray:
        """The covariance of the process at points `[N]`, `[N, N]`."""
        values = self.at(x)
        return (values * self.powers) @ values.conj().T


def count_at_least(count: int, name: str) -> int:
    """Returns a count of at least 2, or raises an error that names the argument."""
    check_whole(count, name, least=2)
    return int(count)


def fraction_or_none(fraction: float | None, name: str) -> float | None:
    """Returns a number from 0 to 1, or None, or raises an error that names the argument."""
    if fraction is None:
        return None
    if np.iscomplexobj(one_number(fraction, name)) or not 0.0 <= fraction <= 1.0:
        raise ValueError(f"{name} must be a number from 0 to 1, or None, got {fraction!r}")
    return float(fraction)


def variance_or_zero(variance: float, name: str) -> float:
    """Returns a finite number of at least 0, or raises an error that names the argument."""
    if np.iscomplexobj(one_number(variance, name)) or not 0.0 <= variance < np.inf:
        raise ValueError(f"{name} must be a number of at least 0, got {variance!r}")
    return float(variance)


@keras.saving.register_keras_serializable(package="cgp.kernels")
@declared
class Empirical(Kernel):
    """The covariance of earlier series over the same places, of no stationary form.

    A channel over subcarriers, for instance, that a receiver has estimated packet by packet: few
    paths, in a room that stays the same, behind filters with a ripple. Make it by `from_series`.
    With M the mean of `z_s z_sᴴ` over S series at the places, less what their noise adds to its
    eigenvalues (Donoho, Gavish & Johnstone, Ann. Statist. 46, 2018), it is

        variance · ((1 − ρ) w(x1)ᵀ M conj(w(x2)) + (ρ + (1 − ρ) h) T(x1 − x2)),

    h being the share of the power that the noise hides from M, as its eigenvalues do not rise above
    those of noise; without a noise variance it is zero.

    w(x) interpolates: 1 at its place and 0 at others, between them the cubic polynomial through the
    four nearest places, about the tone `e^{i2πfx}` that turns as neighbours do on average, so that
    a delay common to all series costs nothing. The process has to be smooth from place to place
    but for that tone.

    T is the stationary covariance nearest to the series in likelihood, a sum of independent tones
    whose powers are estimated (a power-delay profile, for a channel). It interpolates where white
    noise, the usual target of shrinkage (Ledoit & Wolf, J. Multivariate Anal. 88, 2004), would be
    taken for noise of measurement.

    The intensity ρ is that of the largest log likelihood of each series under the covariance of all
    others, on average, both in white noise of a tenth of their power (leave-one-out
    cross-validation; in less noise the likelihood is of directions that no prediction tells apart
    from noise). T then counts as much as `ν = S ρ/(1 − ρ)` series, and goes on to do so as `update`
    takes further series in: ρ becomes `ν/(ν + S)`, as for the mean of an inverse Wishart
    distribution.

    No mean is subtracted: what the series have in common is part of their second moments.

    Args:
        places: The number N of places.
        tones: The number of tones.
        variance: A factor of the covariance of the series, positive, without a unit. Its default
            of 1 is for series in the units of z; None starts it from data, as after another gain.
        shrink: ρ, from 0 for the series alone to 1 for T alone; None for cross-validation.
        series_noise_variance: The noise variance of the earlier series, at least 0; in squared
            units of z.
        fixed, priors, name, dtype: As for `RBF`.

    Raises:
        TypeError: Numbers that are complex or none at all.
        ValueError: Numbers outside their ranges. When evaluated: a kernel without series, as the
            constructor makes it until weights are loaded; points outside the range of the places
            (in graphs their covariances are NaN); x of several dimensions.

    Example:
        Channels of three paths over 16 subcarriers, and one of them from five of these.

        >>> import cgp, numpy as np
        >>> rng = np.random.default_rng(0)
        >>> x = np.arange(16.0)
        >>> paths = np.exp(-2j * np.pi * np.outer([0.01, 0.05, 0.08], x))
        >>> channels = (rng.normal(size=(41, 3, 2)) @ [1, 1j]) @ paths
        >>> kernel = cgp.kernels.Empirical.from_series(x, channels[:40])
        >>> gp = cgp.ExactGP(kernel, noise_variance=1e-4)
        >>> gp.condition(x[::4], channels[40, ::4])
        >>> mean = gp.predict(x)["mean"]
        >>> bool(cgp.metrics.normalized_error_db(channels[40], mean) < -30)
        True
    """

    places: int = setting(count_at_least)
    tones: int = setting(count_at_least)
    variance: Hyperparameter = Hyperparameter(POSITIVE, default=1.0)
    shrink: float | None = setting(fraction_or_none, default=None, kw_only=True)
    series_noise_variance: float = setting(variance_or_zero, default=0.0, kw_only=True)

    def set_derived_attributes(self) -> None:
        """Creates the weights of the series, which `from_series` and `update` set."""
        N, K = self.places, self.tones
        holder = f"a kernel of {N} places and {K} tones"
        check_size(4 * N**2 + 2 * K + N, holder, self.variable_dtype, "take fewer places")
        self._x = self._weight("x", N)
        self._count = self._weight("count")  # of series, zero without any
        self._second_moments = self._weight("second_moments", N, N, 2)
        self._factor = self._weight("factor", N, N, 2)  # of (1 − ρ) M, about the tone
        self._turn = self._weight("turn")  # the frequency of that tone
        self._frequencies = self._weight("frequencies", K)
        self._powers = self._weight("powers", K)  # of T, times its share
        self._shrinkage = self._weight("shrinkage")

    def _weight(self, name: str, *shape: int) -> keras.Variable:
        return self.add_weight(
            name=name, shape=shape, initializer="zeros", dtype=self.variable_dtype, trainable=False
        )

    @classmethod
    def from_series(
        cls,
        x: ArrayLike,
        z: ArrayLike,
        shrink: float | None = None,
        noise_variance: float = 0.0,
        **kwargs: Any,
    ) -> Self:
        """The kernel of earlier series.

        Args:
            x: Places, `[N]`, N > 1, in any order, no two of them equal.
            z: Complex series of mean zero, `[S, N]`, S > 1, without missing elements: leave out
                series that have some.
            shrink: ρ, from 0 to 1, which `update` keeps; None for cross-validation.
            noise_variance: The noise variance of the series, in squared units of z. It is
                subtracted; where it is unknown, leave it at 0: their noise is then in the
                covariance, as if it were of the signal.
            **kwargs: As for the constructor.

        Raises:
            TypeError: Complex x or real z.
            ValueError: Shapes other than these, missing elements, repeated places, fewer than 2
                series, series of zeros, a noise variance that is not below their mean square.
        """
        check_same_labels(x=(x, 0), z=(z, 0))
        at = np.asarray(as_array(x, "x"), float)
        if at.ndim != 1 or at.size < 2:
            raise ValueError(f"x must be [N], N > 1, over one dimension, got shape {at.shape}")
        if len(np.unique(at)) < len(at):
            raise ValueError("x must not repeat places: average the samples there first")
        series = _as_series(z, at.size)
        if len(series) < 2:
            raise ValueError(f"z must have at least 2 series, [S, N], got {len(series)}")
        # Multiples of 1/(2 span) up to half of the rate of samples, of which gaps have less.
        span = np.ptp(at)
        step = max(np.median(np.diff(np.sort(at))), 2.0 * span / (_TONES_OF_EACH * at.size))
        tones = max(math.ceil(2.0 * (span / step + 1.0) - 1e-6), 2)
        kernel = cls(at.size, tones, shrink=shrink, series_noise_variance=noise_variance, **kwargs)
        as_points(at, kernel.variable_dtype)  # refuses places that the dtype does not tell apart
        kernel._x.assign(at)
        kernel._frequencies.assign((np.arange(tones) / tones - 0.5) / step)
        moments = series.T @ series.conj() / len(series)
        tones = kernel._tones(moments)
        intensity = kernel.shrink
        if intensity is None:
            target = tones.covariance(kernel._centred_places())
            noise = kernel.series_noise_variance * np.eye(kernel.places)
            intensity = likeliest_intensity(series, target + noise)
        kernel._set(moments, len(series), tones, intensity)
        return kernel

    def update(self, z: ArrayLike) -> None:
        """Takes further series in, as if `from_series` had had them too, with the new `shrinkage`.

        A process that holds the kernel predicts from them at once. The sum of outer products grows
        by one of rank one for each series; T is estimated anew, in O(N³). Once they are several
        times as many as at first, `from_series` of all of them chooses a better ρ.

        Args:
            z: Complex series, `[N]` or `[K, N]`, in the order of the places of `from_series`.

        Raises:
            TypeError: Real z.
            ValueError: Shapes other than these, missing elements; a kernel without series. The
                kernel is then as it was.

        Example:
            >>> import numpy as np
            >>> from cgp.kernels import Empirical
            >>> x, z = np.arange(3.0), np.array([[1, 1j, -1], [1j, -1, -1j]])
            >>> kernel = Empirical.from_series(x, z, shrink=0.0)
            >>> kernel.update([2, 2j, -2])
            >>> kernel.series_count, kernel.covariance([0.0]).numpy().real.round(6)
            (3, array([[2.]]))
        """
        self._check_series()
        series, before = _as_series(z, self.places), self.series_count
        count = before + len(series)
        moments = (before * _complex(self._second_moments) + series.T @ series.conj()) / count
        intensity = self.shrink
        if intensity is None:
            counted = before * self.shrinkage
            intensity = counted / (counted + (1.0 - self.shrinkage) * count)
        self._set(moments, count, self._tones(moments), intensity)

    def _tones(self, moments: np.ndarray) -> Tones:
        """The tones of second moments `[N, N]` of series."""
        power, noise = np.trace(moments).real / self.places, self.series_noise_variance
        if not 0.0 < power < np.inf:
            raise ValueError(f"z must have samples that are not zero, got a mean square of {power}")
        if not noise < power:
            raise ValueError(
                f"noise_variance must be below the mean square of the series, {power:.4g}, got "
                f"{noise:.4g}"
            )
        frequencies = self._frequencies.numpy().astype(float)
        return tones_of(moments, self._centred_places(), frequencies, noise)

    def _set(self, moments: np.ndarray, count: int, tones: Tones, intensity: float) -> None:
        """Sets the weights to those of so many series of these second moments."""
        x = self._centred_places()
        turn = turn_of(moments, x)
        root = root_of(moments, self.series_noise_variance, count)
        about_tone = np.exp(-2j * np.pi * turn * x)[:, None] * root
        self._factor.assign(split(math.sqrt(1.0 - intensity) * about_tone))
        self._turn.assign(turn)
        # Without the power that is hidden by the noise the variance is too small.
        hidden = 1.0 - np.sum(np.abs(root) ** 2) / (self.places * np.sum(tones.powers))
        self._powers.assign((intensity + (1.0 - intensity) * max(hidden, 0.0)) * tones.powers)
        self._shrinkage.assign(intensity)
        self._second_moments.assign(split(moments))
        self._count.assign(count)

    def _centred_places(self) -> np.ndarray:
        """The places less their middle, in double precision."""
        x = self._x.numpy().astype(float)
        return x - 0.5 * (x.min() + x.max())

    @property
    def x(self) -> np.ndarray:
        """The places, `[N]`, in the order of `from_series`."""
        return self._x.numpy()

    @property
    def series_count(self) -> int:
        """The number S of series that it has learned from."""
        return round(float(self._count.numpy()))

    @property
    def shrinkage(self) -> float:
        """The intensity ρ, from 0 for the series alone to 1 for the stationary covariance alone."""
        return float(self._shrinkage.numpy())

    def start_of(self, name: str, rules: StartRules) -> ArrayLike | None:
        """The start of the factor: the power of the data over that of the series."""
        self._check_series()
        start = super().start_of(name, rules)
        power = np.trace(_complex(self._second_moments)).real / self.places
        power -= self.series_noise_variance
        return np.asarray(start) / power if name == "variance" else start

    def check_points(self, x: tf.Tensor) -> None:
        """Raises for points that the kernel does not take."""
        self._inside(coordinate(x, self))

    def moments(self, x1: tf.Tensor, x2: tf.Tensor) -> Pair:
        """Covariance and pseudo-covariance between points, elementwise."""
        first, second = self._features(x1), self._features(x2)
        variance = as_complex(self.variance.value)
        if _are_rows_and_columns(x1, x2):  # a product of matrices, at a fraction of the memory
            rows, columns = first[..., :, 0, :], second[..., 0, :, :]
            return variance * tf.linalg.matmul(rows, columns, adjoint_b=True), None
        return variance * tf.reduce_sum(first * tf.math.conj(second), axis=-1), None

    def _features(self, points: tf.Tensor) -> tf.Tensor:
        """Functions whose products are the covariance, `[..., N + K]`, at points `[..., 1]`."""
        with tf.init_scope():  # a graph reads the weights when it runs
            self._check_series()
        at, outside = self._inside(coordinate(points, self))
        x = _stored(self._x)
        centred = at - 0.5 * (tf.reduce_min(x) + tf.reduce_max(x))
        interpolated = self._interpolated(at) * _tone(centred * _stored(self._turn))[..., None]
        amplitudes = as_complex(tf.sqrt(_stored(self._powers)))
        tones = _tone(centred[..., None] * _stored(self._frequencies)) * amplitudes
        features = tf.concat([interpolated, tones], axis=-1)
        return tf.where(outside[..., None], tf.constant(np.nan, features.dtype), features)

    def _interpolated(self, at: tf.Tensor) -> tf.Tensor:
        """The rows of the factor, about the tone, at points `[...]`: complex `[..., N]`."""
        x, nodes = _stored(self._x), min(_NODES, self.places)
        order = tf.argsort(x)
        ordered = tf.gather(x, order)
        above = tf.searchsorted(ordered, tf.reshape(at, [-1]), side="right")
        first = tf.clip_by_value(above - nodes // 2, 0, self.places - nodes)
        rows = tf.reshape(first, tf.shape(at))[..., None] + tf.range(nodes)
        near = tf.gather(ordered, rows)
        weights = []
        for j in range(nodes):
            others = [m for m in range(nodes) if m != j]
            ratios = [(at - near[..., m]) / (near[..., j] - near[..., m]) for m in others]
            weights.append(tf.reduce_prod(tf.stack(ratios), axis=0))
        factor = tf.complex(*tf.unstack(_stored(self._factor), axis=-1))
        values = tf.gather(factor, tf.gather(order, rows))
        return tf.einsum("...j,...jn->...n", as_complex(tf.stack(weights, axis=-1)), values)

    def _inside(self, at: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Points within the range of the places, and which of them are outside (then at its end).

        Raises:
            ValueError: Eagerly, for points outside.
        """
        x = _stored(self._x)
        lowest, highest = tf.reduce_min(x), tf.reduce_max(x)
        tolerance = _OUTSIDE * (highest - lowest)
        outside = ~((at >= lowest - tolerance) & (at <= highest + tolerance))
        if tf.executing_eagerly():
            self._check_series()
            if bool(tf.reduce_any(outside)):
                raise ValueError(
                    f"{self!r} is known from {float(lowest):.6g} to {float(highest):.6g}, but x "
                    f"has {float(at[outside][0]):.6g}: a covariance of series says nothing of "
                    "places outside of their range"
                )
        return tf.clip_by_value(at, lowest, highest), outside

    def _check_series(self) -> None:
        if not self.series_count:
            raise ValueError(
                f"{self!r} has no series yet: Empirical.from_series(x, z) makes it, or weights "
                "that were saved are loaded"
            )

    def __repr__(self) -> str:
        of_series = f"{self.series_count} series of {self.places} places"
        return f"{super().__repr__()[:-1]}, {of_series}, shrinkage={self.shrinkage:.3g})"


def tones_of(
    moments: np.ndarray, x: np.ndarray, frequencies: np.ndarray, noise_variance: float
) -> Tones:
    """Tones of most likely powers for second moments `[N, N]` at x `[N]`, in white noise.

    The derivative of the normal log likelihood by the power of a tone a is zero where
    `aᴴ R⁻¹ M R⁻¹ a = aᴴ R⁻¹ a`, R being their covariance with the noise (Burg, Luenberger & Wenger,
    Proc. IEEE 70, 1982). Each power is multiplied by the ratio of both sides, from Bartlett's
    spectrum on, so that all stay positive.
    """
    power = np.trace(moments).real / len(x)
    noise = max(noise_variance, _FLOOR * power) * np.eye(len(x))
    tones = Tones(frequencies, np.zeros(len(frequencies)))
    values = tones.at(x)
    powers = np.einsum("nk,nk->k", values.conj(), moments @ values).real
    powers *= power / np.sum(powers)
    for _ in range(_ITERATIONS):
        covariance = (values * powers) @ values.conj().T + noise
        whitened = np.linalg.solve(covariance, values)
        actual = np.einsum("nk,nk->k", whitened.conj(), moments @ whitened).real
        powers *= np.maximum(actual, 0.0) / np.einsum("nk,nk->k", values.conj(), whitened).real
    # For series that are few tones the most likely power is too small.
    signal = max(power - noise_variance, 0.0)
    return tones._replace(powers=powers * (signal / np.sum(powers)))


def likeliest_intensity(series: np.ndarray, target: np.ndarray) -> float:
    """The intensity of shrinkage to a target `[N, N]`, both with the noise of series `[S, N]`.

    Without the outer product of a series z the covariance is `A − b z zᴴ`, of which inverse, trace
    and determinant follow from those of A (the formula of Sherman and Morrison).
    """
    count, places = series.shape
    moments = series.T @ series.conj() / count
    noise = _NOISE_OF_USE * np.trace(moments).real / places
    scores = []
    for intensity in _INTENSITIES:
        b = (1.0 - intensity) / (count - 1)
        covariance = b * count * moments + intensity * target + noise * np.eye(places)
        precision = np.linalg.inv(covariance)
        dual = series @ precision.T
        distances = np.sum(series.conj() * dual, axis=1).real
        without = np.maximum(1.0 - b * distances, np.finfo(float).tiny)
        of_noise = np.trace(precision).real + b * np.sum(np.abs(dual) ** 2, axis=1) / without
        log_determinants = np.linalg.slogdet(covariance)[1] + np.log(without)
        scores.append(-np.mean(distances / without + noise * of_noise + log_determinants))
    return float(_INTENSITIES[np.argmax(scores)])


def turn_of(moments: np.ndarray, x: np.ndarray) -> float:
    """The frequency, in cycles per unit of x, by which neighbouring places turn on average."""
    order = np.argsort(x)
    steps, lag_one = np.diff(x[order]), moments[order[1:], order[:-1]]
    step = np.median(steps)
    near = steps < 1.5 * step  # over a gap a phase may be of several cycles
    return float(np.angle(np.sum(lag_one[near])) / (2.0 * np.pi * np.mean(steps[near])))


def root_of(moments: np.ndarray, noise_variance: float, count: int) -> np.ndarray:
    """A with `A Aᴴ` the covariance of signals `[N, N]`, from second moments of so many series.

    White noise of variance σ² in S series moves an eigenvalue ℓ of their covariance to
    `λ = ℓ (1 + γ σ²/(ℓ − σ²))`, γ = N/S, and has eigenvalues up to `σ² (1 + √γ)²` itself (Baik &
    Silverstein, J. Multivariate Anal. 97, 2006). Those of the signal are `ℓ − σ²` above that edge
    (Donoho, Gavish & Johnstone, Ann. Statist. 46, 2018), and zero below.
    """
    eigenvalues, vectors = np.linalg.eigh(0.5 * (moments + moments.conj().T))
    if noise_variance > 0.0:
        ratio = len(moments) / count
        edge = noise_variance * (1.0 + math.sqrt(ratio)) ** 2
        above = np.maximum(eigenvalues, edge)
        twice = above - noise_variance * (1.0 + ratio)  # the sum of the solutions for ℓ − σ²
        root = np.sqrt(np.maximum(twice**2 - 4.0 * ratio * noise_variance**2, 0.0))
        eigenvalues = np.where(eigenvalues > edge, 0.5 * (twice + root), 0.0)
    return vectors * np.sqrt(np.maximum(eigenvalues, 0.0))


def _as_series(z: ArrayLike, places: int) -> np.ndarray:
    """Complex series `[S, N]` of `[N]` or `[S, N]` without missing elements, or an error."""
    series = np.atleast_2d(np.asarray(as_observations(z, None, "complex128", promote=True)))
    if series.ndim != 2 or series.shape[1] != places or not len(series):
        raise ValueError(f"z must be series over {places} places, [S, {places}], got {np.shape(z)}")
    incomplete = np.isnan(series).any(axis=1)
    if incomplete.any():
        raise ValueError(
            f"z must have no missing elements, but {int(incomplete.sum())} of {len(series)} series "
            "have some: leave these out, z[~np.isnan(z).any(axis=1)]"
        )
    return series


def _are_rows_and_columns(x1: tf.Tensor, x2: tf.Tensor) -> bool:
    """Whether points `[..., N1, 1, 1]` and `[..., 1, N2, 1]` are all pairs of two sets."""
    are_matrices = min(x1.shape.rank or 0, x2.shape.rank or 0) >= 3
    return are_matrices and x1.shape[-2] == 1 and x2.shape[-3] == 1


def _tone(turns: tf.Tensor) -> tf.Tensor:
    return tf.complex(*cosine_and_sine(turns))


def _stored(weight: keras.Variable) -> tf.Tensor:
    """The value of a weight that is not learned, which has no gradient."""
    return tf.stop_gradient(tf.convert_to_tensor(weight.value))


def _complex(weight: keras.Variable) -> np.ndarray:
    re, im = np.moveaxis(weight.numpy().astype(float), -1, 0)
    return re + 1j * im
