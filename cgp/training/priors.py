"""Prior distributions of hyperparameters, as configs that serialise."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf


def prior_config(prior: Any) -> dict[str, Any]:
    """The config of a TFP distribution whose parameters are numbers.

    Args:
        prior: A distribution of `tfp.distributions`, or a config, which is returned as it is.

    Returns:
        `{"distribution": name, "parameters": {name: number or nested list of numbers}}`.

    Raises:
        TypeError: Not a distribution of `tfp.distributions`, or a parameter of it is no number.
    """
    if isinstance(prior, Mapping):
        return dict(prior)
    import tensorflow_probability as tfp  # here: importing it takes as long as TensorFlow

    if not isinstance(prior, tfp.distributions.Distribution) or not hasattr(
        tfp.distributions, type(prior).__name__
    ):
        raise TypeError(f"a prior must be a distribution of tfp.distributions, got {prior!r}")
    arguments = {
        name: value
        for name, value in prior.parameters.items()
        if value is not None and not isinstance(value, bool | str) and name != "name"
    }
    try:
        arguments = {name: np.asarray(value, float).tolist() for name, value in arguments.items()}
    except (TypeError, ValueError):
        raise TypeError(
            f"a prior must have numbers for parameters, so that it can be saved; got {prior!r}"
        ) from None
    return {"distribution": type(prior).__name__, "parameters": arguments}


def prior_from_config(config: Mapping[str, Any], dtype: str) -> Any:
    """The TFP distribution of a `prior_config`.

    Args:
        config: As returned by `prior_config`.
        dtype: The real dtype of its parameters, "float32" or "float64".

    Raises:
        ValueError: A malformed config; a discrete distribution.
    """
    import tensorflow_probability as tfp

    expected = 'a prior must be {"distribution": name, "parameters": {name: numbers}}'
    if set(config) != {"distribution", "parameters"} or not isinstance(
        config["parameters"], Mapping
    ):
        raise ValueError(f"{expected}, got {dict(config)}")
    name = config["distribution"]
    make = getattr(tfp.distributions, name, None) if isinstance(name, str) else None
    if not isinstance(make, type) or not issubclass(make, tfp.distributions.Distribution):
        raise ValueError(
            f"{expected}, the first the name of a distribution of tfp.distributions, got {name!r}"
        )
    kind = tf.as_dtype(dtype).as_numpy_dtype
    try:
        prior = make(**{k: np.asarray(v, kind) for k, v in config["parameters"].items()})
    except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
        raise ValueError(
            f"{expected}, but {name} cannot be made of the parameters {config['parameters']}: "
            f"{error}"
        ) from error
    if _is_discrete(prior):
        raise ValueError(f"a prior must be a continuous distribution, got {name}, a discrete one")
    return prior


def _is_discrete(prior: Any) -> bool:
    """Whether no map of a line onto the values of a distribution is known, as TFP says."""
    try:
        return prior.experimental_default_event_space_bijector() is None
    except (TypeError, NotImplementedError):
        return False
