"""Gaussian processes that hold all their data, and learn by maximum likelihood."""

import contextlib
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp import native
from cgp.autograph import as_it_stands
from cgp.gp.base import GaussianProcess
from cgp.gp.data import Data, StoredData
from cgp.gp.fit_checks import (
    check_measured,
    check_none_is_of_one_x,
    check_several_samples,
    check_starts,
    warn_of_fit,
)
from cgp.gp.measurements import Measurements
from cgp.gp.sampling.density import Coordinates, attached, values_and_gradients
from cgp.gp.sampling.nuts import Sampler
from cgp.gp.sampling.parameter_draws import ParameterDraws, draw_parameters
from cgp.gp.saved_data import arrays_of, saved_data
from cgp.gp.site_approximation import SiteApproximation
from cgp.gp.starts import (
    check_has_starts,
    descend,
    log_weak_prior,
    residual_power,
    start_from_first,
    start_left_out,
    undone_on_error,
)
from cgp.linalg.arguments import ArrayLike
from cgp.observations import warn_of_short_series
from cgp.training import keras_private, laplace
from cgp.training.batches import (
    check_end,
    check_epochs,
    check_restarts,
    compile_as_usual,
    require_one_replica,
)
from cgp.training.layer_arguments import refuse_arguments_of_fit
from cgp.training.objective import Shards
from cgp.training.optimizers import LBFGS
from cgp.training.saving import numbered


class MaximumLikelihoodGP(GaussianProcess):
    """A Gaussian process whose loss is the negative log marginal likelihood of its data.

    It keeps the data that it has taken in. A subclass computes their log likelihood, and in
    `call((x, z))` adds their loss, from which the errors of the hyperparameters follow.
    """

    _sites: SiteApproximation
    _noise_may_follow_signal = True

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._stored = StoredData(self.variable_dtype, *self._stored_form[:-1])
        if self._with_priors or self.has_weak_prior:
            self.batch_count = tf.Variable(
                tf.ones([], self.variable_dtype), trainable=False, name="batch_count"
            )

    @property
    def _stored_form(self) -> tuple[int | None, bool, int]:
        """Of stored data: noise groups, whether noise follows the signal, and rows of a series."""
        return self._group_count, self._process.noise_fraction is not None, 1

    def check_data(self, data: Data) -> None:
        """Raises for data that likelihood, kernel or mean refuse."""
        likelihood = self._process.likelihood
        if likelihood is not None and tf.executing_eagerly():
            likelihood.check(data.z.numpy())
        self.kernel.check_points(data.x)
        if self.mean is not None:
            self.mean.evaluate_samples(data.x, data.functional)
        if not data.is_of_values:
            check_measured(self, data)

    def _condition(self, data: Data) -> None:
        """Takes in data that have been checked."""
        raise NotImplementedError

    def _recall(self, data: Data) -> None:
        """Takes in data from a file, whose hyperparameters may be loaded later."""
        raise NotImplementedError

    def with_signal_power(self, data: Data) -> Data:
        """The data with the power of the signal, where noise follows it."""
        return data if self._process.noise_fraction is None else self._sites.find(data).data

    def data_log_likelihood(self, data: Data) -> tf.Tensor:
        """The log likelihood of each series, `[B]`, differentiable."""
        raise NotImplementedError

    def _checked(self, x: Any, z: Any, missing: Any, noise: Any, measurements: Any = None) -> Data:
        data = self.data_of(x, z, missing, noise=noise, measurements=measurements)
        self.check_data(data)
        return data

    def _validated(self, *arguments: Any) -> Data:
        """Checked data; an error inside a `tf.function`, where no data are taken in."""
        _check_eager()
        return self._checked(*arguments)

    def stored_data(self) -> Data:
        """The data taken in, or an error if there are none."""
        if not tf.executing_eagerly():
            # a likelihood is compiled for a number of series
            return self._stored.as_traced(self._data_of_graph())
        if bool(self._stored.is_empty):
            raise ValueError("there are no data: condition(x, z) first; fit(dataset) keeps none")
        return self._stored.data

    def _data_of_graph(self) -> Data:
        return self._stored.data_of_graph()

    def _held_in_words(self) -> str:
        return self._stored.data.in_words()

    def condition(
        self,
        x: ArrayLike,
        z: ArrayLike,
        missing: ArrayLike | None = None,
        *,
        noise_variance: ArrayLike | None = None,
        noise_groups: ArrayLike | None = None,
        observed: ArrayLike | None = None,
        widths: ArrayLike | None = None,
    ) -> None:
        """Takes data in without learning; predictions are then the posterior given them.

        Args:
            x: Inputs, `[N]` of one dimension, `[N, D]`, or `[..., N, D]` for series with inputs of
                their own.
            z: Complex targets, `[..., N]`, of a kernel of P outputs `[..., N, P]`; NaN if missing.
            missing: Bool, broadcast against z: True where missing.
            noise_variance: The known part of the noise of each sample, `E|n|²`, circular, real and
                not negative, in squared units of z, broadcast against z: `[N]`, or `[..., N]`. The
                learned noise variance of the model is added to it. None for none.
            noise_groups: The group of each sample, an integer from 0, broadcast against z, for a
                model whose `noise_variance` has one value for each group.
            observed: What each sample measures of the signal, "value" or "derivative", one word or
                an array broadcast against z; None for values. Derivatives are in units of z per
                unit of x, and so is their noise. Predictions stay those of the value.
            widths: The width w of the exposure of each sample, centred at x: z is the mean of the
                signal over `[x − w/2, x + w/2]`. Real and not negative, in units of x, zero for an
                instant, broadcast against z; None for instants. Exposures may overlap. They need a
                Markov kernel of a differential equation, as Matérn kernels are.

        Raises:
            TypeError: Real targets, complex inputs, targets of another precision, noise or widths
                that are not real, groups that are no integers, words that are no strings.
            ValueError: Shapes that do not fit, a grid given as series, labels of pandas or xarray
                that differ, NaN inputs, infinite targets, no targets; noise that is negative or not
                finite where z is there; groups out of range, missing, or of a model without them;
                derivatives of a kernel that is not differentiable in mean square, widths of one
                without the form or of a derivative; either under a likelihood, or a mean that has
                none.
            NotPositiveDefiniteError: The covariance of the data, where it is computed, is not
                positive definite to rounding. The data taken in before stay.
        """
        noise = self.noise_arguments(noise_variance, noise_groups)
        measurements = Measurements(observed, widths)
        data = self._validated(x, z, missing, noise, measurements)
        self._condition(self.with_signal_power(data))

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
        observed: ArrayLike | None = None,
        widths: ArrayLike | None = None,
        validation_data: Any = None,
        validation_freq: int = 1,
        initial_epoch: int = 0,
        restarts: int = 1,
        seed: int = 0,
        engine: Any = None,
        **others: Any,
    ) -> keras.callbacks.History:
        """Learns the hyperparameters from data, and takes the data in.

        The loss is the negative log marginal likelihood, less the log density of priors, per point.
        Hyperparameters you leave out are initialised from the data at the first `fit` (see
        `cgp.gp.starts`); fitting again continues from the present values, also on other data.
        A model that has not been compiled learns by `cgp.optimizers.LBFGS`.

        A likelihood has many maxima: for a frequency one at each side lobe, for two length scales
        one where they are exchanged. `restarts` fits start from the present values and from others
        drawn around the scales of the data; the best is kept.

        Many series of different lengths, or more than fit into memory, come as a dataset of pairs
        `(x, z)`, or as a list of such pairs with an `engine`. Hyperparameters are learned from all
        of them; none is taken in, and data taken in before stay.

        Args:
            x: Inputs, as for `condition`; or a `tf.data.Dataset` of pairs `(x, z)`; or, with an
                engine, a list of pairs or of items that the engine turns into pairs.
            z: Complex targets, as for `condition`; None for a dataset or a list.
            batch_size: None: every step of this model uses all data.
            epochs: Gradient steps, 1 if None; of `LBFGS` the most iterations, None for no limit.
            verbose: 0, 1, 2 or "auto", as for `cgp.Model.fit`.
            callbacks: Keras callbacks.
            missing: As for `condition`.
            noise_variance: As for `condition`.
            noise_groups: As for `condition`.
            observed: As for `condition`. Values left out are started from samples of the value.
            widths: As for `condition`.
            validation_data: A series `(x, z)`, or a dataset of pairs, whose loss is "val_loss".
            validation_freq: The number of epochs from one validation to the next.
            initial_epoch: The number of the first epoch.
            restarts: The number of fits, of which the best is kept; more than 1 under
                `cgp.optimizers.LBFGS` alone. `epochs` caps the iterations of each.
            seed: The seed of the starts that are drawn.
            engine: As for `cgp.Model.fit`.
            **others: Other arguments of Keras's `fit` are errors.

        Warns:
            RuntimeWarning: More series than samples in each, as where axes are the other way
                round; hyperparameters at an edge, or nothing learned; residuals that vary over x.

        Returns:
            Keras's `History` of the last fit, which goes on from the best optimum. Its attribute
            `optima` lists the optima of all fits, the best first: dictionaries of "loss" and
            "parameters", as from `parameters()`.

        Raises:
            ValueError: Restarts that are not a whole number of at least 1, or under another
                optimizer; a batch size, or data that `condition` refuses.
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
        fit_arguments = {
            "epochs": epochs,
            "verbose": verbose,
            "callbacks": callbacks,
            "initial_epoch": initial_epoch,
            "validation_data": self._validation(validation_data),
            "validation_freq": validation_freq,
        }
        if engine is not None or isinstance(x, tf.data.Dataset):
            of_one_x = (z, missing, noise_variance, noise_groups, observed, widths)
            source = "a dataset has" if engine is None else f"engine={engine!r} takes a list of"
            check_none_is_of_one_x(source, *of_one_x, None if restarts == 1 else restarts)
            return self._fit_many_series(x, engine, **fit_arguments)
        if z is None:
            of_list = "; a list of pairs (x, z) is taken with engine=map"
            raise ValueError(
                "z is missing: fit(x, z) takes the points x and, beside them, complex values z, of "
                'a table frame["u"] + 1j * frame["v"]'
                + (of_list if isinstance(x, list | tuple) else "")
            )
        noise = self.noise_arguments(noise_variance, noise_groups)
        measurements = Measurements(observed, widths)
        data = self.data_of(x, z, missing, noise=noise, measurements=measurements)
        warn_of_short_series(*data.z.shape)
        check_several_samples(data)
        check_starts(self, data)
        dataset = self._dataset(data)
        with undone_on_error(self):
            scales = start_left_out(self, data)
            self.check_data(data)
            weighed, optima = descend(self, data, scales, restarts, seed, epochs, verbose)
            self._condition(self.with_signal_power(weighed))
        dataset = dataset if weighed is data else self._dataset(weighed)
        history = super().fit(dataset, **fit_arguments)
        history.optima = optima
        if self._process.noise_fraction is not None:
            weighed = self.with_signal_power(data)
            self._condition(weighed)
        if not history.diverged:  # which has been said
            warn_of_fit(self, weighed)
        return history

    def _fit_many_series(self, x: Any, engine: Any, **arguments: Any) -> keras.callbacks.History:
        """Learns from batches of series, none of which are taken in; as `cgp.Model.fit`."""
        if self._process.noise_fraction is not None:
            raise ValueError("noise_fraction needs fit(x, z), of series of one length")
        many = f"a {type(self).__name__}, which learns on many machines by an engine,"
        require_one_replica(self, many)
        if engine is not None:
            check_has_starts(self)
            return super().fit(x, engine=engine, **arguments)
        start_from_first(self, x)
        if isinstance(self.optimizer, LBFGS):
            check_end(x)
            return super().fit(Shards(list(x), map), **arguments)
        return super().fit(self._as_dataset(x), **arguments)

    def _as_dataset(self, pairs: tf.data.Dataset) -> tf.data.Dataset:
        """A dataset of pairs `(x, z)` as one of `Data`, each of which is a batch."""
        if isinstance(pairs.element_spec[0], Data):
            return pairs

        def batch(x: tf.Tensor, z: tf.Tensor) -> tuple[Data]:
            noise = self.noise_arguments()
            return (self.data_of(x, z, require_targets=False, noise=noise),)

        return pairs.map(batch)

    def _validation(self, pairs: Any) -> tf.data.Dataset | None:
        """Validation data, a pair (x, z) or a dataset of pairs, as a dataset."""
        if pairs is None:
            return None
        if isinstance(pairs, tf.data.Dataset):
            return self._as_dataset(pairs)
        if not isinstance(pairs, tuple | list) or len(pairs) != 2:
            raise ValueError(
                "validation_data must be a pair (x, z) or a dataset of pairs, got "
                f"{type(pairs).__name__}"
            )
        x, z = pairs
        return self._dataset(self._validated(x, z, None, self.noise_arguments()))

    def evaluate(  # type: ignore[override]
        self,
        x: Any,
        z: ArrayLike | None = None,
        *,
        missing: ArrayLike | None = None,
        noise_variance: ArrayLike | None = None,
        noise_groups: ArrayLike | None = None,
        observed: ArrayLike | None = None,
        widths: ArrayLike | None = None,
        verbose: int | str = "auto",
        **kwargs: Any,
    ) -> float:
        """Computes the loss of data: the negative log marginal likelihood per point.

        Data are given as for `condition`, or as a dataset of pairs, as for `fit`; `verbose` is as
        for `fit`, further arguments are as for Keras's `evaluate`.
        """
        compile_as_usual(self)
        if isinstance(x, tf.data.Dataset):
            of_one_x = (z, missing, noise_variance, noise_groups, observed, widths)
            check_none_is_of_one_x("a dataset has", *of_one_x)
            dataset = self._as_dataset(x)
        else:
            noise = self.noise_arguments(noise_variance, noise_groups)
            measurements = Measurements(observed, widths)
            dataset = self._dataset(self._validated(x, z, missing, noise, measurements))
        return super().evaluate(dataset, verbose=verbose, **kwargs)

    def train_step(self, data: Any) -> dict[str, Any]:
        """Keras's `train_step`; the mean loss weighs batches by their numbers of targets."""
        with self._loss_weighed(data):
            return super().train_step(data)

    def test_step(self, data: Any) -> dict[str, Any]:
        """Keras's `test_step`; the mean loss weighs batches by their numbers of targets."""
        with self._loss_weighed(data):
            return super().test_step(data)

    def _loss_weighed(self, data: Any) -> contextlib.AbstractContextManager[None]:
        x, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        if not isinstance(x, Data):  # the batch of `train_on_batch`, by itself
            return contextlib.nullcontext()
        return keras_private.loss_weighed(self, tf.shape(x.x)[0], tf.reduce_sum(x.counts))

    def batch_of_shard(self, shard: Any) -> tuple[Data, float]:
        """A pair `(x, z)` as a batch, and the number of its targets."""
        if not isinstance(shard, tuple | list) or len(shard) != 2:
            raise TypeError(f"a shard must be a pair (x, z), got {type(shard).__name__}")
        x, z = shard
        data = self._checked(x, z, None, self.noise_arguments())
        return data, float(tf.reduce_sum(data.counts))

    def training_batch(self, data: Data) -> tuple:
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
        observed: ArrayLike | None = None,
        widths: ArrayLike | None = None,
    ) -> tf.Tensor:
        """The log marginal likelihood of data under the present hyperparameters.

        Arguments are as for `condition`; without any, the data taken in are used. With a
        marginalised trend the likelihood is the restricted one (see `cgp.means.Polynomial`). The
        method may be called in a `tf.function`.

        Returns:
            Real, `[...]`, one for each series; differentiable by the hyperparameters and by z, for
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
        of_samples = missing, noise_variance, noise_groups, observed, widths
        if all(a is None for a in (x, z, *of_samples)):
            data = self.stored_data()
        elif x is None or z is None:
            raise ValueError(
                "x and z belong together, and all else of samples to them: give both, or none of "
                "all for the data taken in"
            )
        else:
            noise = self.noise_arguments(noise_variance, noise_groups)
            data = self._checked(x, z, missing, noise, Measurements(observed, widths))
        return data.unpacked(self.data_log_likelihood(data))

    def _add_loss(self, data: Data, log_likelihood: tf.Tensor) -> dict[str, tf.Tensor]:
        """Adds the loss of data, and returns their log likelihood, the output of training."""
        self.add_loss(self._loss(data, log_likelihood))
        return {"log_likelihood": data.unpacked(log_likelihood)}

    def _loss(self, data: Data, log_likelihood: tf.Tensor) -> tf.Tensor:
        """The negative log likelihood, `[B]`, less the log density of priors, per point."""
        log_priors = self.log_priors(data)
        log_density = tf.reduce_sum(log_likelihood)
        if log_priors:  # which count once in all batches
            log_density += tf.add_n(log_priors) / self.batch_count
        return -log_density / tf.reduce_sum(data.counts)

    def log_priors(self, data: Data) -> list[tf.Tensor]:
        """The log densities of the priors, with the weak prior of a noise variance left out."""
        log_priors = [parameter.log_prior() for parameter in self._with_priors]
        if self.has_weak_prior:
            power = residual_power(self._process, data)
            least = (self._noise_floor, self.rounding_noise(data))
            log_priors.append(log_weak_prior(self.noise_variance.value, power, *least))
        return log_priors

    # --- uncertainty of the hyperparameters -------------------------------------------------------

    def parameter_covariance(
        self, verbose: int | str = "auto", *, name: str | None = None
    ) -> np.ndarray:
        """The covariance of the learned hyperparameters, by Laplace's approximation.

        From the Hessian of the loss, priors included, at the present values, which should be its
        minimum: fit to convergence first. It takes some three evaluations for each hyperparameter.

        Args:
            verbose: 0 is silent, 1 a progress bar; "auto" is one in a terminal or a notebook.
            name: A hyperparameter, as in `parameters()`, for its rows and columns alone.

        Returns:
            `[Q, Q]`, for the constrained values in the order of `parameters()`: the elements of a
            vector one after the other, a complex value as its real and its imaginary part. Rows and
            columns of fixed ones are zero.

        Raises:
            ValueError: No data, or all of them missing; a name that no hyperparameter has.
            NotPositiveDefiniteError: The likelihood has no maximum in the direction that it names.
        """
        rows, data = laplace.rows_of(self.parameters(), name), self.stored_data()
        if not bool(tf.reduce_any(data.present)):
            raise ValueError("all samples are missing: there is nothing to learn from")
        [batch, *_], count = self.training_batch(data), float(tf.reduce_sum(data.counts))
        learned, curvature = laplace.curvature_of_loss(self, batch, count, verbose)
        return laplace.covariance(self.named_hyperparameters(), learned, curvature)[rows, rows]

    def parameter_errors(self, verbose: int | str = "auto") -> dict[str, np.ndarray]:
        """The standard errors of `parameters()`, from `parameter_covariance`; zero where fixed.

        Estimates are normal about the truth with these errors when there are many data. Estimates
        from few data are not, and for a positive value they are skewed: give its interval on the
        log scale, where its error is error / value. In 400 simulated series of 40 to 160 points,
        0.5 apart, of a Matérn-3/2 signal of lengthscale 3 on a carrier in noise, the standard
        deviation of (estimate − truth) / error was 1.5 to 1.2 for the variance and 0.93 to 1.10 for
        all else, the logarithm of the variance included (each ± 0.05). In 300 harder series, of 40
        points 1.0 apart in noise of half the variance of the signal, the frequency had 1.52, and
        the signed root of its profile likelihood ratio 1.11: where an interval from few data
        matters, take it from that ratio.

        Args:
            verbose: As for `parameter_covariance`.

        Returns:
            NumPy arrays by name; for a complex value, the errors of its real and imaginary part as
            one complex number. NaN, with a warning, at the edge of the unit disk, |c| = 1, where
            estimates are not normal for any number of data, and for elements of a positive vector
            that have gone to zero; the other errors hold with these values fixed.
        """
        return laplace.errors_by_name(self.parameters(), self.parameter_covariance(verbose))

    def log_density(self, weights: Sequence[Any]) -> tf.Tensor:
        """The log posterior density of hyperparameters, as a pure function of the weights.

        The log marginal likelihood of the data taken in, plus the log densities of the priors, plus
        the log of the determinant of the maps from weights to hyperparameters: up to a constant,
        the log of a density over the unconstrained weights. It is NaN where the covariance of the
        data is not positive definite. No variable of the model changes.

        The priors of the model are included, and the weak one of a noise variance that was left
        out, but not those that `sample_parameters` adds: a likelihood alone may have no finite
        integral, so give priors to sample from it.

        Args:
            weights: Values of `trainable_variables`, in their order, each `[..., *shape]` with the
                same batch axes in front, none for one point. Points of a batch are evaluated one
                after the other, or in parallel on several cores, not in larger operations.

        Returns:
            Real, `[...]`; differentiable once by the weights.

        Raises:
            TypeError: Hyperparameters, whose values are constrained, in place of weights.
            ValueError: Weights that do not fit, no data.

        Example:
            >>> import numpy as np, tensorflow as tf, cgp
            >>> gp = cgp.ExactGP(cgp.kernels.RBF(1.0, 1.0), noise_variance=0.1)
            >>> gp.condition([0.0, 1.0], [1.0 + 1j, 0.5j])
            >>> print(f"{gp.log_density(gp.trainable_variables):.4f}")
            -6.6390
            >>> twice = [np.stack([v, v]) for v in gp.trainable_variables]
            >>> gp.log_density(twice).shape
            TensorShape([2])
        """
        data, sampler = self.stored_data(), self._sampler()
        points = sampler.coordinates.joined(weights)
        flat = tf.reshape(points, [-1, sampler.coordinates.size])
        if tf.executing_eagerly():
            density = sampler.density(data, (), tf.stop_gradient(flat))
        else:
            with native.own_graph(False):
                density = values_and_gradients(self, sampler.coordinates, data, flat)
        return tf.reshape(attached(flat, *density), tf.shape(points)[:-1])

    def sample_parameters(
        self,
        *,
        chains: int = 4,
        draws: int = 1000,
        warmup: int = 300,
        seed: int | None = None,
        verbose: int | str = "auto",
    ) -> ParameterDraws:
        """Draws hyperparameters from their posterior, given the data taken in.

        With few data predictions at the best hyperparameters are overconfident. `draws.predict(x)`
        averages predictions over the draws instead.

        The No-U-Turn sampler of TensorFlow Probability starts around the present values: fit first,
        or the warm-up has to find the maximum. Where there are several maxima the draws are about
        one. The priors of the model are on constrained values; hyperparameters without a prior get
        a weak one (see `cgp.gp.sampling.density`), which the result names. The variables of the
        model stay as they are.

        Args:
            chains: The number of chains, which run in parallel.
            draws: The number of draws of each chain.
            warmup: The number of draws before these, which adapt the sampler and are dropped.
            seed: Integer, not negative; None for different draws at each call.
            verbose: 0 is silent, 1 a progress bar; "auto" is one if it takes more than some
                seconds, in a terminal or a notebook.

        Raises:
            ValueError: No data, or all of them missing; nothing to draw; weights of no
                hyperparameter; a likelihood without a value; numbers not whole, or negative.

        Warns:
            RuntimeWarning: An R-hat above 1.01; fewer than 100 effective draws a chain; less than
                0.2 of proposals accepted; divergences: the draws are not yet of the posterior.

        Example:
            >>> import numpy as np, cgp
            >>> x = np.arange(12.0)
            >>> gp = cgp.StateSpaceGP(cgp.kernels.Matern12(1.0, 3.0, fixed="lengthscale"), 0.1)
            >>> gp.condition(x, gp.sample(x, seed=0, observed=True)[0])
            >>> draws = gp.sample_parameters(draws=500, seed=1, verbose=0)
            >>> draws["matern12.variance"].shape
            (4, 500)
            >>> draws.weak_priors["matern12.variance"]
            'log-normal about ..., of deviation 2 of the logarithm'
        """
        return draw_parameters(self, self._sampler(), chains, draws, warmup, seed, verbose)

    def _sampler(self) -> Sampler:
        """The compiled functions of the sampler, renewed when other variables become trainable."""
        variables = self.variables_of_hyperparameters
        sampler: Sampler | None = getattr(self, "_compiled_sampler", None)
        if sampler is None or [*map(id, sampler.coordinates.variables)] != [*map(id, variables)]:
            sampler = self._compiled_sampler = Sampler(self, Coordinates(self))
        return sampler

    def save_own_variables(self, store: Any) -> None:
        """Saves the weights and the data; the factor is recomputed from them when needed."""
        super().save_own_variables(store)
        for name, a in arrays_of(self._stored.data).items():
            store[name] = a

    def load_own_variables(self, store: Any) -> None:
        """Loads the weights and the data of a file, or raises where no model has saved the data."""
        super().load_own_variables(numbered(store))
        self._recall(saved_data(store, self.variable_dtype, *self._stored_form))


def _check_eager() -> None:
    if not tf.executing_eagerly():
        raise RuntimeError(
            "data are taken in outside of a tf.function; inside, call "
            "log_marginal_likelihood(x, z), or gp((x, z)) and read gp.losses"
        )
