"""How a Kalman filter learns: Keras's methods of training, on series."""

import warnings
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.layers.likelihood_objective import check_learnable
from cgp.layers.model_functions import check_variables
from cgp.likelihoods import Likelihood
from cgp.linalg.arguments import ArrayLike
from cgp.observations import as_observations, warn_of_short_series
from cgp.statespace.models.linear_gaussian import LinearGaussian
from cgp.statespace.series import Series, check_labels
from cgp.training.batches import compile_as_usual
from cgp.training.optimizers import LBFGS

_FAR = 100.0  # |mean|² beside the variance, of an offset
_FEW = 3  # samples, which may all be far from zero

# To mypy, a class whose attributes are all known to exist; in truth the model comes after it.
_Base: Any = object


class LearnsFromSeries(_Base):
    """A mixin before a `cgp.Model` that has a learned model and a `LikelihoodObjective`."""

    def _batch(self, x: Any, missing: ArrayLike | None) -> Any:
        return _batch_of_series(self._start, self.likelihood, x, missing)

    def batch_of_shard(self, shard: Any) -> tuple[Any, float]:
        """Series as those of a batch, and the number of their observations."""
        x = self._batch(shard, None)
        z = np.asarray(x[0] if isinstance(x, tuple) else x)
        return tf.nest.map_structure(tf.convert_to_tensor, x), float(np.sum(~np.isnan(z)))

    def compile(self, optimizer: Any = None, *args: Any, **kwargs: Any) -> None:
        """Keras's `compile`; the optimizer is `cgp.optimizers.LBFGS()` if None."""
        super().compile(LBFGS() if optimizer is None else optimizer, *args, **kwargs)

    def fit(
        self,
        x: Any = None,
        y: None = None,
        *args: Any,
        missing: Any = None,
        engine: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Learns from series, by their likelihood: Keras's `fit`, `LBFGS` if not compiled.

        Args:
            x: `[B, T, M]`, `[T, M]`, or `[T]` where M is 1; NaN where missing. Or a pair of series
                `[B, T, M]` and of inputs `[B, T, k]`; or a dataset of batches. With an engine, a
                list of such data, or of what the engine turns into them.
            y: None: a filter learns from series alone.
            *args: Further arguments of Keras's `fit`.
            missing: Bool, broadcast against x: True where missing.
            engine: What shares the shards of data out among workers, as for `cgp.Model.fit`.
            **kwargs: Further arguments of Keras's `fit`.

        Warns:
            RuntimeWarning: More series than samples in each, as where axes are the other way
                round; observations far from zero, of a model without a constant state.

        Returns:
            Keras's `History`.

        Raises:
            TypeError: Targets y.
            ValueError: Series that `cgp.statespace.filter` refuses, or none that is observed;
                `missing` beside more than one array; and what `cgp.Model.fit` refuses.
        """
        if engine is not None and missing is not None:
            raise ValueError("missing is for one array of series: set NaN in those of the shards")
        x = self._batch(x, missing) if y is None and engine is None else x
        check_learnable(self, x, y)
        compile_as_usual(self)
        if isinstance(x, np.ndarray) and np.sum(~np.isnan(x)) == 1:
            raise ValueError(
                "z has one element that is not missing, and nothing can be learned from one: fit "
                "more, or filter with the matrices that were given"
            )
        check_variables(self.learned_model.start, self.variables)
        z = x[0] if isinstance(x, tuple) else x
        if isinstance(z, np.ndarray) and z.ndim == 3:
            warn_of_short_series(*z.shape[:2])
            if self.likelihood is None:
                _warn_of_offset(self.learned_model.start, z)
        return super().fit(x, y, *args, engine=engine, **kwargs)

    def evaluate(
        self, x: Any = None, y: None = None, *args: Any, missing: Any = None, **kwargs: Any
    ) -> Any:
        """The loss, as in `fit`."""
        x = self._batch(x, missing) if y is None else x
        check_learnable(self, x, y)
        compile_as_usual(self)
        return super().evaluate(x, y, *args, **kwargs)

    def apply_post_updates(self) -> None:
        """See `cgp.Model`; eagerly an error where the matrices are those of no filter any more."""
        super().apply_post_updates()
        if tf.executing_eagerly():
            self.learned_model.model()

    def train_step(self, data: Any) -> dict[str, Any]:
        """Keras's `train_step`; the mean loss weighs batches by their observed elements."""
        with self._objective.of_step(self, data):
            return super().train_step(data)

    def test_step(self, data: Any) -> dict[str, Any]:
        """Keras's `test_step`; the mean loss weighs batches by their observed elements."""
        with self._objective.of_step(self, data):
            return super().test_step(data)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compiles a loaded model."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)


def _warn_of_offset(model: Any, z: np.ndarray) -> None:
    """Warns of observations `[B, T, M]` far from zero that no state of a linear model stays at."""
    if not isinstance(model, LinearGaussian) or model.B is not None or model.F.shape.rank != 2:
        return
    enough = np.sum(~np.isnan(z), axis=1) > _FEW
    if np.min(np.abs(np.linalg.eigvals(model.F.numpy()) - 1.0)) * z.shape[1] < 1.0:
        return
    values = np.where(enough[:, None], z, 0.0)
    means, deviations = np.nanmean(values, axis=1), np.nanstd(values, axis=1)
    far = np.abs(means) ** 2 - _FAR * deviations**2
    worst = np.unravel_index(np.argmax(far), far.shape)
    if far[worst] > 0.0:
        warnings.warn(
            f"z is far from zero: its mean is {means[worst]:.4g}, beside a standard deviation of "
            f"{deviations[worst]:.2g}, and the model has no state that stays as it is, as F has no "
            "eigenvalue 1. What is learned would be stretched over that, and forecasts be wrong: "
            "subtract the mean from z, or give the model a constant state, F=block_diag(F, 1), "
            "Q=block_diag(Q, 0), H=hstack([H, 1]) and a wide initial covariance",
            RuntimeWarning,
            stacklevel=3,
        )


def _batch_of_series(
    model: LinearGaussian, likelihood: Likelihood | None, x: Any, missing: ArrayLike | None
) -> Any:
    """Series as Keras takes them: with a batch axis, and NaN where missing.

    Args:
        model: The model.
        likelihood: That of the observations, or None.
        x: One series or several, as for `statespace.filter`; or a tuple of series and inputs, whose
            axes are left as they are; or a dataset, which is left as it is.
        missing: Bool, broadcast against x; None if only NaN are missing.

    Raises:
        TypeError, ValueError: As `statespace.filter`; `missing` beside more than series.
    """
    if x is None:
        raise TypeError(
            "z is missing: series were expected, [B, T, M], [T, M], or [T] where M is 1"
        )
    if isinstance(x, tuple | tf.data.Dataset) and missing is not None:
        raise ValueError("missing is for one array of series: set NaN in them instead")
    if isinstance(x, tf.data.Dataset):
        return x
    if isinstance(x, tuple):
        series, *inputs = x
        check_labels(series, None, inputs[0] if inputs else None, along=1)
        z = as_observations(series, None, model.series_dtype, promote=True)
    else:
        z = Series(model, x, missing).observations().numpy()
    if likelihood is not None:
        likelihood.check(np.asarray(z))
    if isinstance(x, tuple):
        return (z, *inputs)
    return z[None] if z.ndim == 2 else z
