"""The posterior of the hyperparameters of a Gaussian process: its density, and draws from it."""

import time
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from cgp import native
from cgp.gp.sampling.coordinates import Coordinates
from cgp.gp.sampling.density import attached, values_and_gradients
from cgp.gp.sampling.nuts import Sampler
from cgp.gp.sampling.parameter_draws import ParameterDraws, made
from cgp.gp.sampling.weak_priors import in_words, weak_priors
from cgp.linalg.arguments import check_whole
from cgp.training.batches import where_watched

# To mypy, a class whose attributes are all known to exist; in truth the model comes after it.
_Base: Any = object

_PATIENCE = 5.0  # seconds without a progress bar


class ParameterSampling(_Base):
    """A mixin before a Gaussian process that holds its data."""

    def log_density(self, weights: Sequence[Any]) -> tf.Tensor:
        """The log posterior density of hyperparameters, as a pure function of the weights.

        The log marginal likelihood of the data taken in, plus that of the priors, plus the log of
        the determinant of the maps from weights to hyperparameters: a density over the weights,
        which are unconstrained, but for a constant. Where the covariance of the data is not
        positive definite it is NaN. No variable of the model changes.

        Priors are those of the model, and of a noise variance that was left out the weak one of
        `fit`. The weak priors that `sample_parameters` adds for hyperparameters without one are not
        in it: a likelihood alone may have no finite integral, so give priors where you draw by it.

        Args:
            weights: Values of `trainable_variables`, in their order, each `[..., *shape]` with the
                same batch axes in front, none for one point. Points of a batch are worked out one
                after the other, or side by side where there are cores, not in larger operations.

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
        data, sampler = self._data(), self._sampler()
        points = sampler.coordinates.joined(weights)
        flat = tf.reshape(points, [-1, sampler.coordinates.size])
        if tf.executing_eagerly():
            found = sampler.density(data, (), tf.stop_gradient(flat))
        else:
            with native.own_graph(False):
                found = values_and_gradients(self, sampler.coordinates, data, flat)
        return tf.reshape(attached(flat, *found), tf.shape(points)[:-1])

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

        With few data a likelihood is wide, and the one best value of a length scale or a noise
        leaves out what that says of predictions: they are surer than they should be. Draws carry
        the uncertainty on: `draws.predict(x)` averages over it.

        By the No-U-Turn sampler of TensorFlow Probability, from around the present values: fit
        first, or the warm-up has to find where the posterior is. It finds one maximum of several.
        Priors are those of the model, of the constrained values; hyperparameters without one get a
        weak one (see `cgp.gp.sampling.weak_priors`), which the result names. The variables of the
        model stay as they are.

        Args:
            chains: How many chains, which run side by side.
            draws: How many draws of each chain.
            warmup: How many draws before, which adapt the sampler and are dropped.
            seed: Integer, not negative; None for different draws at each call.
            verbose: 0 is silent, 1 a progress bar; "auto" is one if it takes more than some
                seconds, in a terminal or a notebook.

        Raises:
            ValueError: No data, or all of them missing; nothing to draw; weights that belong to no
                hyperparameter; hyperparameters at which the likelihood has no value; numbers that
                are not whole, or negative.

        Warns:
            RuntimeWarning: Chains that disagree, an R-hat above 1.01; fewer than 100 effective
                draws a chain; chains that never moved, or accepted less than 0.2 of their
                proposals; divergences: the draws are then not yet those of the posterior.

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
        for name, value, least in (
            ("chains", chains, 1),
            ("draws", draws, 4),
            ("warmup", warmup, 0),
        ):
            check_whole(value, name, least=least)
        if seed is not None:
            check_whole(seed, "seed", least=0)
        if verbose not in ("auto", 0, 1):
            raise ValueError(f'verbose must be "auto", 0 or 1, got {verbose!r}')
        data, sampler = self._data(), self._sampler()
        coordinates = sampler.coordinates
        if not bool(tf.reduce_any(data.present)):
            raise ValueError("all samples are missing: there is nothing to learn from")
        if coordinates.without_parameter:
            raise ValueError(
                f"the weights {coordinates.without_parameter} belong to no hyperparameter, and "
                "have no prior: set trainable=False of their layers"
            )
        if coordinates.size == 0:
            raise ValueError("no trainable hyperparameters: there is nothing to draw")
        weak = weak_priors(self, coordinates, data)
        bar = _Progress(warmup + draws, verbose)
        found = sampler.run(
            data,
            tuple(weak.get(name) for name in coordinates.parameters),
            chains,
            draws,
            warmup,
            seed,
            bar.update,
        )
        return made(self, in_words(self, data, weak), found)

    def _sampler(self) -> Sampler:
        """The compiled functions, kept until other variables become trainable."""
        variables = self.trainable_variables
        kept: Sampler | None = getattr(self, "_kept_sampler", None)
        if kept is None or list(map(id, kept.coordinates.variables)) != list(map(id, variables)):
            kept = self._kept_sampler = Sampler(self, Coordinates(self))
        return kept


class _Progress:
    """A progress bar that appears after some seconds."""

    def __init__(self, total: int, verbose: int | str):
        self._total, self._verbose = total, where_watched(verbose)
        self._begin = time.monotonic()
        self._bar: Any = None

    def update(self, done: int) -> None:
        """Shows how many draws are done."""
        late = time.monotonic() - self._begin > _PATIENCE
        if self._bar is None and (self._verbose == 1 or (self._verbose == "auto" and late)):
            self._bar = keras.utils.Progbar(self._total, unit_name="draw")
        if self._bar is not None:
            self._bar.update(done)
