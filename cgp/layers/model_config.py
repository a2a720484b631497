"""Serialisation of a linear Gaussian model as numbers."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from cgp.distributions.forms import CompositeForm, ProperForm
from cgp.statespace.linear_gaussian import LinearGaussian
from cgp.training.parameters import complex_from_config, number_to_config


def model_config(model: LinearGaussian) -> dict:
    """Converts a model to a config of numbers, lists and names."""
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


def model_from_config(config: Mapping) -> LinearGaussian:
    """Makes the model of a `model_config`.

    Raises:
        ValueError: A damaged config, or one that `LinearGaussian` refuses.
    """
    if missing := sorted({"matrices", "initial", "is_proper", "dtype"} - set(config)):
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
