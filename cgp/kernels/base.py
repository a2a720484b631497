"""The base class of kernels, and the algebra of kernels.

A kernel is a Keras layer that owns hyperparameters and evaluates second moments. Sums and products
are here too, as the operators `+` and `*` of a kernel make them.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from numbers import Number, Real
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from cgp.kernels.covariance_function import (
    Code,
    CovarianceFunction,
    Instructions,
    add,
    joined,
    multiply,
)
from cgp.kernels.data_scales import StartRules
from cgp.kernels.markov import (
    MarkovForm,
    Pair,
    Term,
    Terms,
    direct_sum,
    noiseless_form,
    over_points,
    product,
    terms_of_product,
    terms_of_sum,
)
from cgp.kernels.partials import Partials
from cgp.kernels.spectrum import (
    Spectrum,
    line_spectrum,
    spectrum_of_form,
    sum_of_spectra,
    times_lines,
)
from cgp.linalg.arguments import ArrayLike, as_complex
from cgp.training.hyperparameters import Hyperparameter, declared
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
        name: A name for its parameters, as in `gp.parameters()`; by default the name of the class.
        dtype: "float64" (complex128 covariances) or "float32" (complex64).

    Example:
        Straight lines of a random slope. The hyperparameters are declared as fields, of which
        `declared` writes the constructor; a class may have its own, which passes on keywords and
        calls `declare_parameters`. The registration is for loading, `is_real` for improper factors.

        >>> import keras, tensorflow as tf
        >>> from cgp.kernels import RBF, Kernel
        >>> from cgp.training import POSITIVE, Hyperparameter, declared
        >>> @keras.saving.register_keras_serializable(package="mine")
        ... @declared
        ... class Line(Kernel):
        ...     is_real = True
        ...     variance: Hyperparameter = Hyperparameter(POSITIVE, default=1.0)
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

    def __add__(self, addend: object) -> "Kernel":
        if isinstance(addend, Kernel):
            return Sum([self, addend])
        if isinstance(addend, Number | np.ndarray):
            raise TypeError(
                f"{self!r} is added to kernels, got {addend!r}: the covariance of a constant is "
                "cgp.kernels.Constant(variance), that of white noise cgp.kernels.White(variance)"
            )
        return NotImplemented

    def __radd__(self, addend: object) -> "Kernel":
        # sum([k1, k2]) starts at 0
        return self if isinstance(addend, Real) and addend == 0 else self.__add__(addend)

    def __mul__(self, factor: object) -> "Kernel":
        if isinstance(factor, Kernel):
            return Product([self, factor])
        if isinstance(factor, Real):
            return Product(
                [Constant(float(factor), fixed="variance", dtype=self.variable_dtype), self]
            )
        if isinstance(factor, Number | np.ndarray | str):
            raise TypeError(
                f"{self!r} is multiplied by a real number, which scales its covariance, or by a "
                f"kernel, got {factor!r}: c f(x) has |c|² times the covariance of f"
            )
        return NotImplemented

    __rmul__ = __mul__

    def __truediv__(self, divisor: object) -> "Kernel":
        return self * (1.0 / float(divisor)) if isinstance(divisor, Real) else NotImplemented

    def __neg__(self) -> "Kernel":
        raise TypeError(
            f"{self!r} cannot be negated or subtracted: minus a covariance is no covariance, and "
            "the difference of two independent processes has the sum of theirs"
        )

    def __sub__(self, subtrahend: object) -> "Kernel":
        return -self

    def __rsub__(self, minuend: object) -> "Kernel":
        return -self


@keras.saving.register_keras_serializable(package="cgp.kernels")
@declared
class Constant(Kernel):
    """The covariance of a constant: `K(x1, x2) = variance`.

    Args:
        variance: Variance of the constant, positive; in squared units of z.
        fixed, priors, name, dtype: As for `RBF`.

    Example:
        >>> from cgp.kernels import Constant
        >>> Constant(variance=2.0).covariance([0.0, 1.0]).numpy().real
        array([[2., 2.],
               [2., 2.]])
    """

    is_real, is_stationary, code, trend_degree = True, True, Code.CONSTANT, 0
    variance: Hyperparameter = Hyperparameter(POSITIVE, default=None)

    def moments(self, x1: tf.Tensor, x2: tf.Tensor) -> Pair:
        """Covariance and pseudo-covariance between points, elementwise."""
        shape = tf.broadcast_dynamic_shape(tf.shape(x1)[:-1], tf.shape(x2)[:-1])
        return tf.broadcast_to(self.variance.value, shape), None

    def has_level(self, x: np.ndarray) -> bool:
        """Whether a large constant is likely: yes, a constant of any size."""
        return True

    def start_of(self, name: str, rules: StartRules) -> ArrayLike | None:
        """The start of the variance: the squared offset of the data."""
        return rules.trend_variance(0) if name == "variance" else super().start_of(name, rules)

    def markov_form(self) -> MarkovForm:
        """The state-space form, of one state, which is constant."""
        variance = as_complex(self.variance.value)
        identity = tf.ones([1, 1], variance.dtype)
        transition, zero = functools.partial(over_points, identity), tf.zeros_like(identity)
        return noiseless_form(transition, variance * identity, identity[0], zero)

    def markov_terms(self) -> Terms:
        """The Matérn terms of the process, in the order of the states of `markov_form`."""
        return (Term(0, self.variance.value),)

    def spectrum(self) -> Spectrum:
        """The spectrum, a line."""
        return line_spectrum(0.0, float(self.variance))

    def check_points(self, x: tf.Tensor) -> None:
        """Raises for no points: a constant has a covariance at all of them."""


class Combination(Kernel):
    """A kernel made of other kernels, which may be shared."""

    arguments: tuple[str, ...] = ("parts",)  # of the constructor, which are kernels

    def __init__(
        self,
        parts: Iterable[Kernel],
        *,
        name: str | None = None,
        dtype: str | None = None,
        **kwargs: Any,
    ):
        parts = tuple(parts)
        for kernel in parts:
            if not isinstance(kernel, Kernel):
                raise TypeError(f"{type(self).__name__} is made of kernels, got {kernel!r}")
        if not parts:
            raise ValueError(f"{type(self).__name__} needs at least one kernel, got none")
        super().__init__(name=name, dtype=dtype or parts[0].variable_dtype, **kwargs)
        for kernel in parts:
            if kernel.variable_dtype != self.variable_dtype:
                raise TypeError(
                    f"a {type(self).__name__} and its parts must have one dtype, but it is "
                    f"{self.variable_dtype}, and {kernel!r} is {kernel.variable_dtype}"
                )
        self.parts = parts
        self.outputs = self._common_outputs()
        self.is_real = all(kernel.is_real for kernel in parts)
        self.is_proper = all(kernel.is_proper for kernel in parts)
        self.is_markov = all(kernel.is_markov for kernel in parts)
        self.is_stationary = self.is_stationary and all(kernel.is_stationary for kernel in parts)

    def _common_outputs(self) -> int | None:
        """The number of outputs; by default none, and an error for kernels inside that have some.

        Raises:
            ValueError: Kernels that cannot be combined; the message names one of them.
        """
        inside = next((kernel for kernel in self.parts if kernel.outputs), None)
        if inside is not None:
            raise ValueError(
                f"{type(self).__name__} is made of kernels of one signal, but {inside!r} has "
                f"{inside.outputs} outputs: make it of the kernel inside, and put the result into "
                f"{type(inside).__name__}"
            )
        return None

    def points_of(self, part: Kernel, x: tf.Tensor) -> tf.Tensor:
        """Points of the combination as those of a part, which may not have its outputs."""
        return x[..., :-1] if self.outputs and not part.outputs else x

    def check_points(self, x: tf.Tensor) -> None:
        """Raises for points that the kernel does not take."""
        for kernel in self.parts:
            kernel.check_points(self.points_of(kernel, x))

    @property
    def trend_degree(self) -> int | None:
        """The degree of a product of trends, the sum of their degrees; else None."""
        degrees = [p.trend_degree for p in self.parts if p.trend_degree is not None]
        return sum(degrees) if len(degrees) == len(self.parts) else None

    def has_level(self, x: np.ndarray) -> bool:
        """Whether a large constant is likely: yes if it is under every factor."""
        return all(kernel.has_level(x) for kernel in self.parts)

    def inside(self) -> Iterator[CovarianceFunction]:
        """The kernels directly inside, in order and with repetitions."""
        return iter(self.parts)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, with the kernels serialised."""
        serialize = keras.saving.serialize_keras_object
        kernels = {name: serialize(getattr(self, name)) for name in self.arguments}
        return {**super().get_config(), **kernels}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The kernel of a config; kernels that are one object in it are one object again."""
        with sharing_scope():
            deserialize = keras.saving.deserialize_keras_object
            kernels = {name: deserialize(config[name]) for name in cls.arguments}
            return super().from_config({**config, **kernels})


def left_out_of_factors(factors: Iterable[CovarianceFunction]) -> list[Parameter]:
    """The hyperparameters of the factors of a product that have no value.

    One variance is enough for a product: beside it, a variance that was left out is 1.
    """
    factors = list(factors)
    scales = [factor.scale_parameters() or [] for factor in factors]
    has_scale = any(scale and not any(p.is_left_out for p in scale) for scale in scales)
    units = {id(scale[0]) for scale in scales if has_scale and len(scale) == 1}
    return [p for factor in factors for p in factor.left_out() if id(p) not in units]


def sum_of_pairs(pairs: Iterable[Pair]) -> Pair:
    """The covariance and the pseudo-covariance of a sum of independent processes."""
    ks, cs = zip(*pairs, strict=True)
    improper = [c for c in cs if c is not None]
    return functools.reduce(add, ks), functools.reduce(add, improper) if improper else None


def _flattened(kind: type[Kernel], kernels: Iterable[Kernel]) -> list[Kernel]:
    """(a + b) + c as the sum of three kernels; a kernel with a name of its own stays whole."""
    if isinstance(kernels, Kernel):
        raise TypeError(f"{kind.__name__} takes a list of kernels, got {kernels!r}")
    flat: list[Kernel] = []
    for kernel in kernels:
        is_unnamed = type(kernel) is kind and kernel.chosen_name is None
        flat.extend(kernel.parts if is_unnamed else [kernel])
    return flat


@keras.saving.register_keras_serializable(package="cgp.kernels")
class Sum(Combination):
    """The kernel of a sum of independent processes, the result of `k1 + k2`.

    Args:
        parts: Kernels of one dtype.
        name: A name; an unnamed sum inside a sum is dissolved into it.
        dtype: The dtype of the parts.

    Example:
        >>> from cgp.kernels import RBF, Constant
        >>> kernel = RBF(2.0, 1.0) + Constant(0.5)
        >>> kernel
        RBF(variance=2., lengthscale=1.) + Constant(variance=0.5)
        >>> kernel.covariance([0.0]).numpy()
        array([[2.5+0.j]])
    """

    is_sum, is_stationary = True, True

    def __init__(
        self,
        parts: Iterable[Kernel],
        *,
        name: str | None = None,
        dtype: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(_flattened(type(self), parts), name=name, dtype=dtype, **kwargs)

    def _common_outputs(self) -> int | None:
        different = {kernel.outputs: kernel for kernel in self.parts}
        if len(different) == 1:
            return self.parts[0].outputs
        counts = [f"{kernel!r} has {count or 'none'}" for count, kernel in different.items()]
        remedy = ""
        if None in different:
            P = next(filter(None, different))
            remedy = (
                f": put the term without outputs into Coregionalized(..., outputs={P}), which all "
                f"of them observe, or into Outputs([...] * {P}), a process for each"
            )
        raise ValueError(
            f"the terms of a sum must have the same outputs, but {' and '.join(counts)}{remedy}"
        )

    def moments(self, x1: tf.Tensor, x2: tf.Tensor) -> Pair:
        """Covariance and pseudo-covariance between points, elementwise."""
        return sum_of_pairs([term.checked_moments(x1, x2) for term in self.parts])

    def partials(self, x1: tf.Tensor, x2: tf.Tensor) -> Partials:
        """The moments and their partial derivatives, sums of those of the terms."""
        of_terms = [term.partials(x1, x2) for term in self.parts]
        return Partials(*map(sum_of_pairs, zip(*of_terms, strict=True)))

    def shares(self, power: float, is_selected: Callable[[Parameter], bool]) -> list[float]:
        """The shares of the power of the terms, which are equal."""
        return [power / len(self.parts)] * len(self.parts)

    @property
    def trend_degree(self) -> int | None:
        """The highest degree among the terms that are trends."""
        return max((p.trend_degree for p in self.parts if p.trend_degree is not None), default=None)

    def has_level(self, x: np.ndarray) -> bool:
        """Whether a large constant is likely: yes if it is under any term."""
        return any(term.has_level(x) for term in self.parts)

    def scale_parameters(self) -> list[Parameter] | None:
        """The parameters that scale all moments: the scales of all terms together."""
        of_terms = [term.scale_parameters() for term in self.parts]
        return None if None in of_terms else [p for ps in of_terms for p in ps or ()]

    def instructions(self) -> Instructions | None:
        """The instructions that evaluate the kernel in the compiled core."""
        return joined(Code.SUM, (term.instructions() for term in self.parts))

    def markov_form(self) -> MarkovForm:
        """The state-space form."""
        return direct_sum([term.markov_form() for term in self.parts])

    def markov_terms(self) -> Terms | None:
        """The Matérn terms of the process, in the order of the states of `markov_form`."""
        return terms_of_sum([term.markov_terms() for term in self.parts])

    def spectrum(self) -> Spectrum:
        """The spectrum of the process."""
        return sum_of_spectra([term.spectrum() for term in self.parts])

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.parts))


@keras.saving.register_keras_serializable(package="cgp.kernels")
class Product(Combination):
    """The kernel of a product of independent processes, the result of `k1 * k2`.

    A real kernel times an improper one multiplies K and C alike, as a real amplitude does. Two
    improper kernels multiply K with K and C with C. A proper kernel whose covariance is not real,
    such as a rotation, is refused beside an improper one: the pseudo-covariance of a turning
    improper process depends on x1 + x2, or is lost, and neither is likely to be meant.

    Args:
        parts: Kernels of one dtype.
        name: A name; an unnamed product inside a product is dissolved into it.
        dtype: The dtype of the parts.

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

    is_stationary = True

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
        self.is_markov &= sum(not factor.is_proper for factor in self.parts) < 2
        turning = [factor for factor in self.parts if factor.is_proper and not factor.is_real]
        if turning and not self.is_proper:
            raise ValueError(
                f"{turning[0]!r}, whose is_real is False, cannot multiply an improper kernel: put "
                "it inside, WidelyLinear(kernel * Rotation(...), coefficient)"
            )

    def _common_outputs(self) -> int | None:
        with_outputs = [factor for factor in self.parts if factor.outputs]
        if len(with_outputs) > 1:
            raise ValueError(
                f"one factor of a product may have outputs, got {with_outputs[0]!r} and "
                f"{with_outputs[1]!r}: multiply kernels of one signal, inside of Coregionalized"
            )
        return with_outputs[0].outputs if with_outputs else None

    def moments(self, x1: tf.Tensor, x2: tf.Tensor) -> Pair:
        """Covariance and pseudo-covariance between points, elementwise."""
        return self._product_of(
            [f.checked_moments(self.points_of(f, x1), self.points_of(f, x2)) for f in self.parts]
        )

    def _product_of(self, pairs: Sequence[Pair]) -> Pair:
        """The moments of the product from those of its factors."""
        k = functools.reduce(multiply, [k for k, _ in pairs])
        if self.is_proper:
            return k, None
        # A real process is its own conjugate: its C is its K.
        return k, functools.reduce(multiply, [k if c is None else c for k, c in pairs])

    def carrier_turns(self, x: tf.Tensor) -> tf.Tensor | None:
        """The turns of all factors together; None where a factor has none, or of outputs."""
        if self.outputs:
            return None
        turns = [factor.carrier_turns(x) for factor in self.parts]
        return None if any(turn is None for turn in turns) else tf.add_n(turns)

    def envelope(self, x1: tf.Tensor, x2: tf.Tensor) -> tf.Tensor:
        """The product of the envelopes of the factors."""
        return functools.reduce(tf.multiply, [f.envelope(x1, x2) for f in self.parts])

    def partials(self, x1: tf.Tensor, x2: tf.Tensor) -> Partials:
        """The moments and their partial derivatives, by the product rule."""
        factors = [f.partials(self.points_of(f, x1), self.points_of(f, x2)) for f in self.parts]
        numbers = range(len(factors))

        def with_derivatives(first: int | None, second: int | None) -> Pair:
            """The product with one factor differentiated by x1 and one, or the same, by x2."""
            pairs = [
                factor[(number == first) + 2 * (number == second)]
                for number, factor in enumerate(factors)
            ]
            return self._product_of(pairs)

        return Partials(
            with_derivatives(None, None),
            sum_of_pairs([with_derivatives(i, None) for i in numbers]),
            sum_of_pairs([with_derivatives(None, j) for j in numbers]),
            sum_of_pairs([with_derivatives(i, j) for i in numbers for j in numbers]),
        )

    def shares(self, power: float, is_selected: Callable[[Parameter], bool]) -> list[float]:
        """The shares of the power: all for the first factor with a variance to start, else 1.

        A variance in each factor would count the power several times.
        """
        shares = [1.0] * len(self.parts)
        for number, factor in enumerate(self.parts):
            parameters = (p for kernel in factor.walk() for p in kernel.own_parameters)
            if any(p.name in ("variance", "powers") and is_selected(p) for p in parameters):
                shares[number] = power
                break
        return shares

    def left_out(self) -> list[Parameter]:
        """The hyperparameters without a value; one variance is enough for a product."""
        return left_out_of_factors(self.parts)

    def starts(
        self, rules: StartRules, power: float, is_selected: Callable[[Parameter], bool]
    ) -> Iterator[tuple[Parameter, ArrayLike | None]]:
        """Hyperparameters and starting values; rotations first, others turn from them."""
        factors = zip(self.parts, self.shares(power, is_selected), strict=True)
        around = rules.origin
        for factor, share in sorted(factors, key=lambda pair: pair[0].turn is None):
            started: dict[int, ArrayLike | None] = {}
            for parameter, start in factor.starts(rules, share, is_selected):
                started[id(parameter)] = start
                yield parameter, start
            if factor.turn is not None:
                turn = np.asarray(started.get(id(factor.turn), factor.turn.numpy()))
                rules.origin = float(turn) + (rules.origin or 0.0) if turn.ndim == 0 else around
        rules.origin = around

    def scale_parameters(self) -> list[Parameter] | None:
        """The parameters that scale all moments: the scales of one factor, none of them fixed."""
        for number, factor in enumerate(self.parts):
            scales = factor.scale_parameters() or []
            remaining = self.parts[:number] + self.parts[number + 1 :]
            inside = [p for f in remaining for layer in f.walk() for p in layer.own_parameters]
            is_shared = any(p is q for p in scales for q in inside)
            if scales and not is_shared and not any(p.fixed for p in scales):
                return scales
        return None

    def instructions(self) -> Instructions | None:
        """The instructions that evaluate the kernel in the compiled core."""
        return joined(Code.PRODUCT, (factor.instructions() for factor in self.parts))

    def markov_form(self) -> MarkovForm:
        """The state-space form."""
        if sum(not factor.is_proper for factor in self.parts) > 1:
            raise ValueError(
                f"{self!r} is not Markov: a product of two improper kernels has no state-space "
                "form; take ExactGP"
            )
        return functools.reduce(product, [factor.markov_form() for factor in self.parts])

    def markov_terms(self) -> Terms | None:
        """The Matérn terms of the process, in the order of the states of `markov_form`."""
        return functools.reduce(terms_of_product, [factor.markov_terms() for factor in self.parts])

    def spectrum(self) -> Spectrum:
        """The spectrum of the process.

        Lines shift the density of another factor. The convolution of several densities is known
        where all of them belong to differential equations.
        """
        spectra = [factor.spectrum() for factor in self.parts]
        if any(s.white and s.density is None and not s.powers.size for s in spectra):
            return Spectrum(white=float(np.real(self.covariance([0.0]).numpy()[0, 0])))
        is_spread = [s.density is not None or bool(s.white) for s in spectra]
        envelopes = [factor for factor, spread in zip(self.parts, is_spread, strict=True) if spread]
        lines = [s for s, spread in zip(spectra, is_spread, strict=True) if not spread]
        spectrum = spectra[is_spread.index(True)] if envelopes else line_spectrum(0.0, 1.0)
        if len(envelopes) > 1:
            forms = [factor.markov_form() for factor in envelopes if factor.is_markov]
            are_markov = len(forms) == len(envelopes)
            convolution = spectrum_of_form(functools.reduce(product, forms)) if are_markov else None
            if convolution is None:
                raise ValueError(
                    f"the spectral density of the product {self!r} is a convolution of which no "
                    "closed form is known: take the Fourier transform of kernel.covariance"
                )
            spectrum = convolution
        return functools.reduce(times_lines, lines, spectrum)

    def __repr__(self) -> str:
        return " * ".join(f"({p!r})" if isinstance(p, Sum) else repr(p) for p in self.parts)
