"""Matrices that a user gives for one step of a filter, in place of those of its model."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from cgp.linalg.arguments import ArrayLike, as_numbers, hermitian_gap
from cgp.linalg.cholesky import NotPositiveDefiniteError
from cgp.observations import check_rounding
from cgp.statespace.linearization.linearized_model import AnyModel, noise_of
from cgp.statespace.models.linear_gaussian import LinearGaussian, check_uncorrelated


def checked_matrices(
    model: AnyModel, matrices: Mapping[str, ArrayLike | None], batch: tuple[int, ...]
) -> dict[str, np.ndarray]:
    """Checks the matrices of a step, or with a time axis of a block of steps.

    Args:
        model: The model, whose sizes and dtype they have; of a nonlinear one Q and R alone.
        matrices: F, Q, H and R, `[rows, columns]`, with the leading axes `batch`, or without. Of a
            widely linear model they are of the real composite; or of the size of the complex state
            and observation, for a linear map or a covariance of circular noise.
        batch: The axes of the observations before their components.

    Returns:
        Working values by the names of `StepMatrices`, F, Q_factor, H and R, `[*batch, ...]`: views
        with a stride of zero where all share a matrix.

    Raises:
        TypeError: Not numbers; complex ones of a real model; more precision than the model has.
        ValueError: Shapes that do not fit, a covariance that is not Hermitian, NaN or infinity.
        NotPositiveDefiniteError: An indefinite covariance.
    """
    if not isinstance(model, LinearGaussian):
        for name in ("F", "H"):
            if matrices.get(name) is not None:
                raise ValueError(
                    f"{name} of a step is for a linear model: this one has functions in place of F "
                    "and H"
                )
    model = noise_of(model)
    if any(matrix is not None for matrix in matrices.values()):
        check_uncorrelated(model, "a step with matrices of its own")
    n, m = model.F.shape[-1], model.H.shape[-2]
    sizes = {"F": (n, n), "Q": (n, n), "H": (m, n), "R": (m, m)}
    working = {}
    for name, matrix in matrices.items():
        if matrix is None:
            continue
        a = _of_model(model, matrix, name, sizes[name], batch)
        if name in ("Q", "R"):
            factor = _factor(a, name)
            working["Q_factor" if name == "Q" else name] = factor if name == "Q" else a
        else:
            working[name] = a
    return {
        name: np.broadcast_to(a, (*batch, *a.shape[-2:])) if a.ndim == 2 else a
        for name, a in working.items()
    }


def with_matrices_of_steps(model: AnyModel, matrices: Mapping[str, np.ndarray]) -> AnyModel:
    """A model with matrices of each step, as `checked_matrices` returns them, `[..., T, ...]`."""
    if not matrices:
        return model
    tensors = {name: tf.convert_to_tensor(a) for name, a in matrices.items()}
    if isinstance(model, LinearGaussian):
        return model.with_matrices(**tensors)
    return model.with_noise(model.noise.with_matrices(**tensors))


def _of_model(
    model: LinearGaussian,
    matrix: ArrayLike,
    name: str,
    size: tuple[int, int],
    batch: tuple[int, ...],
) -> np.ndarray:
    """A matrix as working values, `[rows, columns]` or `[*batch, rows, columns]`."""
    check_rounding(matrix, model.dtype, name, name)
    a = np.asarray(as_numbers(matrix, name))
    multiplicities = {model.form.multiplicity, model.observation_form.multiplicity}
    multiplicity = multiplicities.pop() if len(multiplicities) == 1 else 1
    short = tuple(rows // multiplicity for rows in size)
    if a.ndim < 2 or a.shape[-2:] not in (size, short) or a.shape[:-2] not in ((), batch):
        rows, columns = short
        axes = "".join(f"{count}, " for count in batch)
        choice = f" or [{axes}{rows}, {columns}]" if batch else ""
        composite = f", or the real composite {list(size)}" if multiplicity > 1 else ""
        raise ValueError(
            f"{name} of a step must be [{rows}, {columns}]{choice}{composite}, as the model has "
            f"{model.state_size} states and {model.observation_size} observed components, got "
            f"shape {a.shape}{_hint(name, a, short)}"
        )
    if a.shape[-2:] != size:
        a = _composite(a, is_covariance=name in ("Q", "R"))
    dtype = model.dtype.as_numpy_dtype
    if a.dtype.kind == "c" and not model.dtype.is_complex:
        kind = "the real composite of a widely linear model" if multiplicity > 1 else "real"
        raise TypeError(f"{name} of a step must be {kind}, {model.dtype.name}, got {a.dtype}")
    a = a.astype(dtype)
    if not np.isfinite(a).all():
        raise ValueError(
            f"{name} of a step must be finite, got {a}: what is missing is NaN in z, and its row "
            "of H and R may be any number"
        )
    return a


def _hint(name: str, a: np.ndarray, size: tuple[int, ...]) -> str:
    """Code that turns an array of another shape into the matrix, as the end of an error."""
    rows, columns = size
    if name in ("Q", "R") and a.ndim == 0:
        return f": np.eye({rows}) * {name}"
    if name in ("Q", "R") and a.shape == (rows,):
        return f": np.diag({name})"
    if a.shape == (columns,) and rows == 1:
        return f": {name}[None]"
    if a.ndim == 3 and a.shape[1:] == size:
        return ": process takes a block of observations, with a matrix for each"
    return ""


def _composite(a: np.ndarray, is_covariance: bool) -> np.ndarray:
    """The real composite of a complex linear map, or of a covariance of circular noise.

    Real and imaginary part of circular noise have half of its variance each.
    """
    rows = [[a.real, -a.imag], [a.imag, a.real]]
    composite = np.concatenate([np.concatenate(row, axis=-1) for row in rows], axis=-2)
    return 0.5 * composite if is_covariance else composite


def _factor(covariance: np.ndarray, name: str) -> np.ndarray:
    """A factor G of a covariance `G Gᴴ`, which is checked; singular ones included."""
    if covariance.shape[-1] == 1:
        variance = covariance.real
        if np.any(covariance != variance) or np.any(variance < 0.0):
            raise NotPositiveDefiniteError(
                f"{name} of a step must be a variance, real and not negative, got {covariance}"
            )
        return np.sqrt(variance).astype(covariance.dtype)
    gap = hermitian_gap(covariance)
    if gap:
        raise ValueError(
            f"{name} of a step must be Hermitian, a covariance: it differs from its adjoint by "
            f"{gap:.3g}"
        )
    try:
        return np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        pass  # singular, or indefinite
    # An eigenvalue of zero comes out as rounding, of either sign.
    variances, axes = np.linalg.eigh(covariance)
    rounding = 8 * covariance.shape[-1] * np.finfo(variances.dtype).eps
    if np.any(variances[..., 0] < -rounding * np.abs(variances[..., -1])):
        raise NotPositiveDefiniteError(
            f"{name} of a step must be a covariance, but it is indefinite: it has the eigenvalue "
            f"{variances.min():.3g}"
        )
    return axes * np.sqrt(np.maximum(variances, 0.0))[..., None, :]
