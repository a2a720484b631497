"""The models, functions and rules of filters: their trained parts, and their configs."""

from collections.abc import Callable, Collection, Mapping
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

_FUNCTIONS = ("transition", "observation")


def layers_of(model: AnyModel) -> list[keras.layers.Layer]:
    """The layers among the functions of a model."""
    if not isinstance(model, NonlinearGaussian):
        return []
    functions = (model.transition, model.observation)
    return list({id(f): f for f in functions if isinstance(f, keras.layers.Layer)}.values())


def check_learnable(model: AnyModel, layer: keras.layers.Layer) -> None:
    """Raises where the fit of a filter of a model would learn nothing, or not all that it should.

    All that it should are the trainable variables that functions of the model read.
    """
    if isinstance(model, NonlinearGaussian):
        _check_functions(model, {id(variable.value) for variable in layer.variables})
    if layer.trainable_variables:
        return
    if layer.weights:
        raise ValueError("a fit would learn nothing: all variables are frozen, trainable=False")
    functions = " or make a function of the model a Keras layer that has variables"
    raise ValueError(
        'a fit would learn nothing: name matrices, as in KalmanFilter(model, learn=("Q", "R"))'
        + functions * isinstance(model, NonlinearGaussian)
    )


def _check_functions(model: NonlinearGaussian, learned: Collection[int]) -> None:
    n, k = model.noise.F.shape[-1], model.input_size * model.form.multiplicity
    for name in _FUNCTIONS:
        traced = tf.function(
            lambda points, inputs, name=name: model.working(name, inputs)(points), autograph=False
        ).get_concrete_function(
            tf.TensorSpec([1, 1, n], model.dtype), tf.TensorSpec([1, k], model.dtype)
        )
        unknown = [v.name for v in traced.variables if v.trainable and id(v) not in learned]
        if unknown:
            raise ValueError(
                f"the {name} of the model reads variables that fit would not learn: "
                f"{', '.join(unknown)}. Make it a Keras layer that has them"
            )


def model_config(model: AnyModel) -> dict:
    """Converts a model to a config of numbers, lists and names."""
    if isinstance(model, NonlinearGaussian):
        return _config_of_functions(model)
    names = ["F", "Q", "H", "R", "B", "S", "initial_mean"]
    if model.initial is None:
        names.append("initial_covariance")
    matrices = {name: getattr(model, name) for name in names}
    return {
        "matrices": {k: number_to_config(v.numpy()) for k, v in matrices.items() if v is not None},
        "initial": model.initial,
        "is_proper": model.is_proper,
        "dtype": model.dtype.name,
    }


def _config_of_functions(model: NonlinearGaussian) -> dict:
    arguments = model.arguments()
    functions = {name: _function_config(arguments.pop(name), name) for name in _FUNCTIONS}
    flags = {k: v for k, v in arguments.items() if isinstance(v, bool | int)}
    moments = {k: v.numpy() for k, v in arguments.items() if k not in flags and v is not None}
    return {
        "functions": functions,
        "flags": flags,
        "moments": {name: number_to_config(value) for name, value in moments.items()},
        "complex": [name for name, value in moments.items() if np.iscomplexobj(value)],
        "dtype": model.dtype.real_dtype.name,
    }


def _function_config(function: Callable[..., Any], name: str) -> Any:
    is_saved = isinstance(function, keras.layers.Layer)
    if not is_saved and hasattr(function, "__name__"):
        registered = keras.saving.get_registered_name(function)
        is_saved = keras.saving.get_registered_object(registered) is function
    if not is_saved:
        raise ValueError(
            f"the {name} of the model cannot be saved: make it a Keras layer, or register it with "
            "keras.saving.register_keras_serializable()"
        )
    return keras.saving.serialize_keras_object(function)


def model_from_config(config: Mapping) -> AnyModel:
    """Makes the model of a `model_config`.

    Raises:
        ValueError: A damaged config, or one that the model refuses.
    """
    keys = {"matrices", "initial", "is_proper", "dtype"}
    if "functions" in config:
        keys = {"flags", "moments", "complex", "dtype"}
    missing = sorted(keys - set(config))
    if missing:
        raise ValueError(f"the config of the model has no {', '.join(missing)}")
    dtype = tf.as_dtype(config["dtype"])
    if "functions" in config:
        serialized = config["functions"]
        functions = {k: keras.saving.deserialize_keras_object(serialized[k]) for k in _FUNCTIONS}
        moments: dict[str, Any] = {}
        for name, numbers in config["moments"].items():
            is_complex = name in config["complex"]
            array = np.asarray(complex_from_config(numbers) if is_complex else numbers)
            kind = complex_dtype(dtype) if is_complex else dtype
            moments[name] = array.astype(kind.as_numpy_dtype)
        return NonlinearGaussian(**functions, **moments, **config["flags"])
    if config["initial"] not in (None, "stationary", "diffuse"):
        raise ValueError(
            'initial must be None, "stationary" or "diffuse" in the config of a model, got '
            f"{config['initial']!r}"
        )
    revive = complex_from_config if dtype.is_complex else np.asarray
    matrices = {k: tf.constant(np.asarray(revive(v)), dtype) for k, v in config["matrices"].items()}
    form = ProperForm() if config["is_proper"] else CompositeForm()
    return LinearGaussian.from_tensors(matrices, config["initial"], form=form)
