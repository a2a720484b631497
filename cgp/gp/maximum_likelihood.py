"""Gaussian processes that learn from all of their data at once, and how sure they are of it."""

import keras
import numpy as np
import tensorflow as tf

from cgp.gp import laplace
from cgp.gp.base import GaussianProcess
from cgp.gp.data import Data
from cgp.training import refresh
from cgp.training.objective import Objective


class MaximumLikelihoodGP(GaussianProcess):
    """A Gaussian process whose loss is the negative log marginal likelihood of its data.

    A subclass says what its data are, and in `call((x, z))` adds their loss, from which the errors
    of the hyperparameters follow.
    """

    def _data(self) -> Data:
        """The data taken in, or an error that there are none."""
        raise NotImplementedError

    def _dataset(self, data: Data) -> tf.data.Dataset:
        """Data as the one batch of a dataset, for `call` to add their loss."""
        raise NotImplementedError

    def parameter_covariance(self, verbose="auto") -> np.ndarray:
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
            ValueError: No data.
            NotPositiveDefiniteError: The likelihood has no maximum here; says in what direction.
        """
        data = self._data()
        loss = Objective(self, (*next(iter(self._dataset(data))), None, None))
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

    def parameter_errors(self, verbose="auto") -> dict[str, np.ndarray]:
        """The standard errors of `parameters()`, from `parameter_covariance`; zero where fixed.

        Args:
            verbose: As for `parameter_covariance`.

        Returns:
            NumPy by name; of a complex value, the errors of its real and imaginary part as one
            complex number.
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
