"""Gaussian processes that hold all their data: maximum likelihood, and Laplace's approximation."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.gp import laplace
from cgp.gp.base import GaussianProcess
from cgp.gp.data import Data, StoredData, as_data
from cgp.gp.fit_checks import warn_of_fit, warn_of_placeholders
from cgp.gp.given_noise import GivenNoise
from cgp.gp.saved_data import arrays_of, saved_data
from cgp.gp.starts import best_of_restarts, log_weak_prior, start_left_out, undone_on_error
from cgp.linalg.arguments import ArrayLike
from cgp.training import refresh
from cgp.training.batches import (
    check_compiled,
    check_epochs,
    check_restarts,
    require_one_replica,
)
from cgp.training.objective import Objective


class MaximumLikelihoodGP(GaussianProcess):
    """A Gaussian process whose loss is the negative log marginal likelihood of its data.

    It keeps the data that it has taken in. A subclass computes their log likelihood, and in
    `call((x, z))` adds their loss, from which the errors of the hyperparameters follow.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._stored = StoredData(self.variable_dtype, self._group_count)

    # --- what a subclass defines -----------------------------------------------------------------

    def _check(self, data: Data) -> None:
        """Raises for data that the process does not accept."""
        if (likelihood := self._process.likelihood) is not None and tf.executing_eagerly():
            likelihood.check(data.z.numpy())

    def _condition(self, data: Data) -> None:
        """Takes in data that have been checked."""
        raise NotImplementedError

    def _recall(self, data: Data) -> None:
        """Takes in data from a file, whose hyperparameters may be loaded later."""
        raise NotImplementedError

    def _log_likelihood(self, data: Data) -> tf.Tensor:
        """The log likelihood of each series, `[B]`, differentiable."""
        raise NotImplementedError

    # --- taking data in --------------------------------------------------------------------------

    def _checked(
        self, x: ArrayLike, z: ArrayLike, missing: ArrayLike | None, noise: GivenNoise
    ) -> Data:
        data = as_data(x, z, missing, self.variable_dtype, noise=noise)
        self._check(data)
        return data

    def _validated(
        self, x: ArrayLike, z: ArrayLike, missing: ArrayLike | None, noise: GivenNoise
    ) -> Data:
        """Data to take in, or an error."""
        _check_eager()
        return self._checked(x, z, missing, noise)

    def _data(self) -> Data:
        """The data taken in, or an error that there are none."""
        if not tf.executing_eagerly():
            # a likelihood is compiled for a number of series
            return self._stored.as_traced(self._data_of_graph())
        if bool(self._stored.is_empty):
            raise ValueError("there are no data: condition(x, z) or fit(x, z) first")
        return self._stored.data

    def _data_of_graph(self) -> Data:
        return self._stored.data_of_graph()

    def condition(
        self,
        x: ArrayLike,
        z: ArrayLike,
        missing: ArrayLike | None = None,
        *,
        noise_variance: ArrayLike | None = None,
        noise_groups: ArrayLike | None = None,
    ) -> None:
        """Takes data in without learning; predictions are then the posterior given them.

        Args:
            x: Inputs, `[N]` of one dimension, `[N, D]`, or `[..., N, D]` for series with inputs of
                their own.
            z: Complex targets, `[..., N]`; NaN where missing.
            missing: Bool, broadcast against z: True where missing.
            noise_variance: The known part of the noise of each sample, `E|n|²`, circular, real and
                not negative, in squared units of z, broadcast against z: `[N]`, or `[..., N]`. The
                learned noise variance of the model is added to it. None for none.
            noise_groups: The group of each sample, an integer from 0, broadcast against z, of a
                model whose `noise_variance` has one value for each group.

        Raises:
            TypeError: Real targets, complex inputs, targets of another precision, noise that is not
                real, groups that are no integers.
            ValueError: Shapes that do not fit, NaN inputs, infinite targets, no targets; noise that
                is negative or not finite where z is there; groups out of range, missing, or of a
                model without them.
            NotPositiveDefiniteError: The covariance of the data is not positive definite, to
                rounding, where it is worked out. The data taken in before stay.
        """
        noise = self._given_noise(noise_variance, noise_groups)
        data = self._validated(x, z, missing, noise)
        self._condition(data)
        warn_of_placeholders(self, data)

    # Data belong together here, and are no samples of a batch: the signatures are not Keras's.

    def fit(  # type: ignore[override]
        self,
        x: ArrayLike,
        z: ArrayLike,
        batch_size: None = None,
        epochs: int | None = None,
        verbose: int | str = "auto",
        callbacks: Any = None,
        *,
        missing: ArrayLike | None = None,
        noise_variance: ArrayLike | None = None,
        noise_groups: ArrayLike | None = None,
        initial_epoch: int = 0,
        restarts: int = 1,
        seed: int = 0,
        **others: Any,
    ) -> keras.callbacks.History:
        """Learns the hyperparameters from data, and takes the data in.

        The loss is the negative log marginal likelihood per point, less that of the priors. The
        first fit starts the hyperparameters that were left out from the data (see `cgp.gp.starts`);
        fitting again goes on from the present ones, with other data if you like.

        A likelihood has many maxima: of a frequency one for each side lobe, of two length scales
        one where they are exchanged. With `restarts` the fit starts at so many places, the present
        values and others drawn around the scales of the data, and the best counts.

        Args:
            x: Inputs, as for `condition`.
            z: Complex targets, as for `condition`.
            batch_size: Not for this model, whose every step is on all data.
            epochs: Gradient steps, 1 if None; with `cgp.optimizers.LBFGS` the largest number of
                iterations, None running to convergence.
            verbose: 0 is silent, 1 or "auto" a progress bar, 2 one line an epoch.
            callbacks: Keras callbacks.
            missing: Bool, broadcast against z: True where missing.
            noise_variance: The known part of the noise, as for `condition`.
            noise_groups: The group of each sample, as for `condition`.
            initial_epoch: The number of the first epoch.
            restarts: How many fits, of which the best counts; more than 1 under
                `cgp.optimizers.LBFGS` alone. `epochs` caps the iterations of each.
            seed: Of the starts that are drawn.
            **others: Other arguments of Keras's `fit` are errors.

        Returns:
            Keras's `History`, of the last fit, which goes on from the best. Its attribute `optima`
            has what all of them came to, the best first: a list of dictionaries, "loss" and
            "parameters", as from `parameters()`.

        Raises:
            ValueError: Restarts that are no whole number, at least 1, or under another optimizer; a
                batch size, a model not compiled, or data that `condition` refuses.
            TypeError: Other arguments of Keras's `fit`; data that `condition` refuses.
        """
        if others:
            raise TypeError(
                f"{', '.join(others)}: {type(self).__name__} learns from all of x and z at each "
                "step; to validate it, score gp.predict(x, observed=True) with cgp.metrics"
            )
        if batch_size is not None:
            raise ValueError(
                f"batch_size={batch_size}: the likelihood of {type(self).__name__} takes all data "
                "at once"
            )
        check_compiled(self, "optimizer=cgp.optimizers.LBFGS()")
        _check_eager()
        noise = self._given_noise(noise_variance, noise_groups)
        data = as_data(x, z, missing, self.variable_dtype, noise=noise)
        check_epochs(epochs, initial_epoch)
        if not self.trainable_variables:
            raise ValueError("no trainable hyperparameters: condition(x, z) takes the data in")
        check_restarts(restarts, self.optimizer)
        dataset = self._dataset(data)
        with undone_on_error(self):
            scales = start_left_out(self, data)
            self._check(data)
            optima = []
            if restarts != 1:
                optima = best_of_restarts(self, data, scales, restarts, seed, epochs, verbose)
            self._condition(data)
        history = super().fit(
            dataset,
            epochs=epochs,
            verbose=verbose,
            callbacks=callbacks,
            initial_epoch=initial_epoch,
        )
        history.optima = optima
        if not history.diverged:  # which has been said
            warn_of_fit(self, data)
        return history

    def evaluate(  # type: ignore[override]
        self,
        x: ArrayLike,
        z: ArrayLike,
        *,
        missing: ArrayLike | None = None,
        noise_variance: ArrayLike | None = None,
        noise_groups: ArrayLike | None = None,
        verbose: int | str = "auto",
        **kwargs: Any,
    ) -> float:
        """Computes the loss of data: the negative log marginal likelihood per point.

        Args:
            x: Inputs, as for `condition`.
            z: Complex targets, as for `condition`.
            missing: Bool, broadcast against z: True where missing.
            noise_variance: The known part of the noise, as for `condition`.
            noise_groups: The group of each sample, as for `condition`.
            verbose: As for `fit`.
            **kwargs: Other arguments of Keras's `evaluate`.
        """
        noise = self._given_noise(noise_variance, noise_groups)
        dataset = self._dataset(self._validated(x, z, missing, noise))
        return super().evaluate(dataset, verbose=verbose, **kwargs)

    def _batch(self, data: Data) -> tuple:
        """Data as the batch of an `Objective`."""
        return (*next(iter(self._dataset(data))), None, None)

    def _dataset(self, data: Data) -> tf.data.Dataset:
        """Data as the one batch of a dataset."""
        require_one_replica(self, f"the likelihood of {type(self).__name__}")
        return tf.data.Dataset.from_tensors((data,))

    # --- likelihood ------------------------------------------------------------------------------

    def log_marginal_likelihood(
        self,
        x: ArrayLike | None = None,
        z: ArrayLike | None = None,
        missing: ArrayLike | None = None,
        *,
        noise_variance: ArrayLike | None = None,
        noise_groups: ArrayLike | None = None,
    ) -> tf.Tensor:
        """The log marginal likelihood of data under the present hyperparameters.

        With a marginalised trend, of a process that takes one, it is the restricted likelihood (see
        `cgp.means.Polynomial`). It may be called in a `tf.function`.

        Args:
            x: Inputs, as for `condition`; None, with z, for the data taken in.
            z: Complex targets, as for `condition`.
            missing: Bool, broadcast against z: True where missing.
            noise_variance: The known part of the noise, as for `condition`.
            noise_groups: The group of each sample, as for `condition`.

        Returns:
            Real, `[...]`, one for each series; differentiable by the hyperparameters, and by z, of
            an `ExactGP` by x too, where these are tensors.

        Raises:
            TypeError, ValueError: As for `condition`; one of x and z without the other, or noise
                without both; no data.

        Example:
            >>> import cgp
            >>> gp = cgp.ExactGP(cgp.kernels.RBF(), noise_variance=0.1)
            >>> gp.condition([0.0, 1.0], [1.0 + 1j, 0.5j])
            >>> print(f"{gp.log_marginal_likelihood():.4f}")
            -4.3364
        """
        if all(given is None for given in (x, z, missing, noise_variance, noise_groups)):
            data = self._data()
        elif x is None or z is None:
            raise ValueError(
                "x and z belong together, and missing and noise to them: give both, or none of "
                "all for the data taken in"
            )
        else:
            data = self._checked(x, z, missing, self._given_noise(noise_variance, noise_groups))
        return data.unpacked(self._log_likelihood(data))

    def _add_loss(self, data: Data, log_likelihood: tf.Tensor) -> dict[str, tf.Tensor]:
        """Adds the loss of data, and returns their log likelihood, the output of training."""
        self.add_loss(self._loss(data, log_likelihood))
        return {"log_likelihood": data.unpacked(log_likelihood)}

    def _loss(self, data: Data, log_likelihood: tf.Tensor) -> tf.Tensor:
        """The negative log likelihood, `[B]`, and that of the priors, per point."""
        log_density = tf.reduce_sum(log_likelihood)
        for parameter in self._with_priors:
            log_density += parameter.log_prior()
        if self._has_weak_prior:
            least = (self._noise_floor, self._noise_of_rounding(data))
            log_density += log_weak_prior(self.noise_variance.value, data, *least)
        return -log_density / tf.reduce_sum(data.counts)

    # --- standard errors of hyperparameters ------------------------------------------------------

    def parameter_covariance(self, verbose: int | str = "auto") -> np.ndarray:
        """The covariance of the learned hyperparameters, by Laplace's approximation.

        From the Hessian of the negative log marginal likelihood, priors included, at the present
        values, which should be its minimum: fit to convergence first, with `cgp.optimizers.LBFGS`.
        It takes some three evaluations of the loss for each hyperparameter.

        Args:
            verbose: 0 is silent, 1 or "auto" a progress bar.

        Returns:
            `[Q, Q]`, for the constrained values in the order of `parameters()`: the elements of a
            vector one after the other, a complex value as its real and its imaginary part. Rows and
            columns of fixed ones are zero.

        Raises:
            ValueError: No data, or all of them missing.
            NotPositiveDefiniteError: The likelihood has no maximum here; says in what direction.
        """
        data = self._data()
        if not bool(tf.reduce_any(data.present)):
            raise ValueError("all samples are missing: there is nothing to learn from")
        loss = Objective(self, self._batch(data))
        count = float(tf.reduce_sum(data.counts))
        bar = keras.utils.Progbar(
            loss.start.size, verbose=1 if verbose == "auto" else verbose, unit_name="parameter"
        )
        try:
            curvature = laplace.hessian(
                lambda point: count * loss(point)[1], loss.start, bar.update
            )
        finally:
            loss.assign(loss.start)
            refresh(self)
        return laplace.covariance(self._parameters(), loss.variables, curvature)

    def parameter_errors(self, verbose: int | str = "auto") -> dict[str, np.ndarray]:
        """The standard errors of `parameters()`, from `parameter_covariance`; zero where fixed.

        Estimates are normal about the truth with these errors when there are many data. Estimates
        of few data are not, and of a positive value they are skewed: give its interval on the log
        scale, where its error is error / value. Of 400 simulated series of N points 0.5 apart, a
        Matérn-3/2 signal of lengthscale 3 on a carrier in noise, (estimate − truth) / error had

        | standard deviation of      | N = 40 | N = 80 | N = 160 |
        |----------------------------|--------|--------|---------|
        | variance                   | 1.49   | 1.29   | 1.22    |
        | log of variance            | 1.02   | 1.08   | 1.10    |
        | log of lengthscale         | 0.93   | 1.04   | 1.01    |
        | frequency                  | 1.10   | 1.06   | 0.98    |
        | noise variance             | 1.07   | 1.01   | 1.02    |

        (250 series at N = 160; each figure ± 0.05). The small sample is to blame, not the Hessian:
        the expected Fisher information gives the same within 0.04. The harder the problem, the more
        it matters: of 300 series of 40 points 1.0 apart, in noise of half the variance of the
        signal, the frequency had 1.52 by the Hessian and 1.48 by the Fisher information, and the
        signed root of its profile likelihood ratio 1.11, near the 1 of a normal estimate. Where an
        interval of few data matters, take it from that ratio.

        Args:
            verbose: As for `parameter_covariance`.

        Returns:
            NumPy by name; of a complex value, the errors of its real and imaginary part as one
            complex number. NaN, with a warning, for one at the edge of the unit disk, |c| = 1,
            where estimates are not normal for any number of data; the others then hold it there.
        """
        errors = np.sqrt(np.diag(self.parameter_covariance(verbose)))
        found = {}
        for name, value in self.parameters().items():
            parts = value.size * (2 if np.iscomplexobj(value) else 1)
            own, errors = errors[:parts], errors[parts:]
            if np.iscomplexobj(value):
                own = own[0::2] + 1j * own[1::2]
            found[name] = own.reshape(value.shape)[()]
        return found

    # --- saving ----------------------------------------------------------------------------------

    def save_own_variables(self, store: Any) -> None:
        """Saves the weights and the data; the factor is recomputed from them when needed."""
        super().save_own_variables(store)
        for name, values in arrays_of(self._stored.data).items():
            store[name] = values

    def load_own_variables(self, store: Any) -> None:
        """Reads what `save_own_variables` wrote.

        Raises:
            ValueError: Data that are not there, or that this model could not have saved.
        """
        own = {key: store[key] for key in store.keys() if key.isdigit()}  # noqa: SIM118
        super().load_own_variables(own)
        self._recall(saved_data(store, self.variable_dtype, self._group_count))


def _check_eager() -> None:
    if not tf.executing_eagerly():
        raise RuntimeError(
            "data are taken in outside of a tf.function; inside, call "
            "log_marginal_likelihood(x, z), or gp((x, z)) and read gp.losses"
        )
