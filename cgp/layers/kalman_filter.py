"""The Kalman filter as a layer, and as a model to fit and to run online."""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.distributions.marginals import Step
from cgp.layers.kalman_cell import KalmanCell, output_spec, outputs
from cgp.layers.late_observations import check_of_observation, lagged_state, late_step
from cgp.layers.learned_model import MATRICES, LearnedModel, PresentMatrix, warn_of_offset
from cgp.layers.likelihood_objective import LikelihoodObjective, checked_weight
from cgp.layers.model_config import check_learnable, layers_of, model_config, model_from_config
from cgp.likelihoods import Likelihood
from cgp.linalg.arguments import ArrayLike
from cgp.observations import as_observations, warn_of_short_series
from cgp.online.cell import Outputs, Sample
from cgp.online.online import RunsOnline
from cgp.statespace.forecasting import Forecast
from cgp.statespace.linearization.linearized_model import (
    AnyModel,
    AnyRule,
    checked_rule,
    measurable,
    noise_of,
)
from cgp.statespace.models.model_base import whole_steps
from cgp.statespace.online.online_step import StateArrays, checked_state
from cgp.statespace.series import Series, check_labels
from cgp.training import Model, keras_private
from cgp.training.batches import compile_as_usual
from cgp.training.hyperparameters import Row, notebook_table
from cgp.training.optimizers import LBFGS
from cgp.training.parameters import Parameterized
from cgp.training.saving import Served, from_registered_config, numbered, registered_config


@keras.saving.register_keras_serializable(package="cgp")
class KalmanFilter(RunsOnline, Parameterized, Model):
    """The Kalman filter of a complex or real linear Gaussian model, with some matrices learned.

    Missing elements are NaN in z, or `missing`, or all in steps that a Keras mask calls
    padding. If a layer before this one learns, give `missing`, or set the NaN after that layer: the
    gradient through a NaN would be NaN.

    Called on series `[B, T, M]` it returns a dictionary of moments of state and observation at each
    time, and adds the negative log likelihood, less the log prior, per observed element to the
    losses; gradients pass to the layers on both sides. `fit(z)` learns by that alone. A prior
    counts once in all the data of a `fit` or `evaluate` of a `cgp` model, else once in each call.
    `step(z)` filters online; between calls the state is in the weights, and saved with them.

    For a widely linear model the matrices, shown and learned, are of the real composite,
    `[2n, 2n]` for `[n, n]`: F with F_conj, Q with its pseudo-covariance; of a `NonlinearGaussian`
    the covariances that have a pseudo-covariance.

    Args:
        model: A `cgp.statespace.LinearGaussian`, or a `cgp.statespace.NonlinearGaussian`, of which
            functions that are Keras layers are trained with the filter.
        learn: Names of the matrices to learn, among "F", "H", "Q", "R", "B", "initial_mean" and
            "initial_covariance"; covariances are learned through their factors. Or a dictionary
            from such names to layers: `cgp.layers.Matrix` and `cgp.layers.Covariance`, passed to
            several filters to share it (each counts its priors), or any layer that makes its
            weights in `__init__` and whose `call()`, without arguments, returns the matrix; to be
            shared it derives from `cgp.training.Shareable`.
        loss_weight: Factor of the loss; 0 for no loss.
        rule: How a `NonlinearGaussian` is linearised; `cgp.statespace.Taylor()` if None.
        likelihood: As for `cgp.statespace.filter`; not circular, it makes the model widely linear.
        horizon: How many steps before the latest one are kept, for `step(z, late_by=...)` and
            `lag`; they are not saved, and forgotten when a state is set.
        name: Name of the model.
        dtype: The real dtype of the model, which is also the default.

    Attributes:
        learned: The layers of the learned matrices, by name.

    Raises:
        TypeError: Not a model, or not a layer where one is expected.
        ValueError: Unknown names, or matrices to learn that vary over time.

    Example:
        >>> import numpy as np, cgp
        >>> F = 0.95 * np.exp(0.3j)
        >>> model = cgp.statespace.LinearGaussian([[F]], [[0.1]], [[1.0]], [[1.0]])
        >>> _, z = cgp.statespace.sample(model, 500, seed=1)
        >>> kf = cgp.KalmanFilter(model, learn=("F", "Q", "R"))
        >>> kf.compile(cgp.optimizers.LBFGS())
        >>> history = kf.fit(z, verbose=0)
        >>> bool(abs(kf.F[0, 0] - F) < 0.05)
        True
        >>> step = kf.step(z[0])
        >>> step.filtered.mean.shape
        (1,)
    """

    cell: KalmanCell

    read_only = MappingProxyType(
        {name: f"make a new KalmanFilter of kf.model.replace({name}=...)" for name in MATRICES}
        | dict.fromkeys(("model", "learn"), "make a new KalmanFilter")
    )

    def __init__(
        self,
        model: AnyModel,
        learn: Iterable[str] | Mapping[str, Any] = (),
        loss_weight: float = 1.0,
        rule: AnyRule | None = None,
        likelihood: Likelihood | None = None,
        horizon: int = 0,
        name: str | None = None,
        dtype: str | None = None,
        **kwargs: Any,
    ):
        real = noise_of(model).dtype.real_dtype.name
        if dtype not in (None, real):
            raise TypeError(f"the model is {model.dtype.name}: dtype must be {real}, got {dtype!r}")
        super().__init__(name=name, dtype=real, **kwargs)
        model = measurable(model, likelihood)
        self._start, self.rule, self.likelihood = noise_of(model), rule, likelihood
        checked_rule(rule)
        self.functions = layers_of(model)
        self.loss_weight, self.horizon = (
            checked_weight(loss_weight),
            whole_steps(horizon, "horizon", least=0),
        )
        self.learned_model = LearnedModel(model, learn)
        self.learned = self.learned_model.layers
        self._objective = LikelihoodObjective(self.learned_model.with_priors, real)
        self.batch_count = self._objective.batch_count
        self.cell = KalmanCell(
            self.learned_model, rule, likelihood, self._objective, self.loss_weight
        )
        self.built = True
        self.learned_model.model()  # raises an error if the layers do not fit

    # --- the model -------------------------------------------------------------------------------

    @property
    def model(self) -> AnyModel:
        """A model of the present matrices."""
        return self.learned_model.model()

    F = PresentMatrix("The present transition matrix.")
    Q = PresentMatrix("The present process noise covariance.")
    H = PresentMatrix("The present observation matrix.")
    R = PresentMatrix("The present observation noise covariance.")
    B = PresentMatrix("The present input matrix, or None.")
    initial_mean = PresentMatrix("The present mean of the initial state.")
    initial_covariance = PresentMatrix("The present covariance of the initial state.")

    # --- series ----------------------------------------------------------------------------------

    def __call__(self, z: Any, *args: Any, **kwargs: Any) -> Any:
        """Keras's `__call__`, before which series and what belongs to them still have labels."""
        arguments = {**dict(zip(("missing", "inputs"), args, strict=False)), **kwargs}
        series, inputs = z if isinstance(z, tuple | list) else (z, arguments.get("inputs"))
        check_labels(series, arguments.get("missing"), inputs, along=1)
        return super().__call__(z, *args, **kwargs)

    def call(
        self, z: Any, missing: ArrayLike | None = None, inputs: ArrayLike | None = None
    ) -> dict[str, tf.Tensor]:
        """Filters series.

        Args:
            z: `[B, T, M]`, of the dtype of the model; NaN where missing. Or a pair `(z, inputs)`.
            missing: Bool, broadcast against z: True where missing.
            inputs: Known inputs of a model with B, `[B, T, k]`.

        Returns:
            "predicted_mean", "filtered_mean" and their "…_variance", of the state before and after
            each observation, `[B, T, n]`; "observation_mean", the predicted mean of the
            observation, "innovation", z less this mean, NaN where missing, and
            "innovation_variance", `[B, T, M]`. For a widely linear model also "…_pseudo_variance".
        """
        if isinstance(z, tuple | list):
            z, inputs = z
        moments, loss = self._filtered(z, missing, inputs)
        if loss is not None:
            self.add_loss(loss)
        return moments

    def _filtered(
        self, z: Any, missing: ArrayLike | None, inputs: ArrayLike | None
    ) -> tuple[dict[str, tf.Tensor], tf.Tensor | None]:
        """The moments of series at the present matrices, and their loss."""
        mask = keras_private.get_keras_mask(z)
        if mask is not None:  # True is valid, by step
            padding = tf.math.logical_not(mask)[..., None]
            missing = padding if missing is None else tf.math.logical_or(missing, padding)
        series, result, loss = self.cell.filtered(self.learned_model.model(), z, missing, inputs)
        return outputs(series, result), loss

    def compute_output_spec(
        self, z: Any, missing: Any = None, inputs: Any = None
    ) -> dict[str, keras.KerasTensor]:
        """The shapes and dtypes that `call` returns in a functional model."""
        shape = (z[0] if isinstance(z, tuple | list) else z).shape[:-1]
        return output_spec(self._start, shape)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:
        """The mask of the series, if they have one, for each of the outputs."""
        masks = keras.tree.flatten(previous_mask)
        if not masks or masks[0] is None:
            return None
        return dict.fromkeys(self.compute_output_spec(inputs), masks[0])

    def predict(  # type: ignore[override]
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: int | str = 0,
        *,
        missing: ArrayLike | None = None,
        **kwargs: Any,
    ) -> dict[str, np.ndarray]:
        """Returns the dictionary of `call` as NumPy arrays; series as for `fit`."""
        return super().predict(self._batch(x, missing), batch_size, verbose, **kwargs)

    # --- learning --------------------------------------------------------------------------------

    def _batch(self, x: Any, missing: ArrayLike | None) -> Any:
        """Series as Keras takes them: with a batch axis, and NaN where missing; datasets as is."""
        if x is None:
            raise TypeError(
                "z is missing: series were expected, [B, T, M], [T, M], or [T] where M is 1"
            )
        if isinstance(x, tuple | tf.data.Dataset) and missing is not None:
            raise ValueError("missing is for one array of series: set NaN in them instead")
        if isinstance(x, tf.data.Dataset):
            return x
        inputs: list[Any] = []
        if isinstance(x, tuple):
            series, *inputs = x
            check_labels(series, None, inputs[0] if inputs else None, along=1)
            z = as_observations(series, None, self._start.series_dtype, promote=True)
        else:
            z = Series(self._start, x, missing).observations().numpy()
        if self.likelihood is not None:
            self.likelihood.check(np.asarray(z))
        if isinstance(x, tuple):
            return (z, *inputs)
        return z[None] if z.ndim == 2 else z

    def _learnable(self, x: Any, y: Any, missing: ArrayLike | None, engine: Any = None) -> Any:
        """The data of `fit` or `evaluate` for series x; compiles the model if it is not."""
        if y is not None:
            raise TypeError(
                "a KalmanFilter learns from series alone, fit(z): its steps are regular, and have "
                "no times x. For samples at times of their own there is cgp.StateSpaceGP"
            )
        x = self._batch(x, missing) if engine is None else x
        if isinstance(x, np.ndarray) and np.isnan(x).all():
            raise ValueError("every element of z is missing: there is nothing to learn from")
        compile_as_usual(self)
        return x

    def batch_of_shard(self, shard: Any) -> tuple[Any, float]:
        """Series in the form of a batch, and the number of their observations."""
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
                list of such data, or of objects that the engine turns into them.
            y: None: a filter learns from series alone.
            missing: Bool, broadcast against x: True where missing.
            engine: The engine that gives shards of data to workers, as for `cgp.Model.fit`.
            *args: Further arguments of Keras's `fit`.
            **kwargs: The same, by name.

        Warns:
            RuntimeWarning: More series than samples in each, as where axes are the other way
                round; observations far from zero, of a model without a constant state.

        Returns:
            Keras's `History`.

        Raises:
            TypeError: Targets y.
            ValueError: Nothing to learn; series that `cgp.statespace.filter` refuses, or none that
                is observed; `missing` beside several arrays; and what `cgp.Model.fit` refuses.
        """
        if engine is not None and missing is not None:
            raise ValueError("missing is for one array of series: set NaN in those of the shards")
        x = self._learnable(x, y, missing, engine)
        if isinstance(x, np.ndarray) and np.sum(~np.isnan(x)) == 1:
            raise ValueError(
                "z has one element that is not missing, and nothing can be learned from one: fit "
                "more, or filter with the matrices that were given"
            )
        check_learnable(self.learned_model.start, self)
        z = x[0] if isinstance(x, tuple) else x
        if isinstance(z, np.ndarray) and z.ndim == 3:
            warn_of_short_series(*z.shape[:2])
            if self.likelihood is None:
                warn_of_offset(self.learned_model.start, z)
        return super().fit(x, y, *args, engine=engine, **kwargs)  # type: ignore[misc]

    def evaluate(
        self, x: Any = None, y: None = None, *args: Any, missing: Any = None, **kwargs: Any
    ) -> Any:
        """The loss, as in `fit`."""
        return super().evaluate(self._learnable(x, y, missing), y, *args, **kwargs)

    def parameter_errors(
        self, x: Any, missing: Any = None, *, verbose: int | str = "auto"
    ) -> dict[str, np.ndarray]:
        """Standard errors of the learned matrices, by Laplace's approximation at convergence.

        Args:
            x: The series of the fit, as for `fit`, but not a dataset: a filter keeps no data.
            missing: Bool, broadcast against x: True where missing.
            verbose: 0 is silent, 1 a progress bar; "auto" is one in a terminal or a notebook.

        Returns:
            NumPy arrays by the names in `learn`, shaped like `kf.F`, `kf.Q`, …: complex with the
            errors of both parts if the matrix is complex, zero for elements that are fixed.

        Raises:
            TypeError: A dataset.
            ValueError: Nothing is learned, a `loss_weight` of 0, or series that `fit` refuses.
            NotPositiveDefiniteError: A direction that the data do not determine, which it names.

        Example:
            >>> import cgp
            >>> model = cgp.statespace.LinearGaussian([[0.9j]], [[0.19]], [[1.0]], [[0.1]])
            >>> z = cgp.statespace.sample(model, 200, seed=1).observations
            >>> kf = cgp.KalmanFilter(model, learn="F")
            >>> history = kf.fit(z, verbose=0)
            >>> abs(kf.parameter_errors(z, verbose=0)["F"]).round(2)
            array([[0.03]])
        """
        if isinstance(x, tf.data.Dataset):
            raise TypeError("parameter_errors takes the series themselves, not a dataset of them")
        batch, count = self.batch_of_shard(self._learnable(x, None, missing))
        return self.learned_model.errors(self, batch, count, verbose)

    def apply_post_updates(self) -> None:
        """Runs the post updates; eagerly raises where the matrices are of no filter any more."""
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

    # --- online ----------------------------------------------------------------------------------

    def step(
        self,
        z: ArrayLike,
        missing: ArrayLike | None = None,
        inputs: ArrayLike | None = None,
        *,
        F: ArrayLike | None = None,
        Q: ArrayLike | None = None,
        H: ArrayLike | None = None,
        R: ArrayLike | None = None,
        gate: float | None = None,
        late_by: int | None = None,
    ) -> Step:
        """Predicts an observation, then updates the state with it.

        F, Q, H and R take the place of the model's matrices for this step alone, learned ones
        included: H and R belong to this observation, F and Q lead from it to the next one, like the
        inputs. Where the way to an observation is known only when it comes, take two steps: one
        with F, Q and NaN for z leads to its time, and `step(z, F=identity, Q=zeros)` updates there.

        Args:
            z: `[M]`, or a number where M is 1, or `[B, M]` of B streams, as the first call decides;
                NaN where missing.
            missing: Bool, broadcast against z: True where missing.
            inputs: Inputs to the next z, of a model with B: `[k]`, `[B, k]`, or a number if k is 1.
            F: Transition matrix, `[n, n]`, or `[B, n, n]` of B streams.
            Q: Covariance of the process noise, likewise; Q and R alone for a `NonlinearGaussian`.
            H: Observation matrix, `[M, n]` or `[B, M, n]`.
            R: Covariance of the observation noise, `[M, M]` or `[B, M, M]`. For a widely linear
                model each is a matrix of the real composite, `[2M, 2n]`; or a complex one of a
                linear map or of circular noise, `[M, n]`.
            gate: A probability, such as 0.999: an observation outside of the gate that a right one
                misses with one minus this probability is skipped, as if it were missing, and the
                step says so in `outside_gate` (see `cgp.metrics.gate`).
            late_by: For an observation of an earlier time, how many steps before the latest one, at
                most the `horizon` of the filter. Components that were missing then are filled in,
                others are a further observation of that state, by the H and R of that time unless
                they have their own. Later observations are taken again, so that all is as if it had
                come in order, but for decisions of gates, which stay. The step is of its own time.

        Returns:
            `Step`, NumPy: `predicted` is the one-step prediction of z (with an `Iterated` rule or a
            likelihood, of an approximation of z, and a forecast only where z is missing),
            `innovation` z minus its mean, `filtered` the state after the update. The first and last
            are `(mean, variance, pseudo_variance)`; `innovation_covariance` and `nis` are of all
            components together.

        Raises:
            TypeError: A real observation of a complex model, or a complex one of a real model.
            ValueError: A shape that does not fit the stream; infinite values; a model that varies
                over time; matrices that are not finite; F or H of a model of functions; a
                probability not between 0 and 1; an observation later than the horizon, or with
                inputs, F, Q or a gate. The state is then unchanged.

        Example:
            >>> import numpy as np, cgp
            >>> channel = cgp.statespace.LinearGaussian(
            ...     0.99 * np.eye(2), 0.01 * np.eye(2), [[1.0, 0.0]], [[0.1 + 0j]])
            >>> kf = cgp.KalmanFilter(channel)
            >>> step = kf.step(0.9 + 0.2j, H=[[1.0, 1.0j]])  # two pilots, a row of each time
            >>> step.innovation_covariance.round(2)
            array([[1.11+0.j]])
        """
        matrices = None
        if F is not None or Q is not None or H is not None or R is not None:
            matrices = {"F": F, "Q": Q, "H": H, "R": R}
        if late_by is not None:
            check_of_observation(inputs=inputs, F=F, Q=Q, gate=gate)
            sample, streams = self.cell.check(Sample(z), missing, has_inputs=False)
            if self.stream is not None:
                self.stream.check_number(streams, "z")
            sample = self.cell.with_matrices(sample, matrices or {})
            return late_step(self.cell, self.stream, sample, late_by)
        sample = Sample(z, inputs=inputs)
        return self._take_sample(sample, missing, matrices=matrices, gate=gate)

    def lag(self, steps: int) -> StateArrays:
        """The state some steps ago given all observations since: a fixed-lag smoother.

        Called after each step it lags behind by as much, and knows the more. The cost does not grow
        with the series; a call takes some ten milliseconds, as `statespace.smooth` does.

        Args:
            steps: How many steps before the latest one, at most the `horizon` of the filter; 0 for
                the filtered state.

        Returns:
            `(mean, chol)`, NumPy, in the form of `state`; equal to the smoothed state of the whole
            series so far.

        Raises:
            ValueError: Steps beyond the horizon, or before the first observation.

        Example:
            >>> import numpy as np, cgp
            >>> from cgp import statespace
            >>> walk = statespace.LinearGaussian([[1.0]], [[1.0]], [[1.0]], [[2.0]], [0.0], [[2.0]])
            >>> kf = cgp.KalmanFilter(walk, horizon=2)
            >>> for z in [1.0, 2.0, 4.0]:
            ...     step = kf.step(z)
            >>> smoothed = statespace.smooth(walk, np.array([1.0, 2.0, 4.0])).smoothed_means
            >>> bool(np.allclose(kf.lag(1).mean, smoothed[1]))
            True
        """
        return lagged_state(self.cell, self.stream, steps)

    def process(
        self,
        z: ArrayLike,
        missing: ArrayLike | None = None,
        inputs: ArrayLike | None = None,
        *,
        F: ArrayLike | None = None,
        Q: ArrayLike | None = None,
        H: ArrayLike | None = None,
        R: ArrayLike | None = None,
    ) -> Step:
        """Filters a block of observations: `step` for each, in one compiled loop.

        Args:
            z: `[T, M]`, `[T]` where M is 1, or `[B, T, M]`; NaN where missing.
            missing: Bool, broadcast against z.
            inputs: `[T, k]` or `[B, T, k]`.
            F: Transition matrices, one a time, `[T, n, n]` or `[B, T, n, n]`; or `[n, n]`.
            Q: Covariances of the process noise, likewise.
            H: Observation matrices, `[T, M, n]`, `[B, T, M, n]` or `[M, n]`.
            R: Covariances of the observation noise, likewise.

        Returns:
            As `step`, stacked over time; errors as for `step`.
        """
        matrices = {"F": F, "Q": Q, "H": H, "R": R}
        return self._take_block(Sample(z, inputs=inputs), missing, matrices=matrices)

    @property
    def state(self) -> StateArrays:
        """The state predicted for the next observation: `(mean, chol)`, NumPy.

        `[n]` and `[n, n]`, or of B streams `[B, n]` and `[B, n, n]`; of a widely linear model the
        mean is complex and the factor of the real composite, `[..., 2n, 2n]`.
        """
        return super().state

    def set_state(self, mean: ArrayLike, chol: ArrayLike) -> None:
        """Sets the state predicted for the next observation, in the form of `state`.

        After `cgp.statespace.filter` this is the prediction of a one-step forecast.

        Args:
            mean: `[n]`, or `[B, n]` of B streams; the first state or observation decides.
            chol: The Cholesky factor of the covariance, as in `state`.

        Raises:
            TypeError: Not numbers, more precise than the model, or complex for a real one.
            ValueError: Shapes that do not fit the model or the streams, values that are not finite,
                a factor that is not lower triangular with a diagonal that is real and not negative;
                the state is unchanged.
        """
        mean, chol = checked_state(self._start, (mean, chol))
        if not {mean.shape.rank - 1, chol.shape.rank - 2} <= {0, 1}:
            raise ValueError(
                f"a state has at most one batch axis, got shapes {mean.shape} and {chol.shape}"
            )
        streams = {a.shape[0] for a, rank in ((mean, 1), (chol, 2)) if a.shape.rank > rank}
        if len(streams) > 1:
            raise ValueError(
                f"mean and chol must have one batch axis, got shapes {mean.shape} and {chol.shape}"
            )
        stream = self._make_stream(streams.pop() if streams else None)
        stream.set(self.cell.from_stored([mean, chol]))

    def reset(self) -> None:
        """Resets all streams to the initial state: by the matrices of the next observation."""
        super().reset()

    def forecast(self, steps: int, inputs: ArrayLike | None = None) -> Forecast:
        """Forecasts states and observations from the present state, which stays as it is.

        Args:
            steps: The number of steps, at least 1; the first is for the next observation.
            inputs: Known inputs of a model with B, `[steps, k]`, or `[B, steps, k]` of B streams:
                the first leads from the next observation to the one after it.

        Returns:
            A `Forecast`, NumPy, `[steps, ...]` or `[B, steps, ...]`: see `cgp.statespace.forecast`.

        Raises:
            ValueError: Steps that are no whole number, at least 1; inputs that do not fit.

        Example:
            >>> import numpy as np, cgp
            >>> LinearGaussian = cgp.statespace.LinearGaussian
            >>> model = LinearGaussian([[1j]], [[0.0]], [[1.0]], [[1.0]], [1.0], [[1.0]])
            >>> cgp.KalmanFilter(model).forecast(3).observation_means[:, 0]
            array([ 1.+0.j,  0.+1.j, -1.+0.j])
        """
        return self.cell.forecast(self.state, steps, inputs)

    def _served(self) -> Served:
        spec = self.cell.sample_spec()
        specs = [spec.z] if spec.inputs is None else [spec.z, spec.inputs]
        arguments = [tf.TensorSpec([None, None, *a.shape], a.dtype, a.name) for a in specs]

        def predict(_: StateArrays, z: tf.Tensor, inputs: tf.Tensor | None = None) -> Outputs:
            # Not `call`, whose loss the filter would keep, a tensor of this graph.
            return self._filtered(z, None, inputs)[0]

        return self._served_with(predict, arguments)

    # --- serialisation ---------------------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, complex numbers as [re, im], and the number of streams."""
        return {
            "model": model_config(self.learned_model.start),
            "rule": registered_config(self.rule),
            "likelihood": registered_config(self.likelihood),
            "learn": {k: keras.saving.serialize_keras_object(v) for k, v in self.learned.items()},
            "loss_weight": self.loss_weight,
            "horizon": self.horizon,
            "streams": None if self.stream is None else [self.stream.streams],
            "name": self.name,
            "trainable": self.trainable,
        }

    @classmethod
    def from_config(cls, config: dict, custom_objects: dict | None = None) -> "KalmanFilter":
        """Makes the filter of a config."""
        config = dict(config)
        streams = config.pop("streams", None)
        learn = {k: keras.saving.deserialize_keras_object(v) for k, v in config["learn"].items()}
        config |= {"model": model_from_config(config["model"]), "learn": learn}
        config |= {k: from_registered_config(config.get(k)) for k in ("rule", "likelihood")}
        return cls._with_streams(config, streams)

    def save_own_variables(self, store: Any) -> None:
        """The state of the streams, and their number, for a filter that has none yet."""
        super().save_own_variables(store)
        if self.stream is not None:
            store["streams"] = np.array(self.stream.streams or 0)

    def load_own_variables(self, store: Any) -> None:
        """Reads the state of the streams, and makes them where there are none.

        Raises:
            ValueError: A state that this filter could not have saved; its own is unchanged.
        """
        weights = numbered(store)
        if {"0", "1"} <= set(weights):  # before streams are made, which would stay
            self.cell.check_saved([weights[key] for key in "01"])
        if self.stream is None and "streams" in store:
            self._make_stream(int(np.asarray(store["streams"])) or None)
        self._load_state(weights, super().load_own_variables)

    def __repr__(self) -> str:
        learned = f", learns {', '.join(self.learned)}" if self.learned else ""
        return f"KalmanFilter({self.learned_model.start!r}{learned})"

    def _repr_html_(self) -> str:
        return notebook_table("KalmanFilter", self._rows())

    def _rows(self) -> Iterator[Row]:
        """The model, how it is linearised, the present learned matrices, and the streams."""
        yield Row("model", repr(self.learned_model.start))
        for name in ("rule", "likelihood"):
            if getattr(self, name) is not None:
                yield Row(name, repr(getattr(self, name)))
        yield from self.learned_model.rows()
        yield Row("streams", "none yet" if self.stream is None else str(self.stream.streams or 1))
