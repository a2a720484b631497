"""ExactGP: a complex Gaussian process with a dense covariance."""

import keras
import numpy as np
import tensorflow as tf

from cgp.gp.base import as_dict
from cgp.gp.conditioning import Conditioned
from cgp.gp.data import Data, as_data, check_points, flattened
from cgp.gp.maximum_likelihood import MaximumLikelihoodGP
from cgp.gp.posterior import Posterior
from cgp.gp.stored_data import StoredData
from cgp.kernels.points import as_points
from cgp.linalg import cholesky
from cgp.linalg.arguments import nan
from cgp.training import confirm, invalidate, refresh


@keras.saving.register_keras_serializable(package="cgp")
class ExactGP(MaximumLikelihoodGP):
    """A Gaussian process of a complex signal, observed in noise, with a dense covariance.

    The signal is `f ~ GP(mean, kernel)`, the data `z = f(x) + n`. Learning N points costs O(N³) a
    step. A signal is proper if its kernel and its noise are, and is then worked out in complex
    matrices; an improper one in real matrices of twice the size (see `cgp.distributions.forms`).

    Data come by `condition`, or by `fit`, which learns the hyperparameters too. Their factor is
    kept, recomputed after each gradient step and whenever a hyperparameter has changed in another
    way, and serves every prediction. Before any data the posterior is the prior.

    As a layer, `gp(x)` returns the dictionary that `predict` returns, and `gp((x, z))` the same at
    x given z, adding its loss, the negative log marginal likelihood per point, to that of the model
    it sits in; gradients pass to x, z and the hyperparameters.

    Args:
        kernel: A kernel, shared with whoever else holds it.
        noise_variance: `E|n|²`, positive; in squared units of z.
        noise_pseudo_variance: `E[n²]`, complex, at most `noise_variance` in modulus. Zero, the
            default, stays zero: the noise is circular. Another value is learned, as its ratio to
            the noise variance, the circularity quotient.
        mean: A mean of `cgp.means`, or None for zero.
        fixed: Names, of "noise_variance" and "noise_circularity", that training leaves alone.
        priors: TFP distributions of "noise_variance", by name.
        name: A name.
        dtype: "float64" (complex128 data) or "float32" (complex64); that of the kernel if None.

    Raises:
        TypeError: No kernel, or dtypes that differ.
        ValueError: A noise that no process can have.

    Example:
        >>> import numpy as np
        >>> import cgp
        >>> t = np.linspace(0.0, 4.0, 9)
        >>> gp = cgp.ExactGP(cgp.kernels.RBF() * cgp.kernels.Rotation(0.5), noise_variance=1e-4)
        >>> gp.condition(t, np.exp(1j * np.pi * t))
        >>> mean = gp.predict([1.25])["mean"]
        >>> bool(abs(mean[0] - np.exp(1.25j * np.pi)) < 0.01)
        True
    """

    def __init__(
        self,
        kernel,
        noise_variance,
        noise_pseudo_variance=0.0,
        mean=None,
        *,
        fixed=(),
        priors=None,
        name=None,
        dtype=None,
        **kwargs,
    ):
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
        self._memory = StoredData(self.variable_dtype, self._process.is_proper)
        self._watch(self._factorize, state_is_weights=False)
        self.built = True

    # --- the factor of the data ----------------------------------------------------------------

    def _factorize(self) -> None:
        """The post-gradient update: the factor of the data at the present hyperparameters."""
        memory = self._memory

        def factorize():
            memory.chol.assign(cholesky(self._process.covariance(memory.data)))
            return True

        # When it runs, not when it is traced: data may come later.
        tf.cond(memory.is_empty, lambda: False, factorize)

    def _covariance_and_factor(self, data: Data) -> tuple[tf.Tensor, tf.Tensor]:
        """The covariance of data and its factor, the stored one if they are what it is of.

        No gradient passes through the factor.
        """
        refresh(self)
        covariance = self._process.covariance(data)
        chol = tf.cond(
            self._memory.holds(data),
            lambda: self._memory.factor(tf.shape(covariance)),
            lambda: cholesky(tf.stop_gradient(covariance)),
        )
        return covariance, tf.ensure_shape(chol, covariance.shape)

    # --- taking data in ------------------------------------------------------------------------

    def _check(self, data: Data) -> None:
        if self.mean is not None:
            self.mean.evaluate(data.x)  # may refuse the inputs
        self._process.check_trend(data)

    def _condition(self, data: Data) -> None:
        # The factor first: where it fails nothing has been replaced.
        chol = cholesky(self._process.covariance(data))
        self._check_watched()
        self._memory.replace(data, chol)
        confirm(self)

    def _log_likelihood(self, data: Data) -> tf.Tensor:
        return self._process.log_likelihood(data, *self._covariance_and_factor(data))

    # --- predictions ---------------------------------------------------------------------------

    def posterior(self, x, *, observed: bool = False) -> Posterior:
        """The signal at new points given the data, or its prior before any.

        Args:
            x: Inputs, `[M]` or `[M, D]`; `[..., M, D]` where each series has its own.
            observed: Whether to add the noise of a measurement to the signal.

        Returns:
            A `ComplexNormal` of `[..., M]`: `mean`, `variance`, `pseudo_variance`, `covariance`,
            `pseudo_covariance`, `sample`, `log_prob`, `ellipses`. Differentiable. In a
            `tf.function`, of data that are there when it is traced.

        Raises:
            TypeError: Complex inputs.
            ValueError: NaN inputs or a shape that does not fit the data; before any data, a
                marginalised trend, which has no prior.
        """
        x = as_points(x, self.variable_dtype)
        if tf.executing_eagerly():
            if bool(self._memory.is_empty):
                return self._process.prior(x, observed)
            data = self._memory.data
            check_points(x, data)
        else:
            data = self._memory.data_of_graph()
        return self._process.posterior(data, self._conditioned(data), flattened(x, 2), observed)

    def _conditioned(self, data: Data) -> Conditioned:
        """The data taken in, with their factor, ready for predictions."""
        refresh(self)
        chol = tf.convert_to_tensor(self._memory.chol)
        return self._process.condition(data, self._process.covariance(data), chol)

    def call(self, inputs) -> dict[str, tf.Tensor]:
        """The dictionary of `predict`, at x, or at x given z for inputs `(x, z)`; adds the loss."""
        if isinstance(inputs, tuple | list):
            x, z = inputs
            data = as_data(x, z, None, self.variable_dtype, require_targets=False)
            covariance, chol = self._covariance_and_factor(data)
            log_density = self._process.log_likelihood(data, covariance, chol)
            self.add_loss(self._loss(data, log_density))
            given = self._process.condition(data, covariance, chol)
            return as_dict(self._process.posterior(data, given, data.x, observed=False))
        x = as_points(inputs, self.variable_dtype)
        if tf.executing_eagerly() or self._process.marginalized(x):
            return as_dict(self.posterior(x))
        # Outside of the branches: the gradient of a branch wants to know the shapes of variables.
        data = self._memory.data
        given = self._conditioned(data)
        return tf.cond(
            self._memory.is_empty,
            lambda: as_dict(self._process.prior(x, False)),
            lambda: as_dict(self._process.posterior(data, given, flattened(x, 2), False)),
        )

    def loo(self) -> dict[str, np.ndarray]:
        """Each target predicted by the others of its series, from the factor that is there.

        Returns:
            As `predict`, of the observation, noise included, at the inputs of the data, `[..., N]`;
            NaN where the target is missing.

        Raises:
            ValueError: No data.
        """
        data = self._data()
        self._process.check_trend(data, leave_out=True)
        deviation, moments = self._conditioned(data).leave_one_out()
        k, c = moments
        mean = data.unpacked(data.z - data.vectors(deviation))
        zero = tf.zeros_like(mean)  # to give variances that series share to each of them
        found = {
            "mean": mean,
            "variance": tf.math.real(data.spread(k) + zero),
            "pseudo_variance": zero if c is None else data.spread(c) + zero,
        }
        present = data.unpacked(data.present)
        return {
            name: tf.where(present, value, nan(value.dtype)).numpy()
            for name, value in found.items()
        }

    # --- saving --------------------------------------------------------------------------------

    def _recall(self, data: Data) -> None:
        # Kernel weights may be loaded later: the factor has to wait.
        self._memory.replace(data, tf.zeros_like(self._memory.chol))
        invalidate(self)
