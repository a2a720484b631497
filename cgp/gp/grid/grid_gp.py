"""GridGP: a complex Gaussian process over the cells of a grid."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.autograph import as_it_stands
from cgp.axes import as_code, remedy
from cgp.distributions import ComplexNormal
from cgp.gp.base import GaussianProcess, as_dict
from cgp.gp.data import Data, Grid, as_data, step_of_line
from cgp.gp.grid.axes import axis_kernels
from cgp.gp.grid.posterior import points_of_grid, posterior
from cgp.gp.grid.process import ConditionedGrid, GridProcess, grid_of
from cgp.gp.maximum_likelihood import MaximumLikelihoodGP
from cgp.gp.means import Mean
from cgp.gp.noise import COMMON_NOISE, NoiseArguments
from cgp.gp.saved_data import HeldData
from cgp.kernels.base import Kernel
from cgp.kernels.points import as_points
from cgp.linalg.arguments import ArrayLike, as_flag, complex_dtype
from cgp.observations import as_observations
from cgp.training.post_updates import snapshot
from cgp.training.saving import Outputs, Served

_FEWEST = 256  # coordinates of a line; shorter axes are diagonalised sooner
_MOST_MISSING = 3000  # cells, one by one: they take a factor of their own
_MOST_DIAGONALISED = 4096  # coordinates of an axis that is no line
_COST_OF_CELL = 160  # of a missing one of N cells over that of an element of n³, measured

Axes = Sequence[ArrayLike]


@keras.saving.register_keras_serializable(package="cgp")
class GridGP(MaximumLikelihoodGP):
    """A Gaussian process over a grid: time × frequency × antenna, slow time × range.

    The signal is `f ~ GP(mean, kernel)`, the data `z = f + n` in the cells of a grid of D axes. The
    kernel is a product of `cgp.kernels.Along`, one or more for each axis, so that the covariance is
    a Kronecker product: N cells cost a small multiple of `N (n_1 + … + n_D)` a step, where an
    `ExactGP` of the same kernel, with the same results, costs O(N³). 100,000 cells take a fraction
    of a second. Short axes are diagonalised, which takes O(n³) of each; the longest one is not if
    its coordinates are a regular line of at least 256, and its kernel stationary (see
    `cgp.gp.grid.covariance`).

    Missing cells are NaN, the same in all grids of a batch. Coordinates of which every cell is
    missing (flagged channels, pilots at every fourth subcarrier) are left out, which costs nothing;
    inside of a long line a few stay, as it would be none without. Up to 3000 other cells are Schur
    complements, each of which costs up to a third of a step without.

    An improper kernel may be along one axis, and the others are then real.

    Data are given as the coordinates of each axis and an array of cells, `gp.fit((t, f), z)`, and
    predictions are for the cells of new coordinates, `gp.predict((t_new, f_new))["mean"]`. Methods
    and arguments that are not listed are as for `ExactGP`. The likelihood has first derivatives
    alone, and predictions have none by hyperparameters.

    Args:
        kernel: A product of `Along(kernel, axis)`, one factor or more for each axis from 0, and of
            constants.
        noise_variance: `E|n|²`, circular, one number for all cells; None to initialise it from the
            data.
        mean: A mean of `cgp.means` over points `[N, D]`, or None for zero.
        fixed: Names of hyperparameters not to train, "noise_variance".
        priors: TFP distributions of "noise_variance", by name.
        name: A name.
        dtype: "float64" (complex128 data) or "float32" (complex64); as the kernel if None.

    Raises:
        TypeError: No kernel, or dtypes that differ.
        ValueError: A kernel that is not such a product; the message names the factor. Several noise
            variances.

    Example:
        >>> import numpy as np
        >>> import cgp
        >>> from cgp.kernels import Along, RBF, Rotation
        >>> t, f = np.arange(20.0), np.arange(30.0)
        >>> z = np.exp(0.3j * t)[:, None] * np.exp(-0.2j * f)
        >>> z[5:8, 3] = np.nan
        >>> kernel = Along(RBF(1.0, 3.0) * Rotation(0.05), 0) * Along(RBF(1.0, 3.0), 1)
        >>> gp = cgp.GridGP(kernel, noise_variance=1e-3)
        >>> gp.condition((t, f), z)
        >>> mean = gp.predict((t[5:8], f[3:4]))["mean"]
        >>> bool(np.abs(mean[:, 0] - np.exp(0.3j * t[5:8] - 0.6j)).max() < 0.05)
        True
    """

    likelihood = None

    def __init__(
        self,
        kernel: Kernel,
        noise_variance: float | None = None,
        mean: Mean | None = None,
        *,
        fixed: str | Iterable[str] = (),
        priors: Mapping[str, Any] | None = None,
        name: str | None = None,
        dtype: str | None = None,
        **kwargs: Any,
    ):
        if noise_variance is not None and np.ndim(noise_variance):
            raise ValueError(
                "the noise variance of a GridGP is one number, or its covariance would not be a "
                f"product of those of the axes, got {noise_variance!r}"
            )
        for argument in ("likelihood", "noise_pseudo_variance", "noise_scale", "noise_fraction"):
            if argument in kwargs:
                raise ValueError(
                    f"a GridGP has no {argument}: the noise of all cells is normal, circular and "
                    "of one variance, so take ExactGP"
                )
        kwargs |= {"fixed": fixed, "priors": priors, "name": name, "dtype": dtype}
        super().__init__(kernel, noise_variance, 0.0, mean, **kwargs)
        self._grid_process = GridProcess(self._process, axis_kernels(kernel))
        if not self._process.is_proper and kernel.is_proper:
            raise ValueError(
                f"{mean!r} has real coefficients, whose posterior is improper: a GridGP takes such "
                "a mean beside an improper kernel alone, so take ExactGP"
            )
        self._grid: Grid | None = None  # of the data taken in
        self._conditioned: tuple[bytes, ConditionedGrid] | None = None  # and the weights' values
        self.built = True

    @property
    def dimensions(self) -> int:
        """D, the number of axes."""
        return len(self._grid_process.kernels.axes)

    # --- taking data in ---------------------------------------------------------------------------

    def inputs(self, x: Any) -> tuple[tf.Tensor, ...]:
        """New inputs as tensors: the coordinates of each axis, `[m_i]`."""
        return self.axes_of(x)

    def axes_of(self, x: Axes) -> tuple[tf.Tensor, ...]:
        """The coordinates of each axis, checked, as tensors `[n_i]`."""
        if not isinstance(x, tuple | list) or len(x) != self.dimensions:
            shown = f"{len(x)} of them" if isinstance(x, tuple | list) else f"a {type(x).__name__}"
            raise ValueError(
                f"x must be a tuple of the coordinates of {self.dimensions} axes, one for each "
                f"axis that the kernel has a factor Along(..., axis) for, got {shown}"
            )
        axes = []
        for number, coordinates in enumerate(x):
            axis = as_points(coordinates, self.variable_dtype, f"x[{number}]")
            if axis.shape.rank != 2 or axis.shape[1] != 1 or axis.shape[0] == 0:
                raise ValueError(
                    f"x[{number}] must be the coordinates of axis {number}, [n], got shape "
                    f"{np.shape(coordinates)}"
                )
            axis = axis[:, 0]
            values = np.asarray(axis) if tf.executing_eagerly() else np.zeros(0)
            different, counts = np.unique(values, return_counts=True)
            if np.any(counts > 1):
                raise ValueError(
                    f"x[{number}] has the coordinate {different[counts > 1][0]:g} more than once: "
                    "average over the cells of equal coordinates, or take ExactGP"
                )
            axes.append(axis)
        return tuple(axes)

    def data_of(self, x: Any, z: Any, missing: Any = None, **arguments: Any) -> Data:
        """Data of the model: the cells that are not missing along a whole coordinate.

        Args:
            x: The coordinates of each axis.
            z: Complex targets, `[..., n_1, …, n_D]`; NaN, or hidden by a mask, where missing.
            missing: Bool, broadcast against z: True where missing too. None for none.
            **arguments: `noise` and `measurements`, which have to be left out, and
                `require_targets`, as for `as_data`.
        """
        noise, measurements = arguments.pop("noise", None), arguments.pop("measurements", None)
        if noise is not None:
            _check_noise(noise)
        if measurements is not None and any(a is not None for a in measurements):
            raise ValueError(
                "the cells of a GridGP are values: observed and widths are of ExactGP and "
                "StateSpaceGP, leave them out"
            )
        axes: Sequence[tf.Tensor] = self.axes_of(x)
        z_of_user = z
        z = as_observations(z, missing, complex_dtype(self.variable_dtype), copy=False)
        self._check_cells(z.shape, axes, z_of_user)
        if tf.executing_eagerly():
            axes, z = self._without_missing_coordinates(axes, tf.convert_to_tensor(z))
        sizes, batch = Grid(tuple(axes)).sizes, z.shape[: -len(axes)]
        rows = tf.reshape(z, [*(-1 if n is None else n for n in batch), math.prod(sizes)])
        points = points_of_grid(axes)
        data = as_data(points, rows, None, self.variable_dtype, **arguments)
        return self._with_grid(data, axes)

    def _check_cells(self, shape: Any, axes: Sequence[tf.Tensor], z: Any) -> None:
        sizes = tuple(axis.shape[0] for axis in axes)
        rank = len(sizes)
        if len(shape) >= rank and tf.TensorShape(shape[-rank:]).is_compatible_with(sizes):
            return
        fits = remedy(as_code("z", z), shape, lambda s: s[-rank:] == sizes, samples=None)
        raise ValueError(
            f"z must be [..., {', '.join(map(str, sizes))}], the cells of a grid of the "
            f"coordinates in x, got shape {tuple(shape)}{fits}"
        )

    def _with_grid(self, data: Data, axes: Sequence[tf.Tensor]) -> Data:
        """Data with the grid that they are on."""
        grid = Grid(tuple(axes))
        if not tf.executing_eagerly():
            return data._replace(grid=grid._replace(missing=_missing_in_graph(data)))
        present = data.present.numpy()
        if np.any(present != present[:1]):
            raise ValueError(
                "z has other cells missing in one grid of the batch than in another: the grids of "
                "a batch miss the same cells, so fit each by itself, or a dataset of pairs"
            )
        missing = np.flatnonzero(~present[0]).astype(np.int32)
        if len(missing) > _MOST_MISSING:
            raise ValueError(
                f"z has {len(missing)} cells missing beside whole coordinates, which are left out "
                f"for free, and a GridGP takes up to {_MOST_MISSING}: set all cells to NaN at the "
                "coordinates where most are missing, or take a SparseGP or an ExactGP of the cells "
                "that are there"
            )
        line = self._line_of(axes)
        steps: list[tf.Tensor | None] = [None] * len(axes)
        for number, axis in enumerate(axes):
            if number == line:
                step = (axis[-1] - axis[0]) / (int(axis.shape[0]) - 1)
                steps[number] = tf.cast(step, data.x.dtype)
            elif axis.shape[0] > _MOST_DIAGONALISED:
                raise ValueError(
                    f"x[{number}] has {axis.shape[0]} coordinates, and more than "
                    f"{_MOST_DIAGONALISED} are those of one axis that is a regular line, in double "
                    "precision, of a proper and stationary kernel: fit a piece of it"
                )
        numbers = tf.constant(missing) if len(missing) else None
        return data._replace(grid=Grid(tuple(axes), tuple(steps), numbers))

    def _line_of(self, axes: Sequence[tf.Tensor]) -> int | None:
        """The longest axis, if its matrix may be taken as Toeplitz; else None."""
        sizes = [int(axis.shape[0]) for axis in axes]
        longest = sizes.index(max(sizes))
        kernel = self._grid_process.kernels.axes[longest]
        may_be_line = kernel.is_stationary and self._process.is_proper
        if not may_be_line or sizes[longest] < _FEWEST or self.variable_dtype != "float64":
            return None
        return None if step_of_line(np.asarray(axes[longest])) is None else longest

    def _without_missing_coordinates(
        self, axes: Sequence[tf.Tensor], z: tf.Tensor
    ) -> tuple[list[tf.Tensor], tf.Tensor]:
        """A grid without the coordinates at which every cell is missing, unless all are.

        Inside of a long line a few of them stay, as it would be none without.
        """
        present = ~np.isnan(z)
        if not present.any():
            return list(axes), z
        kept, line = [], self._line_of(axes)
        for number, axis in enumerate(axes):
            place = present.ndim - len(axes) + number
            others = tuple(other for other in range(present.ndim) if other != place)
            coordinates = np.flatnonzero(present.any(axis=others))
            if number == line:
                inside = np.arange(coordinates[0], coordinates[-1] + 1)
                cells = math.prod(present.shape[-len(axes) :]) // present.shape[place]
                missing = cells * (len(inside) - len(coordinates))
                # An evaluation of each missing cell, against the cube of a matrix.
                if missing * cells * _COST_OF_CELL < len(inside) ** 2 and missing < _MOST_MISSING:
                    coordinates = inside
            if len(coordinates) < axis.shape[0]:
                axis, z = tf.gather(axis, coordinates), tf.gather(z, coordinates, axis=place)
            kept.append(axis)
        return kept, z

    def _condition(self, data: Data) -> None:
        self._grid_process.log_likelihood(data)  # first: where it fails all else stays
        self._stored.replace(data)
        self._grid, self._conditioned = data.grid, None

    def _recall(self, data: Data) -> None:
        self._stored.replace(data)
        self._conditioned = self._grid = None
        if not bool(self._stored.is_empty):
            # The coordinates in the order in which they come.
            columns = (np.unique(a, return_index=True)[1] for a in np.asarray(data.x[0]).T)
            axes = [tf.gather(data.x[0, :, i], np.sort(at)) for i, at in enumerate(columns)]
            self._grid = self._with_grid(data, axes).grid

    def stored_data(self) -> Data:
        """The data taken in, or an error if there are none."""
        data = super().stored_data()
        if tf.executing_eagerly():
            return data._replace(grid=self._grid)
        with tf.init_scope():
            traced = self._stored.x.numpy()
        message = "the data were on another grid when this function was traced: trace it again"
        is_as_traced = tf.debugging.assert_equal(self._stored.x, traced, message)
        with tf.control_dependencies([is_as_traced]):
            data = data._replace(z=tf.identity(data.z))
        grid = grid_of(data._replace(grid=self._grid))
        return data._replace(grid=grid._replace(missing=_missing_in_graph(data)))

    def _held_in_words(self) -> str:
        if self._grid is None:
            return super()._held_in_words()
        data = self._stored.data
        shape, batch = " × ".join(map(str, self._grid.sizes)), data.batch.numpy().tolist()
        words = f"{shape} cells" if not batch else f"{math.prod(batch)} grids of {shape} cells"
        missing = self._grid.missing
        words += "" if self._grid.line is None else f", axis {self._grid.line} a regular line"
        return words + (f", {missing.shape[0]} missing" if missing is not None else "")

    # --- likelihood -------------------------------------------------------------------------------

    def data_log_likelihood(self, data: Data) -> tf.Tensor:
        """The log marginal likelihood of each grid, `[B]`."""
        return self._grid_process.log_likelihood(data)

    def rounding_noise(self, data: Data) -> tf.Tensor:
        """The rounding error of the eigenvalues of the covariance of data, in squared units."""
        variance = tf.reduce_max(tf.math.real(self._process.marginal(data.x[:, :1]).k))
        # The largest eigenvalue is below the trace.
        size = tf.cast(tf.shape(data.z)[-1], variance.dtype)
        return 4.0 * np.finfo(self.variable_dtype).eps * size * variance

    # --- predictions ------------------------------------------------------------------------------

    @as_it_stands
    def posterior(self, x: Axes, *, observed: bool = False) -> ComplexNormal:  # type: ignore[override]
        """The signal at the cells of new coordinates given the data, or its prior before any.

        Args:
            x: The coordinates of each axis, a tuple of D arrays `[m_i]`.
            observed: Whether to add the noise of a measurement to the signal.

        Returns:
            A `ComplexNormal` of `[..., m_1, …, m_D]`: `mean`, `variance`, `pseudo_variance`,
            `sample`; for up to 3000 cells also `covariance`, of all cells in C order, and
            `log_prob`.

        Raises:
            TypeError: Complex coordinates.
            ValueError: Coordinates of another number of axes, or NaN; before any data, a
                marginalised trend, which has no prior.
        """
        axes = self.axes_of(x)
        self._grid_process.check_axes(axes)
        noise = COMMON_NOISE if as_flag(observed, "observed") else None
        if tf.executing_eagerly() and bool(self._stored.is_empty):
            return posterior(self._grid_process, None, axes, noise, None)
        data = self.stored_data()
        return posterior(self._grid_process, data, axes, noise, self._conditioned_on(data))

    def _conditioned_on(self, data: Data) -> ConditionedGrid:
        """The process given the stored data, computed anew once hyperparameters have changed."""
        if not tf.executing_eagerly():
            return self._grid_process.condition(data)
        weights = snapshot(self._process.weights)
        if self._conditioned is None or self._conditioned[0] != weights:
            self._conditioned = weights, self._grid_process.condition(data)
        return self._conditioned[1]

    def _posterior_of_values(self, x: Any, observed: bool, noise: NoiseArguments) -> ComplexNormal:
        _check_noise(noise)
        return self.posterior(x, observed=observed)

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Keras's `__call__`, on the coordinates x or on the pair (x, z)."""
        return super(GaussianProcess, self).__call__(inputs, *args, **kwargs)

    def call(self, inputs: Any) -> dict[str, tf.Tensor]:
        """Predicts at x, or at x given z for inputs `(x, z)`, whose loss it adds.

        Args:
            inputs: The coordinates of each axis; `(x, z)`, of these and of cells; or `Data`, for
                training, which needs the loss alone.

        Returns:
            The dictionary of `predict`; of `Data`, `{"log_likelihood"}`.
        """
        if isinstance(inputs, Data):
            return self._add_loss(inputs, self.data_log_likelihood(inputs))
        if not isinstance(inputs[0], tuple | list):
            return as_dict(self.posterior(inputs))
        x, z = inputs
        data = self.data_of(x, z, require_targets=False)
        self._add_loss(data, self.data_log_likelihood(data))
        conditioned = self._grid_process.condition(data)
        return as_dict(posterior(self._grid_process, data, self.axes_of(x), None, conditioned))

    def _output_shape(self, inputs: Any) -> tuple[int | None, ...]:
        """The shape of the moments that `call` returns, of axes or of the pair (axes, z)."""
        is_pair = isinstance(inputs[0], tuple | list)
        return inputs[1].shape if is_pair else tuple(axis.shape[0] for axis in inputs)

    # --- saving -----------------------------------------------------------------------------------

    def _served(self) -> Served:
        arguments = [
            tf.TensorSpec([None], self.variable_dtype, f"x{axis}")
            for axis in range(self.dimensions)
        ]
        process = self._grid_process
        if bool(self._stored.is_empty):

            def predict_prior(state: tuple, *axes: tf.Tensor) -> Outputs:
                return as_dict(posterior(process, None, axes, None, None))

            return Served((), predict_prior, arguments)
        data = self.stored_data()
        held_data = HeldData(data)

        def predict(arrays: Sequence[tf.Tensor], *axes: tf.Tensor) -> Outputs:
            data = held_data.of(arrays)
            return as_dict(posterior(process, data, axes, None, process.condition(data)))

        return Served(tuple(held_data.arrays), predict, arguments)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        config = super().get_config()
        del config["noise_pseudo_variance"]
        return config


def _check_noise(noise: NoiseArguments) -> None:
    if not noise.are_left_out:
        raise ValueError(
            "all cells of a GridGP have the one learned noise variance, or their covariance would "
            "not be a product of those of the axes: leave noise_variance and noise_groups out, or "
            "take ExactGP"
        )


def _missing_in_graph(data: Data) -> tf.Tensor:
    """The numbers of the missing cells, which all grids have to share; int32."""
    present = data.present
    message = "the grids of a batch must miss the same cells"
    are_alike = tf.debugging.assert_equal(
        present, tf.broadcast_to(present[:1], tf.shape(present)), message
    )
    with tf.control_dependencies([are_alike]):
        return tf.cast(tf.where(~present[0])[:, 0], tf.int32)
