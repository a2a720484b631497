"""A Markov process observed in noise at times of any spacing, as a linear Gaussian model."""

import tensorflow as tf

from cgp.distributions.forms import CompositeForm, SecondMoments
from cgp.gp.signal_plus_noise import SignalPlusNoise
from cgp.linalg.batch_last import cholesky
from cgp.statespace.linear_gaussian import LinearGaussian
from cgp.statespace.widely_linear import composite_rows


class DiscretizedProcess:
    """`z = f(x) + n` of a Markov kernel; for the present hyperparameters.

    Args:
        process: Kernel and noise.
    """

    def __init__(self, process: SignalPlusNoise):
        self._process = process
        self.form = process.form
        self._markov = process.kernel.markov_form()
        # A signal of a proper state may be improper by its conjugate.
        self._working = isinstance(self.form, CompositeForm)

    # --- matrices, complex or of the composite ---------------------------------------------------

    def emission(self) -> tf.Tensor:
        """H, `[1, n]`, or `[2, 2n]` of the composite."""
        h, h_conj = self._markov.h[None], self._markov.h_conj
        if not self._working:
            return h
        return composite_rows(h, None if h_conj is None else h_conj[None])

    def _matrix(self, a: tf.Tensor) -> tf.Tensor:
        return self.form.basis(a)  # itself where the form is complex

    def _covariance(self, a: tf.Tensor) -> tf.Tensor:
        return self.form.covariance(SecondMoments(a, None))

    def noise(self) -> tf.Tensor:
        """R, `[1, 1]`, or `[2, 2]` of the composite."""
        zero = tf.zeros([1, 1], self._markov.h.dtype)
        return self.form.covariance(self._process.with_noise(SecondMoments(zero, None)))

    def initial(self, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """The covariance of the state at points `[...]`, and a factor: `[..., n, n]`."""
        covariance = self._markov.covariance(x)
        return self._covariance(covariance), self._root(covariance)

    def discretize(self, x: tf.Tensor, step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """F, Q and a factor of Q over steps `[...]` from points `[...]`: `[..., n, n]`."""
        if self._markov.is_stationary:
            # Samples are mostly taken at a few different steps.
            different, index = tf.unique(tf.reshape(step, [-1]))
            F, Q = self._markov.discretize(tf.zeros_like(different), different)
            G = self._root(Q)
            shape = tf.concat([tf.shape(step), tf.shape(G)[1:]], axis=0)
            return tuple(
                tf.reshape(tf.gather(a, index), shape)
                for a in (self._matrix(F), self._covariance(Q), G)
            )
        F, Q = self._markov.discretize(x, step)
        return self._matrix(F), self._covariance(Q), self._root(Q)

    def _root(self, covariance: tf.Tensor) -> tf.Tensor:
        """A factor of proper covariances `[..., n, n]`, of the form; no gradient passes."""
        batch = covariance.shape.rank - 2
        axes = list(range(batch)), list(range(-batch, 0))
        last = tf.experimental.numpy.moveaxis(tf.stop_gradient(covariance), *axes)
        return self.form.root(tf.experimental.numpy.moveaxis(cholesky(last), *axes[::-1]))

    # --- the model -------------------------------------------------------------------------------

    def model(self, x: tf.Tensor) -> LinearGaussian:
        """The model of a series at points `[..., T]` in order."""
        steps = tf.concat([x[..., 1:] - x[..., :-1], tf.zeros_like(x[..., :1])], axis=-1)
        F, Q, G = self.discretize(x, steps)
        covariance, chol = self.initial(x[..., 0])
        H, R = self.emission(), self.noise()
        if x.shape.rank > 1:
            H, R = H[None], R[None]
        given = {"F": F, "Q": Q, "H": H, "R": R, "initial_covariance": covariance}
        factors = {"Q": G, "R": None, "initial_covariance": chol}
        return LinearGaussian.of_tensors(given, None, factors, self.form)
