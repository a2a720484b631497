"""The moments that a Kalman filter returns as a layer, by name."""

import keras
import tensorflow as tf

from cgp.linalg.arguments import real_diagonal
from cgp.statespace.engines.chunked_engine import StateMoments
from cgp.statespace.filtering import observation_moments, observed_means
from cgp.statespace.models.linear_gaussian import LinearGaussian
from cgp.statespace.series import Series


def outputs(series: Series, found: StateMoments) -> dict[str, tf.Tensor]:
    """The moments of state and innovation; see `KalmanFilter.call`.

    Args:
        series: The series.
        found: What the filter has found in them.
    """
    model = series.model
    observed = observed_means(model, found.predicted_means)
    named = {
        "predicted_mean": model.form.join(found.predicted_means),
        "filtered_mean": model.form.join(found.filtered_means),
        "observation_mean": model.observation_form.join(observed),
        "innovation": series.innovations(observed),
    }
    second = {
        "predicted": model.form.moments(found.predicted_covariances),
        "filtered": model.form.moments(found.filtered_covariances),
        "innovation": observation_moments(model, found),
    }
    for name, pair in second.items():
        named[f"{name}_variance"] = series.of_each(real_diagonal(pair.k), 2)
        if pair.c is not None:
            named[f"{name}_pseudo_variance"] = series.of_each(tf.linalg.diag_part(pair.c), 2)
    return named


def output_spec(model: LinearGaussian, shape: tuple) -> dict[str, keras.KerasTensor]:
    """The shapes and dtypes of `outputs`.

    Args:
        model: The model.
        shape: Batch and time axes of the series, `(B, T)`.
    """
    state = ((*shape, model.state_size), model.state_dtype.name, model.form)
    seen = ((*shape, model.observation_size), model.series_dtype.name, model.observation_form)
    spec = {"observation_mean": keras.KerasTensor(seen[0], seen[1])}
    for name in ("predicted", "filtered", "innovation"):
        value = name if name == "innovation" else f"{name}_mean"
        own, dtype, form = seen if name == "innovation" else state
        spec[value] = keras.KerasTensor(own, dtype)
        spec[f"{name}_variance"] = keras.KerasTensor(own, model.dtype.real_dtype.name)
        if form.multiplicity > 1:
            spec[f"{name}_pseudo_variance"] = keras.KerasTensor(own, dtype)
    return spec
