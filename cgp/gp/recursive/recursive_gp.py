"""RecursiveGP: a complex Gaussian process that takes one sample at a time."""

from collections.abc import Iterable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.autograph import as_it_stands
from cgp.distributions import ComplexNormal, Marginals, Step
from cgp.gp.base import GaussianProcess, as_dict, checked_points
from cgp.gp.data import Data, arranged, as_inputs_and_targets, flattened
from cgp.gp.fit_checks import check_several_samples
from cgp.gp.means import Mean
from cgp.gp.noise import NoiseArguments, SampleNoise
from cgp.gp.outputs import points_of_outputs
from cgp.gp.posterior import posterior, prior
from cgp.gp.recursive.budget import Budget
from cgp.gp.recursive.sliding import Sliding
from cgp.gp.recursive.window import Window
from cgp.gp.recursive.window_cell import WindowCell, completed_weights
from cgp.gp.recursive.window_of_outputs import WindowOfOutputs, check_settings
from cgp.gp.recursive.window_recursion import (
    Growing,
    Policy,
    WindowRecursion,
    block_loss,
    blocks_of,
    of_each_stream,
)
from cgp.gp.starts import start_left_out, undone_on_error
from cgp.gp.stream_samples import as_block, checked_block, forecast_at
from cgp.kernels.base import Kernel
from cgp.kernels.points import as_points
from cgp.likelihoods import Likelihood
from cgp.linalg import stored_cholesky
from cgp.linalg.arguments import ArrayLike, check_whole
from cgp.observations import warn_of_short_series
from cgp.online.cell import Outputs, Sample
from cgp.online.online import RunsOnline
from cgp.online.stream import Stream
from cgp.training import keras_private
from cgp.training.batches import check_epochs, compile_as_usual, require_one_replica
from cgp.training.hyperparameters import one_number
from cgp.training.keras_private import saved_variables
from cgp.training.optimizers import LBFGS
from cgp.training.saving import Served, numbered

_POLICIES: dict[str, type[Policy]] = {"sliding": Sliding, "growing": Growing, "budget": Budget}


@keras.saving.register_keras_serializable(package="cgp")
class RecursiveGP(RunsOnline, GaussianProcess):
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

    Of a kernel of P outputs a sample is a row of P values, NaN where an output is missing, and each
    value is a point of the window: `capacity` counts values. Policies are the same, but nothing is
    forgotten.

    The window is kept in non-trainable weights, made when the first data show the number of
    dimensions and of streams: a model that is saved in mid-stream, or into which its weights are
    loaded, continues where it was. Arguments that are not listed are as for `ExactGP`.

    Args:
        kernel: A kernel; other models may share it. Its inputs are real: give complex ones,
            as an equaliser's window u of samples, as `np.concatenate([u.real, u.imag], axis=-1)`.
        mean: A mean of `cgp.means`, not marginalised, or None for zero.
        capacity: The largest number of points, C.
        policy: "sliding", "growing" or "budget".
        forgetting: λ, above 0 and at most 1, which is no forgetting.

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
        noise_scale: float | None = 1.0,
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
        check_settings(getattr(kernel, "outputs", None), capacity, forgetting)
        kwargs |= {"fixed": fixed, "priors": priors, "name": name, "dtype": dtype}
        kwargs["noise_scale"] = noise_scale
        super().__init__(kernel, noise_variance, noise_pseudo_variance, mean, **kwargs)
        require_one_replica(self, "a RecursiveGP")
        self.capacity, self.policy, self.forgetting = int(capacity), policy, float(forgetting)
        recursion = WindowRecursion(
            self._process, self.capacity, _POLICIES[policy](self._process), self.forgetting
        )
        settings = {"capacity": self.capacity, "policy": policy, "forgetting": self.forgetting}
        cell = WindowCell if kernel.outputs is None else WindowOfOutputs
        self.cell: WindowCell = cell(
            recursion, self.variable_dtype, self._check_inputs, self.named_hyperparameters, settings
        )
        self.built = True

    # --- the window ----------------------------------------------------------------------------

    def _make_window(self, streams: int | None, dimensions: int) -> Stream:
        """Makes the weights of the window; `streams` is None for one stream without batch axis."""
        cell = self.cell.of_dimensions(dimensions)
        cell.check_streams(streams)
        self.cell = cell
        return self._make_stream(streams)

    def _make_window_in_graph(self, streams: int | None, points: tf.Tensor) -> None:
        """Makes the window for a graph that is traced before there are data."""
        coordinates = points.shape[-1]
        if streams == 0 or coordinates is None:
            raise ValueError(
                "the numbers of streams and of dimensions must be known when a graph is made: take "
                "a first sample in before, with step(x, z)"
            )
        with tf.init_scope():
            self._make_window(streams, coordinates - self.cell.coordinates_besides_place)

    @property
    def size(self) -> int | np.ndarray:
        """The number of points in the window: an integer, or `[B]` of B streams."""
        if self.stream is None:
            return 0
        sizes = self.stream.variables[0].numpy()
        return int(sizes[0]) if self.stream.streams is None else sizes

    def _held_in_words(self) -> str:
        """The number of points in the window, or in the windows of the streams, in words."""
        sizes = np.atleast_1d(self.size)
        least, most = sizes.min(), sizes.max()
        points = f"{most}" if least == most else f"{least} to {most}"
        streams = f" in each of {len(sizes)} streams" if np.ndim(self.size) else ""
        return f"{points} points of at most {self.capacity}{streams}, {self.policy}"

    @property
    def state(self) -> Any:
        """The window after the last sample, at the present hyperparameters, as a named tuple.

        `(size, x, z, age, chol)`, NumPy, with a first axis of streams where there are several: the
        number of points, their inputs `[C, D]` and observations `[C]`, the oldest first, the steps
        of forgetting that each has been through, `[C]`, and the Cholesky factor of their
        covariance, `[C, C]`, or for an improper process of the real composite, `[2C, 2C]`. Rows
        after the points are empty. A budget has more arrays, and points whose samples came with a
        noise of their own have `noise_variance`, `[C]`.
        """
        return super().state

    def set_state(self, state: Any) -> None:
        """Sets the window, in the form of `state`.

        The factor is computed again from the points; the factor of a budget, which its points do
        not determine, must belong to the present hyperparameters.

        Args:
            state: A tuple as from `state`. The first state or data decide how many streams and
                dimensions there are.

        Raises:
            TypeError: Another number of arrays, complex arrays where real ones are expected, or
                arrays of more precision than the model.
            ValueError: Shapes that do not fit; values that are not finite or that `step` refuses;
                rows after the points that are not empty. The window is unchanged.
            NotPositiveDefiniteError: The covariance of the points is not positive definite.
        """
        self._set_state(state)

    def reset(self) -> None:
        """Forgets all data, but keeps the numbers of streams and dimensions."""
        super().reset()

    # --- taking samples in ---------------------------------------------------------------------

    def _check_inputs(self, x: np.ndarray) -> None:
        """Raises for inputs that the mean or the kernel refuses."""
        points, outputs = as_points(x, self.variable_dtype), self.kernel.outputs
        points = points if outputs is None else points_of_outputs(points, outputs)
        if self.mean is not None:
            self.mean.evaluate(points)
        self.kernel.check_points(points)

    def step(
        self,
        x: ArrayLike,
        z: ArrayLike,
        missing: ArrayLike | None = None,
        *,
        noise_variance: ArrayLike | None = None,
        noise_groups: ArrayLike | None = None,
        likelihood: Likelihood | None = None,
        gate: float | None = None,
    ) -> Step:
        """Predicts a sample, then takes it in.

        Args:
            x: Its input: a number or `[D]`; `[B, D]` where each of B streams has its own.
            z: The observation, a complex number, or `[B]`; of P outputs `[P]` or `[B, P]`. NaN
                where missing.
            missing: Bool, broadcast against z: True where missing. Nothing is taken in then.
            noise_variance: The known part of the noise of the observation, `E|n|²`, circular, in
                squared units of z, a number or `[B]`; the learned noise variance is added to it.
            noise_groups: The group of the observation, an integer or `[B]`, for a model whose
                `noise_variance` has one value for each group.
            likelihood: A `StudentT`, by which outliers get more noise, or None.
            gate: A probability, such as 0.999: an observation outside of the gate that a right one
                misses with one minus this probability is skipped, as if it were missing, and the
                step says so in `outside_gate` (see `cgp.metrics.gate`).

        Returns:
            `Step` of NumPy numbers, or arrays `[B]`, of outputs `[P]` or `[B, P]`: `predicted` is
            the distribution of z, its own noise included, before it was seen, `innovation` z less
            its predicted mean, `filtered` the distribution of the signal after z was seen; `nis` is
            the normalised square of the innovation. Distributions are
            `(mean, variance, pseudo_variance)`.

        Raises:
            TypeError: A real observation, a complex input, another precision or likelihood.
            ValueError: Shapes that differ from the first data, a NaN input, an infinite value,
                noise that no sample or likelihood can have; a growing process that is full.
            NotPositiveDefiniteError: A hyperparameter is not finite. Nothing has changed then.
        """
        sample = Sample(z, x, None, noise_variance, noise_groups)
        with self.cell.translated_errors():
            return self._take_sample(sample, missing, likelihood, gate=gate)

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
            z: Observations, complex, `[T]` or `[B, T]`; of P outputs `[T, P]` or `[B, T, P]`. NaN
                where missing.
            missing: Bool, broadcast against z: True where missing.
            noise_variance: The known part of the noise, broadcast against z; as for `step`.
            noise_groups: The group of each observation, broadcast against z; as for `step`.
            verbose: 0 is silent, 1 or 2 a bar, "auto" one in a terminal or notebook if it is slow.

        Returns:
            As `step`, stacked over time: arrays `[T]` or `[B, T]`, of outputs `[T, P]`.

        Raises:
            TypeError, ValueError, NotPositiveDefiniteError: As for `step`. Nothing of the block has
                been taken in then.
        """
        samples = Sample(z, x, None, noise_variance, noise_groups)
        with self.cell.translated_errors():
            return self._take_block(samples, missing, verbose)

    # --- training on a stream --------------------------------------------------------------------
    # The loss of a stream is the predictive density of each block given the samples before it,
    # which Dawid (J. R. Stat. Soc. A 147, 1984) calls prequential: a prediction, and then its
    # score. The signatures are not Keras's: a stream is no set of samples to draw batches from.

    def compile(
        self,
        optimizer: keras.optimizers.Optimizer | str | None = None,
        loss: None = None,
        metrics: None = None,
        **kwargs: Any,
    ) -> None:
        """Keras's `compile`; the negative log predictive density is the loss.

        Args:
            optimizer: A Keras optimizer, `keras.optimizers.Adam(0.01)` if None.
            loss: None.
            metrics: None.
            **kwargs: `run_eagerly`, `steps_per_execution`, as in Keras.

        Raises:
            ValueError: A loss, metrics, or L-BFGS, which needs all data at once.
        """
        if optimizer is None:
            optimizer = keras.optimizers.Adam(0.01)
        if isinstance(optimizer, LBFGS):
            raise ValueError(
                "L-BFGS learns from all data at once, and a RecursiveGP sees block after block: "
                "give it a Keras optimizer, or learn with an ExactGP of the same kernel first"
            )
        super().compile(optimizer, loss, metrics, **kwargs)

    def fit(  # type: ignore[override]
        self,
        x: ArrayLike,
        z: ArrayLike | None = None,
        batch_size: int = 32,
        epochs: int = 1,
        verbose: int | str = "auto",
        callbacks: Any = None,
        *,
        missing: ArrayLike | None = None,
        noise_variance: ArrayLike | None = None,
        noise_groups: ArrayLike | None = None,
        initial_epoch: int = 0,
        **others: Any,
    ) -> keras.callbacks.History:
        """Learns the hyperparameters while it takes a stream in.

        The stream is cut into consecutive blocks. For each of them a gradient step is made on the
        negative log predictive density of the block given the window before it, per sample; then
        the factor is recomputed at the new hyperparameters, and the block taken in, sample by
        sample. By the chain rule the log density is the sum of one-step predictive ones; no point
        leaves inside a block. Each epoch starts from the window before the call.
        Hyperparameters that were left out start from the scales of the data, before the first
        block. A model that has not been compiled learns by `keras.optimizers.Adam(0.01)`.

        Args:
            x: As for `process`.
            z: As for `process`.
            batch_size: Samples in a block, T; the last block may be shorter. A block costs
                O(C²T + CT² + T³), and O(C³) for the new factor.
            epochs: Passes through the stream.
            verbose: 0, 1, 2 or "auto", as for `cgp.Model.fit`.
            callbacks: Keras callbacks.
            missing: As for `process`.
            noise_variance: As for `process`.
            noise_groups: As for `process`.
            initial_epoch: The number of the first epoch.
            **others: Other arguments of Keras's `fit` are refused.

        Returns:
            Keras's `History`. Where the training has diverged (see `cgp.Model`), the stream has
            been taken in at the best parameters.

        Raises:
            TypeError: Other arguments of Keras's `fit`; data that `process` refuses.
            ValueError: Data that `process` refuses.
            NotPositiveDefiniteError: A covariance is not positive definite at the initial
                parameters. The data are as before the call.
        """
        if others or z is None:
            raise TypeError(
                f"{', '.join(others) or 'no z'}: a RecursiveGP learns from one stream, in its "
                "order; evaluate(x, z) tells the loss of another"
            )
        compile_as_usual(self)
        check_epochs(epochs, initial_epoch)
        check_whole(batch_size, "batch_size")
        noise = self.noise_arguments(noise_variance, noise_groups)
        values = self._block(x, z, missing, noise)
        warn_of_short_series(*values.z.shape)
        if not np.any(self.size):  # given a window one sample is informative
            check_several_samples(values)
        with undone_on_error(self):
            start_left_out(self, values)
            stream = self._stream_for(values)
        with stream.restored_on_error() as before:
            arguments: dict[str, Any] = {"epochs": epochs, "initial_epoch": initial_epoch}
            arguments["callbacks"] = _with_restarts(callbacks, stream, initial_epoch)
            blocks = blocks_of(values, batch_size, self.kernel.outputs)
            history = super().fit(blocks, verbose=verbose, **arguments)
            if history.diverged:  # the parameters are the best ones again
                stream.restore(before)
                of_samples = {"noise_variance": noise_variance, "noise_groups": noise_groups}
                self.process(x, z, missing, verbose=0, **of_samples)
        return history

    def train_step(self, data: tuple) -> dict[str, tf.Tensor]:
        """A gradient step on a block, which is then taken in."""
        block = self._values_of_batch(*data[0])
        with keras_private.loss_weighed(self, tf.shape(data[0][0])[0], tf.reduce_sum(block.counts)):
            super().train_step(data)
        cell, stream = self.cell, self.stream
        assert stream is not None
        block = of_each_stream(block, stream.streams or 1, cell.coordinates)
        # The loss and the training step have refreshed the windows already.
        state, step = cell.scan(stream.read(), cell.samples(block))
        check = tf.debugging.Assert(cell.is_sound(state, step), [cell.unsound])
        # Eagerly, an assertion that holds returns None.
        with tf.control_dependencies([] if check is None else [check]):
            stream.write(tf.nest.map_structure(tf.identity, state))
        return self.get_metrics_result()

    def evaluate(  # type: ignore[override]
        self,
        x: ArrayLike,
        z: ArrayLike,
        *,
        missing: ArrayLike | None = None,
        noise_variance: ArrayLike | None = None,
        noise_groups: ArrayLike | None = None,
        verbose: int | str = "auto",
        callbacks: Any = None,
        return_dict: bool = False,
    ) -> float | dict[str, float]:
        """The loss of data given the window, as in `fit`; the window stays as it is.

        The data are one block, O(T³): `process` gives the errors of a long stream step by step.
        They are given as for `process`; `verbose` and `callbacks` are as for `fit`, and
        `return_dict` says whether to return a dictionary.

        Returns:
            The negative log predictive density per sample, a float.

        Raises:
            TypeError, ValueError: Data that `process` refuses.
            NotPositiveDefiniteError: A hyperparameter is not finite.
        """
        compile_as_usual(self)
        noise = self.noise_arguments(noise_variance, noise_groups)
        values = self._block(x, z, missing, noise, require_targets=True)
        self._stream_for(values)
        with self.cell.translated_errors():
            block = blocks_of(values, values.z.shape[-1], self.kernel.outputs)
            arguments = {"callbacks": callbacks, "return_dict": return_dict}
            return super().evaluate(block, verbose=verbose, **arguments)

    # --- predictions ---------------------------------------------------------------------------

    @as_it_stands
    def posterior(
        self,
        x: ArrayLike,
        *,
        observed: bool = False,
        noise_variance: ArrayLike | None = None,
        noise_groups: ArrayLike | None = None,
    ) -> ComplexNormal:
        """The posterior of the signal after the last sample, at any points; its prior before any.

        Arguments are as for `ExactGP.posterior`, x being `[M]`, `[M, D]`, or `[B, M, D]` where each
        of B streams has its own.

        Returns:
            A `ComplexNormal` of `[M]` or `[B, M]`, of outputs `[M, P]`; as for `ExactGP.posterior`.

        Raises:
            TypeError: Complex inputs.
            ValueError: NaN inputs, or a shape that does not fit the stream.
        """
        points = self.points(x)
        noise = self._noise_at(x, points, observed, noise_variance, noise_groups)
        if self.stream is None:
            if tf.executing_eagerly():
                return self.of_outputs(prior(self._process, points, noise))
            self._make_window_in_graph(None, points)  # for samples that come later
        return self._posterior(points, *self._window_and_factor(), noise)

    def _window(self) -> Window:
        """The windows at the present hyperparameters."""
        assert self.stream is not None
        self.stream.refresh()
        return self.cell.window(self.stream.read())

    def _window_and_factor(self) -> tuple[Window, tf.Tensor]:
        """The windows, and their factor, which gradients pass."""
        window = self._window()
        return window, stored_cholesky(window.chol, self.cell.recursion.covariance(window))

    def _posterior(
        self, points: tf.Tensor, window: Window, chol: tf.Tensor, noise: SampleNoise | None
    ) -> ComplexNormal:
        assert self.stream is not None
        data = window.data(self.stream.streams is None)
        points = flattened(checked_points(points, data, self.kernel.outputs), 2)
        conditioned = self.cell.recursion.conditioned(window, chol)
        return self.of_outputs(posterior(self._process, data, conditioned, points, noise))

    def _predicted(self, x: ArrayLike, observed: bool, noise: NoiseArguments) -> Marginals:
        moments = None
        if self.stream is not None and noise.are_left_out and self.forgetting == 1.0:
            moments = forecast_at(self.stream, x, observed)
        return super()._predicted(x, observed, noise) if moments is None else moments

    def _posterior_of_values(
        self, x: ArrayLike, observed: bool, noise_arguments: NoiseArguments
    ) -> ComplexNormal:
        if self.stream is None:
            return super()._posterior_of_values(x, observed, noise_arguments)
        points = self.points(x)
        noise = self._noise_at(x, points, observed, noise_arguments.variance, noise_arguments.group)
        window = self._window()
        return self._posterior(points, window, window.chol, noise)  # nobody asks for a gradient

    def call(self, inputs: Any) -> dict[str, tf.Tensor]:
        """The dictionary of `predict` at x; for inputs `(x, z)`, adds the loss of that block."""
        if not isinstance(inputs, tuple | list):
            return as_dict(self.posterior(inputs))
        block = self._values_of_batch(*inputs)
        if self.stream is None:
            streams = None if block.is_single else block.z.shape[0] or 0
            self._make_window_in_graph(streams, block.x)
        assert self.stream is not None
        window, chol = self._window_and_factor()
        of_streams = of_each_stream(block, self.stream.streams or 1, self.cell.coordinates)
        parameters = self.named_hyperparameters().values()
        self.add_loss(block_loss(self.cell.recursion, window, chol, of_streams, parameters))
        return as_dict(self._posterior(self.points(inputs[0]), window, chol, None))

    def _values_of_batch(self, x: Any, z: Any, noise: SampleNoise | None = None) -> Data:
        """A batch of `blocks_of`, or of a user without noise of samples, as data."""
        x, z = as_inputs_and_targets(x, z, None, self.variable_dtype, self.kernel.outputs)
        if noise is None:
            noise = self.noise_arguments().of_data(z, self.variable_dtype)
        return arranged(x, z, noise)

    def _block(
        self,
        x: ArrayLike,
        z: ArrayLike,
        missing: ArrayLike | None,
        noise: NoiseArguments,
        require_targets: bool = False,
    ) -> Data:
        """A block of samples, checked: NumPy arrays `[B, T]`, of P outputs `[B, T P]`."""
        if self.kernel.outputs is not None:
            values = self.data_of(x, z, missing, noise=noise, require_targets=require_targets)
            return checked_block(values)
        real = self.variable_dtype
        return as_block(x, z, missing, real, noise=noise, require_targets=require_targets)

    def _stream_for(self, values: Data) -> Stream:
        """The stream of a training block; the first block makes it."""
        block = self.cell.samples(values)
        self.cell.admit(block.x)
        if values.is_single:
            block = block.map(lambda a: a[0])
        stream = self._stream_of(block, None if values.is_single else len(values.z), 1)
        stream.check_restored()
        stream.check(block)
        return stream

    # --- serialisation -------------------------------------------------------------------------

    def _served(self) -> Served:
        # Without data, steps start from an empty window of one stream over a line.
        cell = self.cell if self.stream else self.cell.of_dimensions(1)
        is_single = self.stream is None or self.stream.streams is None

        def predict(state: Any, x: tf.Tensor) -> Outputs:
            signal = cell.predict(state, Sample(None, x))
            return (signal.map(lambda a: a[0]) if is_single else signal)._asdict()

        points = tf.TensorSpec([None, cell.dimensions], tf.as_dtype(self.variable_dtype), "x")
        return self._served_with(predict, [points], cell)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, and the shapes of the window if there is one."""
        settings = {**self.cell.settings}
        if self.stream is not None:
            settings["state"] = [self.stream.streams, self.cell.dimensions]
        return {**super().get_config(), **settings}

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
        """Saves the weights and, if there is a window, its shapes, for a model without a window."""
        super().save_own_variables(store)
        if self.stream is not None:
            store["streams"] = np.array([self.stream.streams or 0, self.cell.dimensions])

    def load_own_variables(self, store: Mapping[str, Any]) -> None:
        """Loads weights, and makes a window if there is none; raises for weights of no window."""
        if self.stream is None and "streams" in store:
            streams, dimensions = np.asarray(store["streams"]).tolist()
            self._make_window(streams or None, dimensions)
        store = completed_weights(numbered(store), saved_variables(self))
        self._load_state(store, super().load_own_variables)


def _with_restarts(callbacks: Any, stream: Stream, first_epoch: int) -> Any:
    """Callbacks, and one more: each epoch but the first starts from the windows as they are now."""
    before = stream.snapshot()

    def begin(epoch: int, logs: Any = None) -> None:
        if epoch > first_epoch:
            stream.restore(before)

    restart = keras.callbacks.LambdaCallback(on_epoch_begin=begin)
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks.append(restart)
        return callbacks
    return [restart, *([] if callbacks is None else keras.tree.flatten(callbacks))]
