"""Gaussian processes that hold all their data, and learn by maximum likelihood."""

import contextlib
from typing import Any

import keras
import tensorflow as tf

from cgp.autograph import as_it_stands
from cgp.gp import many_series
from cgp.gp.base import GaussianProcess
from cgp.gp.data import Data, StoredData, as_data
from cgp.gp.detrended import residual_power
from cgp.gp.fit_checks import check_several_samples, warn_of_fit
from cgp.gp.given_noise import GivenNoise
from cgp.gp.notebook_rows import data_in_words
from cgp.gp.sampling import ParameterSampling
from cgp.gp.saved_data import arrays_of, saved_data
from cgp.gp.standard_errors import StandardErrors
from cgp.gp.starts import best_of_restarts, log_weak_prior, start_left_out, undone_on_error
from cgp.linalg.arguments import ArrayLike
from cgp.observations import warn_of_short_series
from cgp.training import keras_private
from cgp.training.batches import (
    check_epochs,
    check_restarts,
    compile_as_usual,
    require_one_replica,
)
from cgp.training.layer_arguments import refuse_arguments_of_fit
from cgp.training.saving import numbered


class MaximumLikelihoodGP(ParameterSampling, StandardErrors, GaussianProcess):
    """A Gaussian process whose loss is the negative log marginal likelihood of its data.

    It keeps the data that it has taken in. A subclass computes their log likelihood, and in
    `call((x, z))` adds their loss, from which the errors of the hyperparameters follow.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._stored = StoredData(self.variable_dtype, self._group_count)
        if self._with_priors or self._has_weak_prior:
            one = tf.ones([], self.variable_dtype)
            self.batch_count = tf.Variable(one, trainable=False, name="batch_count")

    # --- what a subclass defines -----------------------------------------------------------------

    def _check(self, data: Data) -> None:
        """Raises for data that the process does not accept."""
        likelihood = self._process.likelihood
        if likelihood is not None and tf.executing_eagerly():
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
            raise ValueError("there are no data: condition(x, z) first; fit(dataset) keeps none")
        return self._stored.data

    def _data_of_graph(self) -> Data:
        return self._stored.data_of_graph()

    def _held_in_words(self) -> str:
        return data_in_words(self._stored.data)

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
            ValueError: Shapes that do not fit, a grid given as series, labels of pandas or xarray
                that differ, NaN inputs, infinite targets, no targets; noise that is negative or not
                finite where z is there; groups out of range, missing, or of a model without them.
            NotPositiveDefiniteError: The covariance of the data is not positive definite, to
                rounding, where it is worked out. The data taken in before stay.
        """
        noise = self._given_noise(noise_variance, noise_groups)
        self._condition(self._validated(x, z, missing, noise))

    # Data belong together here, and are no samples of a batch: the signatures are not Keras's.

    def fit(  # type: ignore[override]
        self,
        x: Any,
        z: ArrayLike | None = None,
        batch_size: None = None,
        epochs: int | None = None,
        verbose: int | str = "auto",
        callbacks: Any = None,
        *,
        missing: ArrayLike | None = None,
        noise_variance: ArrayLike | None = None,
        noise_groups: ArrayLike | None = None,
        validation_data: Any = None,
        validation_freq: int = 1,
        initial_epoch: int = 0,
        restarts: int = 1,
        seed: int = 0,
        engine: Any = None,
        **others: Any,
    ) -> keras.callbacks.History:
        """Learns the hyperparameters from data, and takes the data in.

        The loss is the negative log marginal likelihood per point, less that of the priors. The
        first fit starts the hyperparameters that were left out from the data (see `cgp.gp.starts`);
        fitting again goes on from the present ones, with other data if you like. A model that has
        not been compiled learns by `cgp.optimizers.LBFGS`.

        A likelihood has many maxima: of a frequency one for each side lobe, of two length scales
        one where they are exchanged. With `restarts` the fit starts at so many places, the present
        values and others drawn around the scales of the data, and the best counts.

        Many series of different lengths, or more than fit into memory, come as a dataset of pairs
        `(x, z)`, or as a list of such pairs with an `engine`. They share the hyperparameters, which
        are learned from all; none is taken in, and data taken in before stay.

        Args:
            x: Inputs, as for `condition`; or a `tf.data.Dataset` of pairs `(x, z)`; or, with an
                engine, a list of pairs or of what the engine turns into them.
            z: Complex targets, as for `condition`; None for a dataset or a list.
            batch_size: Not for this model, whose every step is on all data.
            epochs: Gradient steps, 1 if None; with `cgp.optimizers.LBFGS` the largest number of
                iterations, None running to convergence.
            verbose: 0, 1, 2 or "auto", as for `cgp.Model.fit`.
            callbacks: Keras callbacks.
            missing: Bool, broadcast against z: True where missing.
            noise_variance: The known part of the noise, as for `condition`.
            noise_groups: The group of each sample, as for `condition`.
            validation_data: Another series, `(x, z)`, or a dataset of some: "val_loss" of the
                history is their loss under the same hyperparameters.
            validation_freq: Validate each so many epochs.
            initial_epoch: The number of the first epoch.
            restarts: How many fits, of which the best counts; more than 1 under
                `cgp.optimizers.LBFGS` alone. `epochs` caps the iterations of each.
            seed: Of the starts that are drawn.
            engine: As for `cgp.Model.fit`.
            **others: Other arguments of Keras's `fit` are errors.

        Warns:
            RuntimeWarning: More series than samples in each, as where axes are the other way
                round; hyperparameters that have learned nothing, or have run to an edge.

        Returns:
            Keras's `History`, of the last fit, which goes on from the best. Its attribute `optima`
            has what all of them came to, the best first: a list of dictionaries, "loss" and
            "parameters", as from `parameters()`.

        Raises:
            ValueError: Restarts that are no whole number, at least 1, or under another optimizer; a
                batch size, or data that `condition` refuses.
            TypeError: Other arguments of Keras's `fit`; data that `condition` refuses.
        """
        if others:
            refuse_arguments_of_fit(self, others)
        if batch_size is not None:
            raise ValueError(
                f"batch_size={batch_size}: the likelihood of {type(self).__name__} takes all data "
                "at once"
            )
        _check_eager()
        compile_as_usual(self)
        check_epochs(epochs, initial_epoch)
        if not self.trainable_variables:
            raise ValueError("no trainable hyperparameters: condition(x, z) takes the data in")
        check_restarts(restarts, self.optimizer)
        of_all_kinds = {
            "epochs": epochs,
            "verbose": verbose,
            "callbacks": callbacks,
            "initial_epoch": initial_epoch,
            "validation_data": self._validation(validation_data),
            "validation_freq": validation_freq,
        }
        if engine is not None or isinstance(x, tf.data.Dataset):
            one = (z, missing, noise_variance, noise_groups)
            if restarts != 1 or any(given is not None for given in one):
                what = "a dataset has" if engine is None else f"engine={engine!r} takes a list of"
                raise ValueError(
                    f"z, missing, noise and restarts are for one x and z: {what} pairs (x, z), "
                    "NaN where missing"
                )
            return many_series.fit(self, x, engine, **of_all_kinds)
        if z is None:
            of_list = "; a list of pairs (x, z) is taken with engine=map"
            raise ValueError(
                "z is missing: fit(x, z) takes the points x and, beside them, complex values z, of "
                'a table frame["u"] + 1j * frame["v"]'
                + (of_list if isinstance(x, list | tuple) else "")
            )
        noise = self._given_noise(noise_variance, noise_groups)
        data = as_data(x, z, missing, self.variable_dtype, noise=noise)
        warn_of_short_series(*data.z.shape)
        check_several_samples(data)
        dataset = self._dataset(data)
        with undone_on_error(self):
            scales = start_left_out(self, data)
            self._check(data)
            optima = []
            if restarts != 1:
                optima = best_of_restarts(self, data, scales, restarts, seed, epochs, verbose)
            self._condition(data)
        history = super().fit(dataset, **of_all_kinds)
        history.optima = optima
        if not history.diverged:  # which has been said
            warn_of_fit(self, data)
        return history

    def _validation(self, given: Any) -> tf.data.Dataset | None:
        """Validation data as a dataset."""
        if given is None:
            return None
        if isinstance(given, tf.data.Dataset):
            return many_series.as_dataset(self, given)
        if not isinstance(given, tuple | list) or len(given) != 2:
            raise ValueError(
                "validation_data must be a pair (x, z) or a dataset of pairs, got "
                f"{type(given).__name__}"
            )
        x, z = given
        return self._dataset(self._validated(x, z, None, self._given_noise()))

    def evaluate(  # type: ignore[override]
        self,
        x: Any,
        z: ArrayLike | None = None,
        *,
        missing: ArrayLike | None = None,
        noise_variance: ArrayLike | None = None,
        noise_groups: ArrayLike | None = None,
        verbose: int | str = "auto",
        **kwargs: Any,
    ) -> float:
        """Computes the loss of data: the negative log marginal likelihood per point.

        Args:
            x: Inputs, as for `condition`; or a dataset of pairs, as for `fit`.
            z: Complex targets, as for `condition`; None for a dataset.
            missing: Bool, broadcast against z: True where missing.
            noise_variance: The known part of the noise, as for `condition`.
            noise_groups: The group of each sample, as for `condition`.
            verbose: As for `fit`.
            **kwargs: Other arguments of Keras's `evaluate`.
        """
        compile_as_usual(self)
        if isinstance(x, tf.data.Dataset):
            dataset = many_series.as_dataset(self, x)
        else:
            noise = self._given_noise(noise_variance, noise_groups)
            dataset = self._dataset(self._validated(x, z, missing, noise))
        return super().evaluate(dataset, verbose=verbose, **kwargs)

    def train_step(self, data: Any) -> dict[str, Any]:
        """Keras's `train_step`; the mean loss weighs batches by their targets."""
        with self._weighed(data):
            return super().train_step(data)

    def test_step(self, data: Any) -> dict[str, Any]:
        """Keras's `test_step`; the mean loss weighs batches by their targets."""
        with self._weighed(data):
            return super().test_step(data)

    def _weighed(self, data: Any) -> contextlib.AbstractContextManager[None]:
        x, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        if not isinstance(x, Data):  # that of `train_on_batch`, a batch by itself
            return contextlib.nullcontext()
        return keras_private.loss_weighed(self, tf.shape(x.x)[0], tf.reduce_sum(x.counts))

    def batch_of_shard(self, shard: Any) -> tuple[Data, float]:
        """A pair `(x, z)` as a batch, and the number of its targets."""
        if not isinstance(shard, tuple | list) or len(shard) != 2:
            raise TypeError(f"a shard must be a pair (x, z), got {type(shard).__name__}")
        x, z = shard
        data = self._checked(x, z, None, self._given_noise())
        return data, float(tf.reduce_sum(data.counts))

    def _batch(self, data: Data) -> tuple:
        """Data as the batch of an `Objective`."""
        return (*next(iter(self._dataset(data))), None, None)

    def _dataset(self, data: Data) -> tf.data.Dataset:
        """Data as the one batch of a dataset."""
        require_one_replica(self, f"the likelihood of {type(self).__name__}")
        return tf.data.Dataset.from_tensors((data,))

    # --- likelihood ------------------------------------------------------------------------------

    @as_it_stands
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
            >>> gp = cgp.ExactGP(cgp.kernels.RBF(1.0, 1.0), noise_variance=0.1)
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
        log_priors = self._log_priors(data)
        log_density = tf.reduce_sum(log_likelihood)
        if log_priors:  # which count once in all batches
            log_density += tf.add_n(log_priors) / self.batch_count
        return -log_density / tf.reduce_sum(data.counts)

    def _log_priors(self, data: Data) -> list[tf.Tensor]:
        """The log densities of the priors, that of a noise variance that was left out included."""
        log_priors = [parameter.log_prior() for parameter in self._with_priors]
        if self._has_weak_prior:
            power = residual_power(self._process, data)
            least = (self._noise_floor, self._noise_of_rounding(data))
            log_priors.append(log_weak_prior(self.noise_variance.value, power, *least))
        return log_priors

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
        super().load_own_variables(numbered(store))
        self._recall(saved_data(store, self.variable_dtype, self._group_count))


def _check_eager() -> None:
    if not tf.executing_eagerly():
        raise RuntimeError(
            "data are taken in outside of a tf.function; inside, call "
            "log_marginal_likelihood(x, z), or gp((x, z)) and read gp.losses"
        )
