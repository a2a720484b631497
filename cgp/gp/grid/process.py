"""A Gaussian process over the cells of a grid: matrices of the axes, likelihood, conditioning."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from cgp.gp.data import Data, Grid
from cgp.gp.grid.axes import AxisKernels, Layout
from cgp.gp.grid.covariance import GridCovariance
from cgp.gp.signal_plus_noise import SignalPlusNoise
from cgp.gp.structured_covariance import Trend, log_density, trend_of
from cgp.kernels.base import Kernel
from cgp.linalg.arguments import as_complex

_MOST_DIAGONALISED = 2000  # coordinates of an axis


class ConditionedGrid(NamedTuple):
    """A process given the cells of a grid."""

    grid: Grid
    layout: Layout
    covariance: GridCovariance
    targets: tf.Tensor
    """y, rows of cells, `[B, n]`, zero where missing."""
    basis: tf.Tensor | None
    """The basis of a trend, rows of cells, `[q, n]`; None without one."""
    trend: Trend | None

    def weights(self, targets: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | None]:
        """`P y` of targets, rows of cells, and the coefficients of their trend, `[q, S]`."""
        if self.trend is None:
            return self.covariance.solve(targets), None
        coefficients = self.trend.coefficients(targets)
        fitted = tf.linalg.matmul(coefficients, self.basis, transpose_a=True)
        return self.covariance.solve(targets - fitted), coefficients


def grid_of(data: Data) -> Grid:
    """The grid whose cells data are, or an error for other data."""
    if data.grid is None:
        raise ValueError("the data are no cells of a grid: give axes and cells to a GridGP")
    return data.grid


class GridProcess:
    """The observation model of the cells of a grid.

    Args:
        process: The signal plus its noise.
        kernels: The kernels along the axes.
    """

    def __init__(self, process: SignalPlusNoise, kernels: AxisKernels):
        self.process, self.kernels = process, kernels

    def layout(self, grid: Grid) -> Layout:
        """The order of the cells: a line is last."""
        axes, line = range(len(grid.axes)), grid.line
        order = (*(axis for axis in axes if axis != line), *([] if line is None else [line]))
        improper = [axis for axis, k in enumerate(self.kernels.axes) if not k.is_proper]
        return Layout(order, improper[0] if improper else None, self.process.form)

    def check_axes(self, axes: Sequence[tf.Tensor]) -> None:
        """Raises for coordinates that the kernel of their axis does not take, where known."""
        if tf.executing_eagerly():
            for kernel, axis in zip(self.kernels.axes, axes, strict=True):
                kernel.check_points(axis[:, None])

    @property
    def dtype(self) -> tf.DType:
        """The dtype of arrays of cells."""
        real = tf.as_dtype(self.process.noise_variance.variable.dtype)
        return real if not self.process.is_proper else tf.as_dtype(f"complex{16 * real.size}")

    def _scale(self) -> tf.Tensor:
        """The constants that multiply all matrices, which the one of axis 0 takes."""
        one = tf.ones([], self.process.noise_variance.variable.dtype)
        return math.prod((scale.variance.value for scale in self.kernels.scales), start=one)

    def matrix(self, axis: int, x1: tf.Tensor, x2: tf.Tensor | None = None) -> tf.Tensor:
        """The matrix of an axis between coordinates `[n]` and `[m]`, the same if None."""
        kernel: Kernel = self.kernels.axes[axis]
        moments = kernel.moments_matrix(x1[:, None], None if x2 is None else x2[:, None])
        if not kernel.is_proper:
            matrix = self.process.form.covariance(moments)
        else:
            is_real = kernel.is_real or not self.process.is_proper
            matrix = tf.math.real(moments.k) if is_real else moments.k
        return matrix if axis else matrix * tf.cast(self._scale(), matrix.dtype)

    def _line_column(self, axis: int, size: int, step: tf.Tensor) -> tf.Tensor:
        """The first column of the matrix of an axis that is a line."""
        lags = tf.range(size, dtype=step.dtype) * step
        return as_complex(self.matrix(axis, lags, lags[:1])[:, 0])

    def parameters(self, grid: Grid, layout: Layout) -> list[tf.Tensor]:
        """The matrices of the axes in the order of the cells, and the noise of their parts."""
        self.process.kernel  # noqa: B018 — raises where a hyperparameter was left out
        matrices = [
            self._line_column(axis, grid.sizes[axis], grid.steps[axis])
            if axis == grid.line
            else self.matrix(axis, grid.axes[axis])
            for axis in layout.order
        ]
        noise = self.process.learned_noise_variance() / self.process.form.multiplicity
        return [*matrices, noise]

    def _rows(self, data: Data, layout: Layout) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Targets and trend as rows of cells in the order of computations."""
        process, sizes = self.process, grid_of(data).sizes

        def ordered(rows: tf.Tensor) -> tf.Tensor:
            cells = layout.cells(rows, sizes)
            return tf.reshape(cells, [-1, math.prod(sizes) * process.form.multiplicity])

        basis = process.data_basis(data)
        if basis is not None:
            basis = ordered(tf.linalg.matrix_transpose(basis[0]))
        return ordered(data.vectors(process.targets(data))), basis

    def _missing(self, data: Data, layout: Layout) -> tf.Tensor | None:
        """The numbers of the missing cells in the order of computations, int32."""
        grid = grid_of(data)
        if grid.missing is None:
            return None
        present = tf.ones_like(grid.missing, self.process.noise_variance.variable.dtype)
        mask = tf.scatter_nd(grid.missing[:, None], present, [math.prod(grid.sizes)])
        rows = tf.tile(mask[None], [1, self.process.form.multiplicity])
        cells = layout.cells(rows, grid.sizes)
        return tf.cast(tf.where(tf.reshape(cells, [-1]) > 0.0)[:, 0], tf.int32)

    def log_likelihood(self, data: Data) -> tf.Tensor:
        """The log marginal likelihood of each grid, real, `[B]`."""
        grid = grid_of(data)
        layout = self.layout(grid)
        targets, basis = self._rows(data, layout)
        missing = self._missing(data, layout)

        def make(parameters: Sequence[tf.Tensor], rows: tf.Tensor) -> GridCovariance:
            return GridCovariance.factorized(parameters[:-1], parameters[-1], rows, missing)

        parameters, scale = self.parameters(grid, layout), self.process.form.scale
        second = "parameter_covariance()"
        density = log_density(make, parameters, targets, basis, scale, second)
        return self.process.normalized(density, data, self.process.data_basis(data))

    def condition(self, data: Data) -> ConditionedGrid:
        """The process given the cells of a grid. Has no gradient."""
        grid = grid_of(data)
        sizes = [axis.shape[0] for axis in grid.axes]
        if None not in sizes and max(sizes) <= _MOST_DIAGONALISED:
            grid = grid._replace(steps=())  # variances of a line take much longer
        layout = self.layout(grid)
        *matrices, noise = map(tf.stop_gradient, self.parameters(grid, layout))
        covariance = GridCovariance(matrices, noise, self.dtype, self._missing(data, layout))
        targets, basis = self._rows(data, layout)
        trend = None if basis is None else trend_of(covariance.solve, basis)
        return ConditionedGrid(grid, layout, covariance, targets, basis, trend)
