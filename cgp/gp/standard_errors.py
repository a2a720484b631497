"""Standard errors of hyperparameters, by Laplace's approximation."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.gp import laplace
from cgp.training import refresh
from cgp.training.batches import where_watched
from cgp.training.objective import Objective

# To mypy, a class whose attributes are all known to exist; in truth the model comes after it.
_Base: Any = object


class StandardErrors(_Base):
    """A mixin before a Gaussian process that holds its data."""

    def parameter_covariance(self, verbose: int | str = "auto") -> np.ndarray:
        """The covariance of the learned hyperparameters, by Laplace's approximation.

        From the Hessian of the negative log marginal likelihood, priors included, at the present
        values, which should be its minimum: fit to convergence first, with `cgp.optimizers.LBFGS`.
        It takes some three evaluations of the loss for each hyperparameter.

        Args:
            verbose: 0 is silent, 1 a progress bar; "auto" is one in a terminal or a notebook.

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
        shown = 1 if where_watched(verbose) else 0
        bar = keras.utils.Progbar(loss.start.size, verbose=shown, unit_name="parameter")
        try:
            curvature = laplace.hessian(
                lambda point: count * loss(point)[1], loss.start, bar.update
            )
        finally:
            loss.assign(loss.start)
            refresh(self)
        return laplace.covariance(self.named_hyperparameters(), loss.variables, curvature)

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
            where estimates are not normal for any number of data, and for elements of a positive
            vector that have gone to zero; the others then hold them there.
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
