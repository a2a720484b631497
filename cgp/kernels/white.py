"""White noise as a part of the signal, and the zero kernel."""

import keras
import tensorflow as tf

from cgp.kernels.base import Kernel
from cgp.kernels.covariance_function import Code
from cgp.kernels.data_scales import StartRules
from cgp.kernels.markov import MarkovForm, Pair, over_points
from cgp.kernels.spectrum import Spectrum
from cgp.linalg.arguments import ArrayLike, as_complex
from cgp.training.hyperparameters import Hyperparameter, declared
from cgp.training.parameters import POSITIVE, Parameter


@keras.saving.register_keras_serializable(package="cgp.kernels")
@declared
class White(Kernel):
    """The covariance of white noise, `variance` where `x1 = x2` and zero elsewhere.

    Replicates, measurements at one x, share its value: it belongs to the signal. The
    `noise_variance` of an estimator belongs to the measurement, and differs between replicates.

    Args:
        variance: `E|z|²`, positive; in squared units of z.
        fixed, priors, name, dtype: As for `RBF`.

    Example:
        >>> from cgp.kernels import White
        >>> White(0.5).covariance([0.0, 1.0, 1.0]).numpy().real
        array([[0.5, 0. , 0. ],
               [0. , 0.5, 0.5],
               [0. , 0.5, 0.5]])
    """

    is_real, is_stationary, code = True, True, Code.WHITE
    variance: Hyperparameter = Hyperparameter(POSITIVE, default=None)

    def start_of(self, name: str, rules: StartRules) -> ArrayLike | None:
        """The starting variance, the variance of the white noise in the data."""
        return rules.noise_variance()

    def moments(self, x1: tf.Tensor, x2: tf.Tensor) -> Pair:
        """Covariance and pseudo-covariance between points, elementwise."""
        same = tf.reduce_all(x1 == x2, axis=-1)
        return self.variance.value * tf.cast(same, self.variable_dtype), None

    def spectrum(self) -> Spectrum:
        """The spectrum of the process."""
        return Spectrum(white=float(self.variance))

    def markov_form(self) -> MarkovForm:
        """The state-space form, of one state, drawn anew at each x, where all points share it."""
        variance = as_complex(self.variance.value)

        def transition(step: tf.Tensor) -> tf.Tensor:
            return tf.cast(step == 0, variance.dtype)[..., None, None]

        def discretize(x: tf.Tensor, step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            F = transition(step)
            return F, variance * (1.0 - F)

        return MarkovForm(
            transition,
            discretize,
            lambda x: over_points(variance[None, None], x),
            tf.ones([1], variance.dtype),
        )


@keras.saving.register_keras_serializable(package="cgp.kernels")
@declared
class Zero(Kernel):
    """The covariance of no process: zero everywhere.

    A Gaussian process with it is its mean in white noise: least squares with a marginalised trend,
    a rational fit with `cgp.means.Rational`, in which the coefficients alone are uncertain.

    Args:
        name: A name.
        dtype: "float64" or "float32".

    Example:
        >>> import cgp
        >>> line = cgp.means.Polynomial(1, marginalized=True)
        >>> gp = cgp.ExactGP(cgp.kernels.Zero(), noise_variance=0.3, mean=line)
        >>> gp.condition([0.0, 1.0, 2.0], [0.1 + 0j, 1.0 + 2j, 1.9 + 4j])
        >>> gp.predict([3.0])["mean"].round(4)
        array([2.8+6.j])
    """

    is_real, is_stationary = True, True

    def scale_parameters(self) -> list[Parameter] | None:
        """The parameters that scale all moments: none, as any multiple of zero is zero."""
        return []

    def moments(self, x1: tf.Tensor, x2: tf.Tensor) -> Pair:
        """Covariance and pseudo-covariance between points, elementwise."""
        shape = tf.broadcast_dynamic_shape(tf.shape(x1)[:-1], tf.shape(x2)[:-1])
        return tf.zeros(shape, self.variable_dtype), None

    def spectrum(self) -> Spectrum:
        """The spectrum of no process, which is empty."""
        return Spectrum()
