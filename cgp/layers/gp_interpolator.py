"""Interpolation of complex signals by a Gaussian process, as a layer between others."""

from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.gp.data import Data, as_data, check_labels, flattened
from cgp.gp.data import check_shapes as check_series
from cgp.gp.interpolation import interpolate
from cgp.gp.noise import NoiseArguments
from cgp.gp.signal_plus_noise import SignalPlusNoise
from cgp.kernels.base import Kernel
from cgp.kernels.points import as_points
from cgp.layers.likelihood_objective import LikelihoodObjective, checked_weight
from cgp.linalg.arguments import ArrayLike, complex_dtype
from cgp.tensorflow_private import is_compiled_by_xla
from cgp.training.hyperparameters import HyperparameterLayer, one_number
from cgp.training.keras_private import as_added_loss
from cgp.training.model import without_mask
from cgp.training.parameters import POSITIVE, Parameter, named_parameters, values_by_name
from cgp.training.sharing import sharing_scope


def check_shapes(x: tf.TensorShape, z: tf.TensorShape, x_new: tf.TensorShape) -> None:
    """Raises where shapes, of positions with an axis of dimensions, do not fit together."""
    for points, name in ((x, "x"), (x_new, "x_new")):
        # A Keras input has a batch axis, of unknown size; a number of points is mostly known.
        if points.rank == 2 and points[0] is None and z.rank == 2 and z[0] is None:
            raise ValueError(
                f"{name} must be [N, D], or [B, N, D] where it comes with the series, got shape "
                f"{points}: positions of a batch have an axis of dimensions, {name}[..., None]"
            )
    check_series(x, z)
    if 0 in z[:-1].as_list():
        raise ValueError(f"z must have at least one series, got shape {z}")
    check_dimensions(x, x_new)
    if x_new.rank > 2 and not x_new[:-2].is_compatible_with(z[:-1]):
        raise ValueError(f"the batch axes of x_new, {x_new[:-2]}, must be those of z, {z[:-1]}")


def of_one_batch(x: tf.Tensor, z: tf.Tensor, x_new: tf.Tensor) -> tf.Tensor:
    """The series in a graph, which fails where series and positions differ in batch axes."""
    z, checks = tf.convert_to_tensor(z), []
    for points, name in ((x, "x"), (x_new, "x_new")):
        if points.shape.rank > 2:
            words = f"the batch axes of {name} must be those of z"
            checks.append(tf.debugging.assert_equal(tf.shape(points)[:-2], tf.shape(z)[:-1], words))
    with tf.control_dependencies(checks):
        return tf.identity(z)


def with_noise_of_samples(data: Data) -> Data:
    """Data in a graph, which fails where the known part of their noise is not a variance."""
    variance = data.noise.variance  # zero where z is missing
    if variance is None:
        return data
    words = "noise_variance, the known part of the noise, must be finite and not negative"
    is_variance = tf.math.is_finite(variance) & (variance >= 0.0)
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(is_variance), [words])]):
        return data._replace(noise=data.noise._replace(variance=tf.identity(variance)))


def check_dimensions(x: tf.TensorShape, x_new: tf.TensorShape) -> None:
    """Raises where positions have other dimensions than new ones."""
    if not x_new[-1:].is_compatible_with(x[-1:]):
        raise ValueError(f"x_new must have as many dimensions as x, {x[-1]}, got shape {x_new}")


@keras.saving.register_keras_serializable(package="cgp.layers")
class GPInterpolator(HyperparameterLayer):
    """Interpolates each series of a batch by a Gaussian process, and says how certain it is.

    The signal is `f ~ GP(0, kernel)`, the series are `z = f(x) + n`. The layer takes them between
    other layers and returns the posterior of f at new positions, as `cgp.ExactGP` finds it.
    Gradients pass to the series, the positions, the noise and the hyperparameters, so that these
    learn by the loss of the network; by the likelihood of the series (`loss_weight`); or by both.

    Positions are times, frequencies, or both, one dimension each: a pilot of an OFDM frame is at
    (frequency, time). Where all series share them one factorisation, O(N³), serves the batch, and a
    series that lacks k elements costs a system of k equations beside it; where one lacks more than
    half, or positions or noise are particular to each, each series costs O(N³).

        interpolator = cgp.layers.GPInterpolator(kernel, 0.1, x=pilots, x_new=grid)
        channel = interpolator(z)                                 # a fixed pattern
        channel = interpolator(z, noise_variance=of_frames)       # [B, 1]
        channel = interpolator((x, z, x_new))                     # a pattern that comes with z

    Missing elements are NaN in z, or `missing`. If a layer before this one learns, give `missing`,
    or set the NaN after that layer: the gradient through a NaN would be NaN.

    Args:
        kernel: A kernel, with values in units of x and z: no fit starts them from data. Layers and
            models that are given the same kernel share its hyperparameters.
        noise_variance: `E|n|²`, positive, in squared units of z; learned.
        x: Positions of the elements of z, `[N]` or `[N, D]`, for calls that give none.
        x_new: Positions where the signal is wanted, `[M]` or `[M, D]`, likewise.
        loss_weight: Factor of the loss that the layer adds: the negative log marginal likelihood of
            the series, less the log prior, per observed element. 0 for no loss. A prior counts
            once in all the data of a `fit` of a `cgp` model, else once in each call.
        fixed: "noise_variance", to exclude it from training.
        priors: A TFP distribution of "noise_variance", by that name.
        name: A name.
        dtype: "float64" (complex128 series) or "float32" (complex64); as the kernel if None.

    Raises:
        TypeError: No kernel, or dtypes that differ.
        ValueError: A noise variance that is not positive, positions of one kind alone.

    Example:
        >>> import numpy as np
        >>> import cgp
        >>> kernel = cgp.kernels.RBF(1.0, 1.0) * cgp.kernels.Rotation(0.5)
        >>> t = np.linspace(0.0, 4.0, 9)
        >>> layer = cgp.layers.GPInterpolator(kernel, noise_variance=1e-4, x=t, x_new=[1.25])
        >>> z = np.exp(1j * np.pi * t) * np.array([[1.0], [2.0j]])
        >>> z[1, 3] = np.nan
        >>> found = layer(z)
        >>> truth = np.exp(1.25j * np.pi) * np.array([[1.0], [2.0j]])
        >>> bool(np.allclose(found["mean"], truth, atol=0.02))
        True
        >>> bool(found["variance"][1, 0] > found["variance"][0, 0])
        True
    """

    noise_variance: Parameter

    def __init__(
        self,
        kernel: Kernel,
        noise_variance: ArrayLike,
        x: ArrayLike | None = None,
        x_new: ArrayLike | None = None,
        *,
        loss_weight: float = 0.0,
        fixed: str | Iterable[str] = (),
        priors: Mapping[str, Any] | None = None,
        name: str | None = None,
        dtype: str | None = None,
        **kwargs: Any,
    ):
        if not isinstance(kernel, Kernel):
            raise TypeError(f"kernel must be one of cgp.kernels, got {kernel!r}")
        super().__init__(name=name, dtype=dtype or kernel.variable_dtype, **kwargs)
        self.supports_jit = False  # XLA wants to know how many elements series lack
        if kernel.variable_dtype != self.variable_dtype:
            raise TypeError(
                f"the layer is {self.variable_dtype}, but {kernel!r} is {kernel.variable_dtype}"
            )
        self.kernel = kernel
        variance = one_number(noise_variance, "noise_variance")
        self.declare_parameters({"noise_variance": (variance, POSITIVE)}, fixed, priors)
        self.x, self.x_new = self._fixed_positions(x, x_new)
        self.loss_weight = checked_weight(loss_weight)
        self._process = SignalPlusNoise(kernel, None, self.noise_variance, None)
        with_priors = [p for p in self.named_hyperparameters().values() if p.prior is not None]
        self._objective = LikelihoodObjective(with_priors, self.variable_dtype)
        self.batch_count = self._objective.batch_count

    def _fixed_positions(
        self, x: ArrayLike | None, x_new: ArrayLike | None
    ) -> tuple[np.ndarray | None, np.ndarray | None]:
        if (x is None) != (x_new is None):
            raise ValueError("x and x_new must both be given, or neither")
        if x is None or x_new is None:
            return None, None
        positions = {"x": x, "x_new": x_new}
        data_x, new_x = (as_points(a, self.variable_dtype, name) for name, a in positions.items())
        for name, points in zip(positions, (data_x, new_x), strict=True):
            if points.shape.rank != 2 or points.shape[0] == 0:
                raise ValueError(
                    f"{name} of the layer must be [N] or [N, D], got shape {points.shape}: where "
                    "series have positions of their own, call it on (x, z, x_new)"
                )
        check_dimensions(data_x.shape, new_x.shape)
        self.kernel.check_points(data_x)
        return data_x.numpy(), new_x.numpy()

    def named_hyperparameters(self) -> dict[str, Parameter]:
        """The hyperparameters, by the names that `parameters` gives them."""
        return named_parameters([("", self), *self.kernel.named_layers()])

    def parameters(self) -> dict[str, np.ndarray]:
        """The hyperparameters by name: constrained values, each shared one once.

        A hyperparameter of the kernel that was left out, and that no fit has started yet, is NaN.
        """
        return values_by_name(self.named_hyperparameters(), self._process.left_out())

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Keras's `__call__`; what a masked array hides is NaN, where Keras would show it."""
        for array in inputs if isinstance(inputs, tuple | list) else [inputs]:
            if not hasattr(array, "shape"):
                raise TypeError(
                    "inputs must be z, or (x, z, x_new), arrays or tensors, got "
                    f"{type(array).__name__}"
                )
        if isinstance(inputs, tuple | list) and len(inputs) == 3:
            named = {**dict(zip(("missing", "noise_variance"), args, strict=False)), **kwargs}
            noise = NoiseArguments(named.get("noise_variance"))
            check_labels(inputs[0], inputs[1], named.get("missing"), noise)
        inputs, args, kwargs = tf.nest.map_structure(without_mask, (inputs, args, kwargs))
        return super().__call__(inputs, *args, **kwargs)

    def call(
        self, inputs: Any, missing: ArrayLike | None = None, noise_variance: ArrayLike | None = None
    ) -> dict[str, tf.Tensor]:
        """Interpolates series.

        Args:
            inputs: `(x, z, x_new)`; or z alone, at the positions of the layer. z is complex,
                `[B, N]`, NaN where missing; x are its positions, `[N, D]`, or `[B, N, D]` where
                series have their own; x_new are the positions of the result, `[M, D]` or
                `[B, M, D]`. Positions of one dimension without a batch axis may be `[N]`.
            missing: Bool, broadcast against z: True where missing.
            noise_variance: The known part of the noise, to which the learned one is added: real,
                broadcast against z, such as `[B, 1]` for one a series.

        Returns:
            "mean", complex; "variance", `E|f − mean|²`, real; "pseudo_variance",
            `E[(f − mean)²]`, complex; each `[B, M]`.

        Raises:
            TypeError: A real z, complex positions, a precision that is not the layer's, no arrays.
            ValueError: Shapes that do not fit, no series; compilation by XLA; eagerly, NaN in
                positions, noise that no sample can have.
            tf.errors.InvalidArgumentError: In a graph, batch axes that do not fit, or such noise.
        """
        if is_compiled_by_xla():
            raise ValueError(
                "a GPInterpolator cannot be compiled by XLA, which wants to know how many elements "
                "series lack: jit_compile must not be True"
            )
        real, is_graph = self.variable_dtype, not tf.executing_eagerly()
        x, z, x_new = self._positions_and_series(inputs)
        x, x_new = as_points(x, real), as_points(x_new, real, "x_new")
        check_shapes(x.shape, tf.TensorShape(z.shape), x_new.shape)
        z = of_one_batch(x, z, x_new) if is_graph else z
        noise = NoiseArguments(noise_variance)
        data = as_data(x, z, missing, real, require_targets=False, noise=noise)
        data = with_noise_of_samples(data) if is_graph else data
        new = flattened(x_new, 2)
        if x.shape.rank == 2:
            data = data._replace(x=tf.ensure_shape(data.x, [1, None, None]))
        result = interpolate(self._process, data, new)
        if self.loss_weight:
            loss = self._objective.loss(tf.reduce_sum(data.counts), result.log_likelihood)
            self.add_loss(as_added_loss(self, self.loss_weight * loss))
        moments = result._asdict()
        del moments["log_likelihood"]
        return {name: data.unpacked(a) for name, a in moments.items()}

    def _positions_and_series(self, inputs: Any) -> tuple[Any, Any, Any]:
        if isinstance(inputs, tuple | list):
            if len(inputs) != 3:
                raise ValueError(f"inputs must be (x, z, x_new), or z alone, got {len(inputs)}")
            return tuple(inputs)
        if self.x is None:
            raise ValueError(
                "the layer has no positions: call it on (x, z, x_new), or make it with x and x_new"
            )
        return self.x, inputs, self.x_new

    def compute_output_spec(
        self, inputs: Any, missing: Any = None, noise_variance: Any = None
    ) -> dict[str, keras.KerasTensor]:
        """The shapes and dtypes that `call` returns in a functional model."""
        x, z, x_new = self._positions_and_series(inputs)
        complex_ = complex_dtype(self.variable_dtype).name
        if keras.backend.standardize_dtype(z.dtype) != complex_:
            raise TypeError(
                f"z must be {complex_}, got {z.dtype}: give keras.Input that dtype; a layer "
                "of your own tells its dtype by compute_output_spec"
            )
        x, z, x_new = (tf.TensorShape(a.shape) for a in (x, z, x_new))
        x, x_new = (shape.concatenate(1) if shape.rank == 1 else shape for shape in (x, x_new))
        check_shapes(x, z, x_new)
        shape = (*z[:-1], x_new[-2])
        dtypes = {"mean": complex_, "variance": self.variable_dtype, "pseudo_variance": complex_}
        return {name: keras.KerasTensor(shape, dtype) for name, dtype in dtypes.items()}

    # --- serialisation ---------------------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        positions = {"x": self.x, "x_new": self.x_new}
        return {
            **super().get_config(),
            "kernel": keras.saving.serialize_keras_object(self.kernel),
            **{name: None if a is None else a.tolist() for name, a in positions.items()},
            "loss_weight": self.loss_weight,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "GPInterpolator":
        """Makes the layer of a config."""
        with sharing_scope():
            kernel = keras.saving.deserialize_keras_object(config["kernel"])
            return super().from_config({**config, "kernel": kernel})

    def __repr__(self) -> str:
        return f"GPInterpolator({self.kernel!r}, {self.noise_variance!r})"
