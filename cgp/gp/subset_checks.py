"""Checks of a fit by the exact likelihood of some of its samples.

A process that approximates its likelihood may end at hyperparameters that suit the approximation,
and one that starts at a strong wave at an optimum in which everything else is noise. Both have
length scales that are too long for the signal. Samples at random tell of scales between the two;
samples that are next to each other, of short ones, in which the signal has been taken for noise.
"""

import contextlib
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cgp.gp.data import Data
from cgp.gp.signal_plus_noise import SignalPlusNoise
from cgp.linalg import cholesky
from cgp.training.parameters import Parameter

_AT_RANDOM, _SEED = 600, 0  # samples, and of their choice
_NEIGHBOURS = 300  # samples about the median of the places
_LONGER = (0.71, 0.5)  # length scales that are compared at random samples, in those of the fit
_STEP, _NOISE_SHARES = 0.6, (0.2, 0.05)  # and at neighbours
_SIGNIFICANT, _SIGNIFICANT_SHARE = 5.0, 0.05  # nats, and nats a sample

Hyperparameters = list[tuple[Parameter, np.ndarray]]


class ShorterScales(NamedTuple):
    """Hyperparameters with shorter length scales and less noise than those of a fit."""

    gain: float
    """By how much the exact log likelihood of the samples is larger, in nats."""
    samples: int
    lengthscale: float
    """The length scales, in those of the fit."""
    noise: float
    """The noise variance, in that of the fit."""
    hyperparameters: Hyperparameters

    def __str__(self) -> str:
        noise = f", with {self.noise:.2g} of its noise variance," if self.noise < 1.0 else ""
        return (
            f"length scales of {self.lengthscale:.2g} times those of the fit{noise} are better by "
            f"{self.gain:.0f} nats, by the exact likelihood of {self.samples} of the samples"
        )


def too_long_scales(gp: Any, data: Data) -> ShorterScales | None:
    """Shorter length scales that samples at random prefer to those of a fit, if they do."""
    lengthscales, numbers = _learned(gp, "lengthscale"), _present(data)
    if not lengthscales:
        return None
    numbers = np.random.default_rng(_SEED).permutation(numbers)[:_AT_RANDOM]
    moves = [_Move(factor, 1.0, _scaled(lengthscales, factor)) for factor in _LONGER]
    best = _best(gp.observation_model, _samples(data, numbers), moves)
    return best if best.gain > _SIGNIFICANT else None


def signal_taken_for_noise(gp: Any, data: Data) -> ShorterScales | None:
    """Shorter length scales and less noise that neighbouring samples prefer to a fit, if they do.

    What the noise loses is added to the signal, so that the power of z stays. A fit to one wave has
    its frequency, and length scales along and across it: compared are also no frequency, and length
    scales that are alike.
    """
    lengthscales, noise = _learned(gp, "lengthscale"), gp.noise_variance
    scales = gp.kernel.scale_parameters() or []
    if not lengthscales or noise.fixed or any(p.fixed for p in scales):
        return None
    numbers, x = _present(data), data.x[0].numpy()
    spread = np.std(x[numbers], axis=0)
    spread[spread == 0.0] = 1.0
    squares = np.sum(((x - np.median(x[numbers], axis=0)) / spread)[numbers] ** 2, axis=1)
    nearest = np.argsort(squares, kind="stable")[:_NEIGHBOURS]
    process, series = gp.observation_model, _samples(data, numbers[nearest])
    signal = float(tf.reduce_mean(tf.math.real(process.marginal(series.x).k)))
    ratio = float(np.mean(noise.numpy())) / max(signal, np.finfo(float).tiny)
    frequencies = _learned(gp, "frequency")
    turns = [[], _scaled(frequencies, 0.0)] if frequencies else [[]]
    of_fit = [(p, p.numpy()) for p in lengthscales]
    shapes = [of_fit]
    if any(lengthscale.ndim for _, lengthscale in of_fit):
        units = np.ones_like(spread), spread
        shapes += [[(p, _alike(a, unit)) for p, a in of_fit] for unit in units]
    moves, of_noise_alone = [], []
    for share in _NOISE_SHARES:
        powers = [*_scaled(scales, 1.0 + (1.0 - share) * ratio), *_scaled([noise], share)]
        of_noise_alone.append(_Move(1.0, share, powers))
        for factor, turn, shape in itertools.product(_factors(of_fit, series), turns, shapes):
            shorter = [(p, factor * lengthscale) for p, lengthscale in shape]
            moves.append(_Move(factor, share, [*shorter, *powers, *turn]))
    if not moves:
        return None
    # Where less noise is enough the fit has not ended, as of a few epochs.
    best, by_noise = (_best(process, series, m) for m in (moves, of_noise_alone))
    gain = best.gain - max(by_noise.gain, 0.0)
    return best if gain > _SIGNIFICANT_SHARE * best.samples else None


def too_few_inducing_points(gp: Any, data: Data, count: int) -> list[str]:
    """The suspicions that a number of inducing points is too small for the signal, in words."""
    suspicions, shorter = [], too_long_scales(gp, data)
    if shorter is not None and count < len(_present(data)):
        suspicions.append(
            f"the inducing points are too few: {shorter}. A bound of few points favours long ones, "
            f"and predictions are too sure of them: take more, as in inducing={2 * count}, or a "
            "VecchiaGP"
        )
    shorter = signal_taken_for_noise(gp, data)
    if shorter is not None:
        suspicions.append(
            f"signal has been taken for noise: {shorter}, which are neighbours. Predictions miss "
            "what is between the inducing points: take a VecchiaGP, or as many points as the "
            "region has squares of these length scales"
        )
    return suspicions


def moved_to_shorter_scales(gp: Any, data: Data, likelihood: Callable[[], float]) -> bool:
    """Moves a fit out of an optimum in which signal is noise, if the likelihood is larger there."""
    shorter = signal_taken_for_noise(gp, data)
    if shorter is None:
        return False
    of_fit = [(p, p.numpy()) for p, _ in shorter.hyperparameters]
    likelihood_of_fit = likelihood()
    _assign(shorter.hyperparameters)
    if likelihood() > likelihood_of_fit:
        return True
    _assign(of_fit)
    return False


class _Move(NamedTuple):
    """Hyperparameters to compare with those of a fit; fields as of `ShorterScales`."""

    lengthscale: float
    noise: float
    hyperparameters: Hyperparameters


def _scaled(parameters: Sequence[Parameter], factor: float) -> Hyperparameters:
    return [(p, factor * p.numpy()) for p in parameters]


def _factors(lengthscales: Hyperparameters, series: Data) -> np.ndarray:
    """Factors of length scales, from the span of samples down to the distance of neighbours."""
    x = series.x[0].numpy()
    spans = np.ptp(x, axis=0)
    spans = spans[spans > 0.0]
    if not spans.size:
        return np.zeros(0)
    mean = np.mean(np.concatenate([np.ravel(np.log(a)) for _, a in lengthscales]))
    longest = min(1.0, np.exp(np.mean(np.log(spans)) - mean) / _STEP)
    count = np.log(len(x)) / len(spans) / -np.log(_STEP)
    return longest * _STEP ** np.arange(1, int(np.ceil(count)) + 1)


def _alike(lengthscales: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """Length scales of all dimensions that are alike in a unit of each."""
    if not lengthscales.ndim:
        return lengthscales
    return unit * np.exp(np.mean(np.log(lengthscales / unit)))


def _assign(hyperparameters: Hyperparameters) -> None:
    for parameter, number in hyperparameters:
        parameter.assign(number)


def _learned(gp: Any, name: str) -> list[Parameter]:
    """The hyperparameters of this name that are learned."""
    parameters = gp.named_hyperparameters().values()
    return [p for p in parameters if p.name == name and not p.fixed]


def _present(data: Data) -> np.ndarray:
    """The numbers of the samples of the first series that are not missing."""
    return np.flatnonzero(data.present.numpy()[0])


def _samples(data: Data, numbers: np.ndarray) -> Data:
    """Some samples of the first series, as data of one series."""

    def some(a: tf.Tensor) -> tf.Tensor:
        return a[:1] if a.shape[1] == 1 else tf.gather(a[:1], numbers, axis=1)

    return Data(some(data.x), some(data.z), data.batch[:0], noise=data.noise.map(some))


def _best(process: SignalPlusNoise, series: Data, moves: Sequence[_Move]) -> ShorterScales:
    """The move to the largest exact likelihood; the hyperparameters stay as they are."""
    changed = {id(parameter): parameter for move in moves for parameter, _ in move.hyperparameters}
    of_fit = [(parameter, parameter.numpy()) for parameter in changed.values()]

    def exact() -> float:
        covariance = process.covariance(series)
        return float(process.log_likelihood(series, covariance, cholesky(covariance))[0])

    likelihood, gains = exact(), np.full(len(moves), -np.inf)
    try:
        for number, move in enumerate(moves):
            _assign(move.hyperparameters)
            with contextlib.suppress(ValueError):  # a covariance that is singular to rounding
                gains[number] = exact() - likelihood
            _assign(of_fit)
    finally:
        _assign(of_fit)
    best, size = int(np.argmax(gains)), int(series.z.shape[1])
    return ShorterScales(gains[best], size, *moves[best])
