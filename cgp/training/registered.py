"""Rules and likelihoods in configs: the registered name of their class, and their numbers.

Classes of cgp are registered with Keras here, those of users by themselves. The names of the former
are written without the package.
"""

from collections.abc import Mapping
from typing import Any

import keras

from cgp.likelihoods import Likelihood, Magnitude, OneBit, StudentT, VonMises
from cgp.statespace import Iterated, Rule, SigmaPoints, Taylor

_PACKAGE = "cgp"
for _class in (Iterated, Magnitude, OneBit, SigmaPoints, StudentT, Taylor, VonMises):
    keras.saving.register_keras_serializable(_PACKAGE)(_class)


def registered_config(rule: Rule | Likelihood | None) -> dict[str, Any] | None:
    """Converts a rule or a likelihood to the name of its class and the arguments of it."""
    if rule is None:
        return None
    kind = type(rule)
    name = keras.saving.get_registered_name(kind)
    if keras.saving.get_registered_object(name) is not kind:
        word = "rule" if isinstance(rule, Rule) else "likelihood"
        raise ValueError(
            f"a {word} of type {kind.__name__} cannot be saved: register its class with "
            "keras.saving.register_keras_serializable()"
        )
    arguments = {
        key: registered_config(argument) if isinstance(argument, Rule | Likelihood) else argument
        for key, argument in rule.get_config().items()
    }
    return {"name": name.removeprefix(f"{_PACKAGE}>"), **arguments}


def from_registered_config(config: Mapping[str, Any] | None) -> Any:
    """Makes the rule or the likelihood of a `registered_config`."""
    if config is None:
        return None
    arguments = {
        key: from_registered_config(argument) if isinstance(argument, Mapping) else argument
        for key, argument in config.items()
    }
    name = arguments.pop("name", None)
    registered = (name, f"{_PACKAGE}>{name}")
    kind = next(filter(None, map(keras.saving.get_registered_object, registered)), None)
    if not isinstance(kind, type) or not issubclass(kind, Rule | Likelihood):
        raise ValueError(
            "the config of a rule or a likelihood names a class that is registered with Keras, got "
            f"{name!r}: import the module that registers it"
        )
    return kind(**arguments)
