"""Complex autoregressions over a regular grid, with and without a moving average.

An autoregression `z[t] = Σ a[k] z[t−k] + w[t]`, k = 1 … p, is stable where its reflection
coefficients (partial autocorrelations) κ[k] lie inside the unit circle; any numbers inside it make
a stable autoregression (Kay, *Modern Spectral Estimation*, 1988, ch. 6 and 7).

In the lattice form of a process `z = h s` the state holds the backward prediction errors of an
autoregression u, each over its standard deviation: what its latest value, the value before it, …
have that later ones do not predict. They are uncorrelated, and the state has the covariance I. From
one point of the grid to the next it is `C s + g w`, w being the innovation over its standard
deviation, and `C Cᴴ + g gᴴ = I`: no power of C grows, as powers of the companion matrix of the last
values do, which lose a digit of the covariance for each. Over k points the transition is `C^k` and
the process noise `Σ C^j g gᴴ C^jᴴ`, j < k, by binary powers: a sum of positive terms, in log k
products.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Self

import keras
import numpy as np
import tensorflow as tf

from cgp.kernels.base import Kernel
from cgp.kernels.data_scales import StartRules
from cgp.kernels.markov import MarkovForm, Pair, over_points, stationary_form
from cgp.kernels.points import as_array, coordinate
from cgp.kernels.spectrum import Spectrum
from cgp.linalg.arguments import ArrayLike, as_complex, squared_modulus
from cgp.observations import as_observations, check_same_labels
from cgp.training.hyperparameters import Hyperparameter, declared, positive_or_none, setting
from cgp.training.parameters import POSITIVE, UNIT_DISK, Parameter
from cgp.training.saving import check_size


class Autoregression(NamedTuple):
    """An autoregression of order p and unit variance."""

    coefficients: tf.Tensor  # a[1 … p], complex, [p]
    innovation: tf.Tensor  # E|w|², a real number from 0 to 1


def levinson(reflections: tf.Tensor) -> Autoregression:
    """The autoregression of reflection coefficients `[p]`, complex, of modulus at most 1."""
    innovation = tf.ones([], reflections.dtype.real_dtype)
    a = tf.zeros([0], reflections.dtype)
    for k in tf.unstack(reflections):
        a = tf.concat([a - k * tf.math.conj(tf.reverse(a, [0])), k[None]], axis=0)
        # Rounding may put the modulus of κ above 1.
        innovation = innovation * tf.maximum(1.0 - squared_modulus(k), 0.0)
    return Autoregression(a, innovation)


def reflections_of(coefficients: np.ndarray, name: str) -> np.ndarray:
    """The reflections `[p]` of a stable autoregression, by Levinson's recursion backwards."""
    a = np.array(coefficients, complex)
    reflections = np.zeros_like(a)
    for k in reversed(range(len(a))):
        reflections[k] = a[k]
        if not abs(a[k]) < 1.0:
            raise ValueError(
                f"{name} must have all roots outside the unit circle (their reflection "
                f"coefficients then have moduli below 1), got {coefficients!r}"
            )
        a = (a[:k] + a[k] * np.conj(a[:k][::-1])) / (1.0 - abs(a[k]) ** 2)
    return reflections


def burg(runs: Sequence[np.ndarray], order: int) -> np.ndarray:
    """Reflection coefficients `[order]` estimated from runs of samples without gaps, or an error.

    Each minimises the mean square of forward and backward prediction errors of all runs (Burg's
    method for segments: de Waele & Broersen, IEEE Trans. Signal Process. 48, 2000).
    """
    if max(map(len, runs), default=0) <= order:
        raise ValueError(
            f"an autoregression of order {order} needs a run of more than {order} samples without "
            f"a gap, got {max(map(len, runs), default=0)}"
        )
    errors, reflections = [(run, run) for run in runs], np.zeros(order, complex)
    for k in range(order):
        errors = [(f[1:], b[:-1]) for f, b in errors if len(f) > 1]
        power = sum(np.vdot(f, f).real + np.vdot(b, b).real for f, b in errors)
        cross = sum(np.vdot(b, f) for f, b in errors)
        reflections[k] = 2.0 * cross / power if power > 0 else 0.0
        errors = [(f - reflections[k] * b, b - np.conj(reflections[k]) * f) for f, b in errors]
    return reflections


# The largest deviation from a whole number of steps of the grid, in steps.
_TOLERANCE = 0.01


class Lattice(NamedTuple):
    """The lattice form of a process: `z = h s`, `s' = C s + g w`, s and w of unit power."""

    C: tf.Tensor  # [n, n], complex
    g: tf.Tensor  # [n], complex
    h: tf.Tensor  # [n], complex, in units of z


def lattice(reflections: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """C `[n, n]` and g `[n]` of the lattice form of reflection coefficients `[n]`.

    The errors of order k follow from those of order k − 1 by a rotation (Markel & Gray, IEEE Trans.
    ASSP 23, 1975, the normalised filter; complex as in Kay, 1988, ch. 7). With c² = 1 − |κ|²,

        f[k−1] = c[k] f[k] + κ[k] b[k−1]⁻,    b[k] = c[k] b[k−1]⁻ − conj(κ[k]) f[k],

    b⁻ being those of the point before, from f[n] = w down to b[0] = f[0], the value itself. Each
    f[k] is thus the sum of `c[k+1] … c[j] κ[j+1] b[j]⁻` over j = k … n, with w in the place of
    `κ[n+1] b[n]⁻`: arrays in place of a recursion, which would be traced step by step.
    """
    n = reflections.shape[0]
    smallest = np.finfo(reflections.dtype.real_dtype.as_numpy_dtype).tiny  # √0 has no derivative
    cosines = tf.sqrt(tf.maximum(1.0 - squared_modulus(reflections), smallest))
    row, column = np.arange(n)[:, None], np.arange(n + 1)
    factors = tf.where(column >= row, tf.pad(cosines, [[0, 1]], constant_values=1.0), 1.0)
    products = tf.math.cumprod(factors, axis=1, exclusive=True)
    products = tf.where(column >= row, products, tf.zeros_like(products))
    forward = as_complex(products) * tf.pad(reflections, [[0, 1]], constant_values=1.0)
    backward = tf.pad(tf.linalg.diag(as_complex(cosines))[:-1], [[0, 0], [0, 1]])
    backward -= tf.math.conj(reflections)[:-1, None] * forward[1:]
    rows = tf.concat([forward[:1], backward], axis=0)
    return rows[:, :n], rows[:, n]


class OnGrid(Kernel):
    """A kernel of a process over a regular grid of one dimension.

    Points that are no whole multiples of the step apart, to a hundredth of it, are an error; in
    graphs their covariances are NaN.
    """

    is_stationary = True
    settings_from_data = ("step",)
    step: float | None
    """The spacing of the grid, in units of x; None until a first fit takes the spacing of its x."""

    def starts(
        self, rules: StartRules, power: float, is_selected: Callable[[Parameter], bool]
    ) -> Iterator[tuple[Parameter, ArrayLike | None]]:
        """Hyperparameters and their starting values; a step that was left out is set first."""
        if self.step is None:
            self._set_from_data(step=step_of_grid(rules.scales.x))
        yield from super().starts(rules, power, is_selected)

    def start_of_reflections(self, rules: StartRules, order: int) -> np.ndarray:
        """The starting reflection coefficients, by Burg's method from the runs without gaps.

        Zeros where no run is longer than the order. Drawn ones are scaled by 0.5 to 1.
        """
        x = rules.scales.x[:, 0]
        by_place = np.argsort(x)
        breaks = 1 + np.flatnonzero(np.rint(np.diff(x[by_place]) / self._step()) != 1)
        runs = []
        for series in rules.scales.z[:, by_place]:
            missing = np.flatnonzero(np.isnan(series))
            stretches = np.split(series, np.union1d(breaks, np.union1d(missing, missing + 1)))
            runs += [run for run in stretches if not np.isnan(run).any()]
        if max(map(len, runs), default=0) <= order:
            return np.zeros(order)
        return burg(runs, order) * (1.0 if rules.draw is None else 0.5 + 0.5 * rules.uniform())

    def _step(self) -> float:
        if self.step is None:
            raise ValueError(
                f"the step of {self!r} was left out, and no fit has taken it from data yet: "
                "fit(x, z) of a regular x, or give step"
            )
        return self.step

    def lattice(self) -> Lattice:
        """The lattice form at the present hyperparameters."""
        raise NotImplementedError

    @property
    def innovation_variance(self) -> float:
        """`E|w|²`, the variance of one-step predictions from all of the past."""
        raise NotImplementedError

    def _counts(self, distance: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Distances in whole steps of the grid, and whether they are not whole (then 0)."""
        steps = distance / self._step()
        counts = tf.round(steps)
        off = ~(tf.abs(steps - counts) <= _TOLERANCE)
        if tf.executing_eagerly() and bool(tf.reduce_any(off)):
            raise ValueError(
                f"{type(self).__name__} is over a grid of step {self.step:g}, but x has points "
                f"{float(tf.abs(distance[off][0])):.6g} apart, which is no whole multiple: give "
                "the step of the data, or take a kernel in continuous time"
            )
        return tf.where(off, tf.zeros_like(counts), counts), off

    def moments(self, x1: tf.Tensor, x2: tf.Tensor) -> Pair:
        """Covariance and pseudo-covariance between points, elementwise."""
        lag = coordinate(x1, self) - x2[..., 0]
        counts, off = self._counts(lag)
        # The points of a grid have few different lags.
        different, index = tf.unique(tf.reshape(tf.abs(counts), [-1]))
        C, _, h = self.lattice()
        start = tf.math.conj(h)

        def double(k: tf.Tensor, power: tf.Tensor, states: tf.Tensor) -> tuple[tf.Tensor, ...]:
            on = _contains_power(different, k)[:, None]
            after = tf.where(on, tf.einsum("ij,uj->ui", power, states), states)
            return 2.0 * k, power @ power, after

        _, _, states = _loop_over_powers(different, double, C, over_points(start, different))
        k = tf.reshape(tf.gather(tf.linalg.matvec(states, h), index), tf.shape(lag))
        k = tf.where(counts < 0, tf.math.conj(k), k)
        return tf.where(off, tf.constant(np.nan, k.dtype), k), None

    def markov_form(self) -> MarkovForm:
        """The state-space form, with the state of the lattice form."""
        C, g, h = self.lattice()
        noise = g[:, None] * tf.math.conj(g)
        identity = tf.linalg.diag(tf.ones_like(h))

        def discretized(step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            counts, off = self._counts(step)

            def double(
                k: tf.Tensor, power: tf.Tensor, added: tf.Tensor, F: tf.Tensor, Q: tf.Tensor
            ) -> tuple[tf.Tensor, ...]:
                on = _contains_power(counts, k)[..., None, None]
                F = tf.where(on, power @ F, F)
                Q = tf.where(on, _congruence(power, Q) + added, Q)
                return 2.0 * k, power @ power, _congruence(power, added) + added, F, Q

            start = (C, noise, over_points(identity, step), over_points(tf.zeros_like(noise), step))
            *_, F, Q = _loop_over_powers(counts, double, *start)
            off = off[..., None, None]
            nan = tf.constant(np.nan, h.dtype)
            return tf.where(off, nan, F), tf.where(off, nan, Q)

        return stationary_form(discretized, identity, h)

    def spectrum(self) -> Spectrum:
        """The spectrum of the process.

        Between plus and minus half of a cycle per step, `step |h (e^{i2πf} I − C)⁻¹ g|²`, f in
        cycles per step, which is `step E|w|²` times the moduli squared of the polynomials of the
        moving average over those of the autoregression (Brockwell & Davis, 1991, §4.4).
        """
        if not self.innovation_variance > 0.0:
            raise ValueError(
                f"{self!r} is made of tones, as a reflection is on the unit circle: it has lines "
                "and no spectral density"
            )
        (C, g, h), step = (a.numpy() for a in self.lattice()), self._step()

        def density(f: np.ndarray) -> np.ndarray:
            turns = np.exp(2j * np.pi * step * np.asarray(f, float))[..., None, None]
            states = np.linalg.solve(turns * np.eye(len(h)) - C, g[:, None])[..., 0]
            power = step * np.abs(states @ h) ** 2
            return np.where(2.0 * step * np.abs(f) <= 1.0, power, 0.0)

        return Spectrum(density)

    def check_points(self, x: tf.Tensor) -> None:
        """Raises for points that the kernel does not take."""
        points = coordinate(x, self)
        self._counts(points - points[..., :1])

    def __repr__(self) -> str:
        step = "to be learned" if self.step is None else f"{self.step:g}"
        return f"{super().__repr__()[:-1]}, step={step})"


def step_of_grid(x: np.ndarray) -> float:
    """The spacing of the grid that points `[N, 1]` lie on, with gaps and repeats."""
    steps = np.diff(np.unique(x))
    if x.shape[-1] != 1 or not steps.size:
        raise ValueError(f"x of shape {x.shape} shows no step of a grid: give step to the kernel")
    # The mean over all of x, as the steps of rounded numbers differ.
    step = float(np.sum(steps) / np.sum(np.rint(steps / np.median(steps))))
    if np.any(np.abs(steps / step - np.rint(steps / step)) > _TOLERANCE):
        in_steps = steps / np.median(steps)
        worst = steps[np.argmax(np.abs(in_steps - np.rint(in_steps)))]
        raise ValueError(
            f"x is no regular grid: its median step is {np.median(steps):.6g}, but it has points "
            f"{worst:.6g} apart. Give the kernel its step, or take one in continuous time"
        )
    return step


def _contains_power(counts: tf.Tensor, k: tf.Tensor) -> tf.Tensor:
    """Whether whole numbers contain a power of two, k."""
    return tf.math.floormod(tf.math.floordiv(counts, k), 2.0) == 1.0


def _congruence(F: tf.Tensor, Q: tf.Tensor) -> tf.Tensor:
    """The covariance `F Q Fᴴ`, Hermitian to the last digit."""
    spread = tf.linalg.matmul(F, tf.linalg.matmul(Q, F, adjoint_b=True))
    return 0.5 * (spread + tf.linalg.adjoint(spread))


def _loop_over_powers(counts: tf.Tensor, double: Any, *start: tf.Tensor) -> Any:
    """Loops over the powers of two up to the largest count; `double` takes the power first."""
    limit = tf.reduce_max(counts)
    return tf.while_loop(lambda k, *_: k <= limit, double, (tf.ones([], counts.dtype), *start))


def order_of(order: int, name: str) -> int:
    """Returns an order, if it is a whole number of at least 1 and not too large for memory."""
    if isinstance(order, bool) or not isinstance(order, int | np.integer) or order < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {order!r}")
    check_size(2 * int(order), f"{name} {order}", "float32", f"take a smaller {name}")
    return int(order)


def vector_of(values: ArrayLike, name: str) -> np.ndarray:
    """Returns coefficients `[p]`, p > 0, as an array, or raises an error."""
    vector = np.asarray(values)
    if vector.ndim != 1 or not vector.size or vector.dtype.kind not in "iufc":
        raise ValueError(f"{name} must be numbers [p], p > 0, got {values!r}")
    return vector


@keras.saving.register_keras_serializable(package="cgp.kernels")
@declared
class Autoregressive(OnGrid):
    """A complex autoregression over a regular grid, `z[t] = Σ a[k] z[t−k] + w[t]`, k = 1 … order.

    It is learned by its reflection coefficients (partial autocorrelations): all values inside the
    unit circle make a stable process, values on it tones without noise. Samples may be missing and
    repeated; a gap of k steps takes log k products of matrices.

    Args:
        order: The number of coefficients.
        variance: `E|z|²`, positive; in squared units of z.
        reflections: Complex, `[order]`, of modulus at most 1; None for zeros, white noise.
        step: The spacing of the grid, positive, in units of x; None to take it from the first fit.
        priors: TFP distributions of parameters, by name; of reflections, of their [re, im].
        fixed, name, dtype: As for `RBF`.

    Raises:
        ValueError: An order below 1, reflections of another number or outside the unit disk, a step
            that is not positive; eagerly, in use, points that are no whole multiples of it apart.

    Example:
        >>> import numpy as np
        >>> from cgp.kernels import Autoregressive
        >>> kernel = Autoregressive.from_coefficients([0.5j, 0.2], innovation_variance=1.0)
        >>> kernel.coefficients.round(12), round(kernel.innovation_variance, 12)
        (array([0. +0.5j, 0.2+0.j ]), 1.0)
        >>> kernel.covariance([0.0, 1.0, 7.0]).shape
        TensorShape([3, 3])
    """

    order: int = setting(order_of)
    variance: Hyperparameter = Hyperparameter(POSITIVE, default=None)
    reflections: Hyperparameter = Hyperparameter(
        UNIT_DISK, default=None, length=lambda kernel: kernel.order
    )
    step: float | None = setting(positive_or_none, default=None)

    def start_of(self, name: str, rules: StartRules) -> ArrayLike | None:
        """The starting values: reflections by Burg's method."""
        if name == "reflections":
            return self.start_of_reflections(rules, self.order)
        return super().start_of(name, rules)

    @classmethod
    def from_coefficients(
        cls,
        coefficients: ArrayLike,
        innovation_variance: float = 1.0,
        step: float = 1.0,
        **kwargs: Any,
    ) -> Self:
        """The autoregression of known coefficients.

        Args:
            coefficients: a[1 … order], complex, `[order]`.
            innovation_variance: `E|w|²`, positive; in squared units of z.
            step: The spacing of the grid, in units of x.
            **kwargs: As for the constructor.

        Raises:
            ValueError: Coefficients that are not stable, or no vector.
        """
        reflections = reflections_of(vector_of(coefficients, "coefficients"), "coefficients")
        variance = innovation_variance / np.prod(1.0 - np.abs(reflections) ** 2)
        return cls(len(reflections), variance, reflections, step, **kwargs)

    @classmethod
    def from_data(
        cls, x: ArrayLike, z: ArrayLike, order: int, step: float | None = None, **kwargs: Any
    ) -> Self:
        """The autoregression that Burg's method finds in a series, gaps and all.

        Runs of samples without a gap are taken together (`burg` for segments). Noise of the
        measurement counts as signal: this is where a fit starts, or an estimate for clean data.

        Args:
            x: Points, `[N]`, in any order, no two of them equal, whole multiples of a step apart.
            z: Complex series of mean zero, `[N]`; NaN, or hidden by a mask, where missing.
            order: The number of coefficients.
            step: The spacing of the grid; None for the spacing of a regular x.
            **kwargs: As for the constructor.

        Raises:
            TypeError: Complex x or real z.
            ValueError: Shapes that are not `[N]`, repeated points, steps that are no whole
                multiples, no run of samples longer than the order, or a series of zeros.
        """
        check_same_labels(x=(x, 0), z=(z, 0))
        x = np.asarray(as_array(x, "x"), float)
        z = np.asarray(as_observations(z, None, "complex128"))
        if x.ndim != 1 or x.shape != z.shape or x.size < 2:
            raise ValueError(f"x and z must be [N], N > 1, got {x.shape} and {z.shape}")
        by_place = np.argsort(x)
        x, z = x[by_place], z[by_place]
        step = step_of_grid(x[:, None]) if step is None else step
        kernel = cls(order, step=step, **kwargs)
        kernel.check_points(tf.constant(x[:, None]))
        counts = np.rint(np.diff(x) / step)
        if np.any(counts == 0):
            raise ValueError("x must not repeat points: average the samples there first")
        is_present = ~np.isnan(z)
        x, z = x[is_present], z[is_present]
        power = np.mean(np.abs(z) ** 2) if z.size else 0.0
        if not power > 0.0:
            raise ValueError("z must have samples that are not zero")
        runs = np.split(z, 1 + np.flatnonzero(np.rint(np.diff(x) / step) > 1))
        return cls(kernel.order, power, burg(runs, kernel.order), step, **kwargs)

    def _autoregression(self) -> Autoregression:
        return levinson(self.reflections.value)

    @property
    def coefficients(self) -> np.ndarray:
        """a[1 … order], complex, `[order]`."""
        return self._autoregression().coefficients.numpy()

    @property
    def innovation_variance(self) -> float:
        """`E|w|²`, the variance of one-step predictions from all of the past."""
        return float(self.variance.value * self._autoregression().innovation)

    def lattice(self) -> Lattice:
        """The lattice form of the process at the present hyperparameters."""
        C, g = lattice(self.reflections.value)
        first = tf.one_hot(0, self.order, dtype=g.dtype)
        return Lattice(C, g, as_complex(tf.sqrt(self.variance.value)) * first)


@keras.saving.register_keras_serializable(package="cgp.kernels")
@declared
class ARMA(OnGrid):
    """A complex ARMA process, `z[t] = Σ a[k] z[t−k] + w[t] + Σ b[j] w[t−j]`, over a regular grid.

    k = 1 … ar_order, j = 1 … ma_order. Both parts are learned by reflection coefficients,
    as in `Autoregressive`: all values in the unit disk make a stable and invertible process. With u
    an autoregression of coefficients a, `z[t] = u[t] + Σ b[j] u[t−j]` (Brockwell & Davis,
    *Time Series: Theory and Methods*, 1991, §12.1).

    Args:
        ar_order: The number of coefficients a.
        ma_order: The number of coefficients b.
        ar_reflections: Complex, `[ar_order]`, of modulus at most 1; None for zeros.
        ma_reflections: Complex, `[ma_order]`, of modulus at most 1, of the autoregression with
            coefficients −b; None for zeros.
        variance, step, fixed, priors, name, dtype: As for `Autoregressive`.

    Raises:
        ValueError: As for `Autoregressive`.

    Example:
        >>> from cgp.kernels import ARMA
        >>> kernel = ARMA.from_coefficients([0.5j], [0.2], innovation_variance=1.0)
        >>> kernel.ar_coefficients.round(12), kernel.ma_coefficients.round(12)
        (array([0.+0.5j]), array([0.2-0.j]))
        >>> kernel.covariance([0.0], [0.0, 1.0]).numpy().round(4)
        array([[1.3867+0.j    , 0.2   -0.6933j]])
    """

    ar_order: int = setting(order_of)
    ma_order: int = setting(order_of)
    variance: Hyperparameter = Hyperparameter(POSITIVE, default=None)
    ar_reflections: Hyperparameter = Hyperparameter(
        UNIT_DISK, default=None, length=lambda kernel: kernel.ar_order
    )
    ma_reflections: Hyperparameter = Hyperparameter(
        UNIT_DISK, default=None, length=lambda kernel: kernel.ma_order
    )
    step: float | None = setting(positive_or_none, default=None)

    def start_of(self, name: str, rules: StartRules) -> ArrayLike | None:
        """The starting values: reflections of the autoregression by Burg's method, others zero."""
        if name == "ar_reflections":
            return self.start_of_reflections(rules, self.ar_order)
        if name == "ma_reflections":
            return 0.5 * (rules.uniform() - 0.5) * np.ones(self.ma_order)
        return super().start_of(name, rules)

    @classmethod
    def from_coefficients(
        cls,
        ar_coefficients: ArrayLike,
        ma_coefficients: ArrayLike,
        innovation_variance: float = 1.0,
        step: float = 1.0,
        **kwargs: Any,
    ) -> Self:
        """The process of known coefficients.

        Args:
            ar_coefficients: a[1 …], complex, `[ar_order]`.
            ma_coefficients: b[1 …], complex, `[ma_order]`.
            innovation_variance: `E|w|²`, positive; in squared units of z.
            step: The spacing of the grid, in units of x.
            **kwargs: As for the constructor.

        Raises:
            ValueError: Coefficients that are not stable or not invertible, or no vectors.
        """
        ar = reflections_of(vector_of(ar_coefficients, "ar_coefficients"), "ar_coefficients")
        ma = reflections_of(-vector_of(ma_coefficients, "ma_coefficients"), "-ma_coefficients")
        unit = cls(len(ar), len(ma), 1.0, ar, ma)
        variance = innovation_variance / unit.innovation_variance
        return cls(len(ar), len(ma), variance, ar, ma, step, **kwargs)

    @property
    def ar_coefficients(self) -> np.ndarray:
        """a[1 … ar_order], complex, `[ar_order]`."""
        return levinson(self.ar_reflections.value).coefficients.numpy()

    @property
    def ma_coefficients(self) -> np.ndarray:
        """b[1 … ma_order], complex, `[ma_order]`."""
        return -levinson(self.ma_reflections.value).coefficients.numpy()

    @property
    def innovation_variance(self) -> float:
        """`E|w|²`, the variance of one-step predictions from all of the past."""
        _, _, _, square = self._unscaled()
        innovation = levinson(self.ar_reflections.value).innovation
        return float(self.variance.value / square * innovation)

    def _unscaled(self) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """C, g and h of `u[t] + Σ b[j] u[t−j]`, u of unit variance, and its variance."""
        n = max(self.ar_order, self.ma_order + 1)
        # An autoregression of order n whose last coefficients are zero.
        C, g = lattice(tf.pad(self.ar_reflections.value, [[0, n - self.ar_order]]))
        # u[t − j] in terms of the state, E[u[t − j] s[t]ᴴ], is the first row of C^jᴴ.
        row = tf.one_hot(0, n, dtype=g.dtype)
        h = row
        for b in tf.unstack(-levinson(self.ma_reflections.value).coefficients):
            row = tf.linalg.matvec(tf.math.conj(C), row)
            h += b * row
        return C, g, h, tf.reduce_sum(squared_modulus(h))

    def lattice(self) -> Lattice:
        """The lattice form of the process at the present hyperparameters."""
        C, g, h, square = self._unscaled()
        return Lattice(C, g, as_complex(tf.sqrt(self.variance.value / square)) * h)
