"""Keras callbacks that follow the hyperparameters of a fit."""

import io
import os
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp import plotting
from cgp.gp.base import GaussianProcess
from cgp.gp.data import check_labels
from cgp.kernels.points import as_points
from cgp.linalg.arguments import ArrayLike, check_whole
from cgp.observations import as_observations
from cgp.plotting.drawing import pyplot_or_error
from cgp.training.keras_private import flatten_layers
from cgp.training.parameters import Parameterized, named_parameters

__all__ = ["Parameters"]

_POINTS = 300  # of the curve in a picture


class Parameters(keras.callbacks.Callback):
    """Writes hyperparameters to TensorBoard after each epoch: constrained values, in their units.

    `keras.callbacks.TensorBoard` shows the weights, of which logarithms and steps are hard to read.
    Scalars are tagged "parameters/" and the name in `gp.parameters()`, with the index of an element
    of a vector behind it, and "real" or "imaginary" of a complex value. An epoch of
    `cgp.optimizers.LBFGS` is an iteration. TensorBoard is needed to look at them, not to write.

    Args:
        log_dir: The folder, as for `keras.callbacks.TensorBoard`.
        x: Inputs of data, `[N]` or `[N, 1]`, for pictures of the posterior; None for none.
        z: Complex targets, `[N]`, with x.
        picture_every: The epochs from one picture to the next; there is one after the last too.

    Raises:
        ImportError: Data for pictures, but matplotlib is not installed.
        TypeError: Real targets.
        ValueError: One of x and z without the other, or of shapes that do not fit; as a fit begins,
            a model without hyperparameters or, with data for pictures, one that is no Gaussian
            process over one dimension.

    Example:
        >>> import tempfile, numpy as np, cgp
        >>> from pathlib import Path
        >>> gp = cgp.ExactGP(cgp.kernels.RBF(1.0, 1.0), noise_variance=0.1)
        >>> gp.compile(cgp.optimizers.LBFGS())
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     shown = cgp.callbacks.Parameters(folder)
        ...     x = np.arange(5.0)
        ...     _ = gp.fit(x, np.exp(1j * x), epochs=2, callbacks=[shown], verbose=0)
        ...     len(list(Path(folder).glob("events.*")))
        1
    """

    def __init__(
        self,
        log_dir: str | Path,
        x: ArrayLike | None = None,
        z: ArrayLike | None = None,
        *,
        picture_every: int = 10,
    ):
        super().__init__()
        if (x is None) != (z is None):
            raise ValueError("x and z belong together: give both for pictures, or none")
        check_whole(picture_every, "picture_every")
        if not isinstance(log_dir, str | os.PathLike):
            raise TypeError(f"log_dir must be a path, got {log_dir!r}")
        self._folder, self._every = str(log_dir), picture_every
        self._x = self._z = None
        if x is not None and z is not None:
            pyplot_or_error()
            self._x, self._z = _series(x, z)
        self._writer: Any = None
        self._epoch, self._drawn = 0, -1

    def on_train_begin(self, logs: Any = None) -> None:
        """Opens the file."""
        _values(self.model)  # may refuse the model
        if self._x is not None:
            _check_pictures_of(self.model, self._x)
        self._writer = tf.summary.create_file_writer(self._folder)
        self._drawn = -1

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Writes the hyperparameters, and a picture where it is its turn."""
        self._epoch = epoch
        with self._writer.as_default():
            for name, parameter in _values(self.model).items():
                for tag, number in _scalars(f"parameters/{name}", parameter):
                    _write(tag, tf.constant(number, tf.float32), epoch, "scalars")
        if epoch % self._every == 0:
            self._draw()

    def on_train_end(self, logs: Any = None) -> None:
        """Draws the last picture, and closes the file."""
        self._draw()
        self._writer.close()

    def _draw(self) -> None:
        if self._x is None or self._drawn == self._epoch:
            return
        self._drawn = self._epoch
        from matplotlib.figure import Figure  # not pyplot's, which keeps figures open

        figure = Figure(figsize=(8, 5), layout="constrained")
        x = self._x
        new = np.linspace(x.min(), x.max(), _POINTS)
        predicted = self.model.predict(new, verbose=0)
        plotting.series(x, self._z, predicted, new, ax=figure.subplots(2, sharex=True))
        png = io.BytesIO()
        figure.savefig(png, format="png")
        width, height = (str(int(pixels)) for pixels in figure.get_size_inches() * figure.dpi)
        content = tf.constant([width, height, png.getvalue()])
        with self._writer.as_default():
            _write("posterior", content, self._epoch, "images")


def _series(x: ArrayLike, z: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Data for pictures as x and z, `[N]`, or an error."""
    check_labels(x, z)
    x = np.asarray(as_points(x, "float64"))
    if x.ndim != 2 or x.shape[1] != 1 or not len(x):
        raise ValueError(f"x of pictures must be [N] or [N, 1], got shape {x.shape}")
    z = np.asarray(as_observations(z, None, "complex128", promote=True))
    if z.shape != x.shape[:1]:
        raise ValueError(f"z of pictures must be one series, [{len(x)}] as x, got shape {z.shape}")
    return x[:, 0], z


def _check_pictures_of(model: Any, x: np.ndarray) -> None:
    """Raises where a model has no posterior along a line."""
    if not isinstance(model, GaussianProcess):
        kind = type(model).__name__
        posterior = "the posterior of a Gaussian process"
        raise ValueError(f"pictures are of {posterior}, not of a {kind}: give no x and z")
    try:
        model.predict(x[:1], verbose=0)
    except (ValueError, TypeError) as error:
        raise ValueError(f"pictures need predictions along a line of x: {error}") from error


def _values(model: Any) -> dict[str, np.ndarray]:
    """The constrained hyperparameters of a process, or of all layers in a model, by name."""
    if hasattr(model, "parameters"):
        return model.parameters()
    layers: list[Any] = [a for a in flatten_layers(model) if isinstance(a, Parameterized)]
    parameters = named_parameters((getattr(a, "prefix", a.name), a) for a in layers)
    if not parameters:
        raise ValueError(f"{type(model).__name__} has no hyperparameters that could be written")
    return {name: parameter.numpy() for name, parameter in parameters.items()}


def _scalars(tag: str, array: np.ndarray) -> list[tuple[str, float]]:
    """The real numbers in an array, each with a tag; of complex ones both parts."""
    if np.iscomplexobj(array):
        return [*_scalars(f"{tag}/real", array.real), *_scalars(f"{tag}/imaginary", array.imag)]
    return [
        (tag + "".join(f"[{i}]" for i in index), float(array[index]))
        for index in np.ndindex(np.shape(array))
    ]


def _write(tag: str, tensor: tf.Tensor, step: int, plugin: str) -> None:
    """Writes for one of TensorBoard's plugins, as `tf.summary.scalar` and `image` do.

    These are part of TensorBoard, which need not be installed here.
    """
    metadata = tf.compat.v1.SummaryMetadata()
    metadata.plugin_data.plugin_name = plugin
    metadata.data_class = {"scalars": 1, "images": 3}[plugin]  # DataClass in its summary.proto
    tf.summary.write(tag, tensor, step=step, metadata=metadata)
