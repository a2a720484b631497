"""Initial values of hyperparameters, from the residuals of data from their mean and trend.

For a tone of amplitude 1 on an offset of 1e5, `E|z|²` is 1e10, and says nothing of the tone or its
noise. Initial values of hyperparameters, and the weak prior of the noise, follow from the residuals
when offsets are subtracted, and with them all that the mean and an integrated walk can describe.
"""

import contextlib
import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from cgp.gp.data import Data
from cgp.gp.means import Mean, Outputs
from cgp.gp.outputs import series_of_outputs
from cgp.gp.signal_plus_noise import SignalPlusNoise
from cgp.gp.signal_power import with_power_of_data
from cgp.kernels import Kernel, Sum, White
from cgp.kernels.along import Along
from cgp.kernels.base import Product
from cgp.kernels.data_scales import DataScales, StartRules, series_means
from cgp.kernels.rotation import Rotation
from cgp.linalg.arguments import ArrayLike, as_complex, generator_of, squared_modulus
from cgp.training.lbfgs import search
from cgp.training.objective import Objective
from cgp.training.optimizers import LBFGS
from cgp.training.parameters import POSITIVE, REAL, Parameter

FAR = 100.0  # |mean|² over the variance, for an offset
_FEW = 3  # samples, which may all be far from zero
_FAR_FROM_LINE = 1e4  # |mean|² over the mean square of residuals of a straight line
_LINE = 0.2  # of the variance, in residuals of a straight line
_NEAR = 0.5  # of a frequency: the distance within which power is counted
_OPPOSITE = 30.0  # power near the opposite frequency, over power near the frequency itself
_MOST_POWER = 0.5  # of all power, near the opposite frequency
_ROUNDING = 16.0  # units in the last place of z, below which nothing but rounding is left
_RESOLVED = 0.01  # of the unit of a frequency: that of a tenth of a cycle over all x
_CANDIDATES = 16  # points evaluated for each descent
_MOST_APPROXIMATIONS = 3  # of a process, each renewed at the hyperparameters of the one before
_MOST_ROUNDS = 20  # of the power of the signal and hyperparameters
_SETTLED = 1e-3  # of a noise variance: its change in the last round


@contextlib.contextmanager
def undone_on_error(gp: Any) -> Iterator[None]:
    """A context that restores the hyperparameters of a process if it raises."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(gp.undone_on_error())
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

    Returns the scales of the data, from which restarts are drawn too. Warns of data far from zero,
    of a process with neither a mean nor a constant term; a ValueError for data that the mean
    cannot be prepared for.
    """
    noise_scale = gp.observation_model.noise_scale
    if noise_scale is not None and not noise_scale.fixed and not mean_known_noise(data) > 0.0:
        raise ValueError(
            "noise_scale is a factor of noise variances that come with the data, and none came: "
            "fit(x, z, noise_variance=...), or leave noise_scale out"
        )
    for mean, of_mean in [] if gp.mean is None else _means_and_data(gp.mean, data):
        mean.prepare(np.asarray(of_mean.x, float), np.asarray(of_mean.of_values().z, complex))
        _start_mean(mean, of_mean)
    warn_of_offset(gp, data)
    scales = scales_of(gp, data)
    warn_of_mirrored_turns(gp, scales)
    if scales.x.shape[1] > 1:
        _spread_left_out(gp, scales.x.shape[1])
    rules = _rules(gp, scales, _is_left_out)
    along_axes = scales_along_axes(gp.kernel, scales)
    for parameter, start in list(_starts(gp, rules, _is_left_out)):
        # Without a rule it starts from the placeholder.
        start = parameter.numpy() if start is None else start
        unit = _unit(parameter, along_axes.get(id(parameter), scales))
        parameter.start(np.broadcast_to(start, parameter.numpy().shape), unit)
    gp.prepare(data)
    return scales


def start_from_first(gp: Any, pairs: tf.data.Dataset) -> None:
    """Initialises the hyperparameters that were left out from the first of pairs `(x, z)`.

    Raises a ValueError where the dataset has none.
    """
    first = next(iter(pairs), None)
    if not isinstance(first, tuple) or len(first) != 2:
        problem = "is empty" if first is None else f"has {pairs.element_spec}"
        raise ValueError(f"a dataset must have pairs (x, z) of inputs and targets, and {problem}")
    with undone_on_error(gp):
        data = gp.data_of(*first, noise=gp.noise_arguments())
        start_left_out(gp, data)
        gp.check_data(data)


def check_has_starts(gp: Any) -> None:
    """Raises a ValueError where a value was left out, and data are elsewhere."""
    left_out = [name for name, p in gp.named_hyperparameters().items() if p.is_left_out]
    if left_out or gp.has_weak_prior:
        names = ", ".join(left_out) or "noise_variance"
        raise ValueError(
            f"{names} left out: values to start from are known of data that are here, not of "
            "shards elsewhere. Give them values"
        )


def _spread_left_out(gp: Any, dimensions: int) -> None:
    """Gives hyperparameters left out of a kernel a value for each of several dimensions of x."""
    for layer in gp.kernel.over_all_dimensions():
        for parameter in layer.own_parameters:
            is_one = parameter.constraint.is_per_dimension and not np.ndim(parameter)
            if parameter.is_left_out and is_one:
                parameter.spread(dimensions)
                for kernel in gp.kernel.walk():
                    if any(layer is inner for inner in kernel.walk()):
                        kernel.is_markov = False
    gp.match_optimizer()


def _known_frequencies(kernel: Kernel, is_chosen: Callable[[Parameter], bool]) -> list[np.ndarray]:
    """The frequencies of terms of a sum that need no start, 0 for a real term without one."""
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

    `½ log(v/P) − v/(2P) − (f P/v)⁴`, P being `power`, the mean square of the residuals of the
    targets, and f a floor; f P is at least `rounding`, in squared units of z. The first two terms
    are a gamma density of shape 3/2. It falls by half of the log of the variance towards zero,
    which moves an estimate by less than a standard error (Chung, Rabe-Hesketh, Dorie, Gelman & Liu,
    Psychometrika 78, 2013, for standard deviations). The last keeps the variance of data without
    noise, as of a simulation, near f P, below which rounding decides. It is steep, so as not to
    push up a noise that only few of many samples show, as at the minimum of a wide spectrum.
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

    The number of iterations of each is at most `cap`, if that is not None. Returns loss and
    hyperparameters of each optimum, the best first, as in `history.optima`.
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


def descend(
    gp: Any,
    data: Data,
    scales: DataScales,
    restarts: int,
    seed: int,
    cap: int | None,
    verbose: int | str,
) -> tuple[Data, list[dict[str, Any]]]:
    """Fits from several starts, and until the power of the signal settles where noise follows it.

    Arguments as for `best_of_restarts`. Returns the data, with that power or as the process
    arranges them, and the optima of several starts, the best with the settled power. Of one start
    nothing is fitted here, unless its number of iterations has no cap and the power has to settle,
    or what approximates the process is held first.
    """
    if isinstance(gp.optimizer, LBFGS):
        _let_move(gp, scales)
    process = gp.observation_model
    has_power = process.noise_fraction is not None and isinstance(gp.optimizer, LBFGS)
    with_power, optima = with_power_of_data(data) if has_power else data, []
    with gp.approximation_held() as is_held:
        if restarts > 1 or is_held:
            optima = best_of_restarts(gp, with_power, scales, restarts, seed, cap, verbose)
        for _ in range(_MOST_APPROXIMATIONS if is_held else 0):
            if not gp.prepare_again(data):
                break
            optima[:1] = best_of_restarts(gp, with_power, scales, 1, seed, cap, verbose)
    if not has_power or cap is not None:
        return gp.arranged(with_power), optima
    for _ in range(_MOST_ROUNDS):
        settled = best_of_restarts(gp, with_power, scales, 1, seed, None, verbose)
        optima[:1] = settled if optima else []
        previous_data, with_power = with_power, gp.with_signal_power(data)
        variances = [process.noise_variances(d.noise) for d in (with_power, previous_data)]
        logarithms = tf.where(data.present, tf.math.log(variances[0] / variances[1]), 0.0)
        change = float(tf.reduce_max(tf.abs(logarithms)))
        if change < _SETTLED:
            return with_power, optima
    warnings.warn(
        f"noise variances that follow the signal have not settled in {_MOST_ROUNDS} rounds: the "
        f"last changed one by {np.expm1(change):.1%}",
        RuntimeWarning,
        stacklevel=3,
    )
    return with_power, optima


def candidates(gp: Any, scales: DataScales, count: int, seed: int) -> list[np.ndarray]:
    """Points from which fits may start, drawn around the scales of data, the same for one seed.

    They are some `_CANDIDATES` times `count`, each the values of `gp.trainable_variables`, one
    after the other.
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
    """The direction in `gp.trainable_variables` that scales all covariances alike.

    None if there is none, as where part of the noise is known, and has no scale.
    """
    parameters, noise_scale = gp.kernel.scale_parameters(), gp.observation_model.noise_scale
    if getattr(gp, "band", None) is not None:  # the loss has fewer terms than points
        return None
    if gp.observation_model.noise_fraction is not None:  # whose square is the scale
        return None
    if parameters is None or (data.noise.variance is not None and noise_scale is None):
        return None
    of_noise = (gp.noise_variance,) if noise_scale is None else (gp.noise_variance, noise_scale)
    parameters = (*parameters, *of_noise)
    if any(p.fixed for p in parameters):
        return None
    chosen = {id(p.variable) for p in parameters}
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
        shape = gp.noise_variance.numpy().shape
        groups = range(int(np.prod(shape)))
        variances = [
            rules.noise_variance(group if gp.noise_is_by_output else None) for group in groups
        ]
        yield gp.noise_variance, np.reshape(variances, shape)
    scale = gp.observation_model.noise_scale
    if scale is not None and is_chosen(scale):
        yield scale, rules.noise_variance() / rules.scales.known_noise
    fraction = gp.observation_model.noise_fraction
    if fraction is not None and is_chosen(fraction):
        yield fraction, np.sqrt(rules.noise_variance() / rules.scales.total)
    for parameter, start in gp.kernel.starts(rules, rules.scales.total, is_chosen):
        if start is None and rules.draw is not None and parameter.constraint is POSITIVE:
            start = rules.scattered(1.0, 2.0) * parameter.numpy()
        yield parameter, start


def values_from_data(gp: Any, data: Data) -> list[tuple[Parameter, ArrayLike]]:
    """Values of the noise and the kernel that a rule derives from the scales of data.

    A first fit would start from them if all hyperparameters but fixed ones had been left out.
    """
    starts = _starts(gp, _rules(gp, scales_of(gp, data), _is_drawn), _is_drawn)
    return [(p, start) for p, start in starts if start is not None]


def _rules(gp: Any, scales: DataScales, is_chosen: Callable[[Parameter], bool]) -> StartRules:
    """The rules of all starts, once a first pass has counted the length scales."""
    probe = StartRules(scales)
    list(_starts(gp, probe, is_chosen))
    frequencies = _known_frequencies(gp.kernel, is_chosen)
    return StartRules(scales, probe.lengthscales_taken, described=frequencies)


def _means_and_data(mean: Mean, data: Data) -> Iterator[tuple[Mean, Data]]:
    """The means of one signal in a mean, each with the data of its outputs, as series."""
    if not isinstance(mean, Outputs):
        yield mean, data
        return
    for mean_of_signal, numbers in mean.different():
        yield mean_of_signal, _series_of(data, mean.outputs, numbers)


def _series_of(data: Data, outputs: int, numbers: Sequence[int]) -> Data:
    """The data of some outputs as series of one signal, one output after another."""

    def series(a: tf.Tensor) -> tf.Tensor:
        a = tf.broadcast_to(a, tf.shape(data.z))
        return tf.concat([a[:, number::outputs] for number in numbers], axis=0)

    x = data.x[:, ::outputs, :-1]
    x = x if x.shape[0] == 1 else tf.concat([x] * len(numbers), axis=0)
    z = series(data.z)
    return Data(x, z, tf.shape(z)[:1], functional=data.functional.map(series))


def _start_mean(mean: Mean, data: Data) -> None:
    x, z = inputs_and_series(data)
    present = ~np.isnan(z)
    rows = np.broadcast_to(x, (len(z), *x.shape))[present]
    # The unit of weights is the accuracy of the mean: optimizers move them in such steps.
    residuals = np.abs((z - mean.nearest(x, z))[present])
    largest = max(np.abs(z[present]).max(), 1e-300)
    unit = max(float(np.sqrt(np.mean(residuals**2))), 1e-8 * largest)
    for parameter in mean.own_parameters:
        start = mean.start_of(parameter.name, rows, z[present])
        if parameter.is_left_out:
            parameter.start(parameter.numpy() if start is None else start, unit)


def scales_along_axes(kernel: Kernel, scales: DataScales) -> dict[int, DataScales]:
    """The scales of data along the axis of each hyperparameter that is of one, by its `id`.

    A mean over axes of several units, such as seconds and hertz, is the scale of none of them.
    """
    of_axes: dict[int, DataScales] = {}
    of_parameters: dict[int, DataScales] = {}
    for layer in kernel.walk():
        if isinstance(layer, Along):
            of_axis = of_axes.setdefault(layer.axis, scales.along(layer.axis))
            for inner in layer.walk():
                of_parameters |= {id(p): of_axis for p in inner.own_parameters}
    return of_parameters


def _unit(parameter: Parameter, scales: DataScales) -> ArrayLike | None:
    """The unit of the weight of a frequency of either sign; None for others, which keep theirs."""
    if parameter.constraint.unit_of_outputs is not None:
        return parameter.constraint.unit_of_outputs(scales.output_sizes)
    return _unit_of_frequency(parameter, scales) if _is_frequency(parameter) else None


def _is_frequency(parameter: Parameter) -> bool:
    """Whether it is a frequency of either sign, whose weight counts steps."""
    return parameter.step is not None and parameter.constraint.forward is REAL.forward


def _unit_of_frequency(parameter: Parameter, scales: DataScales) -> np.ndarray:
    """A tenth of a cycle over all x: a frequency is determined to a fraction of that."""
    return np.asarray(0.1 / (scales.spans if np.ndim(parameter) else scales.span))


def _let_move(gp: Any, scales: DataScales) -> None:
    """Gives frequencies near zero a unit from the data.

    A hundredth of the value is too small where x does not resolve the value from zero: L-BFGS would
    end where it began.
    """
    along_axes = scales_along_axes(gp.kernel, scales)
    for parameter in gp.named_hyperparameters().values():
        if parameter.is_left_out or not _is_frequency(parameter):
            continue
        unit = _unit_of_frequency(parameter, along_axes.get(id(parameter), scales))
        step = parameter.step.numpy()
        is_too_small = step < _RESOLVED * unit
        if np.any(is_too_small):
            parameter.start(parameter.numpy(), np.where(is_too_small, unit, step))


# --- residuals ---------------------------------------------------------------------------------


def inputs_and_series(data: Data, outputs: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Inputs `[N, D]` and series `[B, N]`; only the first where series have inputs of their own.

    P outputs are P series, one after another.
    """
    x, z = data.x, data.of_values().z
    if outputs is not None:
        x, z = series_of_outputs(x, z, outputs)
    x, z = np.asarray(x, float), np.asarray(z, complex)
    return x[0], z if len(x) == 1 else z[: outputs or 1]


def residuals_of_mean(gp: Any, data: Data) -> tuple[np.ndarray, np.ndarray]:
    """Inputs `[N, D]`, and the residuals `[B, N]` of the series from the nearest mean."""
    x, z = inputs_and_series(data, gp.kernel.outputs)
    return x, z if gp.mean is None else z - gp.mean.nearest(x, z)


def scales_of(gp: Any, data: Data) -> DataScales:
    """The scales of the residuals of data from the mean and the trend of the kernel."""
    x, z = residuals_of_mean(gp, data)
    degree, outputs = gp.kernel.trend_degree, gp.kernel.outputs
    known_noise = mean_known_noise(data)
    if degree is None:
        return DataScales(x, z, outputs=outputs, known_noise=known_noise)
    columns = np.concatenate([np.ones((len(x), 1)), _slopes(x, degree)], axis=-1)
    slow = np.zeros((columns.shape[1], *z.shape), complex)
    for number, series in enumerate(z):
        present = ~np.isnan(series)
        basis = columns[present].astype(complex)
        coefficients, *_ = np.linalg.lstsq(basis, series[present], rcond=None)
        slow[:, number] = columns.T * coefficients[:, None]
    powers = [float(np.mean(np.abs(component) ** 2)) for component in slow]
    return DataScales(x, z - slow.sum(axis=0), powers, outputs, known_noise)


def mean_known_noise(data: Data) -> float:
    """The mean of the known noise variances of the samples that are not missing."""
    if data.noise.variance is None:
        return 0.0
    variance = np.broadcast_to(data.noise.variance, data.z.shape)
    return float(np.mean(variance[~np.isnan(data.z)], dtype=float))


def _slopes(x: np.ndarray, degree: int) -> np.ndarray:
    """The slope of a trend over inputs `[N, D]`, `[N, 1]`; `[N, 0]` where it has none."""
    if not degree or x.shape[1] != 1 or not np.ptp(x) > 0:
        return np.zeros((len(x), 0))
    return (x - x.mean()) / np.ptp(x)


def residual_power(process: SignalPlusNoise, data: Data) -> tf.Tensor:
    """The mean square of the residuals from offsets, the mean, and a trend of the kernel.

    For a mean that is a sum of functions times coefficients it depends on the data alone; another
    mean is subtracted at its present hyperparameters. For data that are constant to rounding it is
    the mean square of the data. It is `[P]` of outputs that have noise variances of their own.
    """
    data, outputs = data.of_values(), process.kernel.outputs
    if outputs is None:
        sums = _sums_of_squares(process, data)
    else:  # which have offsets and means of their own
        means = process.mean.means if isinstance(process.mean, Outputs) else [None] * outputs
        of_outputs = [
            _sums_of_squares(process.with_mean(mean), _series_of(data, outputs, [number]))
            for number, mean in enumerate(means)
        ]
        sums = tuple(map(tf.stack, zip(*of_outputs, strict=True)))
        if not process.noise_is_by_output:
            sums = tuple(map(tf.reduce_sum, sums))
    squares, of_residuals, count = sums
    power, residual = (a / tf.maximum(count, 1.0) for a in (squares, of_residuals))
    if process.likelihood is not None:  # of data that are not the signal plus noise
        return power
    rounding = _ROUNDING * np.finfo(power.dtype.as_numpy_dtype).eps
    return tf.where(residual > rounding**2 * power, residual, power)


def _sums_of_squares(process: SignalPlusNoise, data: Data) -> tuple[tf.Tensor, ...]:
    """The sums of squares of data and of their residuals, and the number of data."""
    squares, of_residuals = (
        tf.reduce_sum(squared_modulus(values))
        for values in (_where_present(data, data.z), _residuals(process, data))
    )
    return squares, of_residuals, tf.reduce_sum(data.counts)


def _residuals(process: SignalPlusNoise, data: Data) -> tf.Tensor:
    """The least-squares residuals of each series, zero where missing, `[B, N]`."""
    mean, z = process.mean, data.z
    functions = None if mean is None else mean.functions(data.x)
    basis = None if mean is None else mean.basis(data.x)
    if functions is None:  # its hyperparameters are no coefficients
        z = z - process.plus_function(tf.zeros_like(z), data.x)
    keep = tf.cast(data.keep, z.dtype)[..., None]  # [G, N, 1]
    y = data.columns(_where_present(data, z))
    offsets = tf.reduce_sum(y, axis=-2, keepdims=True) / tf.reduce_sum(keep, axis=-2, keepdims=True)
    columns = [c for c in (functions, basis) if c is not None]
    if process.kernel.trend_degree:
        columns.append(as_complex(data.x))
    if not columns:
        return data.vectors((y - offsets) * keep)
    a = tf.concat([tf.ones_like(columns[0][..., :1]), *columns], axis=-1)
    a = a * keep
    largest = tf.stop_gradient(tf.reduce_max(tf.abs(a), axis=-2, keepdims=True))
    a /= tf.cast(tf.where(largest > 0.0, largest, tf.ones_like(largest)), a.dtype)
    # At the optimum the derivative by the coefficients is zero.
    fitted = tf.linalg.lstsq(tf.stop_gradient(a), tf.stop_gradient(y), fast=False)
    return data.vectors((y - a @ tf.stop_gradient(fitted)) * keep)


def _where_present(data: Data, z: tf.Tensor) -> tf.Tensor:
    return tf.where(data.present, z, tf.zeros_like(z))


# --- warnings before a fit -----------------------------------------------------------------------


def warn_of_offset(gp: Any, data: Data) -> None:
    """Warns of data far from zero whose process has neither a mean nor a constant term."""
    if gp.observation_model.likelihood is not None:  # of data that are not the signal plus noise
        return
    x, z = residuals_of_mean(gp, data)
    offsets = _FarFromZero(x, z, gp.kernel.outputs)
    if gp.kernel.has_level(x) or not offsets.series.any():
        return
    described, lacks = "z", "has neither a mean nor a constant term"
    if gp.mean is not None:
        described, lacks = "what the mean leaves of z", "has no constant term"
    warnings.warn(
        f"{described} is far from zero: {offsets.in_words()}, and the model {lacks}. "
        "The other terms of the kernel would be stretched over that, and forecasts be wrong: "
        f"{offsets.remedy(gp)}",
        RuntimeWarning,
        stacklevel=4,
    )


def warn_of_mirrored_turns(gp: Any, scales: DataScales) -> None:
    """Warns of a frequency that was given, where the power of z is at the opposite frequency.

    S-parameters of a delay τ have their power at `Rotation(frequency=-τ)`, or, where the sign of i
    follows the opposite convention, at +τ.
    """
    terms = gp.kernel.parts if isinstance(gp.kernel, Sum) else (gp.kernel,)
    frequencies = [_turn(term) for term in terms]
    for frequency in frequencies:
        if frequency is None:
            continue
        shares = scales.share_around(frequency, _NEAR), scales.share_around(-frequency, _NEAR)
        opposite = [f for f in frequencies if f is not None and f * frequency < 0.0]
        if not opposite and shares[1] > max(_MOST_POWER, _OPPOSITE * shares[0]):
            warnings.warn(
                f"a rotation was given the frequency {frequency:.4g}, and z turns the other way: "
                f"{shares[1]:.0%} of its power is around {-frequency:.4g}. The sign of i may be "
                "that of another convention (a delay τ over a frequency is frequency=-τ where "
                "waves are e^{+iωt}): fit conj(z), or give the opposite frequency",
                RuntimeWarning,
                stacklevel=4,
            )
            return


def _turn(term: Kernel) -> float | None:
    """The frequency of a term, summed over factors of a product; None if one is left out."""
    factors = term.parts if isinstance(term, Product) else (term,)
    turns = [factor.frequency for factor in factors if isinstance(factor, Rotation)]
    if not turns or any(turn.initial is None or turn.numpy().ndim for turn in turns):
        return None
    return float(sum(turn.numpy() for turn in turns))


class _FarFromZero:
    """Whether series `[B, N]` are far from zero beside their variation about a level or line."""

    def __init__(self, x: np.ndarray, z: np.ndarray, outputs: int | None = None):
        self.x, self.z, self.outputs = x, z, outputs
        self.means = series_means(z)
        squares, about = np.abs(self.means) ** 2, z - self.means[:, None]
        self.variances = series_means(np.abs(about) ** 2)
        enough = np.sum(~np.isnan(z), axis=-1) > _FEW
        self.series = enough & (squares > FAR * self.variances)
        self.is_line = False
        if x.shape[1] != 1:
            return
        u = np.where(np.isnan(z), np.nan, x[:, 0])
        u = u - series_means(u)[:, None]
        slopes = np.nansum(u * about, axis=-1) / np.maximum(np.nansum(u**2, axis=-1), 1e-300)
        residual_power = series_means(np.abs(about - slopes[:, None] * u) ** 2)
        self.series |= enough & (squares > _FAR_FROM_LINE * residual_power)
        self.is_line = bool(np.sum(residual_power) < _LINE * np.sum(self.variances))

    def in_words(self) -> str:
        """Mean and standard deviation of the series farthest from zero."""
        worst = int(np.argmax(self.series * np.abs(self.means)))
        kind = "series" if self.outputs is None else "output"
        number = worst % (self.outputs or len(self.z))
        of_series = "" if len(self.z) == 1 else f", of {kind} {number},"
        deviation = np.sqrt(self.variances[worst])
        return (
            f"its mean{of_series} is {self.means[worst]:.4g}, beside a standard deviation of "
            f"{deviation:.2g}{' along a straight line' * self.is_line}"
        )

    def remedy(self, gp: Any) -> str:
        """The mean or the term of the kernel to add to a process; all series share a mean."""
        if gp.kernel.outputs is not None:
            means = f"cgp.means.Outputs([cgp.means.Constant(), ...]), a list of {gp.kernel.outputs}"
            return f"give each output its mean, {means}, or subtract means from z"
        mean, kernels = "Polynomial(0)", "cgp.kernels.Constant()"
        if self.is_line and not any(kernel.is_walk for kernel in gp.kernel.walk()):
            low, high = self.x.min(), self.x.max()
            middle, half = 0.5 * (low + high), 0.5 * (high - low)
            mean = f"Polynomial(1, center={middle:.6g}, scale={half:.6g})"
            kernels += f" + cgp.kernels.IntegratedRandomWalk(start={low:.6g})"
        add = f"add {kernels} to the kernel"
        about = np.abs(self.means - self.means.mean()) ** 2
        is_common = np.all(about <= self.variances)  # all series share a mean
        takes_mean = gp.mean is None and is_common
        return f"give the process mean=cgp.means.{mean}, or {add}" if takes_mean else add
