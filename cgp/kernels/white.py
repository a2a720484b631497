"""White noise as a part of the signal."""

import keras
import tensorflow as tf

from cgp.kernels import markov
from cgp.kernels.base import Kernel
from cgp.kernels.points import one_number
from cgp.training.parameters import POSITIVE


@keras.saving.register_keras_serializable(package="cgp.kernels")
class White(Kernel):
    """The covariance of white noise, `variance` where `x1 = x2` and zero elsewhere.

    Replicates, measurements at one x, share its value: it belongs to the signal. The
    `noise_variance` of an estimator belongs to the measurement, and differs between replicates.

    Args:
        variance: `E|z|²`, positive; in squared units of z.
        fixed: Names of parameters that training leaves alone.
        priors: TFP distributions of parameters, by name.
        name: A name for its parameters.
        dtype: "float64" or "float32".

    Example:
        >>> from cgp.kernels import White
        >>> White(0.5).covariance([0.0, 1.0, 1.0]).numpy().real
        array([[0.5, 0. , 0. ],
               [0. , 0.5, 0.5],
               [0. , 0.5, 0.5]])
    """

    is_real = True
    is_markov = True

    def __init__(
        self, variance=1.0, *, fixed=(), priors=None, name=None, dtype="float64", **kwargs
    ):
        super().__init__(name=name, dtype=dtype, **kwargs)
        values = {"variance": (one_number(variance, "variance"), POSITIVE)}
        self.declare_parameters(values, fixed, priors)

    def moments(self, x1, x2):
        """See `Kernel.moments`."""
        same = tf.reduce_all(x1 == x2, axis=-1)
        return self.variance.value * tf.cast(same, self.variable_dtype), None

    def markov_form(self):
        """See `Kernel.markov_form`."""
        return markov.white(self.variance.value)
