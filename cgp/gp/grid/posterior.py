"""The posterior over a grid of new coordinates, given the cells of a grid.

With C_i the covariances of the coordinates of axis i with the new ones, and C = ⊗ C_i,

    mean        Cᴴ P y + h β,
    covariance  K** − Cᴴ P C + Uᴴ U,

as in `cgp.gp.posterior`. The mean of M new cells takes O(M) operations for each coordinate of an
axis, and variances as many. Draws are conditioned draws of the prior (Matheron's rule; Wilson et
al., JMLR 22, 2021, §3), which take factors of the axes alone:

    f* + Cᴴ P (y − f − n),    f and f* a draw of the prior at old and new cells, n one of the noise.
"""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from cgp.distributions import ComplexNormal
from cgp.distributions.forms import Form, SecondMoments
from cgp.gp import posterior as predictions
from cgp.gp.data import Data, Grid
from cgp.gp.grid.axes import Layout
from cgp.gp.grid.covariance import in_blocks, times_along
from cgp.gp.grid.process import ConditionedGrid, GridProcess
from cgp.gp.noise import SampleNoise
from cgp.gp.posterior import Posterior, ShapedPosterior
from cgp.linalg import semidefinite_factor
from cgp.linalg.arguments import (
    ArrayLike,
    as_complex,
    as_sample_shape,
    squared_modulus,
    stateless_seed,
)

_MOST_JOINT = 3000  # cells whose joint covariance is computed
_MOST_OF_AXIS = 4096  # coordinates of an axis whose factor is computed for draws


def points_of_grid(axes: Sequence[tf.Tensor]) -> tf.Tensor:
    """The cells of a grid as points in C order, `[N, D]`."""
    return tf.reshape(tf.stack(tf.meshgrid(*axes, indexing="ij"), axis=-1), [-1, len(axes)])


class GridPrediction:
    """The moments of the signal at the cells of a new grid.

    Args:
        grid_process: The process.
        conditioned: The process given data.
        axes: The new coordinates of each axis, `[m_i]`.
    """

    def __init__(
        self,
        grid_process: GridProcess,
        conditioned: ConditionedGrid,
        axes: Sequence[tf.Tensor],
    ):
        self.grid_process, self._conditioned, self._axes = grid_process, conditioned, axes
        self.process, self.layout = grid_process.process, conditioned.layout
        self.sizes, self._points = Grid(tuple(axes)).sizes, points_of_grid(axes)
        old = conditioned.grid.axes
        covariance = conditioned.covariance
        # C_i, in the order of the cells, and in the basis of the axes.
        self._cross = [
            tf.cast(
                tf.stop_gradient(grid_process.matrix(axis, old[axis], axes[axis])),
                grid_process.dtype,
            )
            for axis in self.layout.order
        ]
        self._in_basis = [
            tf.linalg.matmul(q, c, adjoint_a=True)
            for q, c in zip(covariance.vectors, self._cross, strict=False)
        ] + self._cross[len(covariance.vectors) :]

    def _basis(self) -> tf.Tensor | None:
        """The basis of the trend at the new cells, rows in form order, `[q, M]`."""
        basis = self.process.basis(self._points)
        return None if basis is None else tf.linalg.matrix_transpose(basis)

    def _times_cross(self, a: tf.Tensor, factors: Sequence[tf.Tensor]) -> tf.Tensor:
        """Cᴴ times arrays of cells or, with C in the basis, arrays in it, as rows `[S, M]`."""
        for axis, c in enumerate(factors):
            a = times_along(tf.linalg.adjoint(c), a, axis + 1)
        return self.layout.rows(a, self.sizes)

    def mean_from(self, solution: tf.Tensor, coefficients: tf.Tensor | None) -> tf.Tensor:
        """The mean `[S, M]`, working rows, without the mean function, from `P y` and β."""
        mean = self._times_cross(self._conditioned.covariance.cells(solution), self._cross)
        basis = self._basis()
        if basis is None or coefficients is None:
            return mean
        return mean + tf.linalg.matmul(coefficients, basis, transpose_a=True)

    def _uncertainty_of_trend(self) -> tf.Tensor | None:
        """U, `[q, M]`, working columns in form order, or None."""
        trend, basis = self._conditioned.trend, self._basis()
        if trend is None:
            return None
        rows = self._conditioned.covariance.cells(trend.rows)
        explained = tf.math.conj(self._times_cross(rows, self._cross))
        return trend.uncertainty_of(explained, tf.linalg.matrix_transpose(basis))

    def vector(self, data: Data, noise: SampleNoise | None) -> Posterior:
        """The posterior of all cells as a vector, under the batch axes of the data."""
        process, marginal = self.process, self.marginal()
        mean = self.mean_from(*self._conditioned.weights(self._conditioned.targets))
        mean = process.form.join(mean)
        function = process.plus_function(tf.zeros_like(mean), self._points)
        mean = data.unpacked(mean + tf.stop_gradient(function))

        def scale() -> tf.Tensor:
            """The magnitude of the terms whose difference the covariance is."""
            prior = tf.reduce_sum(tf.math.real(process.marginal(self._points).k))
            return prior + tf.reduce_sum(tf.math.real(marginal.k))

        marginal = marginal.map(tf.stop_gradient)
        if noise is not None:
            variance = tf.stop_gradient(process.noise_variances(noise))
            noise = SampleNoise(total_variance=variance)
        return predictions.of_signal(process, mean, marginal, self.joint, scale, noise)

    # --- variances --------------------------------------------------------------------------------

    def marginal(self) -> SecondMoments:
        """The variance and pseudo-variance of the signal at each cell, `[M]`."""
        covariance, form = self._conditioned.covariance, self.process.form
        prior = self.process.marginal(self._points)
        k, c = prior.map(lambda a: tf.reshape(a, [-1]))
        explained = self._explained_by_all_cells()
        if covariance.chol_of_missing is not None:

            def subtract(total: list, first: tf.Tensor, last: tf.Tensor) -> list:
                white = self._times_cross(covariance.white_columns(first, last), self._in_basis)
                return [a - b for a, b in zip(total, form.marginal(white), strict=False)]

            start = [a for a in explained if a is not None]
            explained = SecondMoments(*covariance.blocks_of_missing(subtract, start))
        k -= explained.k
        c = None if explained.c is None else c - explained.c
        u = self._uncertainty_of_trend()
        if u is not None:
            of_trend = form.marginal(u)
            k, c = k + of_trend.k, None if c is None else c + of_trend.c
        return SecondMoments(k, c)

    def _explained_by_all_cells(self) -> SecondMoments:
        """The diagonals of Cᴴ P C, with P of all cells."""
        composite = self.layout.composite
        if composite is None:
            squares = [squared_modulus(c) for c in self._in_basis]
            return SecondMoments(as_complex(self._contracted(squares)), None)
        # Covariances of real and imaginary part of each cell, both from the columns of one axis.
        re, im = tf.split(self._in_basis[composite], 2, axis=-1)
        sums = []
        for a, b in ((re, re), (im, im), (re, im)):
            factors = [tf.square(c) for c in self._in_basis]
            factors[composite] = a * b
            sums.append(self._contracted(factors))
        rr, ii, ri = sums
        return SecondMoments(as_complex(rr + ii), tf.complex(rr - ii, 2.0 * ri))

    def _contracted(self, squares: Sequence[tf.Tensor]) -> tf.Tensor:
        """`Σ_j P_jj ∏ squares` over the basis, real, `[M]`."""
        covariance = self._conditioned.covariance
        if covariance.has_line:
            a = self._explained_along_line()
            squares = squares[:-1]
        else:
            a = covariance.spectrum.sums().trace[None]
        for axis, square in enumerate(squares):
            a = times_along(tf.linalg.matrix_transpose(square), a, axis + 1)
        return tf.reshape(self.layout.in_place(a), [-1])

    def _explained_along_line(self) -> tf.Tensor:
        """`cᴴ P_λ c` of the covariances c with each new place on the line, `[1, …, m]`."""
        spectrum, cross = self._conditioned.covariance.spectrum, self._cross[-1]
        short = self._conditioned.covariance.sizes[:-1]
        rows = tf.linalg.matrix_transpose(cross)

        def explained(first: tf.Tensor, last: tf.Tensor) -> tf.Tensor:
            places = tf.reshape(rows[first:last], [last - first, *[1] * len(short), -1])
            places += tf.zeros([*short, rows.shape[1]], rows.dtype)
            products = tf.math.conj(places) * spectrum.solve(places)
            return tf.reduce_sum(tf.math.real(products), axis=-1)

        count, size = tf.shape(rows)[0], self._conditioned.covariance.rows_at_once
        static = self._conditioned.covariance.spectrum.shape
        stacked = in_blocks(explained, count, size, static, rows.dtype.real_dtype)
        return tf.transpose(stacked, [*range(1, len(short) + 1), 0])[None]  # no numbers change

    # --- covariances and draws --------------------------------------------------------------------

    def joint(self) -> tf.Tensor:
        """The working covariance of all new cells, `[M, M]`, in form order."""
        if self._points.shape[0] > _MOST_JOINT:
            raise ValueError(
                f"the covariance of {self._points.shape[0]} cells was asked for, and at most "
                f"{_MOST_JOINT} have one: take fewer cells, or draws by sample"
            )
        covariance, form = self._conditioned.covariance, self.process.form
        prior = form.covariance(self.process.kernel.moments_matrix(self._points))
        order = prior.shape[0]

        def rows_of_explained(first: tf.Tensor, last: tf.Tensor) -> tf.Tensor:
            units = tf.one_hot(tf.range(first, last), order, dtype=prior.dtype)
            a = self.layout.cells(units, self.sizes)
            for axis, c in enumerate(self._in_basis):  # columns of C in the basis
                a = times_along(c, a, axis + 1)
            return self._times_cross(covariance.spectrum.solve(a), self._in_basis)

        columns = in_blocks(rows_of_explained, order, covariance.rows_at_once, [order], prior.dtype)
        explained = tf.linalg.matrix_transpose(columns)  # rearranged, not conjugated
        if covariance.chol_of_missing is not None:

            def subtract(total: tf.Tensor, first: tf.Tensor, last: tf.Tensor) -> tf.Tensor:
                white = self._times_cross(covariance.white_columns(first, last), self._in_basis)
                return total - tf.linalg.matmul(white, tf.math.conj(white), transpose_a=True)

            explained = covariance.blocks_of_missing(subtract, explained)
        posterior = prior - 0.5 * (explained + tf.linalg.adjoint(explained))
        u = self._uncertainty_of_trend()
        return posterior if u is None else posterior + tf.linalg.matmul(u, u, adjoint_a=True)

    def draw(self, count: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        """Draws of the signal without the mean function, working rows `[count B, M]`."""
        conditioned, layout = self._conditioned, self.layout
        of_signal, of_noise = tf.unstack(tf.random.experimental.stateless_split(seed, 2))
        targets = tf.tile(conditioned.targets, [count, 1])
        # The prior at the old and the new coordinates together, each of them once.
        joined = [
            np.unique(np.concatenate([old, new]), return_inverse=True)
            for old, new in zip(conditioned.grid.axes, self._axes, strict=True)
        ]
        axes = [tf.constant(union) for union, _ in joined]
        a = prior_draws(self.grid_process, layout, axes, tf.shape(targets)[0], of_signal)
        places = [
            np.split(at, [len(old)])
            for (_, at), old in zip(joined, conditioned.grid.axes, strict=True)
        ]
        at_old, at_new = a, a
        for number, axis in enumerate(layout.order):
            size = len(joined[axis][0])
            parts = [0, size] if axis == layout.composite else [0]
            old, new = (np.concatenate([at + part for part in parts]) for at in places[axis])
            at_old = tf.gather(at_old, old, axis=number + 1)
            at_new = tf.gather(at_new, new, axis=number + 1)
        covariance = conditioned.covariance
        deviation = tf.cast(tf.sqrt(covariance.noise), targets.dtype)
        noise = deviation * _white(self.process.form, tf.shape(targets), of_noise, targets.dtype)
        observations = covariance.kept(at_old + covariance.cells(noise))
        residual = targets - covariance.rows(observations)
        return layout.rows(at_new, self.sizes) + self.mean_from(*conditioned.weights(residual))


def prior_draws(
    grid_process: GridProcess,
    layout: Layout,
    axes: Sequence[tf.Tensor],
    count: tf.Tensor,
    seed: tf.Tensor,
) -> tf.Tensor:
    """Draws of the signal without the mean function at the cells of a grid, arrays `[count, …]`."""
    factors = []
    for axis in layout.order:
        size = int(axes[axis].shape[0])
        if size > _MOST_OF_AXIS:
            raise ValueError(
                f"draws take a factor of each axis, and axis {axis} has {size} coordinates, more "
                f"than {_MOST_OF_AXIS}: condition on a piece of it, or take mean and variance"
            )
        matrix = tf.cast(grid_process.matrix(axis, axes[axis]), grid_process.dtype)
        factors.append(semidefinite_factor(0.5 * (matrix + tf.linalg.adjoint(matrix))))
    shape = tf.stack([count, *(factor.shape[0] for factor in factors)])
    a = _white(grid_process.process.form, shape, seed, grid_process.dtype)
    a = tf.reshape(a, [-1, *(factor.shape[0] for factor in factors)])
    for number, factor in enumerate(factors):
        a = times_along(factor, a, number + 1)
    return a


def _white(form: Form, shape: tf.Tensor, seed: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """White noise of unit variance, of a working dtype."""
    parts = 2 if dtype.is_complex else 1
    shape = tf.concat([shape[:-1], parts * shape[-1:]], axis=0)
    # With a fixed algorithm a seed gives the same draws eagerly and in graphs.
    normals = tf.random.stateless_normal(shape, seed, dtype=dtype.real_dtype, alg="philox")
    return form.white(normals)


class GridPosterior(ShapedPosterior):
    """The posterior at the cells of a grid: a sample is `[..., m_1, …, m_D]`, and so are moments.

    The covariance of all cells is `[..., M, M]`, in C order, where they are not too many; draws
    need none.

    Args:
        vector: The posterior of the M values.
        axes: The new coordinates of each axis, `[m_i]`.
        draw: Function of a number and of a seed of two integers, which returns so many draws,
            `[number, ..., M]`.
    """

    def __init__(
        self,
        vector: ComplexNormal,
        axes: Sequence[tf.Tensor],
        draw: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    ):
        super().__init__(vector, Grid(tuple(axes)).sizes)
        self.axes, self._draw = tuple(axes), draw

    def sample(self, sample_shape: ArrayLike = (), seed: ArrayLike | None = None) -> tf.Tensor:
        """Random samples, `sample_shape + [..., m_1, …, m_D]`; as for a `ComplexNormal`."""
        if not tf.executing_eagerly():
            raise RuntimeError("draws at the cells of a grid are made outside of a tf.function")
        shape = as_sample_shape(sample_shape)
        draws = self._draw(tf.reduce_prod(shape), stateless_seed(seed))
        draws = tf.reshape(draws, tf.concat([shape, tf.shape(draws)[1:]], axis=0))
        return self._shaped(draws)


def posterior(
    grid_process: GridProcess,
    data: Data | None,
    axes: Sequence[tf.Tensor],
    noise: SampleNoise | None,
    conditioned: ConditionedGrid | None,
) -> GridPosterior:
    """The signal, or observations with noise, at the cells of a grid; the prior without data."""
    process, points = grid_process.process, points_of_grid(axes)
    sizes = Grid(tuple(axes)).sizes
    if data is None or conditioned is None:
        vector = predictions.prior(process, points, noise)
        layout = grid_process.layout(Grid(tuple(axes)))

        def draw_signal(count: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
            return layout.rows(prior_draws(grid_process, layout, axes, count, seed), sizes)

    else:
        prediction = GridPrediction(grid_process, conditioned, axes)
        vector, draw_signal = prediction.vector(data, noise), prediction.draw

    def draw(count: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        of_signal, of_noise = tf.unstack(tf.random.experimental.stateless_split(seed, 2))
        rows = draw_signal(count, of_signal)
        if noise is not None:
            variance = process.noise_variances(noise) / process.form.multiplicity
            deviation = tf.cast(tf.sqrt(variance), rows.dtype)
            rows += deviation * _white(process.form, tf.shape(rows), of_noise, rows.dtype)
        draws = process.plus_function(process.form.join(rows), points)
        series = [] if data is None else tf.unstack(data.batch)
        return tf.reshape(draws, [count, *series, -1])

    return GridPosterior(vector, axes, draw)
