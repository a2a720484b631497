"""The base class of kernels, and the algebra of kernels.

A kernel is a Keras layer that owns hyperparameters and evaluates second moments. Sums and products
are here too, as the operators `+` and `*` of a kernel make them.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from numbers import Number, Real
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from cgp.kernels.covariance_function import CovarianceFunction, add, multiply
from cgp.kernels.data_scales import StartRules
from cgp.kernels.markov import Generator, MarkovForm, Pair, direct_sum, over, product
from cgp.kernels.points import optional_number
from cgp.kernels.program import Code, Instructions, instruction, joined
from cgp.kernels.spectrum import Spectrum, line, of_form, spectra_added, times_lines
from cgp.kernels.terms import Term, Terms, product_of, sum_of
from cgp.linalg.arguments import ArrayLike, as_complex
from cgp.training.parameters import POSITIVE, Parameter
from cgp.training.sharing import sharing_scope


class Kernel(CovarianceFunction):
    """The base class of all kernels.

    To write one, declare its parameters and implement `moments`; for a Markov process over
    one-dimensional inputs `markov_form` instead, from which `moments` follows (see `linear_sde`).
    A kernel that implements both is compared with itself when it is first used.

    Kernels add and multiply with each other; positive scalars multiply and divide the covariance.
    The same kernel object in two places is one set of hyperparameters.

    The first `fit` of a model starts a hyperparameter that was left out from the data, by the rule
    in `start_of`: a variance at its share of `E|z|²`, a length scale between the spacing of x and
    its span, a frequency at a peak of the periodogram. Until then models refuse to predict, and
    `parameters()` shows NaN; moments of the kernel by itself have 1 in its place (a coefficient 0).
    One variance is enough for a product: beside one that has a value, others are 1.

    Args:
        name: A name for its parameters, as in `gp.parameters()`; by default the class's.
        dtype: "float64" (complex128 covariances) or "float32" (complex64).

    Example:
        Straight lines of a random slope. The arguments of the constructor are named as the
        parameters and passed on; the registration is for loading; `is_real` is for products with
        improper kernels.

        >>> import keras, tensorflow as tf
        >>> from cgp.kernels import RBF, Kernel
        >>> from cgp.training import POSITIVE
        >>> @keras.saving.register_keras_serializable(package="mine")
        ... class Line(Kernel):
        ...     is_real = True
        ...
        ...     def __init__(self, variance=1.0, *, fixed=(), priors=None, **kwargs):
        ...         super().__init__(**kwargs)
        ...         self.declare_parameters({"variance": (variance, POSITIVE)}, fixed, priors)
        ...
        ...     def moments(self, x1, x2):
        ...         return self.variance.value * tf.reduce_sum(x1 * x2, axis=-1), None
        >>> kernel = Line(2.0, fixed="variance") + RBF(1.0, 1.0)
        >>> config = keras.saving.serialize_keras_object(kernel)
        >>> keras.saving.deserialize_keras_object(config)
        Line(variance=2. (fixed)) + RBF(variance=1., lengthscale=1.)
    """

    # NumPy then leaves `np.float64(2) * kernel` to us, and `array * kernel` is an error.
    __array_ufunc__ = None

    def __add__(self, other: object) -> "Kernel":
        if isinstance(other, Kernel):
            return Sum([self, other])
        if isinstance(other, Number | np.ndarray):
            raise TypeError(
                f"{self!r} is added to kernels, got {other!r}: the covariance of a constant is "
                "cgp.kernels.Constant(variance), that of white noise cgp.kernels.White(variance)"
            )
        return NotImplemented

    def __radd__(self, other: object) -> "Kernel":
        # sum([k1, k2]) starts at 0
        return self if isinstance(other, Real) and other == 0 else self.__add__(other)

    def __mul__(self, other: object) -> "Kernel":
        if isinstance(other, Kernel):
            return Product([self, other])
        if isinstance(other, Real):
            return Product(
                [Constant(float(other), fixed="variance", dtype=self.variable_dtype), self]
            )
        if isinstance(other, Number | np.ndarray | str):
            raise TypeError(
                f"{self!r} is multiplied by a real number, which scales its covariance, or by a "
                f"kernel, got {other!r}: c f(x) has |c|² times the covariance of f"
            )
        return NotImplemented

    __rmul__ = __mul__

    def __truediv__(self, other: object) -> "Kernel":
        return self * (1.0 / float(other)) if isinstance(other, Real) else NotImplemented

    def __neg__(self) -> "Kernel":
        raise TypeError(
            f"{self!r} cannot be negated or subtracted: minus a covariance is no covariance, and "
            "the difference of two independent processes has the sum of theirs"
        )

    def __sub__(self, other: object) -> "Kernel":
        return -self

    def __rsub__(self, other: object) -> "Kernel":
        return -self


@keras.saving.register_keras_serializable(package="cgp.kernels")
class Constant(Kernel):
    """The covariance of a constant: `K(x1, x2) = variance`.

    Args:
        variance: Variance of the constant, positive; in squared units of z.
        fixed: Names of parameters that training leaves alone.
        priors: TFP distributions of parameters, by name.
        name: A name for its parameters.
        dtype: "float64" or "float32".

    Example:
        >>> from cgp.kernels import Constant
        >>> Constant(variance=2.0).covariance([0.0, 1.0]).numpy().real
        array([[2., 2.],
               [2., 2.]])
    """

    is_real = True
    variance: Parameter

    def __init__(
        self,
        variance: ArrayLike | None = None,
        *,
        fixed: str | Iterable[str] = (),
        priors: Mapping[str, Any] | None = None,
        name: str | None = None,
        dtype: str = "float64",
        **kwargs: Any,
    ):
        super().__init__(name=name, dtype=dtype, **kwargs)
        values = {"variance": (optional_number(variance, "variance"), POSITIVE)}
        self.declare_parameters(values, fixed, priors)

    def moments(self, x1: tf.Tensor, x2: tf.Tensor) -> Pair:
        """See `Kernel.moments`."""
        shape = tf.broadcast_dynamic_shape(tf.shape(x1)[:-1], tf.shape(x2)[:-1])
        return tf.broadcast_to(self.variance.value, shape), None

    @property
    def trend_degree(self) -> int | None:
        """The degree of the trend, 0: a constant."""
        return 0

    def has_level(self, x: np.ndarray) -> bool:
        """Whether a large constant is likely: yes, a constant of any size."""
        return True

    def start_of(self, name: str, rules: StartRules) -> ArrayLike | None:
        """The start of the variance: the squared offset of the data."""
        return rules.trend_variance(0) if name == "variance" else super().start_of(name, rules)

    def instructions(self) -> Instructions:
        """See `Kernel.instructions`."""
        return (instruction(Code.CONSTANT, self.variance),)

    def markov_form(self) -> MarkovForm:
        """See `Kernel.markov_form`.

        One state, which stays as it is.
        """
        variance = as_complex(self.variance.value)
        one = tf.ones([1, 1], variance.dtype)
        zero = tf.zeros_like(one)
        return MarkovForm(
            lambda step: over(one, step),
            lambda x, step: (over(one, step), over(zero, step)),
            lambda x: over(variance * one, x),
            one[0],
            None,
            Generator(zero, zero),
        )

    def markov_terms(self) -> Terms:
        """See `Kernel.markov_terms`."""
        return (Term(0, self.variance.value),)

    def spectrum(self) -> Spectrum:
        """The spectrum, a line."""
        return line(0.0, float(self.variance))

    def check_points(self, x: tf.Tensor) -> None:
        """See `Kernel.check_points`: any."""


class Combination(Kernel):
    """A kernel made of other kernels, which other holders may share."""

    argument = "parts"
    """The name of the constructor's argument that takes them."""

    def __init__(
        self,
        parts: Iterable[Kernel],
        *,
        name: str | None = None,
        dtype: str | None = None,
        **kwargs: Any,
    ):
        parts = tuple(parts)
        for part in parts:
            if not isinstance(part, Kernel):
                raise TypeError(f"{type(self).__name__} is made of kernels, got {part!r}")
        if not parts:
            raise ValueError(f"a {type(self).__name__} needs at least one kernel, got none")
        super().__init__(name=name, dtype=dtype or parts[0].variable_dtype, **kwargs)
        for part in parts:
            if part.variable_dtype != self.variable_dtype:
                raise TypeError(
                    f"a {type(self).__name__} and its parts must have one dtype, but it is "
                    f"{self.variable_dtype}, and {part!r} is {part.variable_dtype}"
                )
        self.parts = parts
        self.is_real = all(part.is_real for part in parts)
        self.is_proper = all(part.is_proper for part in parts)
        self.is_markov = all(part.is_markov for part in parts)

    def check_points(self, x: tf.Tensor) -> None:
        """See `Kernel.check_points`."""
        for part in self.parts:
            part.check_points(x)

    @property
    def trend_degree(self) -> int | None:
        """The degree of a product of trends, the sum of their degrees; else None."""
        degrees = [p.trend_degree for p in self.parts if p.trend_degree is not None]
        return sum(degrees) if len(degrees) == len(self.parts) else None

    def has_level(self, x: np.ndarray) -> bool:
        """Whether a large constant is likely: yes if it is under every factor."""
        return all(part.has_level(x) for part in self.parts)

    def inside(self) -> Iterator[CovarianceFunction]:
        """See `Kernel.inside`: the parts, one that is there twice twice."""
        return iter(self.parts)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, the parts serialised."""
        parts = keras.saving.serialize_keras_object(getattr(self, self.argument))
        return {**super().get_config(), self.argument: parts}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The kernel of a config; parts that are one object in it are one object again."""
        with sharing_scope():
            parts = keras.saving.deserialize_keras_object(config[cls.argument])
            return super().from_config({**config, cls.argument: parts})


def left_out_of_factors(factors: Iterable[CovarianceFunction]) -> list[Parameter]:
    """See `Kernel.left_out`, of kernels that are multiplied.

    One variance is enough for a product: beside it, one that was left out is 1.
    """
    factors = list(factors)
    scales = [factor.scale_parameters() or [] for factor in factors]
    has_scale = any(scale and not any(p.is_left_out for p in scale) for scale in scales)
    units = {id(scale[0]) for scale in scales if has_scale and len(scale) == 1}
    return [p for factor in factors for p in factor.left_out() if id(p) not in units]


def _flattened(kind: type[Kernel], parts: Iterable[Kernel]) -> list[Kernel]:
    """(a + b) + c as the sum of three; a part with a name of its own stays whole."""
    if isinstance(parts, Kernel):
        raise TypeError(f"{kind.__name__} takes a list of kernels, got {parts!r}")
    flat: list[Kernel] = []
    for part in parts:
        flat.extend(part.parts if type(part) is kind and part.chosen_name is None else [part])
    return flat


@keras.saving.register_keras_serializable(package="cgp.kernels")
class Sum(Combination):
    """The kernel of a sum of independent processes; what `k1 + k2` makes.

    Args:
        parts: Kernels of one dtype.
        name: A name; an unnamed sum inside a sum is dissolved into it.
        dtype: That of the parts.

    Example:
        >>> from cgp.kernels import RBF, Constant
        >>> kernel = RBF(2.0, 1.0) + Constant(0.5)
        >>> kernel
        RBF(variance=2., lengthscale=1.) + Constant(variance=0.5)
        >>> kernel.covariance([0.0]).numpy()
        array([[2.5+0.j]])
    """

    is_sum = True

    def __init__(
        self,
        parts: Iterable[Kernel],
        *,
        name: str | None = None,
        dtype: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(_flattened(type(self), parts), name=name, dtype=dtype, **kwargs)

    def moments(self, x1: tf.Tensor, x2: tf.Tensor) -> Pair:
        """See `Kernel.moments`."""
        ks, cs = zip(*(part.checked_moments(x1, x2) for part in self.parts), strict=True)
        improper = [c for c in cs if c is not None]
        return functools.reduce(add, ks), functools.reduce(add, improper) if improper else None

    def shares(self, power: float, wanted: Callable[[Parameter], bool]) -> list[float]:
        """See `Kernel.shares`: equal ones."""
        return [power / len(self.parts)] * len(self.parts)

    @property
    def trend_degree(self) -> int | None:
        """The highest degree among the terms that are trends."""
        return max((p.trend_degree for p in self.parts if p.trend_degree is not None), default=None)

    def has_level(self, x: np.ndarray) -> bool:
        """Whether a large constant is likely: yes if it is under any term."""
        return any(part.has_level(x) for part in self.parts)

    def scale_parameters(self) -> list[Parameter] | None:
        """See `Kernel.scale_parameters`: those of all parts."""
        found = [part.scale_parameters() for part in self.parts]
        return None if None in found else [p for parameters in found for p in parameters or ()]

    def instructions(self) -> Instructions | None:
        """See `Kernel.instructions`."""
        return joined(Code.SUM, (part.instructions() for part in self.parts))

    def markov_form(self) -> MarkovForm:
        """See `Kernel.markov_form`."""
        return direct_sum([part.markov_form() for part in self.parts])

    def markov_terms(self) -> Terms | None:
        """See `Kernel.markov_terms`."""
        return sum_of([part.markov_terms() for part in self.parts])

    def spectrum(self) -> Spectrum:
        """See `Kernel.spectrum`."""
        return spectra_added([part.spectrum() for part in self.parts])

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.parts))


@keras.saving.register_keras_serializable(package="cgp.kernels")
class Product(Combination):
    """The kernel of a product of independent processes; what `k1 * k2` makes.

    A real kernel times an improper one multiplies K and C alike, as a real amplitude does. Two
    improper kernels multiply K with K and C with C. A proper kernel whose covariance is not real,
    such as a rotation, is refused beside an improper one: the pseudo-covariance of a turning
    improper process depends on x1 + x2, or is lost, and neither is likely to be meant.

    Args:
        parts: Kernels of one dtype.
        name: A name; an unnamed product inside a product is dissolved into it.
        dtype: That of the parts.

    Raises:
        ValueError: An improper kernel beside a proper one that is not real.

    Example:
        >>> from cgp.kernels import RBF, Rotation
        >>> kernel = 0.5 * RBF(2.0, 1.0) * Rotation(frequency=0.25)
        >>> kernel.parts[1:]
        (RBF(variance=2., lengthscale=1.), Rotation(frequency=0.25))
        >>> kernel.covariance([1.0], [0.0]).numpy().round(4)
        array([[0.+0.6065j]])
    """

    def __init__(
        self,
        parts: Iterable[Kernel],
        *,
        name: str | None = None,
        dtype: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(_flattened(type(self), parts), name=name, dtype=dtype, **kwargs)
        # Two improper processes multiply K with K and C with C, as no product of states does.
        self.is_markov &= sum(not part.is_proper for part in self.parts) < 2
        turning = [part for part in self.parts if part.is_proper and not part.is_real]
        if turning and not self.is_proper:
            raise ValueError(
                f"{turning[0]!r}, whose is_real is False, cannot multiply an improper kernel: put "
                "it inside, WidelyLinear(kernel * Rotation(...), coefficient)"
            )

    def moments(self, x1: tf.Tensor, x2: tf.Tensor) -> Pair:
        """See `Kernel.moments`."""
        pairs = [part.checked_moments(x1, x2) for part in self.parts]
        k = functools.reduce(multiply, [k for k, _ in pairs])
        if self.is_proper:
            return k, None
        # A real process is its own conjugate: its C is its K.
        return k, functools.reduce(multiply, [k if c is None else c for k, c in pairs])

    def shares(self, power: float, wanted: Callable[[Parameter], bool]) -> list[float]:
        """See `Kernel.shares`: all of it for the first part with a variance to start, 1 for others.

        A variance in each factor would count the power several times.
        """
        found = [1.0] * len(self.parts)
        for number, part in enumerate(self.parts):
            parameters = (p for kernel in part.walk() for p in kernel.own_parameters)
            if any(p.name in ("variance", "powers") and wanted(p) for p in parameters):
                found[number] = power
                break
        return found

    def left_out(self) -> list[Parameter]:
        """See `Kernel.left_out`."""
        return left_out_of_factors(self.parts)

    def starts(
        self, rules: StartRules, power: float, wanted: Callable[[Parameter], bool]
    ) -> Iterator[tuple[Parameter, ArrayLike | None]]:
        """See `Kernel.starts`: rotations first, as frequencies of the others are from theirs."""
        parts = zip(self.parts, self.shares(power, wanted), strict=True)
        around = rules.origin
        for part, share in sorted(parts, key=lambda one: one[0].turn is None):
            started: dict[int, ArrayLike | None] = {}
            for parameter, value in part.starts(rules, share, wanted):
                started[id(parameter)] = value
                yield parameter, value
            if part.turn is not None:
                turn = np.asarray(started.get(id(part.turn), part.turn.numpy()))
                rules.origin = float(turn) + (rules.origin or 0.0) if turn.ndim == 0 else around
        rules.origin = around

    def scale_parameters(self) -> list[Parameter] | None:
        """See `Kernel.scale_parameters`: those of one part, not fixed and of no other part."""
        for part in self.parts:
            found = part.scale_parameters() or ()
            others = [other for other in self.parts if other is not part]
            count = sum(other is part for other in self.parts)
            inside = [p for k in others for layer in k.walk() for p in layer.own_parameters]
            alone = count == 1 and not any(p is q for p in found for q in inside)
            if found and alone and not any(p.fixed for p in found):
                return list(found)
        return None

    def instructions(self) -> Instructions | None:
        """See `Kernel.instructions`."""
        return joined(Code.PRODUCT, (part.instructions() for part in self.parts))

    def markov_form(self) -> MarkovForm:
        """See `Kernel.markov_form`."""
        if sum(not part.is_proper for part in self.parts) > 1:
            raise ValueError(
                f"{self!r} is not Markov: a product of two improper kernels has no state-space "
                "form; take ExactGP"
            )
        return functools.reduce(product, [part.markov_form() for part in self.parts])

    def markov_terms(self) -> Terms | None:
        """See `Kernel.markov_terms`."""
        return functools.reduce(product_of, [part.markov_terms() for part in self.parts])

    def spectrum(self) -> Spectrum:
        """See `Kernel.spectrum`.

        Lines shift the density of another factor. That of several densities, a convolution, is
        known where all of them are of differential equations.
        """
        spectra = [part.spectrum() for part in self.parts]
        if any(s.white and s.density is None and not s.powers.size for s in spectra):
            return Spectrum(white=float(np.real(self.covariance([0.0]).numpy()[0, 0])))
        spread = [
            (part, of_part)
            for part, of_part in zip(self.parts, spectra, strict=True)
            if of_part.density is not None or of_part.white
        ]
        spectrum = spread[0][1] if spread else line(0.0, 1.0)
        if len(spread) > 1:
            parts = [part for part, _ in spread]
            forms = [part.markov_form() for part in parts if part.is_markov]
            known = of_form(functools.reduce(product, forms)) if len(forms) == len(parts) else None
            if known is None:
                raise ValueError(
                    f"the spectral density of the product {self!r} is a convolution of which no "
                    "closed form is known: take the Fourier transform of kernel.covariance"
                )
            spectrum = known
        lines = [of_part for of_part in spectra if all(of_part is not one for _, one in spread)]
        return functools.reduce(times_lines, lines, spectrum)

    def __repr__(self) -> str:
        return " * ".join(f"({p!r})" if isinstance(p, Sum) else repr(p) for p in self.parts)
