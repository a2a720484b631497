"""The base class of layers that own hyperparameters and are shared by others: kernels, means."""

from typing import Any, Self

import keras
import numpy as np

from cgp.training import keras_private
from cgp.training.layer_arguments import names_told
from cgp.training.parameters import Parameterized, complex_from_config
from cgp.training.sharing import Shareable


class HyperparameterLayer(Shareable, Parameterized, keras.layers.Layer):
    """A layer that owns hyperparameters, is built when it is constructed, and can be shared.

    Args:
        name: The prefix of its parameters in `gp.parameters()`; by default the name of the class.
        dtype: "float64" (complex128 values) or "float32" (complex64).

    Raises:
        ValueError: Another dtype.
    """

    def __init__(self, *, name: str | None = None, dtype: str = "float64", **kwargs: Any) -> None:
        with names_told(type(self)):
            super().__init__(name=name, dtype=dtype or "float64", **kwargs)
        if self.variable_dtype not in ("float32", "float64"):
            raise ValueError(
                f"dtype must be float32 or float64 (complex values follow), got {dtype!r}"
            )
        self.chosen_name = name
        self.built = True  # subclasses make their weights in the constructor

    @property
    def prefix(self) -> str:
        """The prefix of its parameters in `parameters`."""
        return self.chosen_name or type(self).__name__.lower()

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor, complex numbers as [re, im]."""
        own = {"name": self.chosen_name, "dtype": self.variable_dtype}
        return {**super().get_config(), **own, **self.parameters_config()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Makes the layer of a config."""
        config = dict(config)
        for name in config.pop("complex", ()):
            config[name] = complex_from_config(config[name])
        return super().from_config(config)

    def load_own_variables(self, store: Any) -> None:
        """Loads the weights; what was left out may be there for each dimension of x."""
        for number, variable in enumerate(keras_private.saved_variables(self)):
            for parameter in self.own_parameters:
                is_free = parameter.constraint.is_per_dimension and parameter.initial is None
                if parameter.variable is variable and is_free and str(number) in store:
                    shape = np.shape(store[str(number)])
                    if len(shape) == 1 and shape != tuple(variable.shape):
                        parameter.spread(shape[0])
        super().load_own_variables(store)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.own_parameters))})"
