"""RecursiveGP: a complex Gaussian process that takes one sample at a time."""

import contextlib
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.distributions import Marginals, Step
from cgp.gp.base import as_dict
from cgp.gp.data import Data, arranged, as_inputs_and_targets, check_points, flattened
from cgp.gp.posterior import Posterior, posterior, prior
from cgp.gp.recursive.block_likelihood import log_predictive
from cgp.gp.recursive.prequential import PrequentialGP
from cgp.gp.recursive.stream_weights import StreamWeights
from cgp.gp.recursive.window import Window
from cgp.gp.recursive.window_recursion import StepTensors, WindowRecursion
from cgp.gp.stream_samples import Samples, as_block, check_streams, one_sample
from cgp.kernels.points import RecentInputs, as_points, one_number
from cgp.linalg import NotPositiveDefiniteError, stored_cholesky
from cgp.training import invalidate, refresh
from cgp.training.batches import require_one_replica

_POLICIES = ("sliding", "growing", "budget")


@keras.saving.register_keras_serializable(package="cgp")
class RecursiveGP(PrequentialGP):
    """A Gaussian process of a complex signal that takes in one sample after another, in O(C²).

    It keeps at most `capacity` points and the factor of their covariance, which rank-one operations
    move from sample to sample. Three policies say what happens when it is full:

    - "growing": an error. Until then it is the exact process of all samples.
    - "sliding": the oldest point is dropped. It is the exact process of the last C samples.
    - "budget": the point whose loss costs least is given up, and what it said is kept as what it
      says of the others: the kernel recursive least squares tracker of Van Vaerenbergh,
      Lázaro-Gredilla & Santamaría (IEEE TNNLS 23, 2012).

    With `forgetting` λ < 1 the signal drifts back to its prior at every step, seen or missing: n
    steps ago it was correlated with what it is now by λ^{n/2}. It is an exact process too, of the
    kernel times λ^{|n − n'|/2}.

    `step` and `process` take samples in; `predict`, `posterior` and `sample` speak of the signal at
    any inputs, now. Nothing is traced again as a stream goes on. `fit` learns the hyperparameters
    on the way; they may also be assigned or shared, and the factor follows before it is used.

    The state is kept in non-trainable weights, made when the first data show the number of
    dimensions and of streams: a model that is saved in mid-stream goes on where it was. (Before
    `load_weights`, take a sample in.)

    Args:
        kernel: A kernel, shared with whoever else holds it. Its inputs are real: give complex ones,
            as an equaliser's window u of samples, as `np.concatenate([u.real, u.imag], axis=-1)`.
        noise_variance: `E|n|²`, positive; in squared units of z.
        noise_pseudo_variance: `E[n²]`, complex, at most `noise_variance` in modulus; as for
            `ExactGP`.
        mean: A mean of `cgp.means`, not marginalised, or None for zero.
        capacity: The largest number of points, C.
        policy: "sliding", "growing" or "budget".
        forgetting: λ, above 0 and at most 1, which is no forgetting.
        fixed: Names, of "noise_variance" and "noise_circularity", that training leaves alone.
        priors: TFP distributions of "noise_variance", by name.
        name: A name.
        dtype: "float64" (complex128 data) or "float32" (complex64); that of the kernel if None.

    Raises:
        TypeError: No kernel, or dtypes that differ.
        ValueError: A capacity below 1, an unknown policy, a forgetting factor outside of (0, 1], a
            marginalised mean, a noise that no process can have.

    Example:
        >>> import numpy as np
        >>> import cgp
        >>> kernel = cgp.kernels.Matern32(1.0, 20.0) * cgp.kernels.Rotation(0.1)
        >>> tracker = cgp.RecursiveGP(kernel, noise_variance=1e-3, capacity=16)
        >>> for t in np.arange(50.0):
        ...     s = tracker.step(t, np.exp(0.2j * np.pi * t))
        >>> bool(abs(s.innovation) < 0.1), tracker.size
        (True, 16)
        >>> s = tracker.step(50.0, np.nan)
        >>> s.filtered.mean.shape, bool(s.predicted.variance > s.filtered.variance)
        ((), True)
    """

    _data_by_point = True

    def __init__(
        self,
        kernel,
        noise_variance,
        noise_pseudo_variance=0.0,
        mean=None,
        *,
        capacity=64,
        policy="sliding",
        forgetting=1.0,
        fixed=(),
        priors=None,
        name=None,
        dtype=None,
        **kwargs,
    ):
        whole = isinstance(capacity, int | np.integer) and not isinstance(capacity, bool)
        if not whole or capacity < 1:
            raise ValueError(f"capacity must be a whole number, at least 1, got {capacity!r}")
        if policy not in _POLICIES:
            raise ValueError(f"policy must be one of {', '.join(_POLICIES)}, got {policy!r}")
        one_number(forgetting, "forgetting")
        if np.iscomplexobj(forgetting) or not 0.0 < forgetting <= 1.0:
            raise ValueError(f"forgetting must be above 0 and at most 1, got {forgetting!r}")
        if getattr(mean, "marginalized", False):
            raise ValueError(
                "a marginalised trend belongs to all data, and a RecursiveGP drops some: give "
                "Polynomial its coefficients, or add a kernel of large variance for the trend"
            )
        super().__init__(
            kernel,
            noise_variance,
            noise_pseudo_variance,
            mean,
            fixed=fixed,
            priors=priors,
            name=name,
            dtype=dtype,
            **kwargs,
        )
        if policy == "budget" and abs(noise_pseudo_variance) > (1.0 - 1e-6) * noise_variance:
            raise ValueError(
                'policy="budget" needs noise in all directions: noise_pseudo_variance must be '
                "below noise_variance in modulus, got "
                f"{noise_pseudo_variance} and {noise_variance}"
            )
        self.capacity, self.policy = int(capacity), policy
        self.forgetting = float(forgetting)
        self._stream = WindowRecursion(self._process, self.capacity, policy, self.forgetting)
        self._recent = RecentInputs()
        self._online: Any = None  # an `StreamWeights`, once the first data have shown the shapes
        self._is_single = True
        self.built = True

    # --- the state -----------------------------------------------------------------------------

    def _make_state(self, streams: int | None, dimensions: int) -> None:
        """Makes the weights of the state; `streams` is None for a single one without batch axis."""
        self._is_single = streams is None
        self._online = StreamWeights(
            self, self._stream, streams or 1, dimensions, lambda: refresh(self)
        )
        self._watch(self._online.factorize, state_is_weights=True)

    def _make_state_in_graph(self, streams: int | None, dimensions: int | None) -> None:
        """Makes the state for a graph that is being traced before there are data."""
        if streams == 0 or dimensions is None:
            raise ValueError(
                "the numbers of streams and of dimensions must be known when a graph is made: take "
                "a first sample in before, with step(x, z)"
            )
        with tf.init_scope():
            self._make_state(streams, dimensions)

    @property
    def size(self) -> int | np.ndarray:
        """The number of points that are held: an integer, or `[B]` of B streams."""
        if self._online is None:
            return 0
        sizes = self._online.sizes
        return int(sizes[0]) if self._is_single else sizes

    def reset(self) -> None:
        """Forgets all data, but not of how many streams and dimensions they were."""
        if self._online is not None:
            self._online.clear()
            invalidate(self)

    # --- taking samples in ---------------------------------------------------------------------

    def _matched(self, samples: Samples) -> Samples:
        """Samples that fit the state, which is made for them if they are the first."""
        x, z, is_single = samples
        if self._online is None:
            require_one_replica(self, "a RecursiveGP")
            if self.mean is not None:
                self.mean.evaluate(tf.constant(x))  # may refuse the inputs
            self.kernel.moments_diagonal(x)  # so may the kernel
            self._make_state(None if is_single else len(z), x.shape[-1])
        check_streams(samples, self._online.x_shape, self._is_single)
        return samples

    def _admitted(self, samples: Samples) -> Samples:
        """Samples that there is room for, and that fit the state."""
        if self._online is not None:
            self._matched(samples)
        held = np.zeros(1, int) if self._online is None else self._online.sizes
        more = np.sum(~np.isnan(samples.z), axis=-1)
        if self.policy == "growing" and np.any(held + more > self.capacity):
            raise ValueError(
                f"capacity is {self.capacity}: a growing process that holds {np.max(held)} points "
                f"cannot take in {np.max(more)} more. Make it with a larger capacity, or with "
                'policy="sliding" or policy="budget"'
            )
        return self._matched(samples)

    def step(self, x, z, missing=None) -> Step:
        """Predicts a sample, then takes it in.

        Args:
            x: Its input: a number or `[D]`; `[B, D]` where each of B streams has its own.
            z: The observation, a complex number, or `[B]`; NaN where missing.
            missing: Bool, or `[B]`: True where missing. Nothing is taken in then.

        Returns:
            `Step(predicted, innovation, filtered)` of NumPy numbers, or arrays `[B]`: `predicted`
            is what was known of z before it was seen, `innovation` z less its predicted mean,
            `filtered` what is known of the signal afterwards. The outer two are
            `(mean, variance, pseudo_variance)`.

        Raises:
            TypeError: A real observation, a complex input, another precision.
            ValueError: Shapes other than those of the first data, a NaN input, an infinite
                observation; a growing process that is full. Nothing has changed then.
            NotPositiveDefiniteError: A hyperparameter is not finite. Nothing has changed then.
        """
        x, z, _ = self._admitted(one_sample(x, z, missing, self.variable_dtype, self._recent))
        with self._translated_errors():
            outcome = self._online.step(x[:, 0], z[:, 0])
        return self._to_numpy(outcome)

    def process(self, x, z, missing=None, *, verbose="auto") -> Step:
        """Takes in a block of samples, one after another: `step` for each, compiled as a loop.

        Args:
            x: Inputs, `[T]` of one dimension, `[T, D]`, or `[B, T, D]` where each of B streams has
                its own.
            z: Observations, complex, `[T]` or `[B, T]`; NaN where missing.
            missing: Bool, broadcast against z: True where missing.
            verbose: 0 is silent, 1 or 2 a progress bar, "auto" one if it takes more than some
                seconds.

        Returns:
            As `step`, stacked over time: arrays `[T]` or `[B, T]`.

        Raises:
            TypeError, ValueError, NotPositiveDefiniteError: As for `step`. Nothing of the block has
                been taken in then.
        """
        x, z, _ = self._admitted(as_block(x, z, missing, self.variable_dtype))
        if verbose not in (0, 1, 2, "auto"):
            raise ValueError(f'verbose must be 0, 1, 2 or "auto", got {verbose!r}')
        with self._translated_errors(), self._all_or_nothing():
            outcome = self._online.run(x, z, verbose)
        return self._to_numpy(outcome)

    def _to_numpy(self, outcome: StepTensors) -> Step:
        """An outcome over streams first, as it was asked for."""
        outcome = tf.nest.map_structure(
            lambda a: np.asarray(a)[0] if self._is_single else np.asarray(a), outcome
        )
        predicted, filtered = Marginals(*outcome.predicted), Marginals(*outcome.filtered)
        return Step(predicted, outcome.innovation, filtered)

    @contextlib.contextmanager
    def _translated_errors(self):
        """Says in our own words that a covariance has failed."""
        try:
            yield
        except tf.errors.InvalidArgumentError as error:
            if "not positive definite" not in error.message:
                raise
            raise NotPositiveDefiniteError(
                "the covariance of the points is not positive definite at these hyperparameters: "
                f"{self.parameters()}. The state is as it was"
            ) from error

    def _hold(self):
        return self._online.hold()

    def _restore(self, held) -> None:
        self._online.restore(held)
        invalidate(self)  # it may be of other hyperparameters

    # --- the loss of a block -------------------------------------------------------------------

    def _take_in(self, x: tf.Tensor, z: tf.Tensor) -> None:
        data = self._of_each_stream(x, z)
        self._online.advance_block(data.x, data.z)

    def _of_each_stream(self, x: tf.Tensor, z: tf.Tensor) -> Data:
        """A block with inputs for each stream: those that they share, once for each."""
        data, (streams, dimensions) = arranged(x, z), self._online.x_shape
        z = tf.ensure_shape(data.z, [streams, None])
        x = tf.broadcast_to(data.x, [streams, tf.shape(z)[1], tf.shape(data.x)[2]])
        return data._replace(x=tf.ensure_shape(x, [streams, None, dimensions]), z=z)

    def _loss(self, data: Data, state: Window, chol: tf.Tensor) -> tf.Tensor:
        """The negative log predictive density of a block per sample, less that of the priors.

        A prior weighs as one sample among those of the block and those held.
        """
        log_density = log_predictive(self._stream, state, chol, data)
        seen = tf.maximum(tf.reduce_sum(data.counts), 1.0)
        loss = -tf.reduce_sum(log_density) / seen
        held = tf.cast(tf.reduce_sum(state.size), loss.dtype)
        for parameter in self._parameters().values():
            if parameter.prior is not None:
                loss -= parameter.log_prior() / (seen + held)
        return loss

    def _state_and_factor(self) -> tuple[Window, tf.Tensor]:
        """The state at the present hyperparameters, and its factor, from which gradients pass."""
        refresh(self)
        state = self._online.read()
        return state, stored_cholesky(state.chol, self._stream.covariance(state))

    # --- predictions ---------------------------------------------------------------------------

    def posterior(self, x, *, observed: bool = False) -> Posterior:
        """The signal, as it is after the last sample, at any points; its prior before any.

        Args:
            x: Inputs, `[M]` or `[M, D]`; `[B, M, D]` where each of B streams has its own.
            observed: Whether to add the noise of a measurement to the signal.

        Returns:
            A `ComplexNormal` of `[M]` or `[B, M]`; as for `ExactGP.posterior`.

        Raises:
            TypeError: Complex inputs.
            ValueError: NaN inputs, or a shape that does not fit the stream.
        """
        x = as_points(x, self.variable_dtype)
        if self._online is None:
            if tf.executing_eagerly():
                return prior(self._process, x, observed)
            # the graph is to see the samples that come later
            self._make_state_in_graph(None, x.shape[-1])
        return self._posterior(x, *self._state_and_factor(), observed)

    def _posterior(self, x: tf.Tensor, state: Window, chol: tf.Tensor, observed: bool) -> Posterior:
        data = state.data(self._is_single)
        if tf.executing_eagerly():
            check_points(x, data)
        given = self._stream.conditioned(state, chol)
        return posterior(self._process, data, given, flattened(x, 2), observed)

    def _posterior_of_values(self, x, observed: bool) -> Posterior:
        if self._online is None:
            return self.posterior(x, observed=observed)
        x = as_points(x, self.variable_dtype)
        refresh(self)
        state = self._online.read()
        return self._posterior(x, state, state.chol, observed)  # nobody asks for a gradient

    def call(self, inputs) -> dict[str, tf.Tensor]:
        """The dictionary of `predict` at x; for inputs `(x, z)`, adds the loss of that block."""
        if not isinstance(inputs, tuple | list):
            return as_dict(self.posterior(inputs))
        x, z = inputs
        x, z = as_inputs_and_targets(x, z, None, self.variable_dtype)
        if self._online is None:
            self._make_state_in_graph(None if z.shape.rank == 1 else z.shape[0] or 0, x.shape[-1])
        present = self._state_and_factor()
        self.add_loss(self._loss(self._of_each_stream(x, z), *present))
        return as_dict(self._posterior(x, *present, observed=False))

    # --- serialisation -------------------------------------------------------------------------

    def get_config(self):
        """The constructor's arguments, and the shapes of the state if there is one."""
        own = {name: getattr(self, name) for name in ("capacity", "policy", "forgetting")}
        if self._online is not None:
            streams, dimensions = self._online.x_shape
            own["state"] = [None if self._is_single else streams, dimensions]
        return {**super().get_config(), **own}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """The model of a config."""
        config = dict(config)
        shapes = config.pop("state", None)
        model = super().from_config(config, custom_objects)
        if shapes is not None:
            model._make_state(*shapes)
        return model
