"""Learned matrices as layers, and a state-space model some of whose matrices are learned."""

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.linalg import semidefinite_factor
from cgp.linalg.arguments import ArrayLike, real_as
from cgp.statespace.linearization.linearized_model import AnyModel, noise_of
from cgp.statespace.models.linear_gaussian import LinearGaussian
from cgp.statespace.models.model_base import FactoredCovariance, as_dtype
from cgp.statespace.models.nonlinear_gaussian import NonlinearGaussian
from cgp.training import laplace
from cgp.training.hyperparameters import HyperparameterLayer, Row, array_text
from cgp.training.keras_private import flatten_layers
from cgp.training.parameters import (
    COMPLEX,
    POSITIVE,
    REAL,
    Constraint,
    Parameter,
    Parameterized,
    named_parameters,
    number_to_config,
)
from cgp.training.post_updates import PresentValues

_FAR = 100.0  # |mean|² beside the variance, of an offset
_FEW = 3  # samples, which may all be far from zero
_COVARIANCES = ("Q", "R", "initial_covariance")
MATRICES = ("F", "H", "B", "initial_mean", *_COVARIANCES)
"""The names of the parts of a linear model that a filter may learn."""


def _finite(value: ArrayLike) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype.kind not in "iufc" or not np.all(np.isfinite(array)):
        raise ValueError(f"value must be finite numbers, got {array!r}")
    return array


@keras.saving.register_keras_serializable(package="cgp.layers")
class Matrix(HyperparameterLayer):
    """A learned array, unconstrained, such as a transition matrix or a mean.

    Args:
        value: Initial value, of any shape; a complex one makes a complex array.
        fixed: "value" to exclude it from training; or bool, shaped like it: True for the elements
            that stay at their initial value, such as the zeros and ones of a companion matrix. Only
            the others are weights.
        priors: TFP distribution of "value", by that name; the loss of a `KalmanFilter` has it.
        name: A name.
        dtype: "float64" or "float32".

    Raises:
        ValueError: Elements that are not finite numbers; a `fixed` of another shape, or True for
            all elements.

    Example:
        >>> import numpy as np
        >>> from cgp.layers import Matrix
        >>> Matrix([[0.9j]]).call().numpy()
        array([[0.+0.9j]])
        >>> companion = Matrix([[1.6, -0.8], [1.0, 0.0]], fixed=[[False, False], [True, True]])
        >>> companion.trainable_variables[0].numpy()
        array([ 1.6, -0.8])
    """

    value: Parameter

    def __init__(
        self,
        value: ArrayLike,
        *,
        fixed: str | Iterable[Any] = (),
        priors: Mapping[str, Any] | None = None,
        name: str | None = None,
        dtype: str = "float64",
        **kwargs: Any,
    ):
        super().__init__(name=name, dtype=dtype, **kwargs)
        array = _finite(value)
        constraint = COMPLEX if np.iscomplexobj(array) else REAL
        self._is_fixed = np.asarray(fixed)
        if self._is_fixed.dtype.kind in "iufc" and self._is_fixed.size:
            raise TypeError(
                "fixed must be bool, True for each element that is held fixed, got "
                f"{self._is_fixed.dtype}"
            )
        if self._is_fixed.dtype == bool:
            constraint, fixed = _with_fixed_elements(constraint, array, self._is_fixed), ()
        self.declare_parameters({"value": (array, constraint)}, fixed, priors)

    def call(self) -> tf.Tensor:
        """The array."""
        return tf.convert_to_tensor(self.value)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, complex numbers as [re, im]."""
        config = super().get_config()
        return (
            config | {"fixed": self._is_fixed.tolist()} if self._is_fixed.dtype == bool else config
        )


def _with_fixed_elements(
    constraint: Constraint, initial: np.ndarray, is_fixed: np.ndarray
) -> Constraint:
    """Arrays whose elements are free where `is_fixed` is False, which alone are weights."""
    shape = list(initial.shape)
    if is_fixed.shape != initial.shape:
        raise ValueError(
            f"fixed must be shaped like value, {shape}, True for elements that stay as they are, "
            f"got shape {list(is_fixed.shape)}"
        )
    if is_fixed.all():
        raise ValueError(
            'fixed is True for all elements, and nothing would be learned: give fixed="value", or '
            "leave the matrix out of learn"
        )
    places = np.argwhere(~is_fixed)

    def forward(weights: tf.Tensor) -> tf.Tensor:
        elements = constraint.forward(weights)
        constants = np.where(is_fixed, initial, 0).astype(elements.dtype.as_numpy_dtype)
        return tf.scatter_nd(places, elements, shape) + constants

    def contains(array: np.ndarray) -> bool:
        same_shape = array.shape == initial.shape
        return same_shape and bool(np.all((array == initial.astype(array.dtype)) | ~is_fixed))

    return constraint._replace(
        description=f"{constraint.description}, of shape {shape}, its fixed elements as they are",
        contains=contains,
        forward=forward,
        inverse=lambda array: constraint.inverse(array[~is_fixed]),
    )


@keras.saving.register_keras_serializable(package="cgp.layers")
class Covariance(HyperparameterLayer):
    """A covariance learned through its factor, so that it stays positive semidefinite.

    With the initial value `V = G Gᴴ`, it is `G A Aᴴ Gᴴ`, where A is lower triangular with a
    positive diagonal, initially the identity. This covers every covariance with the range of V:
    components of the state without noise stay without noise.

    Args:
        value: V, `[n, n]`, Hermitian, positive semidefinite. A real one stays real.
        fixed: Names of parameters excluded from training: "scale", the diagonal of A, and
            "mixing", the elements below it.
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
        self._start = _finite(value)
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
        if rank > 1:
            is_complex = np.iscomplexobj(root)
            mixing = np.zeros(rank * (rank - 1) // 2, complex if is_complex else float)
            values["mixing"] = (mixing, COMPLEX if is_complex else REAL)
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


class LearnedModel:
    """A model, and the layers by name whose outputs replace some of its matrices."""

    def __init__(self, start: AnyModel, learn: Iterable[str] | Mapping[str, Any]):
        self.start, self.noise = start, noise_of(start)
        self.form = self.noise.form
        self.layers = {k: self._layer(k, layer) for k, layer in self._learnable(learn).items()}
        of_cgp = {k: v for k, v in self.layers.items() if type(v) in (Matrix, Covariance)}
        # Layers of users may depend on more than their weights.
        self._of_users = [name for name in self.layers if name not in of_cgp]
        self._present_values = PresentValues(v for x in of_cgp.values() for v in x.variables)
        by_id = {id(p): p for layer in self.layers.values() for p in parameters_inside(layer)}
        self.with_priors = [p for p in by_id.values() if p.prior is not None]

    def _learnable(self, learn: Any) -> dict[str, Any]:
        """Checks names; returns a layer, or None for the default one, by name."""
        if isinstance(learn, str):
            learn = (learn,)
        if not isinstance(learn, Mapping | tuple | list | set | frozenset):
            raise TypeError(f"learn must be names, or layers by name, got {learn!r}")
        layers = dict(learn) if isinstance(learn, Mapping) else dict.fromkeys(learn)
        # The functions of a nonlinear model are layers themselves.
        is_linear = not isinstance(self.start, NonlinearGaussian)
        names = MATRICES if is_linear else ("initial_mean", *_COVARIANCES)
        unknown = sorted(set(layers) - set(names))
        if unknown:
            raise ValueError(f"learn names {unknown}, but what can be learned is {sorted(names)}")
        if "B" in layers and self.noise.B is None:
            raise ValueError("learn names B, but the model has no input")
        if self.noise.S is not None and {"Q", "R"} & set(layers):
            raise ValueError(
                "learn names Q or R, but the model has an S: the three are one covariance, and a "
                "filter learns it in no parts. Differentiate cgp.statespace.log_likelihood by all "
                "three, or learn the matrices of a model without S"
            )
        if "initial_covariance" in layers and self.noise.initial is not None:
            raise ValueError(
                f'the initial covariance is "{self.noise.initial}": give the model a matrix if it '
                "is to be learned"
            )
        return layers

    def _layer(self, name: str, layer: Any) -> keras.layers.Layer:
        value = self._at_start(name)
        if name.startswith("initial") and value.shape.rank > (1 if name == "initial_mean" else 2):
            raise ValueError(f"{name} must have no batch axes to be learned, got {value.shape}")
        if not name.startswith("initial") and value.shape.rank != 2:
            raise ValueError(
                f"{name} must not vary over time to be learned, got shape {value.shape}"
            )
        if layer is None:
            kind = Covariance if name in _COVARIANCES else Matrix
            if kind is Covariance and not np.any(value):
                raise ValueError(
                    f"{name} is zero, and is to be learned: learning scales and mixes what noise "
                    f"there is. Give the model a {name} of about the size that is expected, or "
                    f"leave {name!r} out of learn"
                )
            return kind(value.numpy(), name=name, dtype=self.noise.dtype.real_dtype.name)
        if not isinstance(layer, keras.layers.Layer):
            raise TypeError(f"learn must give a layer for {name}, got {type(layer).__name__}")
        return layer

    def _at_start(self, name: str) -> tf.Tensor:
        """A matrix of the model given."""
        if not isinstance(self.start, NonlinearGaussian):
            return getattr(self.start, name)
        if name in "FHB":
            raise AttributeError(f"the model is not linear, and has no {name}")
        return self.start.shown(name)

    def model(self) -> AnyModel:
        """The model of the present matrices, differentiable with respect to the weights."""
        start = self.start
        if not self.layers:
            return start
        if isinstance(start, NonlinearGaussian):
            return start.with_moments({name: self._present(name) for name in self.layers})
        tensors, initial = start.parts(), start.initial
        if initial == "stationary" and not {"F", "Q"} & set(self.layers):
            initial = None  # the stationary covariance does not change
        if initial is not None:
            del tensors["initial_covariance"]
        tensors |= {name: self._present(name) for name in self.layers}
        return LinearGaussian.from_tensors(tensors, initial, start.form)

    def snapshot(self) -> bytes:
        """The values that the matrices depend on."""
        if not self.layers:
            return b""
        matrices = [np.asarray(self.matrix(k)).tobytes() for k in self._of_users]
        return b"".join([self._present_values.read(), *matrices])

    def matrix(self, name: str) -> np.ndarray | None:
        """A present matrix; None for the B of a model without one."""
        if name in self.layers:
            return self.tensor(name).numpy()
        # Only this one depends on others: an F without stationary covariance can still be read.
        if name == "initial_covariance" and isinstance(self.start, LinearGaussian):
            return noise_of(self.model()).initial_covariance.numpy()
        matrix = self._at_start(name)
        return None if matrix is None else matrix.numpy()

    def tensor(self, name: str) -> tf.Tensor:
        """The present matrix of a learned layer, differentiable with respect to the weights."""
        present = self._present(name)
        return present.matrix if isinstance(present, FactoredCovariance) else present

    def rows(self) -> Iterator[Row]:
        """The present learned matrices, for a table."""
        uses = Counter(map(id, self.layers.values()))
        for name, layer in self.layers.items():
            notes = [] if uses[id(layer)] == 1 else [f"shared by {uses[id(layer)]} matrices"]
            fixed = [p.name for p in parameters_inside(layer) if p.fixed]
            if fixed:
                notes.append(f"fixed: {', '.join(fixed)}")
            matrix = np.asarray(self.matrix(name))
            yield Row(name, array_text(matrix), ", ".join(["learned", *notes]))

    def errors(
        self, estimator: Any, batch: Any, count: float, verbose: int | str
    ) -> dict[str, np.ndarray]:
        """Standard errors of the learned matrices, from the Hessian of the loss of a batch.

        `estimator` is the filter that learns them, and `count` the number of observations.
        """
        if not estimator.trainable_variables or not estimator.loss_weight:
            raise ValueError("nothing is learned: the filter has no weights, or a loss_weight of 0")
        count /= estimator.loss_weight
        weights, curvature = laplace.curvature_of_loss(estimator, batch, count, verbose)
        layers = [(k, x) for k, x in self.layers.items() if isinstance(x, Parameterized)]

        def matrices() -> list[tf.Tensor]:
            return [self.tensor(name) for name in self.layers]

        covariance = laplace.covariance_of_arrays(
            matrices, named_parameters(layers), weights, curvature
        )
        estimates = dict(zip(self.layers, (a.numpy() for a in matrices()), strict=True))
        return laplace.errors_by_name(estimates, covariance)

    def _present(self, name: str) -> tf.Tensor | FactoredCovariance:
        """The present matrix of a learned layer; a covariance with its factor if it has one."""
        layer, like = self.layers[name], self._at_start(name)
        present: Any
        if name in _COVARIANCES and hasattr(layer, "factor"):
            present = FactoredCovariance.of_factor(as_dtype(layer.factor(), like.dtype, name))
            shape = present.matrix.shape
        else:
            present = as_dtype(layer.call(), like.dtype, name)
            shape = present.shape
        if not shape.is_compatible_with(like.shape):
            raise ValueError(f"the layer of {name} must return {like.shape}, got {shape}")
        return present


class PresentMatrix:
    """An attribute of a layer: the present matrix of that name in its learned model, NumPy."""

    def __init__(self, doc: str):
        self.__doc__ = doc

    def __set_name__(self, owner: type, name: str) -> None:
        self._key = name

    def __get__(self, layer: Any, owner: type) -> Any:
        return self if layer is None else layer.learned_model.matrix(self._key)


def parameters_inside(layer: keras.layers.Layer) -> list[Parameter]:
    """The hyperparameters of a layer and of the layers inside it."""
    layers = [x for x in flatten_layers(layer) if isinstance(x, Parameterized)]
    return [parameter for x in layers for parameter in x.own_parameters]


def warn_of_offset(model: Any, z: np.ndarray) -> None:
    """Warns of observations `[B, T, M]` far from zero that no state of a linear model stays at."""
    if not isinstance(model, LinearGaussian) or model.B is not None or model.F.shape.rank != 2:
        return
    enough = np.sum(~np.isnan(z), axis=1) > _FEW
    if np.min(np.abs(np.linalg.eigvals(model.F.numpy()) - 1.0)) * z.shape[1] < 1.0:
        return
    values = np.where(enough[:, None], z, 0.0)
    means, deviations = np.nanmean(values, axis=1), np.nanstd(values, axis=1)
    far = np.abs(means) ** 2 - _FAR * deviations**2
    worst = np.unravel_index(np.argmax(far), far.shape)
    if far[worst] > 0.0:
        warnings.warn(
            f"z is far from zero: its mean is {means[worst]:.4g}, beside a standard deviation of "
            f"{deviations[worst]:.2g}, and the model has no state that stays as it is, as F has no "
            "eigenvalue 1. What is learned would be stretched over that, and forecasts be wrong: "
            "subtract the mean from z, or give the model a constant state, F=block_diag(F, 1), "
            "Q=block_diag(Q, 0), H=hstack([H, 1]) and a wide initial covariance",
            RuntimeWarning,
            stacklevel=3,
        )
