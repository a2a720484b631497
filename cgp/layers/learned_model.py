"""A linear Gaussian model some of whose matrices are learned by layers."""

from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.layers.matrices import Covariance, Matrix
from cgp.statespace.conversion import as_dtype
from cgp.statespace.factored_covariance import FactoredCovariance
from cgp.statespace.linear_gaussian import LinearGaussian
from cgp.training.keras_private import flatten_layers
from cgp.training.parameters import Parameter, Parameterized
from cgp.training.post_updates import snapshot

_COVARIANCES = ("Q", "R", "initial_covariance")
_MATRICES = ("F", "H", "B", "initial_mean")


class LearnedModel:
    """A model and the layers whose outputs replace some of its matrices.

    Args:
        start: The model of the initial matrices.
        learn: Names, or layers by name, as for `KalmanFilter`.

    Attributes:
        layers: The layers by name.
        with_priors: Their hyperparameters that have a prior, each once.
    """

    def __init__(self, start: LinearGaussian, learn: Iterable[str] | Mapping[str, Any]):
        self._start, self.form = start, start.form
        self.layers = {
            name: self._layer(name, layer) for name, layer in self._learnable(learn).items()
        }
        found = {id(p): p for layer in self.layers.values() for p in _parameters(layer)}
        self.with_priors = [p for p in found.values() if p.prior is not None]

    def _learnable(self, learn: Any) -> dict[str, Any]:
        """Checks names; returns a layer, or None for the default one, by name."""
        if isinstance(learn, str):
            learn = (learn,)
        if not isinstance(learn, Mapping | tuple | list | set | frozenset):
            raise TypeError(f"learn must be names, or layers by name, got {learn!r}")
        found = dict(learn) if isinstance(learn, Mapping) else dict.fromkeys(learn)
        known = (*_MATRICES, *_COVARIANCES)
        unknown = sorted(set(found) - set(known))
        if unknown:
            raise ValueError(f"learn names {unknown}, but what can be learned is {sorted(known)}")
        if "B" in found and self._start.B is None:
            raise ValueError("learn names B, but the model has no input")
        if "initial_covariance" in found and self._start.initial is not None:
            raise ValueError(
                f'the initial covariance is "{self._start.initial}": give the model a matrix if it '
                "is to be learned"
            )
        return found

    def _layer(self, name: str, layer: Any) -> keras.layers.Layer:
        value = getattr(self._start, name)
        if name.startswith("initial") and value.shape.rank > (1 if name == "initial_mean" else 2):
            raise ValueError(f"{name} must have no batch axes to be learned, got {value.shape}")
        if not name.startswith("initial") and value.shape.rank != 2:
            raise ValueError(
                f"{name} must not vary over time to be learned, got shape {value.shape}"
            )
        if layer is None:
            kind = Covariance if name in _COVARIANCES else Matrix
            return kind(value.numpy(), name=name, dtype=self._start.dtype.real_dtype.name)
        if not isinstance(layer, keras.layers.Layer):
            raise TypeError(f"learn must give a layer for {name}, got {type(layer).__name__}")
        return layer

    def model(self) -> LinearGaussian:
        """The model of the present matrices, differentiable with respect to the weights."""
        start = self._start
        if not self.layers:
            return start
        given, initial = start.parts(), start.initial
        if initial == "stationary" and not {"F", "Q"} & set(self.layers):
            initial = None  # the stationary covariance does not change
        if initial is not None:
            del given["initial_covariance"]
        given |= {name: self._present(name) for name in self.layers}
        return LinearGaussian.from_tensors(given, initial, start.form)

    def snapshot(self) -> bytes:
        """The values that the matrices depend on."""
        if not self.layers:
            return b""
        own = {k: v for k, v in self.layers.items() if type(v) in (Matrix, Covariance)}
        # Others may depend on more than their weights.
        others = [self.matrix(name).tobytes() for name in self.layers if name not in own]
        return b"".join([snapshot(v for x in own.values() for v in x.variables), *others])

    def log_prior(self) -> tf.Tensor:
        """The log density of the priors at the present values."""
        real = self._start.dtype.real_dtype
        densities = [tf.cast(p.log_prior(), real) for p in self.with_priors]
        return tf.add_n([tf.zeros([], real), *densities])

    def matrix(self, name: str) -> np.ndarray:
        """A present matrix."""
        if name in self.layers:
            found = self._present(name)
            return (found.matrix if isinstance(found, FactoredCovariance) else found).numpy()
        # Only this one depends on others: an F without stationary covariance can still be read.
        model = self.model() if name == "initial_covariance" else self._start
        return getattr(model, name).numpy()

    def _present(self, name: str) -> tf.Tensor | FactoredCovariance:
        """The present matrix of a learned layer; a covariance with its factor if it has one."""
        layer, dtype = self.layers[name], self._start.dtype
        found: Any
        if name in _COVARIANCES and hasattr(layer, "factor"):
            found = FactoredCovariance.of_factor(as_dtype(layer.factor(), dtype, name))
            shape = found.matrix.shape
        else:
            found = as_dtype(layer.call(), dtype, name)
            shape = found.shape
        wanted = getattr(self._start, name).shape
        if not shape.is_compatible_with(wanted):
            raise ValueError(f"the layer of {name} must return {wanted}, got {shape}")
        return found


def _parameters(layer: keras.layers.Layer) -> list[Parameter]:
    """The hyperparameters of a layer and of the layers inside it."""
    layers = [x for x in flatten_layers(layer) if isinstance(x, Parameterized)]
    return [parameter for x in layers for parameter in x.own_parameters]
