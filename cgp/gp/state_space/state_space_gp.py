"""StateSpaceGP: a complex Gaussian process over a line in linear time."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from cgp.autograph import as_it_stands
from cgp.distributions import ComplexNormal
from cgp.distributions.forms import Form
from cgp.distributions.marginals import Marginals, Step
from cgp.gp.base import as_dict, checked_points
from cgp.gp.data import Data, flattened
from cgp.gp.maximum_likelihood import MaximumLikelihoodGP
from cgp.gp.means import Mean
from cgp.gp.noise import NoiseArguments
from cgp.gp.outputs import by_outputs, points_of_outputs
from cgp.gp.posterior import Posterior, prior
from cgp.gp.sampling.laplace_average import averaged_posterior
from cgp.gp.saved_data import HeldData
from cgp.gp.signal_plus_noise import check_terms
from cgp.gp.site_approximation import SiteApproximation
from cgp.gp.state_space import whittle
from cgp.gp.state_space.collapsing import collapsed, log_likelihood, on_line_if_short
from cgp.gp.state_space.discretization import StateAt, StoredState
from cgp.gp.state_space.history import History
from cgp.gp.state_space.output_series import in_points, in_rows
from cgp.gp.state_space.predictions import drawn, forecasts, smoothed
from cgp.gp.state_space.process_cell import PlacedState, ProcessCell
from cgp.kernels.base import Kernel
from cgp.kernels.points import as_array, as_points
from cgp.likelihoods import Likelihood
from cgp.linalg.arguments import ArrayLike, as_flag, is_nan, stateless_seed
from cgp.online.cell import Outputs, Sample
from cgp.online.gate import gated_step
from cgp.online.steps import step_outputs
from cgp.statespace.models.model_base import whole_steps
from cgp.statespace.online.online_step import StateArrays
from cgp.training import confirm, invalidate, refresh
from cgp.training.post_updates import leave_out_of_loss
from cgp.training.saving import Served, ServedStep, registered_config

_SHARED_PLACES = "all series of a StateSpaceGP go on together, over a line"


class ExportedState(NamedTuple):
    """The state of a SavedModel of a process."""

    data: tuple
    """The data at the time of the export."""
    state: PlacedState
    """The state after the last sample; NaN before any."""
    has_gone_on: tf.Tensor
    """Whether there are samples since the export, bool."""


@keras.saving.register_keras_serializable(package="cgp")
class StateSpaceGP(MaximumLikelihoodGP):
    """A Gaussian process over a line whose cost is linear in the number of points.

    A kernel that is Markov (`kernel.is_markov`) is a linear system driven by noise, and its process
    a state-space model: likelihood, posterior and samples agree with `ExactGP`, by the filter and
    the smoother of `cgp.statespace` in O(N n³), n being the number of states of the kernel. Points
    may be in any order and spacing, and several at one place.

    Methods, and arguments that are not listed, are as for `ExactGP`; `step` also updates the
    posterior one sample at a time. A stream holds only its latest 500 to 1000 samples and the state
    before them, which a change of hyperparameters drops, with a warning. Series whose samples come
    at different places are streamed together with NaN at the places of the others.

    A long regular series is learned from faster by the debiased Whittle likelihood, in O(N log N)
    whatever the kernel, from all frequencies or a band (see `cgp.gp.state_space.whittle`). `fit`
    and `log_marginal_likelihood` then want x in order and at equal steps, NaN where samples are
    missing. Estimates are unbiased, and `parameter_errors` within a tenth of their spread; where
    many samples are missing, or leakage fills most of the spectrum, those of the exact likelihood
    are smaller. Predictions, and `step`, stay exact.

    Args:
        kernel: A Markov kernel over one-dimensional inputs, shared with other layers that hold it.
        mean: A mean of `cgp.means`, or None for zero; no marginalised trend.
        noise_fraction: As for `ExactGP`; samples are then not taken in one at a time.
        likelihood: The likelihood to learn from: "exact"; "whittle", for a stationary kernel; or a
            likelihood of `cgp.likelihoods`, as for `ExactGP`, likewise without `step`.
        band: The lowest and the highest frequency that the Whittle likelihood counts, in cycles per
            unit of x; symmetric, `(-high, high)`, for an improper process. None for all.
        horizon: How many samples before the latest one of a stream are kept as steps, so that
            `step` takes samples which come late and `lag` looks back; not saved.
        parallel: Whether likelihood, posterior and forecasts compute all points at once, as
            `cgp.statespace.filter` does with that argument: for a GPU. A graph must know the number
            of points. Samples, and `step` and `process`, go from point to point.

    Raises:
        TypeError: Not a kernel, or dtypes that differ.
        ValueError: A kernel that is not Markov; the message names the part. A marginalised mean, or
            a noise pseudo-variance above the noise variance. An unknown likelihood, "whittle" for
            a kernel that is not stationary, or an invalid band.

    Example:
        >>> import numpy as np
        >>> import cgp
        >>> t = np.cumsum(np.random.default_rng(0).uniform(0.0, 0.2, 1000))
        >>> kernel = cgp.kernels.Matern32(1.0, 5.0) * cgp.kernels.Rotation(0.5)
        >>> gp = cgp.StateSpaceGP(kernel, noise_variance=1e-4)
        >>> gp.condition(t, np.exp(1j * np.pi * t))
        >>> ahead = gp.predict([t[-1] + 0.5])
        >>> bool(abs(ahead["mean"][0] - np.exp(1j * np.pi * (t[-1] + 0.5))) < 0.05)
        True
    """

    def __init__(
        self,
        kernel: Kernel,
        noise_variance: ArrayLike | None = None,
        noise_pseudo_variance: complex = 0.0,
        mean: Mean | None = None,
        *,
        noise_scale: float | None = 1.0,
        noise_fraction: float | None = 0.0,
        likelihood: str | Likelihood = "exact",
        band: Sequence[float] | None = None,
        parallel: bool = False,
        horizon: int = 0,
        fixed: str | Iterable[str] = (),
        priors: Mapping[str, Any] | None = None,
        name: str | None = None,
        dtype: str | None = None,
        **kwargs: Any,
    ):
        if getattr(mean, "marginalized", False):
            raise ValueError(
                "a marginalised trend has no state: give Polynomial its coefficients, or add "
                "kernels of large variance, Constant and IntegratedRandomWalk"
            )
        kwargs |= {"fixed": fixed, "priors": priors, "name": name, "dtype": dtype}
        kwargs |= {"noise_scale": noise_scale, "noise_fraction": noise_fraction}
        kwargs["likelihood"] = None if isinstance(likelihood, str) else likelihood
        super().__init__(kernel, noise_variance, noise_pseudo_variance, mean, **kwargs)
        if kernel.outputs is not None and likelihood != "exact":
            raise ValueError(f'outputs need likelihood="exact" or an ExactGP, got {likelihood!r}')
        form = kernel.markov_form()  # raises an error that says why not
        self.likelihood, self.parallel = likelihood, as_flag(parallel, "parallel")
        self.band = whittle.as_band(likelihood, band, self._process, form.is_stationary)
        self.cell = self._cell(form.size)
        self.horizon = whole_steps(horizon, "horizon", least=0)
        self._history = History(self, self.cell, self._stored, self.horizon)
        self._sites = SiteApproximation(self._process, self._stored, self._at_samples)
        if self._sites.are_needed:
            self._watch(self._renew_sites, state_is_weights=False)
            leave_out_of_loss(self)
        self.built = True

    def _cell(self, states: int) -> ProcessCell:
        kernel, real = self.kernel, self.variable_dtype

        def check_inputs(x: np.ndarray) -> None:  # the kernel may refuse a place
            places, outputs = tf.constant(x, real), kernel.outputs
            kernel.check_points(places if outputs is None else points_of_outputs(places, outputs))

        return ProcessCell(self._process, real, check_inputs, self.weights, states, self._loss)

    # --- taking data in ------------------------------------------------------------------------

    def check_data(self, data: Data) -> None:
        """Raises for data that are not over a line, or that kernel or mean refuse."""
        got = (data.x[..., :-1] if self.kernel.outputs else data.x).shape[-1]
        if got not in (1, None):
            raise ValueError(f"a StateSpaceGP is over a line: x must have one dimension, got {got}")
        super().check_data(data)
        if data.is_of_values:
            return
        if self.likelihood == "whittle":
            raise ValueError(
                "likelihood='whittle' is of values at equal steps: take likelihood=\"exact\" for "
                "derivatives and exposures"
            )
        if tf.executing_eagerly() and self.kernel.markov_form().generator is None:
            raise ValueError(
                f"no differential equation of {self.kernel!r} is known, from which the derivative "
                "would follow: take ExactGP"
            )

    def _condition(self, data: Data) -> None:
        if self._sites.are_needed and tf.size(data.z) > 0:
            self._sites.keep(self._sites.find(data).data)  # first: may raise
        self._recall(self._in_rows(data))
        if self._sites.are_needed:
            confirm(self)

    @property
    def _stored_form(self) -> tuple[int | None, bool, int]:
        groups, follows_signal, _ = super()._stored_form
        groups = None if self.noise_is_by_output else groups  # which the rows tell
        return groups, follows_signal, self.kernel.outputs or 1

    def _in_rows(self, data: Data) -> Data:
        """Data as the state space has them: a row for each output."""
        return in_rows(data, self.kernel.outputs, self.noise_is_by_output)

    def _recall(self, data: Data) -> None:
        self.cell.forget_samples()
        self._history.replace(data)
        if self._sites.are_needed:
            invalidate(self)

    def stored_data(self) -> Data:
        """The data taken in and the samples of the stream, or an error if some were dropped."""
        if tf.executing_eagerly():
            self._history.check_whole()
            self._history.join()
        return in_points(super().stored_data(), self.kernel.outputs, self.noise_is_by_output)

    def _data_of_graph(self) -> Data:
        return self._history.whole_data()  # which will see later samples

    def _held_in_words(self) -> str:
        return self._history.data.in_words()

    def reset(self) -> None:
        """Drops all data and samples, which leaves the prior."""
        empty = tf.zeros([0, 0, 1], self.variable_dtype)
        z = tf.zeros([0, 0], self._stored.z.dtype)
        self._recall(Data(empty, z, tf.zeros([0], tf.int32), self._stored.no_samples))

    # --- data of another likelihood --------------------------------------------------------------

    def _at_samples(self, normal: Data) -> Posterior:
        rows = self._in_rows(normal)
        return self._smoothed(rows, rows.x, None)

    def _renew_sites(self) -> None:
        """The post-gradient update: the sites of the data at the present hyperparameters."""

        def renew() -> bool:
            self._sites.renew()
            return True

        # When it runs, not when it is traced: data may come later.
        tf.cond(self._stored.is_empty, lambda: False, renew)

    def _normal(self, data: Data) -> Data:
        """The data held, as normal data."""
        refresh(self)
        return self._sites.of_stored(data)

    # --- likelihood ----------------------------------------------------------------------------

    def _dataset(self, data: Data) -> tf.data.Dataset:
        self._check_whittle(data)
        return super()._dataset(on_line_if_short(data, self._process, self.kernel))

    def _check_whittle(self, data: Data) -> None:
        if self.likelihood == "whittle" and tf.executing_eagerly():
            learned = sum(v.shape.num_elements() for v in self.trainable_variables)
            whittle.check_series(data, self.band, learned)

    def data_log_likelihood(self, data: Data) -> tf.Tensor:
        """The log marginal likelihood of each series, `[B]`, by a filter or by Whittle's method."""
        self._check_whittle(data)
        if self.likelihood == "whittle":
            return whittle.log_likelihood(self._process, data, self.band)
        process, (data, correction) = self._process, self._sites.find(data)
        of_signal = collapsed(process, data)
        if of_signal is not None:
            return of_signal.log_likelihood(self.parallel)
        return log_likelihood(process, self._in_rows(data), self.parallel) + correction

    # --- predictions ---------------------------------------------------------------------------

    @as_it_stands
    def posterior(
        self,
        x: ArrayLike,
        *,
        observed: bool = False,
        noise_variance: ArrayLike | None = None,
        noise_groups: ArrayLike | None = None,
        part: Kernel | None = None,
        uncertain: bool = False,
    ) -> ComplexNormal:
        """The signal at new points given the data: between, before and beyond them.

        Arguments are as for `ExactGP.posterior`, x being `[M]`, `[M, 1]`, in any order, or
        `[..., M, 1]` where each series has its own.

        Returns:
            A `ComplexNormal` of `[..., M]`, as for `ExactGP.posterior`. Means and variances take
            O(N + M) and are differentiable once; the covariance takes O(M²) more, outside of graphs
            alone, and is not differentiable.

        Raises:
            TypeError: Complex inputs.
            ValueError: NaN inputs or a shape that does not fit the data; a part that is no term.
        """
        points = as_points(x, self.variable_dtype)
        check_terms(self.kernel, part, observed)
        if points.shape[-1] != 1:
            raise ValueError(f"x must have one dimension, got {points.shape[-1]}")
        if as_flag(uncertain, "uncertain"):
            return averaged_posterior(self, x, part, observed, noise_variance, noise_groups)
        noise = self._noise_at(x, self.points(x), observed, noise_variance, noise_groups)
        start: StateAt | StoredState | None
        if not tf.executing_eagerly():
            data, start = self._history.data_for(points), self._history.start
        else:
            self.kernel.check_points(self.points(x))  # may refuse them
            data, start = self._history.data_before(points)
            if tf.size(data.z) == 0 and start is None:
                return self.of_outputs(prior(self._process.of_terms(part), self.points(x), noise))
        points = flattened(checked_points(points, data), 2)
        return self.of_outputs(self._smoothed(self._normal(data), points, noise, start, part))

    def _predicted(self, x: ArrayLike, observed: bool, noise: NoiseArguments) -> Marginals:
        is_fast = noise.are_left_out and self._process.noise_fraction is None
        moments = self._history.forecast_at(x, observed) if is_fast else None
        return super()._predicted(x, observed, noise) if moments is None else moments

    def _smoothed(self, *arguments: Any) -> Posterior:
        return smoothed(self._process, *arguments, parallel=self.parallel)

    @as_it_stands
    def forecasts(
        self,
        horizons: ArrayLike,
        *,
        observed: bool = False,
        noise_variance: float | None = None,
        noise_groups: int | None = None,
    ) -> dict[str, np.ndarray]:
        """Forecasts from every sample taken in, each given the samples up to it, in one pass.

        They judge a model by its performance in use, at the present hyperparameters: compare the
        mean at sample i and horizon h with the observation at `x[i] + h`.

        Args:
            horizons: Distances ahead, in units of x, `[H]` or a number, not negative.
            observed: Whether to add the noise of a measurement to the signal.
            noise_variance: The known part of that noise, a number.
            noise_groups: The group of the measurements, an integer.

        Returns:
            NumPy arrays `[..., N, H]`, `[..., N, H, P]` of P outputs, in the order of the data:
            "mean", "variance" and "pseudo_variance", as from `predict`.

        Raises:
            TypeError: Horizons that are not real.
            ValueError: No data, or horizons that are negative or not `[H]`.
        """
        self._check_normal("forecasts")
        ahead = as_points(np.atleast_1d(horizons), self.variable_dtype, "horizons")
        if ahead.shape[1] != 1 or bool(tf.reduce_any(ahead < 0)):
            raise ValueError(f"horizons must be [H] and not negative, got {horizons!r}")
        if self.stored_data().functional.width is not None:
            raise ValueError("forecasts are from samples at instants, and the data have widths")
        noise = self._noise_at(ahead, self.points(ahead), observed, noise_variance, noise_groups)
        data = self._in_rows(self.stored_data())
        return forecasts(self._process, data, ahead[:, 0], noise, self.parallel)

    # --- online ----------------------------------------------------------------------------------

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
        """Predicts a sample, then updates the state with it, at constant cost.

        Args:
            x: Its place, a number: not before the previous sample, or, within the `horizon`, late.
            z: The observation, a complex number, or `[B]` of B series; of P outputs `[P]` or
                `[B, P]`. NaN where missing.
            missing: Bool, or `[B]`: True where missing.
            noise_variance: A number or `[B]`; as for `condition`.
            noise_groups: A number or `[B]`; as for `condition`.
            likelihood: A `cgp.likelihoods.StudentT`, by which an observation far from its
                prediction counts as one of more noise; None for normal noise. The prediction
                assumes normal noise, and the sample keeps the noise of its weight.
            gate: A probability, such as 0.999, that a right observation is inside of the gate; one
                outside is skipped, as if missing, and `outside_gate` says so (`cgp.metrics.gate`).

        Returns:
            `Step` of NumPy numbers, or arrays `[B]`: `predicted` is the prediction of z with its
            noise, `innovation` z less its mean, `filtered` the signal at x after the update; `nis`
            is the normalised square of the innovation.

        Raises:
            TypeError: A real observation, a complex x, another precision, another likelihood.
            ValueError: A step back, shapes unlike the data, an x or z that is not finite; a
                likelihood beside a noise pseudo-variance. The state is then unchanged.
        """
        if not isinstance(x, float):
            x = as_array(x, "x")
            if np.size(x) > 1:
                raise ValueError(f"x must be one number, got shape {x.shape}: {_SHARED_PLACES}")
        self._check_takes_samples("step")
        sample, streams = self.cell.check(
            Sample(z, x, noise_variance=noise_variance, group=noise_groups), missing
        )
        history = self._history
        if self.horizon and history.is_late(sample):
            if likelihood is not None or gate is not None:
                name = "gate" if likelihood is None else "likelihood"
                raise ValueError(
                    f"{name} is for samples in order, got x = {float(np.ravel(sample.x)[0]):g} "
                    "before the latest sample"
                )
            return history.late_step(sample, streams)

        def take(sample: Sample) -> Step:
            if likelihood is None:
                return history.step(sample, streams)
            state = history.state_before(sample, streams)
            return self.cell.robust_step(
                state, sample, likelihood, lambda noisy: history.step(noisy, streams)
            )

        if gate is None:
            return take(sample)
        return gated_step(sample, gate, lambda a: history.forecast_of(a, streams), take)

    def lag(self, steps: int) -> Marginals:
        """The signal at an earlier sample given all samples since: a fixed-lag smoother.

        Args:
            steps: How many samples before the latest one, at most the `horizon`; 0 for the latest.

        Returns:
            `(mean, variance, pseudo_variance)` of the signal there given all samples so far, NumPy
            numbers, or `[B]`, at the cost of `steps` samples.

        Raises:
            ValueError: Steps beyond the horizon, or before the first sample.

        Example:
            >>> import cgp
            >>> gp = cgp.StateSpaceGP(cgp.kernels.Matern12(1.0, 1.0), noise_variance=0.5, horizon=2)
            >>> for x, z in [(0.0, 1.0 + 1j), (1.0, 0.5j), (2.0, 0j)]:
            ...     step = gp.step(x, z)
            >>> bool(abs(gp.lag(1).mean - gp.predict([1.0])["mean"][0]) < 1e-12)
            True
        """
        return self._history.lag(whole_steps(steps, least=0))

    def process(
        self,
        x: ArrayLike,
        z: ArrayLike,
        missing: ArrayLike | None = None,
        *,
        noise_variance: ArrayLike | None = None,
        noise_groups: ArrayLike | None = None,
    ) -> Step:
        """Filters a block of samples: `step` for each, in one compiled loop.

        Args:
            x: Their places `[T]`, in order, the first not before the previous sample.
            z: Observations, complex, `[T]` or `[B, T]`; of P outputs `[T, P]` or `[B, T, P]`.
            missing: As for `condition`.
            noise_variance: As for `condition`.
            noise_groups: As for `condition`.

        Returns:
            As `step`, stacked over time: arrays `[T]` or `[B, T]`.

        Raises:
            TypeError, ValueError: As for `step`. The state is then unchanged.
        """
        self._check_takes_samples("process")
        shape = as_array(x, "x").shape
        if shape not in (shape[:1], (*shape[:1], 1)):
            raise ValueError(f"x must be [T], got shape {shape}: {_SHARED_PLACES}")
        samples, streams = self.cell.check(
            Sample(z, x, noise_variance=noise_variance, group=noise_groups), missing, along=1
        )
        return self._history.process(samples, streams)

    @property
    def state(self) -> StateArrays:
        """The state at the last sample, given all of them: `(mean, chol)`, NumPy.

        `[..., n]` and `[..., n, n]`, in the coordinates of `kernel.markov_form()`; for an improper
        process the mean is complex and the factor of the real composite, `[..., 2n, 2n]`.

        Raises:
            ValueError: No data yet.
        """
        state = self._history.last_state()
        if state is None:
            raise ValueError("there is no state yet: take data or a sample in first")
        arrays = StateArrays(self.form.join(state.mean).numpy(), state.chol.numpy())
        return StateArrays(*(a[0] for a in arrays)) if self._stored.data.is_single else arrays

    def _check_takes_samples(self, method: str) -> None:
        self._check_normal(method)
        if not self._process.noise_is_of_samples:
            raise ValueError(f"{method} takes no samples of a process with noise_fraction")

    def _check_normal(self, method: str) -> None:
        """Raises for a method that takes data in normal noise alone."""
        if self._sites.are_needed:
            raise ValueError(
                f"{method} is of data in normal noise, and the likelihood is {self.likelihood!r}: "
                "cgp.statespace.step takes it, and RecursiveGP.step takes a StudentT"
            )

    # --- draws and calls -------------------------------------------------------------------------

    @property
    def form(self) -> Form:
        """The form of the computation (see `cgp.distributions.forms`)."""
        return self._process.form

    def _draws(
        self,
        x: ArrayLike,
        count: int,
        seed: int | None,
        observed: bool,
        noise_arguments: NoiseArguments,
    ) -> tf.Tensor:
        points = as_points(x, self.variable_dtype)
        of_outputs, arguments = self.points(x), (noise_arguments.variance, noise_arguments.group)
        noise = self._noise_at(x, of_outputs, observed, *arguments)
        self.kernel.check_points(of_outputs)  # may refuse them
        data, start = self._history.data_before(points)
        if tf.size(data.z) == 0 and start is None:  # series without observations
            batch = points.shape[:-2]
            points = tf.reshape(points, [-1, *points.shape[-2:]])
            no_z = tf.zeros([points.shape[0] * (self.kernel.outputs or 1), 0], data.z.dtype)
            places = tf.zeros([points.shape[0], 0, 1], points.dtype)
            axes = tf.constant(batch.as_list(), tf.int32)
            data = Data(places, no_z, axes, self._stored.no_samples)
        else:
            points = flattened(checked_points(points, data), 2)
            data = self._normal(data)
        values = drawn(self._process, data, points, start, count, stateless_seed(seed), noise)
        shape = tf.concat([[count], data.batch, tf.shape(values)[2:]], axis=0)
        return by_outputs(tf.reshape(values, shape), self.kernel.outputs)

    def call(self, inputs: Any) -> dict[str, tf.Tensor]:
        """The dictionary of `predict`, at x, or at x given z for inputs `(x, z)`; adds the loss."""
        if isinstance(inputs, Data):
            return self._add_loss(inputs, self.data_log_likelihood(inputs))
        if not isinstance(inputs, tuple | list):
            return as_dict(self.posterior(inputs))
        x, z = inputs
        data = self.data_of(x, z, require_targets=False, noise=self.noise_arguments())
        self.check_data(data)
        self.add_loss(self._loss(data, self.data_log_likelihood(data)))
        rows = self._in_rows(self._sites.find(data).data)
        return self.moments_of(self._smoothed(rows, rows.x, None))

    # --- saving ----------------------------------------------------------------------------------

    def _served(self) -> Served:
        """`predict` given the data, and `step`, after which `predict` forecasts.

        There is no step under another likelihood, or for series with places of their own.
        """
        data, start = self._normal(self._history.data), self._history.present_start()
        takes_samples = self._process.noise_is_of_samples and data.x.shape[0] in (0, 1)
        last = self._history.last_state() if takes_samples else None
        is_empty = tf.size(data.z) == 0 and start is None
        streams = 1 if is_empty else data.z.shape[0] // (self.kernel.outputs or 1)
        state = self.cell.blank_state(streams)
        if last is not None:
            state = self.cell.from_stored([tf.fill([streams], last.x), last.mean, last.chol])
        held_data, process = HeldData(data), self._process

        def posterior(exported: ExportedState, x: tf.Tensor) -> Outputs:
            if is_empty:
                return self.moments_of(prior(process, self.points(x), None))
            data = held_data.of(exported.data)
            return self.moments_of(smoothed(process, data, x[None], None, start))

        def predict(exported: ExportedState, x: tf.Tensor) -> Outputs:
            def forecast() -> Outputs:
                return self._exported_forecast(exported.state, x, data)

            return tf.cond(exported.has_gone_on, forecast, lambda: posterior(exported, x))

        exported = ExportedState(tuple(held_data.arrays), state, tf.constant(False))
        step = self._exported_step(streams, data.is_single) if takes_samples else None
        return Served(exported, predict, [tf.TensorSpec([None, 1], data.x.dtype, "x")], step)

    def _exported_forecast(self, state: PlacedState, x: tf.Tensor, data: Data) -> Outputs:
        """The posterior at places after a state, which lies after the data."""
        places, mean, chol = self.cell.as_stored(state)
        message = "x lies before the last sample: an exported process forecasts after a step"
        late = tf.debugging.Assert(tf.reduce_all(x >= places[0]), [message])
        z = tf.zeros([state.mean.shape[0] * (self.kernel.outputs or 1), 0], data.z.dtype)
        no_data = Data(tf.zeros([1, 0, 1], x.dtype), z, data.batch, self._stored.no_samples)
        start = StateAt(places[0], mean, chol)
        with tf.control_dependencies([late]):
            x = tf.identity(x)[None]
        return self.moments_of(smoothed(self._process, no_data, x, None, start))

    def _exported_step(self, streams: int, is_single: bool) -> ServedStep:
        """The step of a SavedModel, for a sample of each of B streams at one place."""
        cell, spec = self.cell, self.cell.sample_spec()
        shape = [streams, *spec.z.shape]
        axes = shape[1:] if is_single else shape
        specs = [tf.TensorSpec([], spec.x.dtype, "x"), tf.TensorSpec(axes, spec.z.dtype, "z")]
        if spec.group is not None:
            specs.append(tf.TensorSpec(axes, tf.int32, "noise_groups"))

        def sample_of(x: tf.Tensor, z: tf.Tensor, group: tf.Tensor | None = None) -> Sample:
            group = None if group is None else tf.reshape(group, shape)
            return Sample(tf.reshape(z, shape), tf.fill([streams, 1], x), group=group)

        def step(exported: ExportedState, *arguments: tf.Tensor) -> tuple[ExportedState, Outputs]:
            sample = sample_of(*arguments)
            has_begun = ~is_nan(exported.state.x[0])
            states = zip(exported.state, cell.initial_state(streams, sample), strict=True)
            before = PlacedState(*(tf.where(has_begun, a, b) for a, b in states))
            after, result = cell.step(before, sample)
            if is_single:
                result = result.map(lambda a: a[0])
            return ExportedState(exported.data, after, tf.constant(True)), step_outputs(result)

        def check(exported: ExportedState, *arguments: tf.Tensor) -> list[tf.Operation]:
            return cell.assertions(exported.state, sample_of(*arguments))

        return ServedStep(step, specs, check)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        is_word = isinstance(self.likelihood, str)
        likelihood = self.likelihood if is_word else registered_config(self._process.likelihood)
        settings = {"likelihood": likelihood, "band": self.band, "parallel": self.parallel}
        return {**super().get_config(), **settings, "horizon": self.horizon}

    def save_own_variables(self, store: Any) -> None:
        """Saves the weights, the data and samples held, and the state before them."""
        arrays = self._history.saved()
        super().save_own_variables(store)
        for name, a in arrays.items():
            store[name] = a

    def load_own_variables(self, store: Any) -> None:
        """Loads the weights, the data and samples, and the state before them."""
        super().load_own_variables(store)
        self._history.load({name: np.asarray(store[name]) for name in store.keys()})  # noqa: SIM118
