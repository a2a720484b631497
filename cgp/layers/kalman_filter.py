"""The Kalman filter as a layer, and as a model to fit and to run online."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.distributions.marginals import Step
from cgp.layers.filter_outputs import output_spec, outputs
from cgp.layers.filter_rows import filter_rows
from cgp.layers.filter_training import LearnsFromSeries
from cgp.layers.kalman_cell import KalmanCell
from cgp.layers.learned_model import LearnedModel, PresentMatrix
from cgp.layers.likelihood_objective import LikelihoodObjective
from cgp.layers.model_config import model_config, model_from_config
from cgp.layers.model_functions import layers_of, rules_config, rules_from_config
from cgp.likelihoods import Likelihood
from cgp.linalg.arguments import ArrayLike
from cgp.online.cell import Outputs, Sample
from cgp.online.online import RunsOnline, Stream
from cgp.statespace.forecasting import Forecast
from cgp.statespace.linearization.linearized_model import (
    AnyModel,
    AnyRule,
    checked_rule,
    measurable,
    noise_of,
)
from cgp.statespace.online.stream_samples import StateArrays, checked_state
from cgp.statespace.series import check_labels
from cgp.training import Model, keras_private
from cgp.training.batches import require_one_replica
from cgp.training.hyperparameters import one_number
from cgp.training.notebook_table import notebook_table
from cgp.training.parameters import Parameterized
from cgp.training.saving import numbered
from cgp.training.serving import Served


@keras.saving.register_keras_serializable(package="cgp")
class KalmanFilter(RunsOnline, LearnsFromSeries, Parameterized, Model):
    """The Kalman filter of a complex or real linear Gaussian model, some matrices of it learned.

    Missing elements are NaN in z, or `missing`, or all those of steps that a Keras mask calls
    padding. If a layer before this one learns, give `missing`, or set the NaN after that layer: the
    gradient through a NaN would be NaN.

    Called on series `[B, T, M]` it returns a dictionary of moments of state and observation at each
    time, and adds the negative log likelihood, less that of the priors, per observed element to the
    losses; it sits between other layers, and passes gradients to both sides. `fit(z)` learns by
    that alone. A prior counts once in all the data of a `fit` or `evaluate` of a `cgp` model, else
    once in each call. `step(z)` filters online; between calls the state is in the weights, and
    saved with them.

    For a widely linear model the matrices, shown and learned, are those of the real composite,
    `[2n, 2n]` for `[n, n]`: F with F_conj, Q with its pseudo-covariance. Of a `NonlinearGaussian`
    those covariances are, that have a pseudo-covariance.

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
        {
            **{
                name: f"make a new KalmanFilter of kf.model.replace({name}=...)"
                for name in ("F", "Q", "H", "R", "B", "initial_mean", "initial_covariance")
            },
            **dict.fromkeys(("model", "learn"), "make a new KalmanFilter"),
        }
    )

    def __init__(
        self,
        model: AnyModel,
        learn: Iterable[str] | Mapping[str, Any] = (),
        loss_weight: float = 1.0,
        rule: AnyRule | None = None,
        likelihood: Likelihood | None = None,
        name: str | None = None,
        dtype: str | None = None,
        **kwargs: Any,
    ):
        own = noise_of(model).dtype.real_dtype.name
        if dtype not in (None, own):
            raise TypeError(f"the model is {model.dtype.name}: dtype must be {own}, got {dtype!r}")
        super().__init__(name=name, dtype=own, **kwargs)
        model = measurable(model, likelihood)
        self._start, self.rule, self.likelihood = noise_of(model), rule, likelihood
        checked_rule(rule)
        self.functions = layers_of(model)
        self.loss_weight = float(np.asarray(one_number(loss_weight, "loss_weight")))
        if not 0.0 <= self.loss_weight < np.inf:
            raise ValueError(f"loss_weight must be finite and not negative, got {loss_weight!r}")
        self.learned_model = LearnedModel(model, learn)
        self.learned = self.learned_model.layers
        self._objective = LikelihoodObjective(self.learned_model.with_priors, own)
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
        others = {**dict(zip(("missing", "inputs"), args, strict=False)), **kwargs}
        series, inputs = z if isinstance(z, tuple | list) else (z, others.get("inputs"))
        check_labels(series, others.get("missing"), inputs, along=1)
        return super().__call__(z, *args, **kwargs)

    def call(
        self, z: Any, missing: ArrayLike | None = None, inputs: ArrayLike | None = None
    ) -> dict[str, tf.Tensor]:
        """Filters series.

        Args:
            z: `[B, T, M]`, of the dtype of the model; NaN where missing. Or a pair of series
                and inputs.
            missing: Bool, broadcast against z: True where missing.
            inputs: Known inputs of a model with B, `[B, T, k]`.

        Returns:
            "predicted_mean", "filtered_mean" and their "…_variance", of the state before and after
            each observation, `[B, T, n]`; "observation_mean", that of the observation before it
            was seen, "innovation", what came less it, NaN where missing, and
            "innovation_variance", `[B, T, M]`. Of a widely linear model "…_pseudo_variance" too.
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

    # --- online ----------------------------------------------------------------------------------

    def _make_stream(self, streams: int | None, name: str = "the state") -> Stream:
        require_one_replica(self, "a KalmanFilter that runs online")
        return super()._make_stream(streams, name)

    def step(
        self, z: ArrayLike, missing: ArrayLike | None = None, inputs: ArrayLike | None = None
    ) -> Step:
        """Predicts an observation, then updates the state with it.

        Args:
            z: `[M]`, or a number where M is 1, or `[B, M]` of B streams; NaN where missing. The
                first call decides.
            missing: Bool, broadcast against z: True where missing.
            inputs: Of a model with B, `[k]`, or a number where k is 1, or `[B, k]`: from this
                observation to the next.

        Returns:
            `Step(predicted, innovation, filtered)`, NumPy: `predicted` is the one-step prediction
            of z (by an `Iterated` rule or a likelihood it is of what stands for z, and a forecast
            only where z is missing),
            `innovation` z minus its mean, `filtered` the state after the update. The first and last
            are `(mean, variance, pseudo_variance)`.

        Raises:
            TypeError: A real observation of a complex model, or a complex one of a real model.
            ValueError: A shape that does not fit the stream; infinite values; a model that varies
                over time; matrices that are not finite. The state is then unchanged.
        """
        return self._take_sample(Sample(z, inputs=inputs), missing)

    def process(
        self, z: ArrayLike, missing: ArrayLike | None = None, inputs: ArrayLike | None = None
    ) -> Step:
        """Filters a block of observations: `step` for each, in one compiled loop.

        Args:
            z: `[T, M]`, `[T]` where M is 1, or `[B, T, M]`; NaN where missing.
            missing: Bool, broadcast against z.
            inputs: `[T, k]` or `[B, T, k]`.

        Returns:
            As `step`, stacked over time; errors as for `step`.
        """
        return self._take_block(Sample(z, inputs=inputs), missing)

    @property
    def state(self) -> StateArrays:
        """The state predicted for the next observation: `(mean, chol)`, NumPy.

        `[n]` and `[n, n]`, or of B streams `[B, n]` and `[B, n, n]`; of a widely linear model the
        mean is complex and the factor that of the real composite, `[..., 2n, 2n]`.
        """
        return super().state

    def set_state(self, mean: ArrayLike, chol: ArrayLike) -> None:
        """Sets the state predicted for the next observation, in the form of `state`.

        After `cgp.statespace.filter` this is what a forecast of one step predicts.

        Args:
            mean: `[n]`, or `[B, n]` of B streams; the first state or observation decides.
            chol: Its Cholesky factor, `[n, n]` or `[B, n, n]`; of a widely linear model that of the
                real composite, `[..., 2n, 2n]`.

        Raises:
            TypeError: Not numbers, more precise than the model, or complex for a real one.
            ValueError: Shapes that do not fit the model or the streams, values that are not finite,
                a factor that is not lower triangular with a diagonal that is real and not negative.
                The state is unchanged.
        """
        mean, chol = checked_state(self._start, (mean, chol))
        self._make_stream(_streams_of(mean, chol)).write(self.cell.from_stored([mean, chol]))

    def reset(self) -> None:
        """Resets all streams to the initial state: by the matrices of the next observation."""
        super().reset()

    def forecast(self, steps: int, inputs: ArrayLike | None = None) -> Forecast:
        """Forecasts states and observations from the present state, which stays as it is.

        Args:
            steps: The number of steps, at least 1; the first is that of the next observation.
            inputs: Known inputs of a model with B, `[steps, k]`, or `[B, steps, k]` of B streams:
                the first leads from the next observation to the one after it.

        Returns:
            A `Forecast` of NumPy arrays, `[steps, ...]` or `[B, steps, ...]`, as from
            `cgp.statespace.forecast`.

        Raises:
            TypeError: Steps that are no integer.
            ValueError: Steps below 1; inputs that do not fit.

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
        learn = {
            name: keras.saving.serialize_keras_object(layer) for name, layer in self.learned.items()
        }
        return {
            "model": model_config(self.learned_model.start),
            **rules_config(self.rule, self.likelihood),
            "learn": learn,
            "loss_weight": self.loss_weight,
            "streams": None if self.stream is None else [self.stream.streams],
            "name": self.name,
            "trainable": self.trainable,
        }

    @classmethod
    def from_config(cls, config: dict, custom_objects: dict | None = None) -> "KalmanFilter":
        """Makes the filter of a config."""
        config = dict(config)
        streams = config.pop("streams", None)
        config["model"] = model_from_config(config["model"])
        config.update(rules_from_config(config))
        config["learn"] = {
            name: keras.saving.deserialize_keras_object(layer)
            for name, layer in config["learn"].items()
        }
        layer = cls(**config)
        if streams is not None:
            layer._make_stream(streams[0])
        return layer

    def save_own_variables(self, store: Any) -> None:
        """The state of the streams, and their number, for a filter that has none yet."""
        super().save_own_variables(store)
        if self.stream is not None:
            store["streams"] = np.array(self.stream.streams or 0)

    def load_own_variables(self, store: Any) -> None:
        """Reads the state of the streams, and makes them where there are none.

        Raises:
            ValueError: A state that is not finite, or that this filter could not have saved; the
                state is as it was.
        """
        weights = numbered(store)
        if {"0", "1"} <= set(weights):  # before streams are made, which would stay
            arrays = [np.asarray(weights[key]) for key in "01"]
            if self._start.dtype.is_complex:
                arrays = [a[..., 0] + 1j * a[..., 1] for a in arrays]
            self.cell.check_stored(arrays)
        if self.stream is None and "streams" in store:
            self._make_stream(int(np.asarray(store["streams"])) or None)
        self._load_state(weights, super().load_own_variables)

    def __repr__(self) -> str:
        learned = f", learns {', '.join(self.learned)}" if self.learned else ""
        return f"KalmanFilter({self.learned_model.start!r}{learned})"

    def _repr_html_(self) -> str:
        return notebook_table("KalmanFilter", filter_rows(self, self.stream))


def _streams_of(mean: tf.Tensor, chol: tf.Tensor) -> int | None:
    """The number of streams that a state is of, `[..., n]` and `[..., n, n]`; None for no axis.

    Raises:
        ValueError: More than one batch axis, or axes that differ.
    """
    axes = {mean.shape.rank - 1, chol.shape.rank - 2}
    if not axes <= {0, 1}:
        raise ValueError(
            f"a state has at most one batch axis, got shapes {mean.shape} and {chol.shape}"
        )
    sizes = {a.shape[0] for a, rank in ((mean, 1), (chol, 2)) if a.shape.rank > rank}
    if len(sizes) > 1:
        raise ValueError(
            f"mean and chol must have one batch axis, got shapes {mean.shape} and {chol.shape}"
        )
    return sizes.pop() if sizes else None
