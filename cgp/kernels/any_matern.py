"""The Matérn kernel of a smoothness that is learned."""

import keras
import tensorflow as tf

from cgp.kernels.base import Kernel
from cgp.kernels.bessel import matern_correlation
from cgp.kernels.data_scales import StartRules
from cgp.kernels.markov import Pair
from cgp.kernels.points import per_dimension
from cgp.kernels.spectrum import Spectrum, matern
from cgp.linalg.arguments import ArrayLike
from cgp.training.hyperparameters import Hyperparameter, declared
from cgp.training.parameters import POSITIVE


@keras.saving.register_keras_serializable(package="cgp.kernels")
@declared
class Matern(Kernel):
    """The Matérn kernel of any smoothness ν, `variance · 2^{1−ν}/Γ(ν) (√(2ν) r)^ν K_ν(√(2ν) r)`.

    K_ν is a modified Bessel function, r = |(x1 − x2)/lengthscale| (Rasmussen & Williams, 2006,
    §4.2.1). The signal has ν derivatives, rounded up less one: ½, 3/2 and 5/2 are `Matern12`,
    `Matern32` and `Matern52`, which are Markov and take a fraction of the time; large ν tend to
    `RBF`. It has no finite state-space form: learn ν by `ExactGP`, then take the nearest of these.

    Args:
        variance: `E|z|²`, positive; in squared units of z.
        lengthscale: In units of x, positive; one number, or one for each dimension of x.
        smoothness: ν, positive, without units.
        fixed: Names of parameters that training leaves alone.
        priors: TFP distributions of parameters, by name.
        name: A name for its parameters.
        dtype: "float64" or "float32".

    Raises:
        ValueError: Parameters that are not positive.

    Example:
        >>> from cgp.kernels import Matern
        >>> Matern(2.0, lengthscale=3.0, smoothness=1.5).covariance([0.0], [3.0]).numpy().round(4)
        array([[0.9667+0.j]])
    """

    is_real = True
    variance: Hyperparameter = Hyperparameter(POSITIVE, default=None)
    lengthscale: Hyperparameter = Hyperparameter(POSITIVE, default=None, per_dimension=True)
    smoothness: Hyperparameter = Hyperparameter(POSITIVE._replace(placeholder=1.5), default=None)

    def start_of(self, name: str, rules: StartRules) -> ArrayLike | None:
        """The starting values: a smoothness of 3/2."""
        return rules.scattered(1.5, 1.0) if name == "smoothness" else super().start_of(name, rules)

    def moments(self, x1: tf.Tensor, x2: tf.Tensor) -> Pair:
        """Covariance and pseudo-covariance between points, elementwise."""
        # The difference first: a date over a length scale would lose the digits that matter.
        square = tf.reduce_sum(((x1 - x2) / per_dimension(self.lengthscale, x1)) ** 2, axis=-1)
        return self.variance.value * matern_correlation(self.smoothness.value, square), None

    def spectrum(self) -> Spectrum:
        """The spectrum of the process."""
        if self.lengthscale.numpy().ndim:
            return super().spectrum()
        return matern(float(self.variance), float(self.lengthscale), float(self.smoothness))
