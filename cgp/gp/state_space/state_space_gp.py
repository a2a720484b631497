"""StateSpaceGP: a complex Gaussian process over a line in linear time."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.autograph import as_it_stands
from cgp.distributions.checks import stateless_seed
from cgp.distributions.forms import Form
from cgp.gp.base import as_dict, check_draws
from cgp.gp.data import Data, as_data, checked_points
from cgp.gp.kernel_terms import check_terms
from cgp.gp.maximum_likelihood import MaximumLikelihoodGP
from cgp.gp.means import Mean
from cgp.gp.notebook_rows import data_in_words
from cgp.gp.posterior import Posterior, prior
from cgp.gp.site_approximation import SiteApproximation
from cgp.gp.state_space import native_likelihood, whittle
from cgp.gp.state_space.discretization import StateAt, StoredState
from cgp.gp.state_space.history import History
from cgp.gp.state_space.online import Online
from cgp.gp.state_space.ordered_series import ordered_series
from cgp.gp.state_space.predictions import drawn, forecasts, smoothed
from cgp.gp.state_space.served_process import served
from cgp.kernels.base import Kernel
from cgp.kernels.points import RecentInputs, as_points
from cgp.likelihoods import Likelihood
from cgp.linalg.arguments import ArrayLike, as_flag
from cgp.statespace.filtering import log_likelihood
from cgp.training import confirm, invalidate, refresh
from cgp.training.registered import registered_config
from cgp.training.serving import Served


@keras.saving.register_keras_serializable(package="cgp")
class StateSpaceGP(Online, MaximumLikelihoodGP):
    """A Gaussian process over a line whose cost is linear in the number of points.

    A kernel that is Markov (`kernel.is_markov`) is a linear system driven by noise, and its process
    a state-space model: likelihood, posterior and samples are those of `ExactGP`, by the filter and
    the smoother of `cgp.statespace` in O(N n³), n being the number of states of the kernel. Points
    may be in any order and spacing, and several at one place.

    The methods are those of `ExactGP`; `step` also updates the posterior one sample at a time. A
    stream holds its latest 500 to 1000 samples alone, and the state before them. After a
    change of hyperparameters that state has no meaning: the process is that of the samples held,
    and a warning says so. Series whose samples come at different places go on together with NaN at
    the places of the others, which changes nothing for a series.

    A long regular series is learned from faster by the debiased Whittle likelihood, in O(N log N)
    whatever the kernel, from all frequencies or from a band of them (see
    `cgp.gp.state_space.whittle`). `fit` and `log_marginal_likelihood` then want x in order and at
    equal steps, NaN where samples are missing. It takes frequencies for independent, which they are
    nearly: estimates are unbiased, and `parameter_errors`, from its curvature, within a tenth of
    their spread, with a band that of what the band tells. Where many samples are missing, or
    leakage fills most of the spectrum, the exact likelihood has smaller errors. Predictions, and
    `step`, stay exact.

    Args:
        kernel: A Markov kernel over one-dimensional inputs, shared with other layers that hold it.
        noise_variance: `E|n|²`, positive; in squared units of z; if left
            out started by the first fit, as for `ExactGP`. `[G]` for one of each of G groups
            of samples, as for `ExactGP`.
        noise_pseudo_variance: `E[n²]`, as for `ExactGP`.
        mean: A mean of `cgp.means`, or None for zero; no marginalised trend.
        likelihood: What is learned from: "exact"; "whittle", of a stationary kernel; or a
            likelihood of `cgp.likelihoods`, as for `ExactGP`, for data that are not the signal plus
            normal noise. Samples are then not taken in one at a time.
        band: The lowest and the highest frequency that the Whittle likelihood counts, in cycles per
            unit of x; symmetric, `(-high, high)`, for an improper process. None for all.
        parallel: Whether likelihood, posterior and forecasts compute all points at once, as
            `cgp.statespace.filter` does with that argument: for a GPU. A graph must know how many
            points there are. Samples, and `step` and `process`, go from point to point.
        fixed: Names, of "noise_variance" and "noise_circularity", excluded from training.
        priors: TFP distributions of "noise_variance", by name.
        name: A name.
        dtype: "float64" (complex128 data) or "float32" (complex64); that of the kernel if None.

    Raises:
        TypeError: Not a kernel, or dtypes that differ.
        ValueError: A kernel that is not Markov; the message names the part that is not. A
            marginalised mean, or a noise pseudo-variance above the noise variance. An unknown
            likelihood, that of Whittle for a kernel that is not stationary, or a band that is none.

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
        likelihood: str | Likelihood = "exact",
        band: Sequence[float] | None = None,
        parallel: bool = False,
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
        super().__init__(
            kernel,
            noise_variance,
            noise_pseudo_variance,
            mean,
            likelihood=None if isinstance(likelihood, str) else likelihood,
            fixed=fixed,
            priors=priors,
            name=name,
            dtype=dtype,
            **kwargs,
        )
        form = kernel.markov_form()  # raises an error that says why not
        self.likelihood, self.parallel = likelihood, as_flag(parallel, "parallel")
        self.band = whittle.as_band(likelihood, band, self._process, form.is_stationary)
        self._recent = RecentInputs()
        self._history = History(self, self._process, self._stored)
        self._sites = SiteApproximation(self._process, self._stored, self._at_samples)
        if self._sites.are_needed:
            self._watch(self._renew_sites, state_is_weights=False)
        self.built = True

    # --- taking data in ------------------------------------------------------------------------

    def check_data(self, data: Data) -> None:
        """Raises for data that are not over a line, or that kernel or mean refuse."""
        super().check_data(data)
        if data.x.shape[-1] not in (1, None):
            raise ValueError(
                f"a StateSpaceGP is over a line: x must have one dimension, got {data.x.shape[-1]}"
            )
        if self.mean is not None:
            self.mean.evaluate(data.x)  # may refuse the inputs
        self.kernel.check_points(data.x)  # so may the kernel

    def _condition(self, data: Data) -> None:
        if self._sites.are_needed and tf.size(data.z) > 0:
            self._sites.keep(self._sites.find(data).data)  # first: may raise
        self._recall(data)
        if self._sites.are_needed:
            confirm(self)

    def _recall(self, data: Data) -> None:
        self._recent.clear()
        self._history.hold(data)
        if self._sites.are_needed:
            invalidate(self)

    def stored_data(self) -> Data:
        """The data taken in and the samples of the stream, or an error if some were dropped."""
        if tf.executing_eagerly():
            self._history.check_whole()
            self._history.join()
        return super().stored_data()

    def _data_of_graph(self) -> Data:
        return self._history.whole_data()  # which will see later samples

    def _held_in_words(self) -> str:
        return data_in_words(self._history.data)

    def reset(self) -> None:
        """Drops all data and samples, which leaves the prior."""
        empty = tf.zeros([0, 0, 1], self.variable_dtype)
        z = tf.zeros([0, 0], self._stored.z.dtype)
        self._condition(Data(empty, z, tf.zeros([0], tf.int32), self._stored.no_samples))

    # --- data of another likelihood --------------------------------------------------------------

    def _at_samples(self, normal: Data) -> Posterior:
        return self._smoothed(normal, normal.x, None)

    def _renew_sites(self) -> None:
        """The post-gradient update: the sites of the data at the present hyperparameters."""

        def renew() -> bool:
            self._sites.renew()
            return True

        # When it runs, not when it is traced: data may come later.
        tf.cond(self._stored.is_empty, lambda: False, renew)

    def _normal(self, data: Data) -> Data:
        """The data held, as normal ones."""
        refresh(self)
        return self._sites.of_stored(data)

    # --- likelihood ----------------------------------------------------------------------------

    def _dataset(self, data: Data) -> tf.data.Dataset:
        self._check_whittle(data)
        return super()._dataset(data)

    def _check_whittle(self, data: Data) -> None:
        if self.likelihood == "whittle":
            learned = sum(v.shape.num_elements() for v in self.trainable_variables)
            whittle.check_series(data, self.band, learned)

    def data_log_likelihood(self, data: Data) -> tf.Tensor:
        """The log marginal likelihood of each series, `[B]`, by a filter or of Whittle."""
        if self.likelihood == "whittle":
            if tf.executing_eagerly():
                self._check_whittle(data)
            return whittle.log_likelihood(self._process, data, self.band)
        data, correction = self._sites.find(data)
        if not self.parallel:
            found = native_likelihood.log_likelihood(self._process, data)
            if found is not None:
                return found
        series = ordered_series(self._process, data)
        found = log_likelihood(series.model, series.z, parallel=self.parallel)
        return found + correction

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
    ) -> Posterior:
        """The signal at new points given the data: between, before and beyond them.

        Args:
            x: Inputs, `[M]` or `[M, 1]`, in any order; `[..., M, 1]` where each series has its own.
            observed: Whether to add the noise of a measurement to the signal.
            noise_variance: The known part of that noise, as for `ExactGP.posterior`.
            noise_groups: The groups of the measurements, as for `ExactGP.posterior`.
            part: A term of the kernel, as for `ExactGP.posterior`.

        Returns:
            A `ComplexNormal` of `[..., M]`, as for `ExactGP.posterior`. Means and variances take
            O(N + M) and are differentiable once; the covariance takes O(M²) more, when it is asked
            for, which is outside of graphs, and is not differentiable.

        Raises:
            TypeError: Complex inputs.
            ValueError: NaN inputs or a shape that does not fit the data; a part that is no term.
        """
        points = as_points(x, self.variable_dtype)
        check_terms(self.kernel, part, observed)
        if points.shape[-1] != 1:
            raise ValueError(f"x must have one dimension, got {points.shape[-1]}")
        noise = self._noise_at(x, points, observed, noise_variance, noise_groups)
        start: StateAt | StoredState | None
        if not tf.executing_eagerly():
            data, start = self._history.data_for(points), self._history.start
        else:
            self.kernel.check_points(points)  # may refuse them
            data, start = self._history.held_for(points)
            if tf.size(data.z) == 0 and start is None:
                return prior(self._process.of_terms(part), points, noise)
        points = checked_points(points, data)
        by_series = points if points.shape.rank == 3 else points[None]
        return self._smoothed(self._normal(data), by_series, noise, start, part)

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

        With them a model is judged as it would have done in use, at the present hyperparameters:
        compare the mean at sample i and horizon h with what came at `x[i] + h`.

        Args:
            horizons: How far ahead, in units of x, `[H]` or a number, not negative.
            observed: Whether to add the noise of a measurement to the signal.
            noise_variance: The known part of that noise, a number.
            noise_groups: The group of the measurements, an integer.

        Returns:
            NumPy arrays `[..., N, H]`, in the order of the data: "mean", "variance" and
            "pseudo_variance", as from `predict`.

        Raises:
            TypeError: Horizons that are not real.
            ValueError: No data, or horizons that are negative or not `[H]`.
        """
        self._check_normal("forecasts")
        ahead = as_points(np.atleast_1d(horizons), self.variable_dtype, "horizons")
        if ahead.shape[1] != 1 or bool(tf.reduce_any(ahead < 0)):
            raise ValueError(f"horizons must be [H] and not negative, got {horizons!r}")
        given = self.noise_arguments(noise_variance, noise_groups)
        noise = given.of_points(observed, ahead.shape[0], self.variable_dtype)
        return forecasts(self._process, self.stored_data(), ahead[:, 0], noise, self.parallel)

    @property
    def form(self) -> Form:
        """The form in which the process is computed (see `cgp.distributions.forms`)."""
        return self._process.form

    def sample(
        self,
        x: ArrayLike,
        count: int = 1,
        *,
        seed: int | None = None,
        observed: bool = False,
        noise_variance: ArrayLike | None = None,
        noise_groups: ArrayLike | None = None,
    ) -> np.ndarray:
        """Draws from the posterior, or from the prior before any data, in O(N + M) each.

        Args:
            x: Inputs, as for `posterior`.
            count: Number of draws.
            seed: Integer; None for different draws at each call.
            observed: Whether to add the noise of a measurement to the signal.
            noise_variance: The known part of that noise, as for `ExactGP.posterior`.
            noise_groups: The groups of the measurements, as for `ExactGP.posterior`.

        Returns:
            Complex, `[count, ..., M]`.

        Raises:
            TypeError, ValueError: As for `posterior`; a count below 1.
        """
        check_draws(count)
        points = as_points(x, self.variable_dtype)
        noise = self._noise_at(x, points, observed, noise_variance, noise_groups)
        self.kernel.check_points(points)  # may refuse them
        data, start = self._history.held_for(points)
        if tf.size(data.z) == 0 and start is None:  # series without observations
            batch = points.shape[:-2]
            points = tf.reshape(points, [-1, *points.shape[-2:]])
            nothing = tf.zeros([points.shape[0], 0], data.z.dtype)
            places = tf.zeros([points.shape[0], 0, 1], points.dtype)
            axes = tf.constant(batch.as_list(), tf.int32)
            data = Data(places, nothing, axes, self._stored.no_samples)
        else:
            points = checked_points(points, data)
            data = self._normal(data)
            points = points if points.shape.rank == 3 else points[None]
        values = drawn(self._process, data, points, start, count, stateless_seed(seed), noise)
        shape = tf.concat([[count], data.batch, tf.shape(values)[2:]], axis=0)
        return tf.reshape(values, shape).numpy()

    def call(self, inputs: Any) -> dict[str, tf.Tensor]:
        """The dictionary of `predict`, at x, or at x given z for inputs `(x, z)`; adds the loss."""
        if isinstance(inputs, Data):
            return self._add_loss(inputs, self.data_log_likelihood(inputs))
        if not isinstance(inputs, tuple | list):
            return as_dict(self.posterior(inputs))
        x, z = inputs
        noise = self.noise_arguments()
        data = as_data(x, z, None, self.variable_dtype, require_targets=False, noise=noise)
        self.check_data(data)
        self.add_loss(self._loss(data, self.data_log_likelihood(data)))
        return as_dict(self._smoothed(self._sites.find(data).data, data.x, None))

    # --- saving ----------------------------------------------------------------------------------

    def _served(self) -> Served:
        history, data = self._history, self._normal(self._history.data)
        is_plain = not (self._sites.are_needed or self._group_count)
        return served(self._process, history, data, takes_samples=is_plain)

    def get_config(self) -> dict[str, Any]:
        """See `GaussianProcess.get_config`."""
        word = self.likelihood if isinstance(self.likelihood, str) else None
        likelihood = word or registered_config(self._process.likelihood)
        own = {"likelihood": likelihood, "band": self.band, "parallel": self.parallel}
        return {**super().get_config(), **own}

    def save_own_variables(self, store: Any) -> None:
        """The weights, the data and samples held, and the state before them."""
        arrays = self._history.saved()
        super().save_own_variables(store)
        for name, value in arrays.items():
            store[name] = value

    def load_own_variables(self, store: Any) -> None:
        """See `save_own_variables`."""
        super().load_own_variables(store)
        self._history.load({name: np.asarray(store[name]) for name in store.keys()})  # noqa: SIM118
