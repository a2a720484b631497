"""Initial values of hyperparameters, from the data of a Gaussian process."""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from cgp.distributions.checks import generator_of
from cgp.gp.data import Data
from cgp.gp.detrended import inputs_and_series, scales_of
from cgp.gp.fit_checks import warn_of_mirrored_turns, warn_of_offset
from cgp.gp.means import Mean
from cgp.kernels import Kernel, Sum, White
from cgp.kernels.data_scales import DataScales, StartRules
from cgp.linalg.arguments import ArrayLike
from cgp.training.lbfgs import search
from cgp.training.objective import Objective
from cgp.training.parameters import POSITIVE, REAL, Parameter

_CANDIDATES = 16  # that are looked at for each descent


@contextlib.contextmanager
def undone_on_error(gp: Any) -> Iterator[None]:
    """A context that restores the hyperparameters of a process if it raises."""
    with contextlib.ExitStack() as stack:
        for parameter in gp.named_hyperparameters().values():
            stack.enter_context(parameter.undone_on_error())
        for kernel in gp.kernel.walk():
            stack.enter_context(kernel.undone_on_error())
        weights = [] if gp.mean is None else gp.mean.non_trainable_variables
        before = [weight.numpy() for weight in weights]
        try:
            yield
        except BaseException:
            for weight, a in zip(weights, before, strict=True):
                weight.assign(a)
            raise


def start_left_out(gp: Any, data: Data) -> DataScales:
    """Prepares the mean for data, and initialises the hyperparameters that were left out.

    Args:
        gp: A `GaussianProcess`.
        data: Its data, with at least one target that is not missing.

    Returns:
        The scales of the data, from which restarts are drawn too.

    Warns:
        RuntimeWarning: Data far from zero, of a process with neither a mean nor a constant term.

    Raises:
        ValueError: Data that the mean cannot be prepared for.
    """
    if gp.mean is not None:
        gp.mean.prepare(np.asarray(data.x, float), np.asarray(data.z, complex))
        _start_mean(gp.mean, data)
    warn_of_offset(gp, data)
    scales = scales_of(gp, data)
    warn_of_mirrored_turns(gp, scales)
    if scales.x.shape[1] > 1:
        _spread_left_out(gp, scales.x.shape[1])
    probe = StartRules(scales)
    list(_starts(gp, probe, _is_left_out))
    rules = StartRules(
        scales, probe.lengthscales_taken, described=_known_frequencies(gp.kernel, _is_left_out)
    )
    for parameter, start in list(_starts(gp, rules, _is_left_out)):
        # Without a rule it starts from the placeholder.
        start = parameter.numpy() if start is None else start
        parameter.start(np.broadcast_to(start, parameter.numpy().shape), _unit(parameter, scales))
    return scales


def _spread_left_out(gp: Any, dimensions: int) -> None:
    """Gives what was left out of a kernel a value for each of several dimensions of x."""
    for layer in gp.kernel.walk():
        for parameter in layer.own_parameters:
            is_one = parameter.constraint.is_per_dimension and not np.ndim(parameter)
            if parameter.is_left_out and is_one:
                parameter.spread(dimensions)
                for kernel in gp.kernel.walk():
                    if any(layer is inner for inner in kernel.walk()):
                        kernel.is_markov = False
    gp.match_optimizer()


def _known_frequencies(kernel: Kernel, is_chosen: Callable[[Parameter], bool]) -> list[np.ndarray]:
    """The frequencies of terms of a sum that need no start, 0 of a real term without one.

    Args:
        kernel: The kernel.
        is_chosen: Whether a start of a hyperparameter is asked for.
    """
    frequencies = []
    for term in kernel.parts if isinstance(kernel, Sum) else ():
        of_term = [p for k in term.walk() for p in k.own_parameters if p.name == "frequency"]
        frequencies += [np.asarray(p.numpy()) for p in of_term if not is_chosen(p)]
        if not of_term and term.is_real and not isinstance(term, White):
            frequencies.append(np.zeros(()))
    return frequencies


def log_weak_prior(
    noise_variance: tf.Tensor, power: tf.Tensor, floor: float, rounding: tf.Tensor | float = 0.0
) -> tf.Tensor:
    """The log density of the weak prior of a noise variance that was left out, but for a constant.

    `½ log(v/P) − v/(2P) − (f P/v)⁴`, P being `power` and f a floor. The first two terms are a gamma
    density of shape 3/2. It falls by half of the log of the variance towards zero, which moves an
    estimate by less than a standard error (Chung, Rabe-Hesketh, Dorie, Gelman & Liu, Psychometrika
    78, 2013, of standard deviations). The last keeps the variance of data without noise, of a
    simulation, near f P, below which rounding decides. It is steep, so as not to push up a noise
    that few of many samples tell, as does that at the least of a wide spectrum.

    Args:
        noise_variance: A number, or one for each group.
        power: P, the mean square of the residuals of the targets (see `cgp.gp.detrended`).
        floor: f, a share of P.
        rounding: In squared units of z: f P is at least this.
    """
    smallest = np.finfo(power.dtype.as_numpy_dtype).tiny / floor  # for data that are all zero
    power = tf.maximum(power, smallest)
    share, floor = noise_variance / power, tf.maximum(rounding / power, floor)
    return tf.reduce_sum(0.5 * tf.math.log(share) - 0.5 * share - (floor / share) ** 4)


def best_of_restarts(
    gp: Any,
    data: Data,
    scales: DataScales,
    restarts: int,
    seed: int,
    cap: int | None,
    verbose: int | str,
) -> list[dict[str, Any]]:
    """Fits the hyperparameters from several starts, and leaves them at the best optimum.

    Args:
        gp: A compiled `MaximumLikelihoodGP`.
        data: Its data.
        scales: Their scales.
        restarts: The number of descents.
        seed: Of the starts that are drawn.
        cap: The largest number of iterations of each, or None.
        verbose: As for `fit`.

    Returns:
        Loss and hyperparameters of each optimum, the best first, as in `history.optima`.
    """
    loss = Objective(gp, gp.training_batch(data))
    alone = [id(v) for v in gp.trainable_variables] == [id(gp.noise_variance.variable)]
    if alone and not np.ndim(gp.noise_variance) and data.noise.variance is None:
        restarts = 1  # the variance of white noise has one optimum
    points, scale = candidates(gp, scales, restarts - 1, seed), overall_scale(gp, data)
    optima = search(loss, points, restarts, gp.optimizer, cap=cap, scale=scale, verbose=verbose)
    descriptions = []
    for optimum in reversed(optima):  # the best last, whose values the variables keep
        loss.assign(optimum.point)
        descriptions.append({"loss": optimum.loss, "parameters": gp.parameters()})
    if not optima:
        loss.assign(loss.start)
    return descriptions[::-1]


def candidates(gp: Any, scales: DataScales, count: int, seed: int) -> list[np.ndarray]:
    """Points from which fits may start, drawn around the scales of data.

    Args:
        gp: A `GaussianProcess`.
        scales: The scales of its data.
        count: The number of descents.
        seed: The same points for the same seed.

    Returns:
        Values of `gp.trainable_variables`, one after the other, for each candidate.
    """
    present = {id(v): v.numpy().astype(float) for v in gp.trainable_variables}
    counter = itertools.count()
    list(_starts(gp, StartRules(scales, draw=(0.5 for _ in counter)), _is_drawn))
    draws = _latin_hypercube(_CANDIDATES * count, next(counter), generator_of(seed))
    frequencies, points = _known_frequencies(gp.kernel, _is_drawn), []
    for draw in draws:
        weights = dict(present)
        rules = StartRules(scales, draw=iter(draw), described=frequencies)
        for parameter, start in _starts(gp, rules, _is_drawn):
            if start is not None:
                shape = parameter.numpy().shape
                weights[id(parameter.variable)] = parameter.raw(np.broadcast_to(start, shape))
        points.append(np.concatenate([np.ravel(weight) for weight in weights.values()]))
    return points


def _latin_hypercube(count: int, numbers: int, rng: np.random.Generator) -> np.ndarray:
    """Points of the unit cube, `[count, numbers]`, one in each slice along each axis."""
    slices = rng.permuted(np.tile(np.arange(count), (numbers, 1)), axis=1)
    return (slices.T + rng.random((count, numbers))) / count


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
    gp: Any, rules: StartRules, is_chosen: Callable[[Parameter], bool]
) -> Iterator[tuple[Parameter, ArrayLike | None]]:
    """Chosen hyperparameters of the noise and of the kernel, with values to start from."""
    if is_chosen(gp.noise_variance):
        variances = [rules.noise_variance() for _ in range(gp.noise_variance.numpy().size)]
        yield gp.noise_variance, np.reshape(variances, gp.noise_variance.numpy().shape)
    for parameter, start in gp.kernel.starts(rules, rules.scales.total, is_chosen):
        if start is None and rules.draw is not None and parameter.constraint is POSITIVE:
            start = rules.scattered(1.0, 2.0) * parameter.numpy()
        yield parameter, start


def values_from_data(gp: Any, data: Data) -> list[tuple[Parameter, ArrayLike]]:
    """Values of the noise and the kernel that a rule derives from the scales of data.

    A first fit would start from them if all hyperparameters but fixed ones had been left out.
    """
    scales = scales_of(gp, data)
    probe = StartRules(scales)
    list(_starts(gp, probe, _is_drawn))
    rules = StartRules(
        scales, probe.lengthscales_taken, described=_known_frequencies(gp.kernel, _is_drawn)
    )
    return [(p, start) for p, start in _starts(gp, rules, _is_drawn) if start is not None]


def _start_mean(mean: Mean, data: Data) -> None:
    x, z = inputs_and_series(data)
    present = ~np.isnan(z)
    rows = np.broadcast_to(x, (len(z), *x.shape))[present]
    # The unit of weights is what the mean is determined to: optimizers move them in such steps.
    residuals = np.abs((z - mean.nearest(x, z))[present])
    largest = max(np.abs(z[present]).max(), 1e-300)
    unit = max(float(np.sqrt(np.mean(residuals**2))), 1e-8 * largest)
    for parameter in mean.own_parameters:
        start = mean.start_of(parameter.name, rows, z[present])
        if parameter.is_left_out:
            parameter.start(parameter.numpy() if start is None else start, unit)


def _unit(parameter: Parameter, scales: DataScales) -> ArrayLike | None:
    """The unit of the weight of a frequency of either sign; None for others, which keep theirs."""
    # A tenth of a cycle over all x: a frequency is determined to a fraction of that.
    is_frequency = parameter.step is not None and parameter.constraint.forward is REAL.forward
    if not is_frequency:
        return None
    return 0.1 / (scales.spans if np.ndim(parameter) else scales.span)
