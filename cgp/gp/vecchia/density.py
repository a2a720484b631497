"""Vecchia's approximation: the density of each sample given the nearest of those before it.

The density of all samples is a product of conditional densities. Each sample is conditioned on k
of those before it alone (Vecchia, JRSS B 50, 1988; Stein, Chi & Welty, JRSS B 66, 2004; Datta et
al., JASA 111, 2016; the "response" form, of noisy samples, of Katzfuss & Guinness, Statistical
Science 36, 2021):

    log p ≈ Σ_i log p(z_i | z_c(i)),

which is exact where c(i) are all samples before. With K the working covariance of the neighbours
and, last, of the sample, of m rows (1 of a proper normal, 2 of the real composite), L Lᴴ = K,
y = L⁻¹ z, e the last m elements of y, and L_m the last block of L, a term is

    log p(z_i | z_c(i)) = −s (eᴴ e + 2 log|L_m|) + constant,

s being 1 for a proper complex normal and ½ for the real composite. It is the difference of the log
densities of all of the block and of the neighbours, whose gradients are s (α αᴴ − K⁻¹). With W the
last m columns of L⁻ᴴ, and a = L⁻ᴴ (y with zeros for e), α is a + W e for the block and a for the
neighbours, whose inverse covariances differ by W Wᴴ:

    K̄ = s (W (e eᴴ − I) Wᴴ + W e aᴴ + a eᴴ Wᴴ),    z̄ = −2 s W e.

That is one Cholesky factor and m + 1 triangular solves a sample, O(N k³), and no inverse. The tape
runs through the entries of K alone. Samples are taken chunk by chunk, and so is the gradient, so
that memory is that of a chunk.

A prediction is the conditional distribution of the signal at a new point given the noisy samples
nearest to it. It is of each point by itself.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from cgp.distributions.forms import Form, SecondMoments
from cgp.gp.data import Data, Predecessors
from cgp.gp.grid.covariance import in_blocks
from cgp.gp.noise import SampleNoise
from cgp.gp.signal_plus_noise import SignalPlusNoise
from cgp.gp.vecchia.neighbours import predecessors
from cgp.linalg import cholesky
from cgp.linalg.arguments import as_complex, real_as, squared_modulus
from cgp.linalg.gradients import of_first_order, without_tape

_ENTRIES = 200_000  # of the covariances of a chunk


class Samples(NamedTuple):
    """The samples of data whose series share one covariance, in working form."""

    x: tf.Tensor
    """`[N, D]`."""
    targets: tf.Tensor
    """Targets less the mean, zero where missing, `[N, m, S]`."""
    noise: SampleNoise
    """The noise of each sample, `[N]`."""


def samples_of(process: SignalPlusNoise, data: Data) -> Samples:
    """The samples of data; gradients pass to targets and the mean."""
    count = tf.shape(data.z)[1]
    targets = process.targets(data)[0]  # point after point
    shape = [count, process.form.multiplicity, tf.shape(targets)[-1]]
    noise = data.noise.map(lambda a: tf.broadcast_to(a[0], [count]))
    return Samples(data.x[0], tf.reshape(targets, shape), noise)


def covariance_of(process: SignalPlusNoise, samples: Samples, block: tf.Tensor) -> tf.Tensor:
    """The working covariances of blocks of samples, `[C, n]` -> `[C, n m, n m]`.

    Blocks are numbers of samples; a number of −1 has rows of the identity.
    """
    numbers = tf.maximum(block, 0)
    noise = samples.noise.map(lambda a: tf.gather(a, numbers))
    moments = process.kernel.moments_matrix(tf.gather(samples.x, numbers))
    moments = process.matrix_with_noise(moments, noise)
    covariance = process.in_data_order(process.form.covariance(moments))
    covariance = process.in_data_order(covariance, axis=-1)
    keep = _kept(process, block, covariance.dtype)
    covariance *= keep[..., :, None] * keep[..., None, :]
    return tf.linalg.set_diag(covariance, tf.linalg.diag_part(covariance) + (1.0 - keep))


def _kept(process: SignalPlusNoise, block: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """1 where there is a sample, else 0, `[C, n]` -> `[C, n m]`."""
    return tf.cast(tf.repeat(block >= 0, process.form.multiplicity, axis=-1), dtype)


def _targets_of(process: SignalPlusNoise, samples: Samples, block: tf.Tensor) -> tf.Tensor:
    """The targets of blocks `[C, n]`, zero where there is none, `[C, n m, S]`."""
    targets = tf.gather(samples.targets, tf.maximum(block, 0))
    shape = tf.shape(targets)
    rows = tf.reshape(targets, [shape[0], shape[1] * shape[2], shape[3]])
    return rows * _kept(process, block, rows.dtype)[..., None]


class Innovations(NamedTuple):
    """The last sample of each block given the others, whitened."""

    chol: tf.Tensor
    """L, `[C, n m, n m]`."""
    white: tf.Tensor
    """y, `[C, n m, S]`."""
    form: Form
    """Complex or real composite, of m rows for each sample."""

    @property
    def innovation(self) -> tf.Tensor:
        """e, `[C, m, S]`."""
        return self.white[:, -self.form.multiplicity :]

    def density(self) -> tf.Tensor:
        """The log densities, but for their constant, real, `[C, S]`."""
        m = self.form.multiplicity
        diagonal = tf.math.real(tf.linalg.diag_part(self.chol[:, -m:, -m:]))
        log_det = 2.0 * tf.reduce_sum(tf.math.log(diagonal), axis=-1)
        power = tf.reduce_sum(squared_modulus(self.innovation), axis=-2)
        return -self.form.scale * (power + log_det[:, None])

    def gradients(self, weights: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """K̄ and z̄ of the sum of the densities times weights `[C, S]`."""
        m, e = self.form.multiplicity, self.innovation
        of_neighbours = tf.concat([self.white[:, :-m], tf.zeros_like(e)], axis=1)
        last_columns = tf.eye(tf.shape(self.white)[1], dtype=e.dtype)[None, :, -m:]
        columns = tf.concat(
            [of_neighbours, tf.repeat(last_columns, tf.shape(e)[0], axis=0)], axis=-1
        )
        solved = tf.linalg.triangular_solve(self.chol, columns, adjoint=True)
        a, w = solved[..., :-m], solved[..., -m:]
        weighted = e * real_as(self.form.scale * weights, e.dtype)[:, None, :]
        total = real_as(tf.reduce_sum(self.form.scale * weights, axis=-1), e.dtype)
        # K̄ = W Vᴴ + V Wᴴ with V = W ½ (e eᴴ − I) + a eᴴ.
        inner = tf.linalg.matmul(weighted, e, adjoint_b=True)
        inner -= total[:, None, None] * tf.eye(m, dtype=e.dtype)
        v = tf.linalg.matmul(w, 0.5 * inner) + tf.linalg.matmul(a, weighted, adjoint_b=True)
        pair, swapped = tf.concat([w, v], axis=-1), tf.concat([v, w], axis=-1)
        covariance_bar = tf.linalg.matmul(pair, swapped, adjoint_b=True)
        return covariance_bar, -2.0 * tf.linalg.matmul(w, weighted)


def innovations(process: SignalPlusNoise, covariance: tf.Tensor, targets: tf.Tensor) -> Innovations:
    """The innovations of blocks, of covariances `[C, n m, n m]` and targets `[C, n m, S]`."""
    chol = cholesky(covariance)
    white = tf.linalg.triangular_solve(chol, targets)
    return Innovations(chol, white, process.form)


def log_likelihood(
    process: SignalPlusNoise,
    data: Data,
    count: int,
    weights: Sequence[Any],
    by_x: bool = False,
    at_once: bool = False,
) -> tf.Tensor:
    """The log likelihood of each series, `[B]`; differentiable once.

    Of the samples whose predecessors the data hold, or of all. Where these are some of all samples,
    drawn at random, it is their mean times the number of samples, which is unbiased.

    Args:
        process: The signal and its noise.
        data: The data, whose series share inputs, noise, and the samples that are missing.
        count: The number of neighbours, where the data do not hold them.
        weights: The variables of kernel and noise, which gradients reach beside targets and mean.
        by_x: Whether they reach x too.
        at_once: Whether a graph computes the gradient of a single series with the value, which
            takes less time than one after the other.
    """
    samples, conditioned_on = samples_of(process, data), data.predecessors
    if conditioned_on is None:
        conditioned_on = _predecessors_of_all(process, data, count)
    chunks = _Chunks(process, samples, conditioned_on)
    at_once = at_once and samples.targets.shape[-1] == 1 and not tf.executing_eagerly()
    gradients: list[tf.Tensor] = []
    with without_tape():
        if at_once:
            total, *gradients = chunks.gradients(None, weights, by_x)
        else:
            total = chunks.sums()

    # The total comes from outside: what is computed inside would be recorded by an eager tape.
    @tf.custom_gradient
    def of_sources(*sources: tf.Tensor) -> tuple[tf.Tensor, Callable]:
        def backward(bar: tf.Tensor) -> list[tf.Tensor]:
            message = "the density of neighbours has first derivatives alone"
            if at_once:
                bars = [real_as(bar[0], a.dtype) * tf.stop_gradient(a) for a in gradients]
            else:
                bars = chunks.gradients(bar, weights, by_x)[1:]
            if not by_x:
                bars[0] = tf.zeros_like(samples.x)
            return [of_first_order(a, message) for a in bars]

        return tf.identity(tf.stop_gradient(total)), backward

    x = samples.x if by_x else tf.stop_gradient(samples.x)
    density = of_sources(x, samples.targets, *map(tf.convert_to_tensor, weights))
    rows = tf.reduce_sum(tf.cast(conditioned_on.rows >= 0, density.dtype))
    share = tf.math.divide_no_nan(data.counts, rows)
    return share * density - data.counts * process.form.log_normalizer


def _predecessors_of_all(process: SignalPlusNoise, data: Data, count: int) -> Predecessors:
    """The neighbours of all samples, in a graph those of when it runs."""

    def search(x: tf.Tensor, present: tf.Tensor) -> Predecessors:
        return predecessors(process.kernel, x.numpy(), present.numpy(), count)

    x, present = data.x[0], data.present[0]
    if tf.executing_eagerly():
        return search(x, present)
    rows, neighbours = tf.py_function(search, [x, present], [tf.int32, tf.int32])
    neighbours = tf.ensure_shape(neighbours, [None, count])
    return Predecessors(tf.ensure_shape(rows, [None]), neighbours)


class _Chunks:
    """The terms of samples by chunks; arguments as for `log_likelihood`."""

    def __init__(self, process: SignalPlusNoise, samples: Samples, predecessors: Predecessors):
        self._process = process
        self._samples = samples._replace(
            x=tf.stop_gradient(samples.x), targets=tf.stop_gradient(samples.targets)
        )
        self._rows, neighbours = predecessors
        self._blocks = tf.concat([neighbours, self._rows[:, None]], axis=1)
        size = tf.shape(self._blocks)[1] * process.form.multiplicity
        self._size = tf.maximum(_ENTRIES // (size * size), 1)
        # The gradient evaluates the kernel once more.
        self._check_unchanged = process.while_unchanged(lambda: self._rows)

    def _loop(self, add: Callable[..., Sequence[Any]], start: Sequence[tf.Tensor]) -> Sequence[Any]:
        """Adds the chunks up: `add(block, *totals)` returns new totals."""
        count = tf.shape(self._rows)[0]
        result: Sequence[Any] = tf.while_loop(
            lambda first, *_: first < count,
            lambda first, *totals: (
                first + self._size,
                *add(self._blocks[first : first + self._size], *totals),
            ),
            (tf.constant(0), *start),
            parallel_iterations=1,  # memory of one chunk
        )
        return result[1:]

    def _innovations(self, block: tf.Tensor, covariance: tf.Tensor) -> Innovations:
        targets = _targets_of(self._process, self._samples, block)
        return innovations(self._process, covariance, targets)

    def _term(self, block: tf.Tensor, density: tf.Tensor) -> tf.Tensor:
        """The sum of densities `[C, S]`, without those of blocks without a sample."""
        return tf.reduce_sum(tf.where(block[:, -1:] >= 0, density, 0.0), axis=0)

    def _zero(self) -> tf.Tensor:
        """A sum of no terms, real, `[S]`."""
        return tf.zeros_like(tf.math.real(self._samples.targets[0, 0]))

    def sums(self) -> tf.Tensor:
        """The sum of the densities, but for constants, of each series, real, `[S]`."""

        def add(block: tf.Tensor, total: tf.Tensor) -> list[tf.Tensor]:
            terms = self._innovations(block, covariance_of(self._process, self._samples, block))
            return [total + self._term(block, terms.density())]

        return self._loop(add, [self._zero()])[0]

    def gradients(
        self, bar: tf.Tensor | None, weights: Sequence[Any], by_x: bool
    ) -> list[tf.Tensor]:
        """The sums, and gradients by x, targets and weights, from cotangents of the sums, `[S]`.

        Cotangents are 1 if None; gradients by x are empty unless wanted.
        """
        self._check_unchanged()
        bar = tf.ones_like(self._zero()) if bar is None else bar
        targets = self._samples.targets

        def add(block: tf.Tensor, *totals: tf.Tensor) -> list[tf.Tensor]:
            sources = [self._samples.x, *weights] if by_x else [*weights]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(sources)
                covariance = covariance_of(self._process, self._samples, block)
            terms = self._innovations(block, covariance)
            of_terms = tf.cast(block[:, -1:] >= 0, bar.dtype) * bar
            covariance_bar, targets_bar = terms.gradients(of_terms)
            zero = tf.UnconnectedGradients.ZERO
            added = [
                *map(tf.convert_to_tensor, tape.gradient(covariance, sources, covariance_bar, zero))
            ]
            if not by_x:
                added.insert(0, totals[1])
            log_density, of_x, of_targets, *of_weights = totals
            # Rows of the identity have no part in e, and their cotangents are zero.
            bars = tf.reshape(targets_bar, [-1, *tf.unstack(tf.shape(targets)[1:])])
            numbers = tf.reshape(tf.maximum(block, 0), [-1, 1])
            return [
                log_density + self._term(block, terms.density()),
                of_x + added[0],
                tf.tensor_scatter_nd_add(of_targets, numbers, bars),
                *(total + a for total, a in zip(of_weights, added[1:], strict=True)),
            ]

        x = self._samples.x if by_x else self._samples.x[:0]
        start = [tf.zeros_like(a) for a in (x, targets, *weights)]
        return list(self._loop(add, [self._zero(), *start]))


class Prediction(NamedTuple):
    """The signal at M new points, each given its neighbours alone."""

    mean: tf.Tensor
    """Without the mean function, complex, `[S, M]`."""
    marginal: SecondMoments
    """Variances and pseudo-variances, complex, `[M]`."""


def predict(
    process: SignalPlusNoise, data: Data, neighbours: tf.Tensor, points: tf.Tensor
) -> Prediction:
    """The signal at points `[M, D]` given the noisy samples nearest to each, `[M, k]`.

    Arguments as for `log_likelihood`; differentiable by hyperparameters, data and points.
    """
    samples, form = samples_of(process, data), process.form
    size = tf.shape(neighbours)[1] * form.multiplicity
    size, series = tf.maximum(_ENTRIES // (size * size), 1), samples.targets.shape[-1]

    def rows_of(first: tf.Tensor, stop: tf.Tensor) -> tf.Tensor:
        block, places = neighbours[first:stop], points[first:stop, None]
        chol = cholesky(covariance_of(process, samples, block))
        near = tf.gather(samples.x, tf.maximum(block, 0))
        cross = form.covariance(process.kernel.moments_matrix(near, places))
        cross = process.in_data_order(cross) * _kept(process, block, cross.dtype)[..., None]
        v = tf.linalg.triangular_solve(chol, cross)
        white = tf.linalg.triangular_solve(chol, _targets_of(process, samples, block))
        mean = tf.linalg.matmul(v, white, adjoint_a=True)
        # Rearranged, not conjugated.
        mean = form.join(tf.linalg.matrix_transpose(mean))[..., 0]
        explained = form.marginal(v)
        return tf.concat([mean, explained.k, explained.c_or_zeros()], axis=-1)

    width = None if series is None else series + 2
    dtype = samples.targets.dtype if process.is_proper else as_complex(samples.x[:0]).dtype
    rows = in_blocks(rows_of, tf.shape(points)[0], size, [width], dtype)
    mean, k, c = rows[:, :-2], rows[:, -2], rows[:, -1]
    prior = process.marginal(points)
    marginal = SecondMoments(prior.k - k, None if prior.c is None else prior.c - c)
    return Prediction(tf.linalg.matrix_transpose(mean), marginal)
