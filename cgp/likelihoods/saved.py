"""Likelihoods as configs of names and numbers."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from cgp.likelihoods.base import Likelihood
from cgp.likelihoods.magnitude import Magnitude
from cgp.likelihoods.one_bit import OneBit
from cgp.likelihoods.student_t import StudentT
from cgp.likelihoods.von_mises import VonMises

_KINDS = {kind.__name__: kind for kind in (Magnitude, OneBit, StudentT, VonMises)}


def likelihood_config(likelihood: Likelihood | None) -> dict[str, Any] | None:
    """Converts a likelihood to names and numbers.

    Raises:
        ValueError: A likelihood that is not of cgp.
    """
    if likelihood is None:
        return None
    name = type(likelihood).__name__
    if _KINDS.get(name) is not type(likelihood):
        raise ValueError(f"a likelihood of type {name} cannot be saved, only {', '.join(_KINDS)}")
    return {"name": name, **dataclasses.asdict(likelihood)}


def likelihood_from_config(config: Mapping[str, Any] | None) -> Likelihood | None:
    """Makes the likelihood of a `likelihood_config`."""
    if config is None:
        return None
    own = dict(config)
    name = own.pop("name", None)
    if name not in _KINDS:
        raise ValueError(f"the config of a likelihood names {', '.join(_KINDS)}, got {name!r}")
    return _KINDS[name](**own)
