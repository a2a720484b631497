"""Results as tables of pandas and datasets of xarray: one file for all of them.

A result is turned into named arrays whose first axes are rows, the same for all: batches of series
and time, or chains and draws. The other axes are components, which become columns of a table, and
dimensions of a dataset. Arrays that belong to two times, or to two components, as factors and
covariances do, have no row, and stay in the result.
"""

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tensorflow as tf

from cgp.distributions import ComplexNormal, Marginals, Step, marginals
from cgp.distributions.forms import form_of
from cgp.distributions.marginals import deviations, labelled_moments
from cgp.gp.posterior import PosteriorOfOutputs
from cgp.gp.sampling.parameter_draws import ParameterDraws
from cgp.linalg.arguments import real_diagonal
from cgp.observations import check_same_labels
from cgp.statespace import Filtered, Forecast, Smoothed
from cgp.statespace.results import variances_of

if TYPE_CHECKING:  # optional dependencies
    import pandas
    import xarray


class _Array(NamedTuple):
    """An array whose last axes are components."""

    values: np.ndarray
    components: tuple[str, ...] = ()
    """The names of those axes; none of an array with one number for each row."""


class _Rows(NamedTuple):
    """The leading axes, which all arrays share."""

    names: tuple[str, ...]
    shape: tuple[int, ...]
    index: Any = None  # the labels of the last of them; None for the numbers 0, 1, …


def to_frame(
    result: Any, index: Any = None, *, dims: tuple[str, ...] | None = None
) -> "pandas.DataFrame":
    """A result as a table of pandas: a row for each time, or for each draw.

    The columns of a distribution are its mean and its variance `E|z−m|²`; of a complex one also its
    pseudo_variance `E[(z−m)²]`, std_real and std_imag, the standard deviations of its real and its
    imaginary part. Columns of a filter begin with "predicted_" and "filtered_" (of the states), of
    a smoother with "smoothed_", of a forecast with "state_" and "observation_"; the innovation of a
    filter and its variance, and log_likelihood, are columns of their own. n components have n
    columns, mean_0 to mean_{n−1}, or one without a number where n is 1. `to_csv` writes complex
    numbers as text: `frame.assign(east=np.real(frame["mean"]), north=np.imag(frame["mean"]))` has
    columns of both parts.

    Args:
        result: A `ComplexNormal`, as `gp.posterior` returns it, or a dict of moments, as
            `gp.predict` does; a `Step` of a block; a result of `cgp.statespace.filter`, `smooth` or
            `forecast`; or draws of `gp.sample_parameters`.
        index: Times, inputs, or whatever else the rows belong to, `[T]`, as an `Index` of pandas or
            an array; results do not hold them. None for the numbers from 0 on.
        dims: The last axes of a distribution or a `Step`: `("time",)` for a Gaussian process;
            `("time", "component")` for one of several outputs, for a `KalmanFilter`, and for
            `StateSpaceGP.forecasts`, whose components are horizons. None is `("time",)`, with
            "component" where the result shows it, as the posterior of several outputs does; but not
            where the last axis has one element beside others, or as many as the axis before it in a
            dict, which could be either. For other results they are known.

    Returns:
        A `DataFrame`, indexed by the times; by batch and time of several series, by chain and draw.

    Raises:
        ImportError: pandas is not installed.
        TypeError: Another result.
        ValueError: An index of another length than the result, of other labels, or with missing
            elements; a result without an axis of times, as of a single step, which
            `Step.stack` makes a block; dims that are needed and missing.

    Example:
        >>> import numpy as np, pandas as pd, cgp
        >>> days = pd.date_range("2026-01-01", periods=8, freq="D")
        >>> signal = pd.Series(np.exp(0.3j * np.arange(8)), days)
        >>> clock = cgp.Clock("day", origin="2026-01-01")
        >>> gp = cgp.ExactGP(cgp.kernels.RBF(1.0, lengthscale=4.0), noise_variance=0.01)
        >>> gp.condition(clock(signal.index), signal)
        >>> later = pd.date_range("2026-01-08", periods=3, freq="12h")
        >>> frame = cgp.to_frame(gp.posterior(clock(later)), later)
        >>> frame.columns.tolist()
        ['mean', 'variance', 'pseudo_variance', 'std_real', 'std_imag']
        >>> frame["std_real"].round(3)
        2026-01-08 00:00:00    0.062
        2026-01-08 12:00:00    0.088
        2026-01-09 00:00:00    0.125
        Freq: 12h, Name: std_real, dtype: float64
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError('to_frame needs pandas: pip install "cgp[pandas]"') from error
    arrays = _arrays(result, _checked(dims))
    rows = _rows(result, arrays, index)
    columns = {}
    for name, (values, components) in arrays.items():
        inner = values.shape[values.ndim - len(components) :]
        for place in np.ndindex(inner):
            label = "_".join([name, *map(str, place)]) if np.prod(inner) > 1 else name
            columns[label] = values[(..., *place)].ravel()
    axis = pd.RangeIndex(rows.shape[-1])
    if rows.index is not None:
        axis = pd.Index(rows.index, name=_name_of(rows.index))
    if len(rows.names) > 1:
        axis = pd.MultiIndex.from_product([*map(range, rows.shape[:-1]), axis], names=rows.names)
    return pd.DataFrame(columns, index=axis)


def to_xarray(
    result: Any, index: Any = None, *, dims: tuple[str, ...] | None = None
) -> "xarray.Dataset":
    """A result as a dataset of xarray, of named dimensions.

    Its variables are named like the columns of `to_frame`, but components are a dimension.

    Args:
        result: As for `to_frame`.
        index: As for `to_frame`; a coordinate of xarray, or an `Index` of pandas, that has a name
            gives it to the dimension of times.
        dims: As for `to_frame`.

    Returns:
        A `Dataset`, of dimensions time (or the name of the index) with the index as coordinate,
        batch of several series (batch_0, batch_1 of several axes of them), state and component of
        states and observations; chain and draw of draws. Complex variables can be written to
        NetCDF 4, by `to_netcdf(path, engine="h5netcdf")`, not to NetCDF 3.

    Raises:
        ImportError: xarray is not installed.
        TypeError, ValueError: As for `to_frame`.

    Example:
        >>> import numpy as np, cgp
        >>> walk = cgp.statespace.LinearGaussian([[1.0]], [[1.0]], [[1.0]], [[2.0]], [0.0], [[2.0]])
        >>> filtered = cgp.statespace.filter(walk, np.zeros((5, 3, 1)))  # five series
        >>> dataset = cgp.to_xarray(filtered, np.array([0.0, 0.1, 0.2]))
        >>> dict(dataset.sizes)
        {'batch': 5, 'time': 3, 'state': 1, 'component': 1}
        >>> dataset.filtered_variance.sel(time=0.2, batch=4).round(6).item()
        1.0
    """
    try:
        import xarray as xr
    except ImportError as error:
        raise ImportError('to_xarray needs xarray: pip install "cgp[xarray]"') from error
    arrays = _arrays(result, _checked(dims))
    rows = _rows(result, arrays, index)
    coordinates = {} if rows.index is None else {rows.names[-1]: np.asarray(rows.index)}
    variables = {name: ((*rows.names, *a.components), a.values) for name, a in arrays.items()}
    return xr.Dataset(variables, coordinates)


# --- results as arrays ----------------------------------------------------------------------------


@functools.singledispatch
def _arrays(result: Any, dims: tuple[str, ...] | None) -> dict[str, _Array]:
    """The arrays of a result, by name."""
    raise TypeError(
        "result must be a ComplexNormal, a dict of moments, a Step, draws of hyperparameters, or "
        f"what filter, smooth or forecast return, got {type(result).__name__}"
    )


@_arrays.register(ComplexNormal | Mapping | Marginals)
def _of_prediction(result: Any, dims: tuple[str, ...] | None) -> dict[str, _Array]:
    moments = marginals(result)
    shape = np.shape(moments.mean)
    if dims is None and isinstance(result, PosteriorOfOutputs):
        dims = ("time", "component")
    if dims is None and isinstance(result, Mapping) and len(shape) > 1 and len({*shape[-2:]}) == 1:
        raise ValueError(
            f"arrays of shape {shape} may be of {shape[-1]} outputs or of {shape[-1]} series: say "
            'which, dims=("time", "component") or dims=("time",)'
        )
    return _moments("", _components(dims, shape), *moments)


@_arrays.register
def _of_step(result: Step, dims: tuple[str, ...] | None) -> dict[str, _Array]:
    shape = np.shape(result.innovation)
    if dims is None and result.joint and shape[-1] > 1:
        dims = ("time", "component")
    components = _components(dims, shape)
    return {
        **_moments("predicted_", components, *result.predicted),
        "innovation": _Array(np.asarray(result.innovation), components),
        **_moments("filtered_", ("state",) * len(components), *result.filtered),
    }


@_arrays.register
def _of_filtered(result: Filtered, dims: tuple[str, ...] | None) -> dict[str, _Array]:
    innovations, variances = result.innovations.numpy(), result.innovation_variances.numpy()
    components = ("component",) * (innovations.ndim - result.log_likelihoods.shape.rank)
    return {
        **_of_states("predicted_", result.predicted_means, result.predicted_chols),
        **_of_states("filtered_", result.filtered_means, result.filtered_chols),
        "innovation": _Array(innovations, components),
        "innovation_variance": _Array(variances, components),
        "log_likelihood": _Array(result.log_likelihoods.numpy()),
    }


@_arrays.register
def _of_smoothed(result: Smoothed, dims: tuple[str, ...] | None) -> dict[str, _Array]:
    return _of_states("smoothed_", result.smoothed_means, result.smoothed_chols)


@_arrays.register
def _of_forecast(result: Forecast, dims: tuple[str, ...] | None) -> dict[str, _Array]:
    pseudo = result.observation_pseudo_covariances
    pseudo = None if pseudo is None else tf.linalg.diag_part(pseudo).numpy()
    variances = real_diagonal(result.observation_covariances).numpy()
    moments = result.observation_means.numpy(), variances, pseudo
    states = _of_states("state_", result.state_means, result.state_chols)
    return states | _moments("observation_", ("component",), *moments)


@_arrays.register
def _of_draws(result: ParameterDraws, dims: tuple[str, ...] | None) -> dict[str, _Array]:
    # The elements of each hyperparameter are its own.
    return {
        name: _Array(draws, tuple(f"{name}_dim_{axis}" for axis in range(draws.ndim - 2)))
        for name, draws in result.items()
    }


def _of_states(prefix: str, means: tf.Tensor, chols: tf.Tensor) -> dict[str, _Array]:
    """The moments of states `[..., T, n]`, from a factor of their form."""
    pseudo = None
    if means.dtype.is_complex:
        columns = tf.linalg.adjoint(chols)
        pseudo = form_of(chols.dtype.is_complex).marginal(columns).c_or_zeros().numpy()
    variances = variances_of(means, chols).numpy()
    return _moments(prefix, ("state",), means.numpy(), variances, pseudo)


def _moments(
    prefix: str,
    components: tuple[str, ...],
    mean: np.ndarray,
    variance: np.ndarray,
    pseudo_variance: np.ndarray | None = None,
) -> dict[str, _Array]:
    """The arrays of a distribution; of a complex one both parts have deviations."""
    moments = {"mean": mean, "variance": variance}
    if np.iscomplexobj(mean):
        pseudo = np.zeros_like(mean) if pseudo_variance is None else pseudo_variance
        moments["pseudo_variance"] = pseudo
        moments["std_real"], moments["std_imag"] = deviations(variance, pseudo.real)
    return {prefix + name: _Array(np.asarray(a), components) for name, a in moments.items()}


# --- rows -----------------------------------------------------------------------------------------


def _checked(dims: Any) -> tuple[str, ...] | None:
    """Checks the names of axes, also for results whose axes need no names."""
    allowed = (("time",), ("time", "component"))
    if dims is None or (isinstance(dims, tuple | list) and tuple(dims) in allowed):
        return dims if dims is None else tuple(dims)
    raise ValueError(f'dims must be ("time",) or ("time", "component"), got {dims!r}')


def _components(dims: tuple[str, ...] | None, shape: tuple[int, ...]) -> tuple[str, ...]:
    if dims is None and len(shape) > 1 and shape[-1] == 1:
        raise ValueError(
            f"the last axis of arrays of shape {shape} may be one component, as of a "
            'KalmanFilter, or one time of several series: say which, dims=("time", '
            '"component") or dims=("time",)'
        )
    return () if dims is None else dims[1:]


def _rows(result: Any, arrays: dict[str, _Array], index: Any) -> _Rows:
    """The rows of arrays, and their index if it fits."""
    shapes = [a.values.shape[: a.values.ndim - len(a.components)] for a in arrays.values()]
    shape = shapes[0]
    if isinstance(result, ParameterDraws):
        if index is not None:
            raise ValueError("index must be None for draws, which belong to no times")
        return _Rows(("chain", "draw"), shape)
    if not shape:
        remedy = "give one of several times, such as Step.stack(steps)"
        raise ValueError(f"the result has no axis of times: {remedy}")
    dims = 'dims=("time", "component")'
    of_filter = f"of outputs or of a KalmanFilter, whose components are the last axis, give {dims}"
    second = next((s for s in shapes if s != shape), None)
    if second is not None:
        pair = f"{shape}, {second}"
        raise ValueError(f"no last axis of times is common to arrays {pair}: {of_filter}")
    if index is not None and np.shape(index) != shape[-1:]:
        hint = f": {of_filter}" if len(shape) > 1 and np.shape(index) == shape[-2:-1] else ""
        raise ValueError(
            f"index must be [{shape[-1]}], an element for each row, for arrays {shape}, whose last "
            f"axis is that of times, got shape {np.shape(index)}{hint}"
        )
    unpaired = len(next(iter(arrays.values())).components)
    _check_index(index, {name: (a, unpaired) for name, a in labelled_moments(result).items()})
    batch = len(shape) - 1
    names = ["batch"] if batch == 1 else [f"batch_{axis}" for axis in range(batch)]
    return _Rows((*names, _name_of(index) or "time"), shape, index)


def _check_index(index: Any, moments: dict[str, tuple[Any, int]]) -> None:
    """Raises for an index with missing elements, or in another order than the moments."""
    if index is None:
        return
    import pandas as pd  # which xarray needs too

    is_masked = np.ma.isMaskedArray(index)
    missing = np.ma.getmaskarray(index) if is_masked else pd.isna(np.asarray(index))
    if np.any(missing):
        place = np.argmax(missing)
        raise ValueError(f"index must be known everywhere, but misses the element at {place}")
    check_same_labels(index=(index, 0), **moments)


def _name_of(index: Any) -> str | None:
    """The name that an index of pandas or a coordinate of xarray has."""
    name = getattr(index, "name", None)
    return None if name is None else str(name)
