"""Serialisation of a state-space model, as numbers and functions that Keras knows."""

from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.distributions.forms import CompositeForm, ProperForm
from cgp.linalg.arguments import complex_dtype
from cgp.statespace.linearization.linearized_model import AnyModel
from cgp.statespace.models.linear_gaussian import LinearGaussian
from cgp.statespace.models.nonlinear_gaussian import NonlinearGaussian
from cgp.training.parameters import complex_from_config, number_to_config


def model_config(model: AnyModel) -> dict:
    """Converts a model to a config of numbers, lists and names.

    Raises:
        ValueError: A function that is neither a layer nor registered with Keras.
    """
    if isinstance(model, NonlinearGaussian):
        return _config_of_functions(model)
    names = ["F", "Q", "H", "R", "B", "initial_mean"]
    if model.initial is None:
        names.append("initial_covariance")
    matrices = {name: getattr(model, name) for name in names}
    return {
        "matrices": {k: number_to_config(v.numpy()) for k, v in matrices.items() if v is not None},
        "initial": model.initial,
        "is_proper": model.is_proper,
        "dtype": model.dtype.name,
    }


_FUNCTIONS = ("transition", "observation")


def _config_of_functions(model: NonlinearGaussian) -> dict:
    given = model.arguments()
    functions = {name: _function_config(given.pop(name), name) for name in _FUNCTIONS}
    flags = {k: v for k, v in given.items() if isinstance(v, bool | int)}
    moments = {k: v.numpy() for k, v in given.items() if k not in flags and v is not None}
    return {
        "functions": functions,
        "flags": flags,
        "moments": {name: number_to_config(value) for name, value in moments.items()},
        "complex": [name for name, value in moments.items() if np.iscomplexobj(value)],
        "dtype": model.dtype.real_dtype.name,
    }


def _function_config(function: Callable[..., Any], name: str) -> Any:
    known = isinstance(function, keras.layers.Layer)
    if not known and hasattr(function, "__name__"):
        registered = keras.saving.get_registered_name(function)
        known = keras.saving.get_registered_object(registered) is function
    if not known:
        raise ValueError(
            f"the {name} of the model cannot be saved: make it a Keras layer, or register it with "
            "keras.saving.register_keras_serializable()"
        )
    return keras.saving.serialize_keras_object(function)


def _from_functions(config: Mapping) -> NonlinearGaussian:
    missing = sorted({"flags", "moments", "complex", "dtype"} - set(config))
    if missing:
        raise ValueError(f"the config of the model has no {', '.join(missing)}")
    functions = {
        name: keras.saving.deserialize_keras_object(config["functions"][name])
        for name in _FUNCTIONS
    }
    moments: dict[str, Any] = {}
    for name, value in config["moments"].items():
        is_complex = name in config["complex"]
        array = np.asarray(complex_from_config(value) if is_complex else value)
        dtype = tf.as_dtype(config["dtype"])
        moments[name] = array.astype((complex_dtype(dtype) if is_complex else dtype).as_numpy_dtype)
    return NonlinearGaussian(**functions, **moments, **config["flags"])


def model_from_config(config: Mapping) -> AnyModel:
    """Makes the model of a `model_config`.

    Raises:
        ValueError: A damaged config, or one that the model refuses.
    """
    if "functions" in config:
        return _from_functions(config)
    missing = sorted({"matrices", "initial", "is_proper", "dtype"} - set(config))
    if missing:
        raise ValueError(f"the config of the model has no {', '.join(missing)}")
    if config["initial"] not in (None, "stationary", "diffuse"):
        raise ValueError(
            'initial must be None, "stationary" or "diffuse" in the config of a model, got '
            f"{config['initial']!r}"
        )
    dtype = tf.as_dtype(config["dtype"])
    revive = complex_from_config if dtype.is_complex else np.asarray
    given = {
        name: tf.constant(np.asarray(revive(value)), dtype)
        for name, value in config["matrices"].items()
    }
    form = ProperForm() if config["is_proper"] else CompositeForm()
    return LinearGaussian.from_tensors(given, config["initial"], form=form)
