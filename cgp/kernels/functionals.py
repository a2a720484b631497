"""What samples measure of a process: its value, its derivative, or its mean over an exposure.

All three are linear functionals of the process, whose covariances follow from the kernel: those of
derivatives are partial derivatives of K and C (`cgp.kernels.partials`). A mean over an exposure is
exact for a Markov process of a differential equation: the integral of the signal is another state
of the equation, `dy = z dx`, and the covariance of two exposures adds up from those of the
intervals into which their ends cut the line.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from cgp.distributions.forms import SecondMoments
from cgp.kernels.base import Kernel
from cgp.kernels.linear_sde import discretize
from cgp.kernels.markov import Generator, MarkovForm, Pair
from cgp.linalg.arguments import as_complex


class Functional(NamedTuple):
    """The linear functional of the signal that each sample measures, in tensors or arrays.

    Fields that are not needed are None. V is 1 where all series share it, else their number B.
    """

    derivative: Any = None
    """Where the sample is of the derivative, bool, `[V, N]`."""
    width: Any = None
    """The width w of an exposure centred at the place of the sample, `[x − w/2, x + w/2]`, over
    which the signal is averaged; zero for an instant. Real, in units of x, `[V, N]`."""
    stops: Any = None
    """Where the integral of an exposure stops, which has the slot of its begin among those that
    overlap: real, `[V, N, slots]`, NaN in the other slots. Exposures that begin together share an
    integral, which stops with the longest."""

    @property
    def is_value(self) -> bool:
        """Whether all samples measure the value of the signal."""
        return self.derivative is None and self.width is None

    def map(self, function: Callable[[Any], Any]) -> "Functional":
        """Applies a function to the fields that are not None."""
        return Functional(*(None if field is None else function(field) for field in self))

    def with_values(self, count: int) -> "Functional":
        """The functional of these samples and of `count` values after them."""

        def longer(a: tf.Tensor | None, filling: Any) -> tf.Tensor | None:
            if a is None:
                return None
            padding = [[0, 0], [0, count], *[[0, 0]] * (a.shape.rank - 2)]
            return tf.pad(a, padding, constant_values=tf.constant(filling, a.dtype))

        derivative, width, stops = self
        nothing = float("nan")
        return Functional(longer(derivative, False), longer(width, 0.0), longer(stops, nothing))

    def ends(self, x: tf.Tensor) -> tf.Tensor:
        """The places at which measurements at places x, `[X, N]`, are complete."""
        return x if self.width is None else x + 0.5 * self.width

    def begins(self, x: tf.Tensor) -> tf.Tensor:
        """The places at which measurements at places x, `[X, N]`, begin."""
        return x if self.width is None else x - 0.5 * self.width


VALUES = Functional()
"""The functional of samples of the value of the signal."""


def check_functional(kernel: Kernel, functional: Functional, x: tf.Tensor) -> None:
    """Raises a ValueError, eagerly, for a functional that the process of a kernel does not have.

    It is tried at the first of places `[X, N, 1]`.
    """
    if functional.derivative is not None:
        kernel.partials(x[0, :1], x[0, :1])
    if functional.width is not None and (
        not kernel.is_markov or kernel.markov_form().generator is None
    ):
        raise ValueError(
            f"widths are of a Markov process of a differential equation, as of a Matérn kernel, "
            f"and {kernel!r} is not one: give widths=None for samples at instants, or take a "
            "Markov kernel, such as cgp.kernels.MarkovApproximation of an RBF"
        )


class Integrated(NamedTuple):
    """The differential equation of a process beside the integral of it, in rescaled units.

    The state is (s, y), `dy = rate R s dx`, with a y for each component R s of the process
    (`MarkovForm.emissions`).
    """

    generator: Generator
    rate: tf.Tensor
    """The size of the drift, real: y is then in units of z, whatever the unit of x."""


def integrated(form: MarkovForm) -> Integrated:
    """The equation of a process and its integral; its form has a generator."""
    A, W = form.generator  # type: ignore[misc]  # which `check_functional` has seen
    rows = form.emissions
    size = tf.reduce_max(tf.reduce_sum(tf.abs(tf.stop_gradient(A)), axis=-1))
    rate = tf.where(size > 0.0, size, tf.ones_like(size))
    states = rows.shape[0]
    driven = tf.concat([A, rows * as_complex(rate)], axis=0)
    generator = Generator(tf.pad(driven, [[0, 0], [0, states]]), tf.pad(W, [[0, states]] * 2))
    return Integrated(generator, rate)


def moments_of_samples(
    kernel: Kernel, x1: tf.Tensor, first: Functional, x2: tf.Tensor, second: Functional
) -> SecondMoments:
    """Covariance and pseudo-covariance, None when proper, between samples of a process.

    Places are `[..., N1, 1]` and `[..., N2, 1]`, the result is `[..., N1, N2]`.
    """
    if first.width is None and second.width is None:
        k, c = _moments_of_derivatives(kernel, x1, first, x2, second)
    else:
        form = kernel.markov_form()
        equation = integrated(form)
        samples1 = _Exposures.of(form, equation, x1[..., 0], first)
        samples2 = _Exposures.of(form, equation, x2[..., 0], second)
        k, c = form.second_moments(_covariance_of_exposures(form, equation, samples1, samples2))
    return SecondMoments(as_complex(k), None if c is None else as_complex(c))


def _moments_of_derivatives(
    kernel: Kernel, x1: tf.Tensor, first: Functional, x2: tf.Tensor, second: Functional
) -> Pair:
    partials = kernel.partials(x1[..., :, None, :], x2[..., None, :, :])
    columns = None if second.derivative is None else second.derivative[..., None, :]
    rows = None if first.derivative is None else first.derivative[..., :, None]

    def select(is_derivative: tf.Tensor | None, derivative: Any, value: Any) -> Any:
        if value is None or is_derivative is None:
            return value
        return tf.where(is_derivative, derivative, value)

    moments = []
    for value, by_first, by_second, by_both in zip(*partials, strict=True):
        of_value = select(columns, by_second, value)
        of_derivative = select(columns, by_both, by_first)
        moments.append(select(rows, of_derivative, of_value))
    k, c = moments
    return k, c


# --- exposures -----------------------------------------------------------------------------------
# Over an interval of length l that begins with the state s(a), the components u = R s of the signal
# have the integral y = g s(a) + noise, g = R ∫ F du, and the state at its end the covariance
# c = E[s(a + l) yᴴ] with it. Two intervals of which one begins a distance d after the other ends
# then have the covariance g F(d) c, the factors being of the later and of the earlier interval.


class _Exposures(NamedTuple):
    """Samples `[..., N]` as intervals; an instant has no length, and its value in place of y."""

    begin: tf.Tensor
    end: tf.Tensor
    rows: tf.Tensor
    """g over the width, or the emission of an instant, `[..., N, m, n]`."""
    columns: tf.Tensor
    """c over the width, or the covariance of the state with an instant, `[..., N, n, m]`."""

    @property
    def is_instant(self) -> tf.Tensor:
        """Whether a sample is of an instant, `[..., N]`."""
        return self.begin == self.end

    @classmethod
    def of(
        cls,
        form: MarkovForm,
        equation: Integrated,
        x: tf.Tensor,
        functional: Functional,
    ) -> "_Exposures":
        """Samples at places `[..., N]`."""
        begin, end = functional.begins(x), functional.ends(x)
        rows = form.emissions + tf.zeros_like(as_complex(begin))[..., None, None]
        if functional.derivative is not None:
            of_derivative = functional.derivative[..., None, None]
            rows = tf.where(of_derivative, form.derivative_emissions(), rows)
        columns = tf.linalg.matmul(form.covariance(x), rows, adjoint_b=True)
        begin, end = _broadcast(begin, end)
        samples = cls(begin, end, rows, columns)
        if functional.width is None:
            return samples
        of_width = _over(form, equation, begin, end - begin)
        length = as_complex(equation.rate * (end - begin))[..., None, None]
        is_instant = samples.is_instant[..., None, None]
        length = tf.where(is_instant, tf.ones_like(length), length)
        return samples._replace(
            rows=tf.where(is_instant, rows, of_width.g / length),
            columns=tf.where(is_instant, columns, of_width.c / length),
        )


def _broadcast(*arrays: tf.Tensor) -> list[tf.Tensor]:
    shape = tf.shape(arrays[0])
    for a in arrays[1:]:
        shape = tf.broadcast_dynamic_shape(shape, tf.shape(a))
    return [tf.broadcast_to(a, shape) for a in arrays]


class _Interval(NamedTuple):
    """Integrals over intervals `[...]`, multiplied by the rate of `Integrated`."""

    F: tf.Tensor
    """The transition of the state, `[..., n, n]`."""
    g: tf.Tensor
    """`[..., m, n]`."""
    c: tf.Tensor
    """`[..., n, m]`."""
    variance: tf.Tensor
    """`E[y yᴴ]`, `[..., m, m]`."""


def _over(form: MarkovForm, equation: Integrated, begin: tf.Tensor, length: tf.Tensor) -> _Interval:
    F, Q = discretize(equation.generator, length)
    n = form.size
    columns = F[..., :n]  # y begins at zero
    spread = tf.linalg.matmul(columns, form.covariance(begin))
    joint = tf.linalg.matmul(spread, columns, adjoint_b=True) + Q
    return _Interval(F[..., :n, :n], F[..., n:, :n], joint[..., :n, n:], joint[..., n:, n:])


def _covariance_of_exposures(
    form: MarkovForm,
    equation: Integrated,
    first: _Exposures,
    second: _Exposures,
) -> tf.Tensor:
    """The covariances `[..., N1, N2, m, m]` of the components of samples."""
    begin1, begin2 = _broadcast(first.begin[..., :, None], second.begin[..., None, :])
    end1, end2 = _broadcast(first.end[..., :, None], second.end[..., None, :])
    is_later = (begin1 >= end2)[..., None, None]
    # Of pairs that overlap it does not matter.
    gap = tf.maximum(tf.where(begin1 >= end2, begin1 - end2, begin2 - end1), 0.0)
    rows1, rows2 = first.rows[..., :, None, :, :], second.rows[..., None, :, :, :]
    columns1, columns2 = first.columns[..., :, None, :, :], second.columns[..., None, :, :, :]
    rows = tf.where(is_later, rows1, rows2)
    columns = tf.where(is_later, columns2, columns1)
    apart = tf.linalg.matmul(rows, tf.linalg.matmul(form.transition(gap), columns))
    apart = tf.where(is_later, apart, tf.linalg.adjoint(apart))

    overlap = tf.where((begin1 < end2) & (begin2 < end1))  # [pairs, r], the last axes N1 and N2

    def of_pairs(samples: _Exposures, axis: int) -> _Exposures:
        """The samples of the pairs that overlap, from the axis of points and those before it."""
        index = tf.concat([overlap[:, :-2], overlap[:, axis : axis + 1 or None]], axis=-1)
        batch = tf.shape(begin1)[:-2]

        def at(a: tf.Tensor, event_rank: int) -> tf.Tensor:
            event = tf.shape(a)[a.shape.rank - event_rank - 1 :]
            return tf.gather_nd(tf.broadcast_to(a, tf.concat([batch, event], axis=0)), index)

        ranks = (0, 0, 2, 2)
        return _Exposures(*(at(a, rank) for a, rank in zip(samples, ranks, strict=True)))

    pairs = of_pairs(first, -2), of_pairs(second, -1)
    together = _covariance_of_overlaps(form, equation, *pairs)
    return tf.tensor_scatter_nd_update(apart, overlap, together)


def _covariance_of_overlaps(
    form: MarkovForm,
    equation: Integrated,
    first: _Exposures,
    second: _Exposures,
) -> tf.Tensor:
    """The covariances `[pairs, m, m]` of pairs of samples that overlap.

    Their ends cut the line into an interval before the overlap, the overlap, and one after it. The
    first belongs to the sample that begins earlier, the last to the one that ends later.
    """
    adjoint = tf.linalg.adjoint
    begin, end = tf.maximum(first.begin, second.begin), tf.minimum(first.end, second.end)
    start = tf.minimum(first.begin, second.begin)
    before = _over(form, equation, start, begin - start)
    inside = _over(form, equation, begin, end - begin)
    after = _over(form, equation, end, tf.maximum(first.end, second.end) - end)
    # An instant inside an exposure is an overlap of no length, with an emission of its own.
    g, c = inside.g, inside.c
    for sample in (first, second):
        is_instant = sample.is_instant[..., None, None]
        g = tf.where(is_instant, sample.rows, g)
        c = tf.where(is_instant, sample.columns, c)
    is_before = (first.begin < second.begin)[..., None, None]
    is_after = (first.end > second.end)[..., None, None]
    of_before = tf.linalg.matmul(g, before.c)  # E[y(inside) y(before)ᴴ]
    of_after = tf.linalg.matmul(after.g, c)
    across = tf.linalg.matmul(after.g, tf.linalg.matmul(inside.F, before.c))
    across = tf.where(is_after, across, adjoint(across))
    total = inside.variance + tf.where(is_before, adjoint(of_before), of_before)
    total += tf.where(is_after, of_after, adjoint(of_after))
    # A sample that begins earlier and ends later has both intervals.
    total += tf.where(is_before == is_after, tf.zeros_like(across), across)
    for sample in (first, second):
        length = equation.rate * (sample.end - sample.begin)
        length = tf.where(sample.is_instant, tf.ones_like(length), length)
        total /= as_complex(length)[..., None, None]
    return total
