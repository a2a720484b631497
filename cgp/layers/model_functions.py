"""The functions of a model inside a layer: what of them it trains, and how rules are saved."""

from collections.abc import Iterable, Mapping
from typing import Any

import keras
import tensorflow as tf

from cgp.likelihoods import Likelihood
from cgp.statespace.linearization.linearized_model import AnyModel, AnyRule
from cgp.statespace.models.nonlinear_gaussian import NonlinearGaussian
from cgp.training.saving import from_registered_config, registered_config


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
