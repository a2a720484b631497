"""Where the fit of a Gaussian process starts: from its data."""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from cgp.gp.data import Data
from cgp.gp.means import Mean
from cgp.kernels.data_scales import DataScales, StartRules
from cgp.linalg.arguments import ArrayLike
from cgp.training.parameters import POSITIVE, Parameter

_CANDIDATES = 16  # that are looked at for each descent


@contextlib.contextmanager
def prepared(mean: Mean | None, data: Data) -> Iterator[None]:
    """A context in which a mean is prepared for data; it is as it was if the context raises.

    Args:
        mean: A mean, or None.
        data: Data of which at least one target is there.

    Raises:
        ValueError: Data that the mean cannot be prepared for.
    """
    if mean is None:
        yield
        return
    weights = mean.non_trainable_variables
    before = [weight.numpy() for weight in weights]
    try:
        mean.prepare(data.x.numpy().astype(float), data.z.numpy().astype(complex))
        yield
    except BaseException:
        for weight, value in zip(weights, before, strict=True):
            weight.assign(value)
        raise


def start_left_out(gp: Any, data: Data) -> None:
    """Gives the hyperparameters that were left out their first values, and the noise its prior.

    Args:
        gp: A `GaussianProcess`.
        data: Its data, of which at least one target is there.
    """
    if not any(p.is_left_out for p in gp._parameters().values()):
        return
    if gp.mean is not None:
        _start_mean(gp.mean, data)
    scales = scales_of(gp, data)
    probe = StartRules(scales)
    list(_starts(gp, probe, _is_left_out))
    rules = StartRules(scales, probe.lengthscales_taken)
    for parameter, value in list(_starts(gp, rules, _is_left_out)):
        prior = None
        if parameter is gp.noise_variance and not gp._noise_prior_is_given:
            # Of all of z: the next data may leave more than these do.
            prior = weak_prior(DataScales(*_arrays(data)).total)
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
        gp: A `GaussianProcess`.
        data: Its data.
        count: How many descents there will be.
        seed: The same points for the same seed.

    Returns:
        Values of `gp.trainable_variables`, one after the other, for each candidate.
    """
    from scipy.stats import qmc  # here: importing it takes long

    present = {id(v): v.numpy().astype(float) for v in gp.trainable_variables}
    scales = scales_of(gp, data)
    counter = itertools.count()
    list(_starts(gp, StartRules(scales, draw=(0.5 for _ in counter)), _is_drawn))
    draws = qmc.LatinHypercube(max(next(counter), 1), rng=seed).random(_CANDIDATES * count)
    found = []
    for draw in draws:
        values = dict(present)
        rules = StartRules(scales, draw=iter(draw))
        for parameter, value in _starts(gp, rules, _is_drawn):
            if value is not None:
                shape = parameter.numpy().shape
                values[id(parameter.variable)] = parameter.raw(np.broadcast_to(value, shape))
        found.append(np.concatenate([np.ravel(value) for value in values.values()]))
    return found


def overall_scale(gp: Any, data: Data) -> np.ndarray | None:
    """The direction in `gp.trainable_variables` that scales all covariances alike; None without.

    Where a part of the noise is known there is none.
    """
    parameters = gp.kernel.scale_parameters()
    if getattr(gp, "band", None) is not None:  # the loss has fewer terms than points
        return None
    if (
        data.noise.variance is not None
        or parameters is None
        or any(p.fixed for p in (*parameters, gp.noise_variance))
    ):
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


def scales_of(gp: Any, data: Data) -> DataScales:
    """The scales of what the mean of a process leaves of data."""
    x, z = _arrays(data)
    return DataScales(x, z if gp.mean is None else z - gp.mean.at(x, z))


def _start_mean(mean: Mean, data: Data) -> None:
    x, z = _arrays(data)
    present = ~np.isnan(z)
    rows = np.broadcast_to(x, (len(z), *x.shape))[present]
    for parameter in mean.own_parameters:
        value = mean.start_of(parameter.name, rows, z[present])
        if parameter.is_left_out and value is not None:
            parameter.start(value, max(np.abs(z[present]).max(), 1e-300))


def _arrays(data: Data) -> tuple[np.ndarray, np.ndarray]:
    """Inputs `[N, D]` and series `[B, N]`; of series with inputs of their own the first."""
    x, z = np.asarray(data.x, float), np.asarray(data.z, complex)
    return x[0], z if len(x) == 1 else z[:1]


def _unit(parameter: Parameter, scales: DataScales) -> float | None:
    return 0.1 / scales.span if parameter.step is not None else None
