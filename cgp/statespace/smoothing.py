"""The smoother: the state at each time given the whole series."""

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from cgp import native
from cgp.likelihoods import Likelihood
from cgp.linalg.arguments import ArrayLike, squared_modulus
from cgp.linalg.batch_last import adjoint, matmul, matvec, triangularize
from cgp.linalg.gradients import without_gradient
from cgp.statespace import differentiable_filter, parallel_smoother
from cgp.statespace.arranged import Arranged, for_loops
from cgp.statespace.compiled import CompiledByShape
from cgp.statespace.filter_in_chunks import chunks_of
from cgp.statespace.filter_step import State, predict
from cgp.statespace.linear_gaussian import LinearGaussian
from cgp.statespace.linearized import Along, AnyModel, AnyRule, measurable, noise_of
from cgp.statespace.nonlinear_gaussian import NonlinearGaussian
from cgp.statespace.series import Series
from cgp.statespace.series_result import OfEachSeries, SeriesResult, variances_of
from cgp.statespace.smoother_gains import Steps, smoother_gains
from cgp.statespace.step_sites import MOST_TURNS


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Smoothed(SeriesResult):
    """The moments of the state given all observations.

    For a widely linear model the factors are those of the real composite, `[..., T, 2n, 2n]`.
    Series that share covariances hold them once; each reading spreads them.
    """

    smoothed_means: tf.Tensor
    """`E[x[t] | z]`, `[..., T, n]`."""
    smoothed_chols: tf.Tensor = OfEachSeries()
    """A factor of its covariance, `[..., T, n, n]`."""
    lag_one_covariances: tf.Tensor = OfEachSeries()
    """`E[(x[t+1] − m[t+1]) (x[t] − m[t])ᴴ | z]`, `[..., T-1, n, n]`."""
    lag_one_pseudo_covariances: tf.Tensor | None = OfEachSeries()
    """The same with ᵀ for ᴴ; None if the model is not widely linear, where it is zero."""
    gains: tf.Tensor = OfEachSeries()
    """Smoother gains J[t], `[..., T-1, n, n]` (of the real composite where factors are). The
    covariance of x[t] with any later state is J[t] times that of x[t+1] with that state."""

    @property
    def smoothed_variances(self) -> tf.Tensor:
        """`E|x[t] − m|²` given z, of each component, real, `[..., T, n]`."""
        return variances_of(self.smoothed_means, self.smoothed_chols)


def smooth(
    model: AnyModel,
    z: ArrayLike,
    missing: ArrayLike | None = None,
    inputs: ArrayLike | None = None,
    rule: AnyRule | None = None,
    *,
    likelihood: Likelihood | None = None,
    parallel: bool = False,
) -> Smoothed:
    """Runs the Rauch-Tung-Striebel smoother, in square-root form.

    With `[[F L, L_Q], [L, 0]] = [[L⁺, 0], [X, Y]] Θ`, Θ orthogonal, the gain is `J = X / L⁺`, and
    `[J L_s⁺, Y]` is a root of the smoothed covariance (Park & Kailath, IEEE Trans. Autom. Control
    40, 1995). Covariances are sums of squares, without a subtraction.

    Args:
        model: A `LinearGaussian` or a `NonlinearGaussian`.
        z: Observations, as for `filter`.
        missing: As for `filter`.
        inputs: As for `filter`.
        rule: As for `filter`; an `Iterated` one repeats the whole series.
        likelihood: As for `filter`; the whole series is repeated, until past and future agree on
            what each observation tells.
        parallel: As for `filter`; the repetitions of an `Iterated` rule are parallel too.

    Returns:
        `Smoothed`. Not differentiable: a gradient raises a NotImplementedError.

    Raises:
        TypeError, ValueError: As `filter`; a likelihood on whose observations past and future do
            not come to agree.
        NotImplementedError: A likelihood in a graph: its turns end where they agree.

    Example:
        >>> import numpy as np
        >>> from cgp import statespace
        >>> walk = statespace.LinearGaussian([[1.0]], [[1.0]], [[1.0]], [[2.0]], [0.0], [[2.0]])
        >>> statespace.smooth(walk, [1.0, np.nan, 1.0]).smoothed_means.numpy().ravel().round(6)
        array([0.6, 0.7, 0.8])
    """
    model, inputs = smoothing_model(model, z, missing, inputs, rule, likelihood, parallel=parallel)
    means, chols, lags, gains = _smoothed(Series(model, z, missing, inputs), parallel)
    form = model.form
    lags = form.moments(lags[..., :-1, :, :])
    return Smoothed(
        smoothed_means=form.join(means),
        smoothed_chols=chols,
        lag_one_covariances=lags.k,
        lag_one_pseudo_covariances=lags.c,
        gains=gains[..., :-1, :, :],
    )


def smoothing_model(
    model: AnyModel,
    z: ArrayLike,
    missing: ArrayLike | None,
    inputs: ArrayLike | None,
    rule: AnyRule | None,
    likelihood: Likelihood | None = None,
    *,
    parallel: bool = False,
) -> tuple[LinearGaussian, ArrayLike | None]:
    """The linear model whose smoother is that of a model, and the inputs that are left to it."""
    model = measurable(model, likelihood)
    if likelihood is None and not isinstance(model, NonlinearGaussian):
        return model, inputs
    if likelihood is not None and not tf.executing_eagerly():
        raise NotImplementedError("smooth with a likelihood is not for graphs: call it eagerly")
    accuracy = float(np.finfo(noise_of(model).dtype.real_dtype.as_numpy_dtype).eps ** 0.5)
    along = Along(model, z, missing, inputs, rule, likelihood)
    linear, last, change = along.of_filter().model, None, np.inf
    for _ in range(along.iterations if likelihood is None else MOST_TURNS):
        means, chols, *_ = _smoothed(Series(linear, z, missing), parallel)
        if last is not None:
            means += along.damping * (last[0] - means)
            if likelihood is not None:
                change = _change(last, (means, chols))
                if change <= accuracy:
                    break
        linear, last = along.at_moments(means, chols).model, (means, chols)
    if likelihood is not None and not change <= 1e3 * accuracy:
        raise ValueError(
            f"no normal posterior was found for {likelihood!r} in {MOST_TURNS} turns, the last of "
            f"which moved a state by {change:.1g} standard deviations: the model may be far from "
            "the data"
        )
    return linear, None


def _change(last: tuple[tf.Tensor, tf.Tensor], following: tuple[tf.Tensor, tf.Tensor]) -> float:
    """How far means `[..., T, n]` move, in standard deviations, and variances, as a share."""
    (mean, chol), (last_mean, last_chol) = following, last
    variance, before = (tf.reduce_sum(squared_modulus(a), axis=-1) for a in (chol, last_chol))
    # Of what is nearly certain the mean itself is the measure: rounding moves it.
    least = np.finfo(variance.dtype.as_numpy_dtype).eps ** 0.5 * tf.abs(mean)
    moved = tf.abs(mean - last_mean), tf.sqrt(variance) + least
    spread = tf.abs(variance - before), variance
    return max(float(tf.reduce_max(tf.math.divide_no_nan(*pair))) for pair in (moved, spread))


def _smoothed(series: Series, parallel: bool) -> list[tf.Tensor]:
    """What `_smooth` returns, batch axes first; covariances where series share them."""
    means, *of_covariances = _smooth(series.arranged(), parallel)
    return [series.from_series(means), *map(series.first_if_own, of_covariances)]


def _smooth(given: Arranged, parallel: bool) -> list[tf.Tensor]:
    """Means `[B, T, n]`; factors, lag-one covariances and gains, `[T, n, n, B]`.

    The last lag-one covariance and the last gain are not meaningful.
    """
    found = differentiable_filter.moments(given, parallel)
    inputs = (given.F, given.Q_factor, given.b, found.filtered_means, found.filtered_chols)
    steps = Steps(*map(tf.stop_gradient, inputs))
    values = None if parallel else _by_core(steps)
    if values is None:
        values = (_in_parallel if parallel else _in_chunks)(given, steps)
    return without_gradient(
        list(values),
        [*inputs, found.filtered_covariances],
        "the smoother is not differentiable",
    )


def _by_core(steps: Steps) -> Any:
    """The values of `_smooth` by a compiled op; None where it does not serve, or refuses."""
    if not native.serves(*steps):
        return None
    return native.attempt(
        "CgpKalmanSmoother",
        transition=steps.F,
        noise_factor=steps.Q_factor,
        b=steps.b,
        means=steps.means,
        chols=steps.chols,
    )


def _in_chunks(given: Arranged, steps: Steps) -> list[tf.Tensor]:
    """The values of `_smooth` by compiled graphs."""
    steps = _for_loops(given, steps)
    chunks = chunks_of(*for_loops(given))
    padded = chunks.pad_varying(steps, always=("means", "chols"))

    def step(k: tf.Tensor, later: State) -> tuple[list[tf.Tensor], State]:
        return _compiled_smooth(chunks.cut(padded, k), later, chunks.steps_of(k))

    # Starts from the state predicted after the end, so the last smoothed state is the filtered one.
    last = Steps(*(a[-1:] for a in steps))
    after = _compiled_predict(last)
    values, _ = chunks.loop(step, after, [steps.means.dtype] * 4, backwards=True)
    means, *of_covariances = map(chunks.join, values)
    return [tf.experimental.numpy.moveaxis(means, -1, 0), *of_covariances]


def _in_parallel(given: Arranged, steps: Steps) -> list[tf.Tensor]:
    """The values of `_smooth` by scans over all steps."""
    means, *of_covariances = parallel_smoother.smooth(_for_loops(given, steps))
    return [tf.experimental.numpy.moveaxis(means, -1, 0), *of_covariances]


def _for_loops(given: Arranged, steps: Steps) -> Steps:
    """The parts with all axes."""
    system, _ = for_loops(given)
    F, G, b = map(tf.stop_gradient, (system.F, system.Q_factor, system.b))
    return Steps(F, G, b, tf.experimental.numpy.moveaxis(steps.means, 0, -1), steps.chols)


def _smooth_chunk(steps: Steps, later: State, length: tf.Tensor) -> tuple[list[tf.Tensor], State]:
    """Smooths the first `length` steps of a chunk, given the smoothed state after them."""
    gains, roots, predicted = smoother_gains(steps)
    size, n = gains.shape[:2]
    shapes = ([n, later.mean.shape[-1]], *[[n, n, later.chol.shape[-1]]] * 2)
    arrays = [tf.TensorArray(later.mean.dtype, size, element_shape=shape) for shape in shapes]

    def step(
        t: tf.Tensor, later: State, arrays: list[tf.TensorArray]
    ) -> tuple[tf.Tensor, State, list[tf.TensorArray]]:
        mean = steps.means[t] + matvec(gains[t], later.mean - predicted[t])
        spread = matmul(gains[t], later.chol)
        chol = triangularize(tf.concat([spread, roots[t]], axis=1))
        values = (mean, chol, matmul(later.chol, adjoint(spread)))
        arrays = [array.write(t, value) for array, value in zip(arrays, values, strict=True)]
        return t - 1, State(mean, chol), arrays

    loop = (length - 1, later, arrays)
    _, later, arrays = tf.while_loop(lambda t, *_: t >= 0, step, loop)
    return [*(array.stack() for array in arrays), gains], later


def _predict_after(last: Steps) -> State:
    """The state predicted after the last step."""
    state = State(last.means[0], last.chols[0])
    return predict(state, last.F[0], last.Q_factor[0], last.b[0])


_compiled_smooth = CompiledByShape(_smooth_chunk)
_compiled_predict = CompiledByShape(_predict_after)
