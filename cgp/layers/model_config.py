"""The models, functions and rules of filters: what of them is trained, and how they are saved."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.distributions.forms import CompositeForm, ProperForm
from cgp.likelihoods import Likelihood
from cgp.linalg.arguments import complex_dtype
from cgp.statespace.linearization.linearized_model import AnyModel, AnyRule
from cgp.statespace.models.linear_gaussian import LinearGaussian
from cgp.statespace.models.nonlinear_gaussian import NonlinearGaussian
from cgp.training.parameters import complex_from_config, number_to_config
from cgp.training.registered import from_registered_config, registered_config


def layers_of(model: AnyModel) -> list[keras.layers.Layer]:
    """The layers among the functions of a model."""
    if not isinstance(model, NonlinearGaussian):
        return []
    both = (model.transition, model.observation)
    found = {id(f): f for f in both if isinstance(f, keras.layers.Layer)}
    return list(found.values())


def check_variables(model: AnyModel, known: Iterable[keras.Variable]) -> None:
    """Raises where a function of a model reads a trainable variable that would not be learned.

    Args:
        model: The model.
        known: The variables of the layer that learns.

    Raises:
        ValueError: There is such a variable.
    """
    if not isinstance(model, NonlinearGaussian):
        return
    kept = {id(variable.value) for variable in known}
    n, k = model.noise.F.shape[-1], model.input_size * model.form.multiplicity
    for name in ("transition", "observation"):
        traced = tf.function(
            lambda points, inputs, name=name: model.working(name, inputs)(points), autograph=False
        ).get_concrete_function(
            tf.TensorSpec([1, 1, n], model.dtype), tf.TensorSpec([1, k], model.dtype)
        )
        unknown = [v.name for v in traced.variables if v.trainable and id(v) not in kept]
        if unknown:
            raise ValueError(
                f"the {name} of the model reads variables that fit would not learn: "
                f"{', '.join(unknown)}. Make it a Keras layer that has them"
            )


def rules_config(rule: AnyRule | None, likelihood: Likelihood | None) -> dict[str, Any]:
    """Converts the rule and the likelihood of a filter to names and numbers, by argument.

    Raises:
        ValueError: Their class is not registered with Keras.
    """
    return {"rule": registered_config(rule), "likelihood": registered_config(likelihood)}


def rules_from_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Makes the rule and the likelihood in a config of a filter, by argument."""
    return {
        "rule": from_registered_config(config.get("rule")),
        "likelihood": from_registered_config(config.get("likelihood")),
    }


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
