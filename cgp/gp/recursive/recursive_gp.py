"""RecursiveGP: a complex Gaussian process that takes one sample at a time."""

from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.autograph import as_it_stands
from cgp.distributions import Step
from cgp.gp.base import GaussianProcess, as_dict
from cgp.gp.data import (
    Data,
    SampleNoise,
    arranged,
    as_inputs_and_targets,
    checked_points,
    flattened,
)
from cgp.gp.given_noise import GivenNoise
from cgp.gp.means import Mean
from cgp.gp.notebook_rows import window_in_words
from cgp.gp.posterior import Posterior, posterior, prior
from cgp.gp.recursive import pieces, stream_training
from cgp.gp.recursive.block_likelihood import block_loss
from cgp.gp.recursive.budget import Budget
from cgp.gp.recursive.growing import Growing
from cgp.gp.recursive.robust import robust_step
from cgp.gp.recursive.served_window import served
from cgp.gp.recursive.sliding import Sliding
from cgp.gp.recursive.stream_weights import StreamWeights
from cgp.gp.recursive.window import Policy, Window
from cgp.gp.recursive.window_recursion import WindowRecursion
from cgp.gp.stream_samples import CheckedRange, as_block, check_streams, one_sample
from cgp.kernels.base import Kernel
from cgp.kernels.points import RecentInputs, as_points
from cgp.likelihoods import Likelihood
from cgp.linalg import stored_cholesky
from cgp.linalg.arguments import ArrayLike, check_whole
from cgp.training.batches import require_one_replica, where_watched
from cgp.training.hyperparameters import one_number
from cgp.training.saving import numbered

_POLICIES: dict[str, type[Policy]] = {
    "sliding": Sliding,
    "growing": Growing,
    "budget": Budget,
}


@keras.saving.register_keras_serializable(package="cgp")
class RecursiveGP(GaussianProcess):
    """A Gaussian process of a complex signal that takes in one sample after another, in O(C²).

    It keeps a window of at most `capacity` points and the Cholesky factor of their covariance,
    which rank-one updates move from sample to sample. Its policy says what happens when the window
    is full:

    - "growing": an error. Until then it is the exact process of all samples.
    - "sliding": the oldest point is dropped. It is the exact process of the last C samples.
    - "budget": the least informative point is pruned, and its information on the others is kept:
      the kernel recursive least squares tracker of Van Vaerenbergh, Lázaro-Gredilla & Santamaría
      (IEEE TNNLS 23, 2012).

    With `forgetting` λ < 1 the signal drifts back to its prior at every step, seen or missing: its
    values n steps apart are correlated by λ^{n/2}. It is an exact process too, of the kernel times
    λ^{|n − n'|/2}.

    `step` and `process` take samples in; `predict`, `posterior` and `sample` give the present
    signal at any inputs. Nothing is traced again as a stream goes on. `fit` learns the
    hyperparameters on the way; they may also be assigned or shared, and the factor is recomputed
    before it is used. `capacity`, `policy` and `forgetting` cannot be changed.

    The window is kept in non-trainable weights, made when the first data show the number of
    dimensions and of streams: a model that is saved in mid-stream, or into which its weights are
    loaded, continues where it was.

    Args:
        kernel: A kernel; other models may share it. Its inputs are real: give complex ones,
            as an equaliser's window u of samples, as `np.concatenate([u.real, u.imag], axis=-1)`.
        noise_variance: `E|n|²`, positive, in squared units of z; left out, or `[G]` for one of each
            of G groups of samples, as for `ExactGP`.
        noise_pseudo_variance: `E[n²]`, complex, as for `ExactGP`.
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
        ValueError: A setting that no such process can have, a strategy of several replicas.

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
        kernel: Kernel,
        noise_variance: ArrayLike | None = None,
        noise_pseudo_variance: complex = 0.0,
        mean: Mean | None = None,
        *,
        capacity: int = 64,
        policy: str = "sliding",
        forgetting: float = 1.0,
        fixed: str | Iterable[str] = (),
        priors: Mapping[str, Any] | None = None,
        name: str | None = None,
        dtype: str | None = None,
        **kwargs: Any,
    ):
        check_whole(capacity, "capacity")
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
        require_one_replica(self, "a RecursiveGP")
        self.capacity, self.policy, self.forgetting = int(capacity), policy, float(forgetting)
        self._recursion = WindowRecursion(
            self._process, self.capacity, _POLICIES[policy](self._process), self.forgetting
        )
        self._recent, self._range = RecentInputs(), CheckedRange(self._check_inputs)
        self._stream: StreamWeights | None = None  # until the first data have shown the shapes
        self.built = True

    # --- the window ----------------------------------------------------------------------------

    def _make_window(self, streams: int | None, dimensions: int) -> None:
        """Makes the weights of the window; `streams` is None for one stream without batch axis."""
        self._stream = StreamWeights(self, self._recursion, streams, dimensions)

    def _make_window_in_graph(self, streams: int | None, dimensions: int | None) -> None:
        """Makes the window for a graph that is traced before there are data."""
        if streams == 0 or dimensions is None:
            raise ValueError(
                "the numbers of streams and of dimensions must be known when a graph is made: take "
                "a first sample in before, with step(x, z)"
            )
        with tf.init_scope():
            self._make_window(streams, dimensions)

    @property
    def size(self) -> int | np.ndarray:
        """The number of points in the window: an integer, or `[B]` of B streams."""
        if self._stream is None:
            return 0
        sizes = self._stream.sizes
        return int(sizes[0]) if self._stream.is_single else sizes

    _held_in_words = window_in_words

    def reset(self) -> None:
        """Forgets all data, but keeps the numbers of streams and dimensions."""
        self._recent.clear()
        if self._stream is not None:
            self._stream.clear()

    # --- taking samples in ---------------------------------------------------------------------

    def _check_inputs(self, x: np.ndarray) -> None:
        """Raises for inputs that the mean or the kernel refuses."""
        if self.mean is not None:
            self.mean.evaluate(tf.constant(x))
        self.kernel.check_points(as_points(x, self.variable_dtype))

    def _stream_for(self, samples: Data) -> StreamWeights:
        """The stream that samples fit, or an error; the first samples make it."""
        if self._stream is not None:
            check_streams(samples, self._stream.x_shape, self._stream.is_single)
        self._range.admit(samples.x)
        if self._stream is None:
            streams, _, dimensions = samples.x.shape
            self._make_window(None if samples.is_single else streams, dimensions)
        assert self._stream is not None
        self._stream.check_factors()
        return self._stream

    def _stream_with_room(self, samples: Data) -> StreamWeights:
        """The stream that samples fit, or an error if its policy has no room for them."""
        stream = None if self._stream is None else self._stream_for(samples)
        if not self._recursion.policy.replaces:
            held = np.zeros(1, int) if stream is None else stream.sizes
            coming = np.sum(~np.isnan(samples.z), axis=-1)
            self._recursion.policy.check_room(self.capacity, held, coming)
        return self._stream_for(samples) if stream is None else stream

    def step(
        self,
        x: ArrayLike,
        z: ArrayLike,
        missing: ArrayLike | None = None,
        *,
        noise_variance: ArrayLike | None = None,
        noise_groups: ArrayLike | None = None,
        likelihood: Likelihood | None = None,
    ) -> Step:
        """Predicts a sample, then takes it in.

        Args:
            x: Its input: a number or `[D]`; `[B, D]` where each of B streams has its own.
            z: The observation, a complex number, or `[B]`; NaN where missing.
            missing: Bool, or `[B]`: True where missing. Nothing is taken in then.
            noise_variance: The known part of the noise of the observation, `E|n|²`, circular, in
                squared units of z, a number or `[B]`; the learned noise variance is added to it.
            noise_groups: The group of the observation, an integer or `[B]`, of a model whose
                `noise_variance` has one value for each group.
            likelihood: A `StudentT`, by which outliers get more noise, or None.

        Returns:
            `Step(predicted, innovation, filtered)` of NumPy numbers, or arrays `[B]`: `predicted`
            is the distribution of z, its own noise included, before it was seen, `innovation` z
            less its predicted mean, `filtered` the distribution of the signal after z was seen.
            Distributions are `(mean, variance, pseudo_variance)`.

        Raises:
            TypeError: A real observation, a complex input, another precision or likelihood.
            ValueError: Shapes other than those of the first data, a NaN input, an infinite value,
                noise that no sample or likelihood can have; a growing process that is full.
            NotPositiveDefiniteError: A hyperparameter is not finite. Nothing has changed then.
        """
        noise = GivenNoise(noise_variance, noise_groups, self._group_count)
        samples = one_sample(x, z, missing, self.variable_dtype, self._recent, noise)
        stream = self._stream_with_room(samples)
        with stream.translated_errors():
            if likelihood is not None:
                found = robust_step(self, samples, likelihood, stream.take)
            else:
                found = stream.take(samples.x, samples.z, samples.noise)
        first = 0 if stream.is_single else slice(None)
        return found.map(lambda a: a[first, 0])

    def process(
        self,
        x: ArrayLike,
        z: ArrayLike,
        missing: ArrayLike | None = None,
        *,
        noise_variance: ArrayLike | None = None,
        noise_groups: ArrayLike | None = None,
        verbose: int | str = "auto",
    ) -> Step:
        """Takes in a block of samples, one after another: `step` for each, compiled as a loop.

        Args:
            x: Inputs, `[T]`, `[T, D]`, or `[B, T, D]` where each of B streams has its own.
            z: Observations, complex, `[T]` or `[B, T]`; NaN where missing.
            missing: Bool, broadcast against z: True where missing.
            noise_variance: The known part of the noise, broadcast against z; as for `step`.
            noise_groups: The group of each observation, broadcast against z; as for `step`.
            verbose: 0 is silent, 1 or 2 a bar, "auto" one if it takes long where it is watched.

        Returns:
            As `step`, stacked over time: arrays `[T]` or `[B, T]`.

        Raises:
            TypeError, ValueError, NotPositiveDefiniteError: As for `step`. Nothing of the block has
                been taken in then.
        """
        noise = GivenNoise(noise_variance, noise_groups, self._group_count)
        samples = as_block(x, z, missing, self.variable_dtype, recent=self._recent, noise=noise)
        stream = self._stream_with_room(samples)
        with stream.translated_errors():
            found = stream.process(samples.x, samples.z, where_watched(verbose), samples.noise)
        return found.map(lambda a: a[0]) if stream.is_single else found

    # --- training on a stream: see the file of that name -----------------------------------------

    compile = stream_training.compile
    fit = stream_training.fit  # type: ignore[assignment]
    train_step = stream_training.train_step
    evaluate = stream_training.evaluate  # type: ignore[assignment]

    # --- predictions ---------------------------------------------------------------------------

    @as_it_stands
    def posterior(
        self,
        x: ArrayLike,
        *,
        observed: bool = False,
        noise_variance: ArrayLike | None = None,
        noise_groups: ArrayLike | None = None,
    ) -> Posterior:
        """The posterior of the signal after the last sample, at any points; its prior before any.

        Args:
            x: Inputs, `[M]` or `[M, D]`; `[B, M, D]` where each of B streams has its own.
            observed: Whether to add the noise of a measurement to the signal.
            noise_variance: The known part of that noise, as for `ExactGP.posterior`.
            noise_groups: The groups of the measurements, as for `ExactGP.posterior`.

        Returns:
            A `ComplexNormal` of `[M]` or `[B, M]`; as for `ExactGP.posterior`.

        Raises:
            TypeError: Complex inputs.
            ValueError: NaN inputs, or a shape that does not fit the stream.
        """
        given, x = x, as_points(x, self.variable_dtype)
        noise = self._noise_at(given, x, observed, noise_variance, noise_groups)
        if self._stream is None:
            if tf.executing_eagerly():
                return prior(self._process, x, noise)
            self._make_window_in_graph(None, x.shape[-1])  # for samples that come later
        return self._posterior(x, *self._window_and_factor(), noise)

    def _window_and_factor(self) -> tuple[Window, tf.Tensor]:
        """The window at the present hyperparameters, and its factor, which gradients pass."""
        assert self._stream is not None
        window = self._stream.current()
        return window, stored_cholesky(window.chol, self._recursion.covariance(window))

    def _posterior(
        self, x: tf.Tensor, window: Window, chol: tf.Tensor, noise: SampleNoise | None
    ) -> Posterior:
        assert self._stream is not None
        data = window.data(self._stream.is_single)
        x = checked_points(x, data)
        given = self._recursion.conditioned(window, chol)
        return posterior(self._process, data, given, flattened(x, 2), noise)

    def _posterior_of_values(self, x: ArrayLike, observed: bool, given: GivenNoise) -> Posterior:
        if self._stream is None:
            return super()._posterior_of_values(x, observed, given)
        points = as_points(x, self.variable_dtype)
        noise = self._noise_at(x, points, observed, given.variance, given.group)
        window = self._stream.current()
        return self._posterior(points, window, window.chol, noise)  # nobody asks for a gradient

    def call(self, inputs: Any) -> dict[str, tf.Tensor]:
        """The dictionary of `predict` at x; for inputs `(x, z)`, adds the loss of that block."""
        if not isinstance(inputs, tuple | list):
            return as_dict(self.posterior(inputs))
        x, z, *noise = inputs
        x, z = as_inputs_and_targets(x, z, None, self.variable_dtype)
        if self._stream is None:
            streams = None if z.shape.rank == 1 else z.shape[0] or 0
            self._make_window_in_graph(streams, x.shape[-1])
        assert self._stream is not None
        window, chol = self._window_and_factor()
        of_samples = noise[0] if noise else self._given_noise().of_data(z, self.variable_dtype)
        block = self._stream.of_each_stream(arranged(x, z, of_samples))
        self.add_loss(block_loss(self._recursion, window, chol, block, self._parameters().values()))
        return as_dict(self._posterior(x, window, chol, None))

    # --- serialisation -------------------------------------------------------------------------

    _served = served
    _begin, _follow = pieces.begin, pieces.follow  # series in pieces
    _state_spec, _piece_spec = pieces.state_spec, pieces.piece_spec

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, and the shapes of the window if there is one."""
        own: dict[str, Any] = {
            name: getattr(self, name) for name in ("capacity", "policy", "forgetting")
        }
        if self._stream is not None:
            streams, dimensions = self._stream.x_shape
            own["state"] = [None if self._stream.is_single else streams, dimensions]
        return {**super().get_config(), **own}

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> "RecursiveGP":
        """The model of a config."""
        config = dict(config)
        shapes = config.pop("state", None)
        model = super().from_config(config, custom_objects)
        if shapes is not None:
            model._make_window(*shapes)
        return model

    def save_own_variables(self, store: Any) -> None:
        """The weights, and the shapes of the window if there is one, for a model without."""
        super().save_own_variables(store)
        if self._stream is not None:
            streams, dimensions = self._stream.x_shape
            store["streams"] = np.array([0 if self._stream.is_single else streams, dimensions])

    def load_own_variables(self, store: Mapping[str, Any]) -> None:
        """Loads weights, or an error if they are no window's; they make one where there is none."""
        if self._stream is None and "streams" in store:
            streams, dimensions = np.asarray(store["streams"]).tolist()
            self._make_window(streams or None, dimensions)
        load = super().load_own_variables
        if self._stream is None:
            load(numbered(store))
        else:
            self._stream.load(numbered(store), load)
