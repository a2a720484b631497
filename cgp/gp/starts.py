"""Where the fit of a Gaussian process starts: from its data."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from cgp.gp.data import Data
from cgp.kernels.data_scales import DataScales, StartRules
from cgp.linalg.arguments import ArrayLike
from cgp.training.parameters import POSITIVE, Parameter

_CANDIDATES = 16  # that are looked at for each descent


def start_left_out(gp: Any, data: Data) -> None:
    """Gives the hyperparameters that were left out their first values, and the noise its prior.

    Args:
        gp: A `GaussianProcess`.
        data: Its data, of which at least one target is there.
    """
    if not any(p.is_left_out for p in gp._parameters().values()):
        return
    scales = _scales(gp, data)
    probe = StartRules(scales)
    list(_starts(gp, probe, _is_left_out))
    rules = StartRules(scales, probe.lengthscales_taken)
    for parameter, value in list(_starts(gp, rules, _is_left_out)):
        prior = None
        if parameter is gp.noise_variance and not gp._noise_prior_is_given:
            prior = weak_prior(scales.total)
        if value is not None:
            value = np.broadcast_to(value, parameter.numpy().shape)
            # A tenth of a cycle over all x: a frequency is determined to a fraction of that.
            parameter.start(value, _unit(parameter, scales), prior)
    gp._collect_priors()


def weak_prior(power: float) -> dict[str, Any]:
    """A prior of a noise variance that keeps it from zero: a gamma density, of shape 3/2.

    Its log density falls by half of the log of the variance towards zero, which moves an estimate
    by less than a standard error, and hardly matters above (Chung, Rabe-Hesketh, Dorie, Gelman &
    Liu, Psychometrika 78, 2013, of standard deviations).
    """
    return {"distribution": "Gamma", "parameters": {"concentration": 1.5, "rate": 0.5 / power}}


def candidates(gp: Any, data: Data, count: int, seed: int) -> list[np.ndarray]:
    """Points from which fits may start, drawn around the scales of data.

    Args:
        gp: A `GaussianProcess`; its hyperparameters keep their values.
        data: Its data.
        count: How many descents there will be.
        seed: The same points for the same seed.

    Returns:
        Values of `gp.trainable_variables`, one after the other, for each candidate.
    """
    from scipy.stats import qmc  # here: importing it takes long

    variables = gp.trainable_variables
    before = [v.numpy() for v in variables]
    scales = _scales(gp, data)
    counter = itertools.count()
    list(_starts(gp, StartRules(scales, draw=(0.5 for _ in counter)), _is_drawn))
    draws = qmc.LatinHypercube(max(next(counter), 1), rng=seed).random(_CANDIDATES * count)
    found = []
    try:
        for draw in draws:
            for parameter, value in list(
                _starts(gp, StartRules(scales, draw=iter(draw)), _is_drawn)
            ):
                if value is not None:
                    parameter.assign(np.broadcast_to(value, parameter.numpy().shape))
            found.append(np.concatenate([v.numpy().astype(float).ravel() for v in variables]))
            for variable, value in zip(variables, before, strict=True):
                variable.assign(value)
    finally:
        for variable, value in zip(variables, before, strict=True):
            variable.assign(value)
    return found


def overall_scale(gp: Any) -> np.ndarray | None:
    """The direction in `gp.trainable_variables` that scales all covariances alike; None without."""
    parameters = gp.kernel.scale_parameters()
    if parameters is None or any(p.fixed for p in (*parameters, gp.noise_variance)):
        return None
    chosen = {id(p.variable) for p in (*parameters, gp.noise_variance)}
    return np.concatenate(
        [np.full(v.shape.num_elements(), float(id(v) in chosen)) for v in gp.trainable_variables]
    )


def _is_left_out(parameter: Parameter) -> bool:
    return parameter.is_left_out


def _is_drawn(parameter: Parameter) -> bool:
    return not parameter.fixed


def _starts(
    gp: Any, rules: StartRules, wanted: Callable[[Parameter], bool]
) -> Iterator[tuple[Parameter, ArrayLike | None]]:
    """Hyperparameters of the noise and of the kernel, with values to start from."""
    if wanted(gp.noise_variance):
        yield gp.noise_variance, rules.noise_variance()
    for parameter, value in gp.kernel.starts(rules, rules.scales.total, wanted):
        if value is None and rules.draw is not None and parameter.constraint is POSITIVE:
            value = rules.scattered(1.0, 2.0) * parameter.numpy()
        yield parameter, value


def _scales(gp: Any, data: Data) -> DataScales:
    """The scales of what the mean leaves of data; a mean that was left out starts here.

    Of series with inputs of their own those of the first.
    """
    x, z = data.x.numpy().astype(float), data.z.numpy().astype(complex)
    x, z = x[0], z if len(x) == 1 else z[:1]
    if gp.mean is not None:
        present = ~np.isnan(z)
        rows = np.broadcast_to(x, (len(z), *x.shape))[present]
        for parameter in gp.mean.own_parameters:
            value = gp.mean.start_of(parameter.name, rows, z[present])
            if parameter.is_left_out and value is not None:
                parameter.start(value, max(np.abs(z[present]).max(), 1e-300))
        z = z - gp.mean.at(x, z)
    return DataScales(x, z)


def _unit(parameter: Parameter, scales: DataScales) -> float | None:
    return 0.1 / scales.span if parameter.step is not None else None
