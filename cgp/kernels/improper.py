"""Kernels of the conjugate of a process, and of improper processes."""

from collections.abc import Iterable, Mapping
from typing import Any

import keras
import tensorflow as tf

from cgp.kernels.base import Combination, Kernel
from cgp.kernels.covariance_function import Code, Instructions, add, instruction, joined, multiply
from cgp.kernels.data_scales import StartRules
from cgp.kernels.markov import MarkovForm, Pair, Terms, conjugate, terms_of_conjugate, widely_linear
from cgp.kernels.partials import Partials
from cgp.kernels.spectrum import Spectrum, sum_of_spectra
from cgp.linalg.arguments import ArrayLike, as_complex
from cgp.training.hyperparameters import Hyperparameter, declared
from cgp.training.parameters import UNIT_DISK, Parameter


class UnaryCombination(Combination):
    """A kernel made of one other kernel."""

    arguments = ("kernel",)

    def __init__(
        self, kernel: Kernel, *, name: str | None = None, dtype: str | None = None, **kwargs: Any
    ):
        super().__init__([kernel], name=name, dtype=dtype, **kwargs)

    @property
    def kernel(self) -> Kernel:
        """The kernel inside."""
        return self.parts[0]

    def scale_parameters(self) -> list[Parameter] | None:
        """The parameters of the kernel inside that scale all moments."""
        return self.kernel.scale_parameters()


def _conjugate(moments: Pair) -> Pair:
    k, c = moments
    return tf.math.conj(k), None if c is None else tf.math.conj(c)


@keras.saving.register_keras_serializable(package="cgp.kernels")
class Conjugate(UnaryCombination):
    """The kernel of the conjugate process, `conj(z)`: its covariances are the conjugates.

    A rotation then turns the other way.

    Args:
        kernel: The kernel of z.
        name: A name.
        dtype: The dtype of the kernel.

    Example:
        >>> from cgp.kernels import Conjugate, Rotation
        >>> Conjugate(Rotation(frequency=0.25)).covariance([1.0], [0.0]).numpy().round(12)
        array([[0.-1.j]])
    """

    is_stationary = True

    def _common_outputs(self) -> int | None:
        return self.kernel.outputs

    def moments(self, x1: tf.Tensor, x2: tf.Tensor) -> Pair:
        """Covariance and pseudo-covariance between points, elementwise."""
        return _conjugate(self.kernel.checked_moments(x1, x2))

    def partials(self, x1: tf.Tensor, x2: tf.Tensor) -> Partials:
        """The moments and their partial derivatives, conjugates of those of the kernel."""
        return Partials(*map(_conjugate, self.kernel.partials(x1, x2)))

    def instructions(self) -> Instructions | None:
        """The instructions that evaluate the kernel in the compiled core."""
        return joined(Code.CONJUGATE, [self.kernel.instructions()])

    def markov_form(self) -> MarkovForm:
        """The state-space form."""
        return conjugate(self.kernel.markov_form())

    def markov_terms(self) -> Terms | None:
        """The Matérn terms of the process, in the order of the states of `markov_form`."""
        return terms_of_conjugate(self.kernel.markov_terms())

    def spectrum(self) -> Spectrum:
        """The spectrum of the conjugate signal: all frequencies have the other sign."""
        return self.kernel.spectrum().conjugate()

    def __repr__(self) -> str:
        return f"Conjugate({self.kernel!r})"


@keras.saving.register_keras_serializable(package="cgp.kernels")
@declared
class WidelyLinear(UnaryCombination):
    """The improper kernel of `z = u + c conj(u)`, u being a process of the given kernel.

    With K and C the moments of u (C = 0 when it is proper), the moments of z are

        covariance         K + c̄ C + c C̄ + |c|² K̄,
        pseudo-covariance  C + c (K + K̄) + c² C̄,

    elementwise: a valid pair for any coefficient, by construction (Schreier & Scharf, 2010, §2.3).
    Coefficients beyond the unit circle would describe the same processes with u and its conjugate
    exchanged. With a rotation inside, the signal runs along an ellipse.

    Args:
        kernel: The kernel of u.
        coefficient: Complex, of modulus at most 1: 0 for a proper process, 1 in modulus for one
            that moves on a line. Its argument is twice the angle of the ellipse's long axis.
        priors: TFP distributions of parameters, by name; of the coefficient, of its [re, im].
        fixed, name: As for `RBF`.
        dtype: The dtype of the kernel.

    Example:
        >>> from cgp.kernels import RBF, WidelyLinear
        >>> kernel = WidelyLinear(RBF(), coefficient=0.5j)
        >>> kernel.covariance([0.0]).numpy(), kernel.pseudo_covariance([0.0]).numpy()
        (array([[1.25+0.j]]), array([[0.+1.j]]))
    """

    coefficient: Hyperparameter = Hyperparameter(UNIT_DISK, default=None)

    def __init__(
        self,
        kernel: Kernel,
        coefficient: ArrayLike | None = None,
        *,
        fixed: str | Iterable[str] = (),
        priors: Mapping[str, Any] | None = None,
        name: str | None = None,
        dtype: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(kernel, name=name, dtype=dtype, **kwargs)
        self.is_proper = self.is_real = False
        values = self.initial_values({"coefficient": coefficient})
        self.declare_parameters(values, fixed, priors)

    def _common_outputs(self) -> int | None:
        return self.kernel.outputs

    def start_of(self, name: str, rules: StartRules) -> ArrayLike | None:
        """The starting values: the coefficient from the circularity quotient of the data."""
        return rules.coefficient() if name == "coefficient" else super().start_of(name, rules)

    def moments(self, x1: tf.Tensor, x2: tf.Tensor) -> Pair:
        """Covariance and pseudo-covariance between points, elementwise."""
        return self._improper(self.kernel.checked_moments(x1, x2))

    def partials(self, x1: tf.Tensor, x2: tf.Tensor) -> Partials:
        """The moments and their partial derivatives, which are linear in those of u."""
        return Partials(*map(self._improper, self.kernel.partials(x1, x2)))

    def _improper(self, moments: Pair) -> Pair:
        """The moments of z from those of u, or their derivatives from derivatives."""
        k, c = moments
        w = self.coefficient.value
        square = tf.math.real(w * tf.math.conj(w))
        covariance = add(k, multiply(square, tf.math.conj(k)))
        pseudo = multiply(2.0 * tf.math.real(k), w)
        if c is None:
            return covariance, pseudo
        c = as_complex(c)
        cross = 2.0 * tf.math.real(w * tf.math.conj(c))
        return add(covariance, cross), pseudo + c + w * w * tf.math.conj(c)

    def instructions(self) -> Instructions | None:
        """The instructions that evaluate the kernel in the compiled core."""
        inner, w = self.kernel.instructions(), complex(self.coefficient.numpy())
        combination = instruction(Code.WIDELY_LINEAR, w.real, w.imag)
        return None if inner is None else (*inner, combination)

    def markov_form(self) -> MarkovForm:
        """The state-space form."""
        return widely_linear(self.kernel.markov_form(), self.coefficient.value)

    def spectrum(self) -> Spectrum:
        """The spectrum of u plus `|coefficient|²` times the spectrum of its conjugate."""
        if not self.kernel.is_proper:
            return super().spectrum()
        of_u, share = self.kernel.spectrum(), abs(complex(self.coefficient)) ** 2
        return sum_of_spectra([of_u, of_u.conjugate().shifted(0.0, share)])

    def __repr__(self) -> str:
        return f"WidelyLinear({self.kernel!r}, {', '.join(map(repr, self.own_parameters))})"
