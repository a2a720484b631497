"""Learned matrices as layers: one layer passed to several consumers shares the matrix."""

from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.linalg import semidefinite_factor
from cgp.linalg.arguments import ArrayLike, real_as
from cgp.training.hyperparameters import HyperparameterLayer
from cgp.training.parameters import COMPLEX, POSITIVE, REAL, number_to_config


def _array(value: ArrayLike, name: str) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype.kind not in "iufc" or not np.all(np.isfinite(array)):
        raise ValueError(f"{name} must be finite numbers, got {array!r}")
    return array


@keras.saving.register_keras_serializable(package="cgp.layers")
class Matrix(HyperparameterLayer):
    """A learned array, unconstrained, such as a transition matrix or a mean.

    Args:
        value: Initial value, of any shape; a complex one makes a complex array.
        fixed: "value" to exclude it from training.
        priors: TFP distribution of "value", by that name; the loss of a `KalmanFilter` has it.
        name: A name.
        dtype: "float64" or "float32".

    Raises:
        ValueError: Elements that are not finite numbers.

    Example:
        >>> from cgp.layers import Matrix
        >>> Matrix([[0.9j]]).call().numpy()
        array([[0.+0.9j]])
    """

    def __init__(
        self,
        value: ArrayLike,
        *,
        fixed: str | Iterable[str] = (),
        priors: Mapping[str, Any] | None = None,
        name: str | None = None,
        dtype: str = "float64",
        **kwargs: Any,
    ):
        super().__init__(name=name, dtype=dtype, **kwargs)
        array = _array(value, "value")
        constraint = COMPLEX if np.iscomplexobj(array) else REAL
        self.declare_parameters({"value": (array, constraint)}, fixed, priors)

    def call(self) -> tf.Tensor:
        """The array."""
        return tf.convert_to_tensor(self.value)


@keras.saving.register_keras_serializable(package="cgp.layers")
class Covariance(HyperparameterLayer):
    """A covariance learned through its factor, so that it stays positive semidefinite.

    With the initial value `V = G Gᴴ`, it is `G A Aᴴ Gᴴ`, where A is lower triangular with a
    positive diagonal, initially the identity. This covers every covariance with the range of V:
    components of the state without noise stay without noise.

    Args:
        value: V, `[n, n]`, Hermitian, positive semidefinite. A real one stays real.
        fixed: Names of parameters excluded from training: "scale", the diagonal of A, and
            "mixing", what is below it.
        priors: TFP distributions of these, by name; the loss of a `KalmanFilter` has them.
        name: A name.
        dtype: "float64" or "float32".

    Raises:
        ValueError: Not a square matrix of finite numbers, or zero.
        NotPositiveDefiniteError: Indefinite.

    Example:
        >>> from cgp.layers import Covariance
        >>> Covariance([[2.0, 0.0], [0.0, 0.0]]).call().numpy()
        array([[2., 0.],
               [0., 0.]])
    """

    def __init__(
        self,
        value: ArrayLike,
        *,
        fixed: str | Iterable[str] = (),
        priors: Mapping[str, Any] | None = None,
        name: str | None = None,
        dtype: str = "float64",
        **kwargs: Any,
    ):
        super().__init__(name=name, dtype=dtype, **kwargs)
        self._start = _array(value, "value")
        if self._start.ndim != 2 or self._start.shape[0] != self._start.shape[1]:
            raise ValueError(f"value must be a covariance, [n, n], got shape {self._start.shape}")
        if self._start.dtype.kind in "iu":
            self._start = self._start.astype(float)
        root = semidefinite_factor(self._start).numpy()
        root = root[:, np.any(root != 0, axis=0)]
        rank = root.shape[1]
        if rank == 0:
            raise ValueError("value must not be zero: there would be nothing to learn")
        self._root = root.astype(np.result_type(self.variable_dtype, root.dtype.type(0)))
        values = {"scale": (np.ones(rank), POSITIVE)}
        below = rank * (rank - 1) // 2
        if below and np.iscomplexobj(root):
            values["mixing"] = (np.zeros(below, complex), COMPLEX)
        elif below:
            values["mixing"] = (np.zeros(below), REAL)
        self.declare_parameters(values, fixed, priors)

    def factor(self) -> tf.Tensor:
        """`G A`, `[n, rank]`; not triangular."""
        root = tf.constant(self._root)
        scale = tf.convert_to_tensor(self.scale)
        a = tf.linalg.diag(real_as(scale, root.dtype))
        if len(self.own_parameters) > 1:
            rank = root.shape[1]
            places = np.stack(np.tril_indices(rank, -1), axis=-1)
            a += tf.scatter_nd(places, tf.convert_to_tensor(self.mixing), [rank, rank])
        return tf.linalg.matmul(root, a)

    def call(self) -> tf.Tensor:
        """The covariance, `[n, n]`."""
        factor = self.factor()
        return tf.linalg.matmul(factor, factor, adjoint_b=True)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, complex numbers as [re, im]."""
        config = super().get_config()
        for parameter in self.own_parameters:
            config.pop(parameter.name)
        config["complex"] = ["value"] if np.iscomplexobj(self._start) else []
        return {**config, "value": number_to_config(self._start)}
