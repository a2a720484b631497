"""Processes over a regular grid, in companion form: what autoregressions have in common.

The state holds the last n values of an autoregression u, newest first, and `z = h s`. From one
point of the grid to the next it moves by the companion matrix C, whose first row has the
coefficients, and the innovation joins its first element. Over k points these are `C^k` and
`Σ C^j W C^jᴴ`, j < k, by binary powers: a sum of positive terms, in log k products.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cgp.kernels.base import Kernel
from cgp.kernels.data_scales import StartRules
from cgp.kernels.levinson import Autoregression, burg
from cgp.kernels.markov import MarkovForm, Pair, over_points
from cgp.kernels.spectrum import Spectrum
from cgp.linalg.arguments import ArrayLike, as_complex
from cgp.training.hyperparameters import one_number
from cgp.training.parameters import Parameter
from cgp.training.saving import check_size

# Steps further from a whole multiple of the grid's, in parts of it, are none.
_TOLERANCE = 0.01


class Companion(NamedTuple):
    """The companion form of a process on a grid: `z = h s`, `s' = C s + e w`, e = [1, 0, …]."""

    C: tf.Tensor
    """The companion matrix, `[n, n]`, complex."""
    innovation: tf.Tensor
    """`E|w|²`, real, in squared units of z."""
    P: tf.Tensor
    """The covariance of the state, `[n, n]`, complex."""
    h: tf.Tensor
    """The emission, `[n]`, complex."""


def companion(process: Autoregression, variance: tf.Tensor, h: tf.Tensor) -> Companion:
    """The companion form of the process `h s` of a given variance, with as many states as h `[n]`.

    Args:
        process: The autoregression u, of order n.
        variance: `E|z|²`, real.
        h: The emission.
    """
    a, innovation, r = process
    n = h.shape[0]
    C = tf.concat([a[None], tf.eye(n - 1, n, dtype=a.dtype)], axis=0)
    # E[u[t−i] conj(u[t−j])] depends on j − i.
    P = tf.linalg.LinearOperatorToeplitz(tf.math.conj(r[:n]), r[:n]).to_dense()
    unscaled = tf.math.real(tf.reduce_sum(h * tf.linalg.matvec(P, tf.math.conj(h))))
    scale = variance / unscaled
    return Companion(C, scale * innovation, as_complex(scale) * P, h)


class OnGrid(Kernel):
    """A kernel of a process over a regular grid of one dimension.

    Raises:
        ValueError: A step that is not a positive number; when it is used, a step that was left out
            before any fit; eagerly, points that are no whole multiples of it apart (to a hundredth
            of the step). In graphs their covariances are NaN.
    """

    step: float | None
    """The spacing of the grid, in units of x; None until a first fit takes that of its x."""

    def starts(
        self, rules: StartRules, power: float, is_selected: Callable[[Parameter], bool]
    ) -> Iterator[tuple[Parameter, ArrayLike | None]]:
        """Hyperparameters and their starting values; a step that was left out is set first."""
        if self.step is None:
            self._set_from_data(step=step_of_grid(rules.scales.x))
        yield from super().starts(rules, power, is_selected)

    @contextlib.contextmanager
    def undone_on_error(self) -> Iterator[None]:
        """A context after which the step of the grid is that of before if it raises."""
        before = self.step
        try:
            with super().undone_on_error():
                yield
        except BaseException:
            self._set_from_data(step=before)
            raise

    def start_of_reflections(self, rules: StartRules, order: int) -> np.ndarray:
        """The starting reflection coefficients, by Burg's method, of the runs without gaps.

        Zeros where no run is longer than the order. Drawn between half of them and all.
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

    def companion(self) -> Companion:
        """The process at the present hyperparameters."""
        raise NotImplementedError

    def _counts(self, distance: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Distances in whole steps of the grid, and whether they are no whole steps (then 0)."""
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
        if x1.shape[-1] not in (1, None):
            raise ValueError(f"{self!r} needs inputs of one dimension, got {x1.shape[-1]}")
        lag = x1[..., 0] - x2[..., 0]
        counts, off = self._counts(lag)
        # Of a grid the same lags come again and again.
        different, index = tf.unique(tf.reshape(tf.abs(counts), [-1]))
        C, _, P, h = self.companion()
        start = tf.linalg.matvec(P, tf.math.conj(h))

        def apply(power: tf.Tensor, on: tf.Tensor, states: tf.Tensor) -> tf.Tensor:
            return tf.where(on[:, None], tf.einsum("ij,uj->ui", power, states), states)

        def double(
            k: tf.Tensor, power: tf.Tensor, states: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            return 2.0 * k, power @ power, apply(power, _contains_power(different, k), states)

        _, _, states = _loop_over_powers(different, double, C, over_points(start, different))
        k = tf.reshape(tf.gather(tf.linalg.matvec(states, h), index), tf.shape(lag))
        k = tf.where(counts < 0, tf.math.conj(k), k)
        return tf.where(off, tf.constant(np.nan, k.dtype), k), None

    def markov_form(self) -> MarkovForm:
        """The state-space form, whose state is that of the companion form."""
        C, innovation, P, h = self.companion()
        first = tf.one_hot(0, h.shape[0], dtype=h.dtype)
        noise = as_complex(innovation) * tf.linalg.diag(first)
        identity = tf.linalg.diag(tf.ones_like(h))

        def discretized(step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            counts, off = self._counts(step)

            def double(
                k: tf.Tensor, power: tf.Tensor, added: tf.Tensor, F: tf.Tensor, Q: tf.Tensor
            ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
                on = _contains_power(counts, k)[..., None, None]
                F = tf.where(on, power @ F, F)
                Q = tf.where(on, _congruence(power, Q) + added, Q)
                return 2.0 * k, power @ power, _congruence(power, added) + added, F, Q

            start = (C, noise, over_points(identity, step), over_points(tf.zeros_like(noise), step))
            *_, F, Q = _loop_over_powers(counts, double, *start)
            off = off[..., None, None]
            nan = tf.constant(np.nan, h.dtype)
            return tf.where(off, nan, F), tf.where(off, nan, Q)

        return MarkovForm(
            lambda step: discretized(step)[0],
            lambda x, step: discretized(step),
            lambda x: over_points(P, x),
            h,
        )

    def spectrum(self) -> Spectrum:
        """The spectrum of the process.

        Between plus and minus half of a cycle per step, `step E|w|² |Σ h[k] e^{−i2πfk}|² /
        |1 − Σ a[k] e^{−i2πfk}|²`, f in cycles per step (Brockwell & Davis, 1991, §4.4).
        """
        C, innovation, _, h = (np.asarray(a) for a in self.companion())
        if not innovation > 0.0:
            raise ValueError(
                f"{self!r} is made of tones, as a reflection is on the unit circle: it has lines "
                "and no spectral density"
            )
        ar, step = np.append(1.0, -C[0]), self._step()

        def density(f: np.ndarray) -> np.ndarray:
            delayed = np.exp(-2j * np.pi * step * f)
            gain = np.polyval(h[::-1], delayed) / np.polyval(ar[::-1], delayed)
            power = step * innovation * np.abs(gain) ** 2
            return np.where(2.0 * step * np.abs(f) <= 1.0, power, 0.0)

        return Spectrum(density)

    def check_points(self, x: tf.Tensor) -> None:
        """Raises for points that the kernel does not take."""
        if x.shape[-1] != 1:
            raise ValueError(f"{self!r} needs inputs of one dimension, got {x.shape[-1]}")
        self._counts(x - x[..., :1, :])

    def __repr__(self) -> str:
        step = "to be learned" if self.step is None else f"{self.step:g}"
        return f"{super().__repr__()[:-1]}, step={step})"


def step_of_grid(x: np.ndarray) -> float:
    """The spacing of the grid that points `[N, 1]` lie on, in any order, with gaps and repeats.

    Raises:
        ValueError: They are no whole multiples of their median step apart, to a hundredth of it.
    """
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
    most = tf.reduce_max(counts)
    return tf.while_loop(lambda k, *_: k <= most, double, (tf.ones([], counts.dtype), *start))


def step_or_none(step: float | None, name: str) -> float | None:
    """Returns the spacing of a grid, positive, or None if it is left out.

    Raises:
        ValueError: It is not positive.
    """
    if step is None:
        return None
    if np.iscomplexobj(one_number(step, name)) or not 0.0 < step < np.inf:
        raise ValueError(f"{name} must be a positive number, got {step!r}")
    return float(step)


def order_of(order: int, name: str) -> int:
    """Returns an order, if it is a whole number of at least 1.

    Raises:
        ValueError: It is not, or so many coefficients are too large.
    """
    if isinstance(order, bool) or not isinstance(order, int | np.integer) or order < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {order!r}")
    check_size(2 * int(order), f"{name} {order}", "float32", f"take a smaller {name}")
    return int(order)


def vector_of(values: ArrayLike, name: str) -> np.ndarray:
    """Returns coefficients `[p]`, p > 0, as an array.

    Raises:
        ValueError: They are no vector of numbers.
    """
    vector = np.asarray(values)
    if vector.ndim != 1 or not vector.size or vector.dtype.kind not in "iufc":
        raise ValueError(f"{name} must be numbers [p], p > 0, got {values!r}")
    return vector
