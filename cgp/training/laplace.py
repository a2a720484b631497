"""The uncertainty of learned hyperparameters, from the curvature of the loss at its minimum.

Laplace's approximation: near the maximum the posterior density of the unconstrained weights is
normal, and the inverse of its covariance is the Hessian of the negative log density (MacKay,
*Information Theory, Inference, and Learning Algorithms*, 2003, ch. 27).
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.linalg import NotPositiveDefiniteError
from cgp.training.batches import where_watched
from cgp.training.objective import Objective
from cgp.training.parameters import POSITIVE, UNIT_DISK, Parameter
from cgp.training.post_updates import refresh

_VANISHED = 1e-6  # of the largest element of a positive vector
_UNDETERMINED = 1e-2  # the curvature by a log whose standard error would be 10


def hessian(
    gradient: Callable[[np.ndarray], np.ndarray], point: np.ndarray, verbose: int | str = 0
) -> np.ndarray:
    """The Hessian `[P, P]` of a negative log density at a point, by differences of its gradient.

    The gradient is exact, so that central differences of it lose no more than half of the digits,
    and no kernel needs a second derivative. Steps are a twentieth of the width of the density in
    each direction, for frequencies are known to many more digits than variances. With `verbose`
    other than 0 a progress bar shows how many rows are done.
    """
    bar = keras.utils.Progbar(
        point.size, verbose=1 if where_watched(verbose) else 0, unit_name="parameter"
    )
    columns = np.zeros((point.size, point.size))
    for i in range(point.size):
        step = 1e-3
        for _ in range(4):  # the width follows from the curvature, the curvature from a step
            shift = np.zeros(point.size)
            shift[i] = step
            columns[i] = (gradient(point + shift) - gradient(point - shift)) / (2.0 * step)
            better_step = 0.05 / np.sqrt(max(columns[i, i], 1e-300))
            better_step = min(better_step, 0.05 * max(1.0, abs(point[i])))
            if 0.3 < better_step / step < 3.0:
                break
            step = better_step
        bar.update(i + 1)
    return 0.5 * (columns + columns.T)


def curvature_of_loss(
    model: keras.Model, batch: Any, count: float, verbose: int | str
) -> tuple[list[keras.Variable], np.ndarray]:
    """The Hessian `[P, P]` of `count` times the loss of a batch, and the weights that it is by.

    The weights of the model stay as they are. `verbose` is as for `hessian`.
    """
    loss = Objective(model, (batch, None, None))
    try:
        rows = hessian(lambda w: count * loss(w)[1], loss.start, verbose)
    finally:
        loss.assign(loss.start)
        refresh(model)
    return loss.variables, rows


def errors_by_name(
    estimates: Mapping[str, np.ndarray], covariance: np.ndarray
) -> dict[str, np.ndarray]:
    """Standard errors shaped like the estimates, from the covariance of their real coordinates.

    The errors of the real and the imaginary part of a complex number are one complex number.
    """
    errors, by_name = np.sqrt(np.diag(covariance)), {}
    for name, rows in rows_by_name(estimates).items():
        numbers, estimate = errors[rows], estimates[name]
        if np.iscomplexobj(estimate):
            numbers = numbers[0::2] + 1j * numbers[1::2]
        by_name[name] = numbers.reshape(estimate.shape)[()]
    return by_name


def rows_by_name(estimates: Mapping[str, np.ndarray]) -> dict[str, slice]:
    """The rows of a covariance of real coordinates that belong to each of the estimates."""
    by_name, start = {}, 0
    for name, estimate in estimates.items():
        stop = start + estimate.size * (2 if np.iscomplexobj(estimate) else 1)
        by_name[name], start = slice(start, stop), stop
    return by_name


def rows_of(estimates: Mapping[str, np.ndarray], name: str | None) -> slice:
    """The rows of one of the estimates, of all if the name is None; a ValueError for another."""
    if name is None:
        return slice(None)
    if name not in estimates:
        raise ValueError(f"name must be one of {', '.join(estimates)}, got {name!r}")
    return rows_by_name(estimates)[name]


def covariance_of_arrays(
    arrays: Callable[[], Sequence[tf.Tensor]],
    parameters: Mapping[str, Parameter],
    learned: list[keras.Variable],
    curvature: np.ndarray,
) -> np.ndarray:
    """The covariance of arrays that are functions of the weights, from the Hessian by these.

    Args:
        arrays: A function that computes them from the present weights.
        parameters: Hyperparameters by name, for the error about weights that are not determined.
        learned: The variables that the rows of `curvature` belong to, in their order.
        curvature: `[P, P]`.

    Returns:
        `[Q, Q]`: elements of an array one after the other, real and imaginary part as two.

    Raises:
        NotPositiveDefiniteError: The curvature is not positive in the direction that it names.
    """
    with tf.GradientTape(persistent=True) as tape:  # for a jacobian without pfor
        coordinates = tf.concat([_coordinates(a) for a in arrays()], axis=0)
    jacobian = tape.jacobian(
        coordinates,
        [v.value for v in learned],
        experimental_use_pfor=False,
        unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )
    j = np.concatenate([np.reshape(a, [coordinates.shape[0], -1]) for a in jacobian], axis=1)
    return j @ _inverse(curvature, _labels(parameters, learned)) @ np.swapaxes(j, 0, 1)


def covariance(
    parameters: Mapping[str, Parameter], learned: list[keras.Variable], curvature: np.ndarray
) -> np.ndarray:
    """The covariance of constrained values from the Hessian in the unconstrained weights.

    A complex value on the edge of the unit disk, |c| = 1, has no standard error: its estimate is
    not normal there. Nor has an element of a positive vector that has gone to zero beside the
    others, as the power of a tap that does not exist. Rows and columns of these are NaN, and the
    covariance of the other values holds with these fixed.

    Args:
        parameters: All hyperparameters by name.
        learned: The variables that the rows of `curvature` belong to, in their order.
        curvature: `[P, P]`.

    Returns:
        `[Q, Q]`, in the order of `parameters`: elements of a vector one after the other, real and
        imaginary part of a complex one as two; zero for values that are not learned.

    Warns:
        UserWarning: A value is at the edge of its set.

    Raises:
        NotPositiveDefiniteError: The curvature is not positive in the direction that it names.
    """
    starts = np.cumsum([0] + [_size(v) for v in learned])[:-1]
    offsets = dict(zip(map(id, learned), starts, strict=True))
    labels, curvature = _labels(parameters, learned), curvature.copy()
    rows, at_edge = [], []
    for name, parameter in parameters.items():
        jacobian = _jacobian(parameter)
        row = np.zeros((jacobian.shape[0], curvature.shape[0]))
        is_at_edge = np.zeros(jacobian.shape[0], bool)
        if id(parameter.variable) in offsets:
            start = offsets[id(parameter.variable)]
            weights = np.arange(start, start + jacobian.shape[1])
            row[:, weights] = jacobian
            vanished = _vanished(parameter, np.diag(curvature)[weights])
            # As if they were fixed: without curvature they make the matrix singular.
            curvature[weights[vanished]] = curvature[:, weights[vanished]] = 0.0
            curvature[weights[vanished], weights[vanished]] = 1.0
            is_at_edge |= _is_on_circle(parameter)
            if vanished.any():  # of a positive vector, whose weights are its elements
                is_at_edge |= vanished
        if is_at_edge.any():
            warnings.warn(
                f"{name} = {parameter} is at the edge of its set, where no standard error can be "
                "given: its own are NaN, those of the others hold it there",
                stacklevel=4,
            )
        at_edge += list(is_at_edge)
        rows.append(row)
    j = np.concatenate(rows)
    constrained = j @ _inverse(curvature, labels) @ j.T
    constrained[at_edge], constrained[:, at_edge] = np.nan, np.nan
    return constrained


def _is_on_circle(parameter: Parameter) -> bool:
    # An optimiser stops a little before the edge, where the likelihood is flat in |c|.
    return parameter.constraint is UNIT_DISK and bool(np.any(np.abs(parameter.numpy()) > 1 - 1e-4))


def _vanished(parameter: Parameter, curvature: np.ndarray) -> np.ndarray:
    """Whether elements of a positive vector have gone to zero, from the curvature by their logs."""
    vector = parameter.numpy()
    if vector.ndim != 1 or parameter.constraint.forward is not POSITIVE.forward:
        return np.zeros(curvature.shape, bool)
    return (vector < _VANISHED * vector.max()) & (curvature < _UNDETERMINED)


def _inverse(curvature: np.ndarray, labels: list[str]) -> np.ndarray:
    scale = np.sqrt(np.abs(np.diag(curvature)))
    scale[scale == 0] = 1.0
    eigenvalues, eigenvectors = np.linalg.eigh(curvature / np.outer(scale, scale))
    if eigenvalues[0] <= 1e-10 * eigenvalues[-1]:
        flat = np.abs(eigenvectors[:, 0])
        culprits = sorted({labels[i] for i in np.flatnonzero(flat > 0.3 * flat.max())})
        raise NotPositiveDefiniteError(
            "the likelihood has no maximum here in the direction of "
            f"{', '.join(culprits)}: fit to convergence first; if the data do not determine "
            "these, fix them or give them priors"
        )
    eigenvectors = eigenvectors / scale[:, None]
    return (eigenvectors / eigenvalues) @ eigenvectors.T


def _labels(parameters: Mapping[str, Parameter], learned: list[keras.Variable]) -> list[str]:
    """The name of the hyperparameter of each weight, or of its variable."""
    names = {id(p.variable): name for name, p in parameters.items()}
    return [names.get(id(v), v.name) for v in learned for _ in range(_size(v))]


def _coordinates(a: tf.Tensor) -> tf.Tensor:
    """The elements of an array as real numbers, a complex one as its real and imaginary part."""
    if a.dtype.is_complex:
        a = tf.stack([tf.math.real(a), tf.math.imag(a)], axis=-1)
    return tf.reshape(a, [-1])


def _jacobian(parameter: Parameter) -> np.ndarray:
    raw = tf.convert_to_tensor(parameter.variable.value)
    with tf.GradientTape(persistent=True) as tape:  # for a jacobian without pfor
        tape.watch(raw)
        constrained = _coordinates(parameter.constrained(raw))
    jacobian = tape.jacobian(constrained, raw, experimental_use_pfor=False).numpy()
    return jacobian.reshape(constrained.shape[0], -1)


def _size(variable: keras.Variable) -> int:
    return int(np.prod(variable.shape))
