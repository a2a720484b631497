"""The base of kernels: second moments of a process, its instructions and its state-space form."""

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cgp.autograph import as_it_stands
from cgp.clock import is_time
from cgp.distributions.forms import SecondMoments
from cgp.kernels.data_scales import StartRules
from cgp.kernels.markov import MarkovForm, Pair, Terms
from cgp.kernels.partials import Partials, partials_of_form, partials_of_function
from cgp.kernels.points import as_array, as_pairs, as_points, coordinate
from cgp.kernels.spectrum import Spectrum, spectrum_of_form
from cgp.linalg.arguments import ArrayLike, as_complex, is_complex
from cgp.training.hyperparameters import HyperparameterLayer
from cgp.training.keras_private import flatten_layers, sublayers
from cgp.training.parameters import Parameter, Parameterized, named_parameters, values_by_name


class Code(IntEnum):
    """The operation of an instruction: the first push a value, the others combine values.

    `covariance_program.h` evaluates kernels by their instructions, and has the formulas.
    """

    CONSTANT = 0
    WHITE = 1
    RBF = 2
    RATIONAL_QUADRATIC = 3
    MATERN12 = 4
    MATERN32 = 5
    MATERN52 = 6
    PERIODIC = 7
    ROTATION = 8
    SUM = 9
    PRODUCT = 10
    CONJUGATE = 11
    WIDELY_LINEAR = 12


class Instruction(NamedTuple):
    """An instruction and its numbers; numbers for each dimension of x come last."""

    code: Code
    numbers: np.ndarray


Instructions = tuple[Instruction, ...]


def instruction(code: Code, *numbers: Any) -> Instruction:
    """The instruction with the values of parameters, or with numbers."""
    return Instruction(code, np.concatenate([np.ravel(n) for n in numbers]))


def joined(code: Code, programs: Iterable[Instructions | None]) -> Instructions | None:
    """The instructions of several kernels and of their combination; None if a kernel has none."""
    programs = list(programs)
    sequences = [instructions for instructions in programs if instructions is not None]
    if len(sequences) < len(programs):
        return None
    return (*itertools.chain(*sequences), instruction(code, len(programs)))


def as_numbers(instructions: Instructions) -> np.ndarray:
    """Instructions as an array: the code of each, the count of its numbers, and the numbers."""
    rows = [[float(code), float(len(numbers)), *numbers] for code, numbers in instructions]
    return np.concatenate([np.zeros(0), *rows])


class CovarianceFunction(HyperparameterLayer):
    """A layer that evaluates the second moments of a zero-mean complex process.

    These are the covariance `E[z(x1) conj(z(x2))]` and the pseudo-covariance `E[z(x1) z(x2)]`, zero
    when the process is proper. `Kernel`, its one subclass, adds the algebra.
    """

    is_proper: bool = True
    """Whether the pseudo-covariance is zero: whether `moments` returns None for it."""
    is_real: bool = False
    """Whether the covariance is real: it may then multiply an improper kernel."""
    is_markov: bool = False
    """Whether it has a finite state-space form: a class that implements `markov_form` has."""
    is_smooth: bool = False
    """Whether `moments` are smooth functions of both points, differentiable at any two of them."""
    is_stationary: bool = False
    """Whether the covariance is a function of `x1 − x2`, whatever the hyperparameters. Over a
    regular line it is then Toeplitz, which `ExactGP` makes use of if the kernel is proper."""
    parts: tuple["CovarianceFunction", ...] = ()
    """The kernels that this one is made of."""
    is_sum: bool = False
    """Whether it is the sum of its parts."""
    outputs: int | None = None
    """The number P of signals that it is the kernel of, over points whose last coordinate is the
    number of the signal; None for one signal, without that coordinate."""
    code: Code | None = None
    """The instruction that evaluates it from its hyperparameters in their order; None for none."""
    _agrees = False
    """Whether `moments` and `markov_form` are known to be of one process."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Inherited attributes describe the inherited methods, not methods that override them.
        form = _index_of_definition(cls, "markov_form")
        if form < _index_of_definition(cls, "is_markov"):
            cls.is_markov = True
        if form < _index_of_definition(cls, "markov_terms"):
            cls.markov_terms = CovarianceFunction.markov_terms  # type: ignore[method-assign]
        methods = min(form, _index_of_definition(cls, "moments"))
        if methods < _index_of_definition(cls, "partials"):
            cls.partials = CovarianceFunction.partials  # type: ignore[method-assign]
        if methods < _index_of_definition(cls, "carrier_turns"):
            cls.carrier_turns = CovarianceFunction.carrier_turns  # type: ignore[method-assign]
            cls.envelope = CovarianceFunction.envelope  # type: ignore[method-assign]
        if methods < _index_of_definition(cls, "is_smooth"):
            cls.is_smooth = False
        if methods < _index_of_definition(cls, "is_stationary"):
            cls.is_stationary = False
        if methods < _index_of_definition(cls, "spectrum"):
            cls.spectrum = CovarianceFunction.spectrum  # type: ignore[method-assign]
        if _is_foreign(cls) and methods < _index_of_definition(cls, "check_points"):
            cls.check_points = CovarianceFunction.check_points  # type: ignore[method-assign]

    def moments(self, x1: tf.Tensor, x2: tf.Tensor) -> Pair:
        """Covariance and pseudo-covariance between points, by default from `markov_form`.

        Args:
            x1: `[..., D]`.
            x2: `[..., D]`; the batch axes of both broadcast.

        Returns:
            `(K, C)`, each of the broadcast batch shape; K may be real, C is None when proper.

        Raises:
            NotImplementedError: The kernel has neither `moments` nor `markov_form`.
            ValueError: Inputs of several dimensions, where the moments follow from `markov_form`.
        """
        if type(self).markov_form is CovarianceFunction.markov_form:
            raise NotImplementedError(f"{self!r} must implement moments, or else markov_form")
        at = coordinate(x1, self)
        k, c = self.markov_form().moments(at, x2[..., 0])
        return tf.math.real(k) if self.is_real else k, c

    def checked_moments(self, x1: tf.Tensor, x2: tf.Tensor) -> Pair:
        """The moments, or an error where they contradict the flags.

        At the first use outside of graphs they are compared with `markov_form`.
        """
        if not self._agrees and tf.executing_eagerly() and tf.size(x1) > 0:
            # The tests of cgp compare the kernels of cgp.
            if _is_foreign(type(self)) and self.is_markov and x1.shape[-1] == 1:
                check_agreement(self, x1)
            if _is_foreign(type(self)) and self.is_stationary:
                check_stationary(self, x1, x2)
            self._agrees = True
        return check_moments(self.moments(x1, x2), self)

    def carrier_turns(self, x: tf.Tensor) -> tf.Tensor | None:
        """Turns φ of a carrier at points `[..., D]`, real `[...]`, under which K is real.

        `K(x1, x2) = e^{i2πφ(x1)} R(x1, x2) e^{−i2πφ(x2)}` with φ linear in x, and R, the
        `envelope`, real, whose matrices take a quarter of the work. None where K is not known to be
        of this form.
        """
        return tf.zeros_like(x[..., 0]) if self.is_real and self.is_proper else None

    def envelope(self, x1: tf.Tensor, x2: tf.Tensor) -> tf.Tensor:
        """The real covariance R between points under `carrier_turns`, elementwise."""
        return self.checked_moments(x1, x2)[0]

    def markov_form(self) -> MarkovForm:
        """The state-space form of the process over one-dimensional inputs, where it has one.

        Raises:
            ValueError: The process has none; the message names the part without one.
        """
        raise ValueError(
            f"{self!r} is not Markov: no finite state-space form of it is known, or its inputs "
            "have several dimensions. Periodic and RBF have approximations, "
            "cgp.kernels.MarkovApproximation; take ExactGP for others"
        )

    def partials(self, x1: tf.Tensor, x2: tf.Tensor) -> Partials:
        """The moments between points and their partial derivatives, by the differential equation.

        By automatic differentiation where `is_smooth`. Covariances of the derivative of the process
        follow from them.

        Args:
            x1: `[..., 1]`.
            x2: `[..., 1]`; the batch axes of both broadcast.

        Raises:
            ValueError: The process is not differentiable in mean square, or not known to be; the
                message names the kernel.
        """
        try:
            if self.is_smooth:
                return partials_of_function(self.checked_moments, x1, x2)
            if not self.is_markov:
                raise ValueError("no derivative of its moments is known")
            form = self.markov_form()
            return partials_of_form(form, coordinate(x1, self), x2[..., 0], self.is_real)
        except ValueError as error:
            raise ValueError(
                f"a process of {self!r} has no derivative to observe: {error}. Matern32, Matern52 "
                "and RBF are differentiable"
            ) from None

    def instructions(self) -> Instructions | None:
        """The instructions that evaluate the kernel in the compiled core; None without any."""
        return None if self.code is None else (instruction(self.code, *self.own_parameters),)

    def program(self) -> np.ndarray | None:
        """The instructions as an array of numbers; None for a kernel of a class outside of cgp."""
        if not all(type(kernel).__module__.startswith("cgp.kernels.") for kernel in self.walk()):
            return None
        instructions = self.instructions()
        return None if instructions is None else as_numbers(instructions)

    def markov_terms(self) -> Terms | None:
        """The process of `markov_form` as a sum of terms in closed form, with the same states.

        None where no such sum is known; None is always a valid answer.
        """
        return None

    def spectrum(self) -> Spectrum:
        """The spectrum of the process over one-dimensional inputs, where it has one.

        By default the spectrum of the differential equation of `markov_form`.

        Raises:
            ValueError: The process has none; the message names the part without one.
        """
        spectrum = spectrum_of_form(self.markov_form()) if self.is_markov else None
        if spectrum is None:
            raise ValueError(
                f"no spectral density of {self!r} is known: it is not stationary, its inputs have "
                "several dimensions, or its density has no closed form. A class of its own may "
                "implement spectrum; of others take the Fourier transform of kernel.covariance"
            )
        return spectrum

    def spectral_density(self, frequencies: ArrayLike) -> np.ndarray:
        """The spectral density S of a stationary process over one-dimensional inputs.

        `K(x) = ∫ S(f) e^{+i2πfx} df` over f of both signs, so that S integrates to the variance;
        `Rotation(frequency)` moves it to the frequency. Positive frequencies turn anticlockwise, as
        in rotary spectra of oceanography; the pseudo-covariance of an improper process has no part
        in it. For a channel over frequency, S(f) is the power at the delay −f. Over a grid it is
        zero beyond plus and minus half of a cycle per step.

        Args:
            frequencies: Real, of any shape; in cycles per unit of x.

        Returns:
            Float64, of the shape of `frequencies`, not negative; in squared units of z per cycle
            per unit of x. For `RationalQuadratic` with `alpha <= 0.5` it is infinite at 0.

        Raises:
            TypeError: Frequencies that are not real numbers.
            ValueError: Frequencies that are not finite; a process that has lines, as `Constant`,
                `Rotation`, `Periodic` and `TappedDelays` have alone, or white noise; one that is
                not stationary, or over several dimensions; a product without a closed form.

        Example:
            >>> from cgp.kernels import Matern12, Rotation
            >>> kernel = Matern12(2.0, lengthscale=3.0) * Rotation(frequency=0.1)
            >>> kernel.spectral_density([-0.1, 0.1]).round(4)
            array([ 0.7888, 12.    ])
        """
        are_complex = any(map(is_complex, tf.nest.flatten(frequencies)))
        if are_complex or is_time(frequencies):
            came = "complex ones" if are_complex else "dates or durations"
            raise TypeError(f"frequencies must be real, in cycles per unit of x, got {came}")
        f = np.asarray(as_array(frequencies, "frequencies"), float)
        if not np.all(np.isfinite(f)):
            raise ValueError("frequencies must be finite, but has NaN or infinite elements")
        spectrum = self.spectrum()
        if spectrum.powers.size:
            raise ValueError(
                f"the spectrum of {self!r} has lines, at "
                f"{', '.join(f'{line:.4g}' for line in spectrum.lines[:3])}, where a density is "
                f"infinite: {self._other_terms('or')}multiply by an envelope such as Matern12()"
            )
        if spectrum.white:
            raise ValueError(
                f"{self!r} has white noise, which has no density in continuous x: "
                f"{self._other_terms('and')}of samples dx apart add variance * dx of White"
            )
        return np.zeros(f.shape) if spectrum.density is None else np.asarray(spectrum.density(f))

    def _other_terms(self, conjunction: str) -> str:
        """The remedy for a sum of which some terms have a density; empty where none has."""
        spectra = [term.spectrum() for term in self.parts if self.is_sum]
        terms = [i for i, s in enumerate(spectra) if not s.powers.size and not s.white]
        codes = " + ".join(f"kernel.parts[{i}].spectral_density(f)" for i in terms)
        return f"take that of the other terms, {codes}, {conjunction} " if terms else ""

    def check_points(self, x: tf.Tensor) -> None:
        """Raises, eagerly, for points `[..., N, D]` that the kernel does not take."""
        self.moments_diagonal(x)  # a kernel that knows what it refuses says so sooner

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raises a TypeError that names the methods that evaluate the kernel."""
        raise TypeError(
            f"{self!r} is not called: kernel.covariance(x1, x2) is its covariance matrix, and "
            "kernel.pseudo_covariance(x1, x2) its pseudo-covariance matrix"
        )

    @as_it_stands
    def covariance(self, x1: ArrayLike, x2: ArrayLike | None = None) -> tf.Tensor:
        """The covariance `E[z(x1) conj(z(x2))]`.

        Args:
            x1: Inputs, `[N1]` or `[..., N1, D]`.
            x2: Inputs, `[N2]` or `[..., N2, D]`; `x1` if None.

        Returns:
            `[..., N1, N2]`, complex.

        Raises:
            TypeError: Complex inputs.
            ValueError: NaN inputs, shapes that do not fit, points that float32 cannot tell apart.
        """
        return self.moments_matrix(x1, x2)[0]

    @as_it_stands
    def pseudo_covariance(self, x1: ArrayLike, x2: ArrayLike | None = None) -> tf.Tensor:
        """The pseudo-covariance `E[z(x1) z(x2)]`; arguments and result as for `covariance`."""
        return self.moments_matrix(x1, x2).c_or_zeros()

    def moments_matrix(self, x1: ArrayLike, x2: ArrayLike | None = None) -> SecondMoments:
        """Covariance and pseudo-covariance (None when proper) between two sets of points."""
        first, second = as_pairs(x1, x2, self.variable_dtype)
        return self._complex(first[..., :, None, :], second[..., None, :, :])

    def moments_diagonal(self, x: ArrayLike) -> SecondMoments:
        """Variance and pseudo-variance (None when proper) of each point, `[..., N]`."""
        x = as_points(x, self.variable_dtype)
        return self._complex(x, x)

    def _complex(self, x1: tf.Tensor, x2: tf.Tensor) -> SecondMoments:
        k, c = self.checked_moments(x1, x2)
        return SecondMoments(as_complex(k), None if c is None else as_complex(c))

    def inside(self) -> Iterator["CovarianceFunction"]:
        """The kernels directly inside this one, in any of its attributes."""
        for layer in sublayers(self):
            inner = [layer] if isinstance(layer, CovarianceFunction) else flatten_layers(layer)
            yield from (kernel for kernel in inner if isinstance(kernel, CovarianceFunction))

    def walk(self) -> Iterator["CovarianceFunction"]:
        """This kernel and all kernels inside it, depth first."""
        yield self
        for kernel in self.inside():
            yield from kernel.walk()

    def over_all_dimensions(self) -> Iterator["CovarianceFunction"]:
        """This kernel and those inside it that read all coordinates of x, depth first."""
        yield self
        for kernel in self.inside():
            yield from kernel.over_all_dimensions()

    # --- starts ----------------------------------------------------------------------------------

    def start_of(self, name: str, rules: StartRules) -> ArrayLike | None:
        """The starting value of a hyperparameter that was left out, by rules from data.

        By default the rule of this name, for "variance", "lengthscale" and "frequency"; None where
        there is no rule, which leaves the placeholder.
        """
        has_rule = name in ("variance", "lengthscale", "frequency")
        return getattr(rules, name)() if has_rule else None

    def starts(
        self, rules: StartRules, power: float, is_selected: Callable[[Parameter], bool]
    ) -> Iterator[tuple[Parameter, ArrayLike | None]]:
        """The selected hyperparameters of this kernel and those inside it, with starting values.

        `power` is the share of `E|z|²` that belongs to this kernel.
        """
        rules.power = power
        for parameter in self.own_parameters:
            if is_selected(parameter):
                rules.is_of_each = parameter.constraint.is_per_dimension and np.ndim(parameter) == 1
                drawn = rules.drawn_from_prior(parameter)
                yield parameter, self.start_of(parameter.name, rules) if drawn is None else drawn
        for kernel, share in zip(self.inside(), self.shares(power, is_selected), strict=True):
            yield from kernel.starts(rules, share, is_selected)

    @property
    def trend_degree(self) -> int | None:
        """The degree of the trend taken from data before other terms start; None for no trend."""
        return None

    settings_from_data: tuple[str, ...] = ()
    """The names of settings that a first fit takes from the data where they were left out."""

    is_walk = False
    """Whether it is a random walk, or the integral of one."""

    def has_level(self, x: np.ndarray) -> bool:
        """Whether a constant of any size, over points `[N, D]`, is likely under the kernel."""
        return not type(self).__module__.startswith("cgp.")

    @property
    def turn(self) -> Parameter | None:
        """The frequency by which this kernel shifts the other factors of a product, or None."""
        return None

    def scale_parameters(self) -> list[Parameter] | None:
        """The hyperparameters whose common factor scales all moments, by default the variance."""
        return [p for p in self.own_parameters if p.name == "variance"] or None

    @contextlib.contextmanager
    def undone_on_error(self) -> Iterator[None]:
        """A context that restores attributes that starting values changed, if it raises."""
        was_markov = self.is_markov
        settings = {name: getattr(self, name) for name in self.settings_from_data}
        try:
            yield
        except BaseException:
            if self.is_markov != was_markov:
                self.is_markov = was_markov
            self._set_from_data(**settings)
            raise

    def left_out(self) -> list[Parameter]:
        """The hyperparameters without a value, without which there are no moments."""
        of_kernel = [p for p in self.own_parameters if p.is_left_out]
        return of_kernel + [p for kernel in self.inside() for p in kernel.left_out()]

    def shares(self, power: float, is_selected: Callable[[Parameter], bool]) -> list[float]:
        """The shares of the power that the kernels inside start from; by default all for each."""
        return [power for _ in self.inside()]

    def named_layers(self) -> list[tuple[str, Parameterized]]:
        """This kernel and all kernels inside it, with their prefixes in `parameters`."""
        return [(kernel.prefix, kernel) for kernel in self.walk()]

    def parameters(self) -> dict[str, np.ndarray]:
        """The hyperparameters of this kernel and its parts by name: values, shared ones once.

        A name joins the kernel's, given or made from its class, and the parameter's by a dot.
        Names that repeat are numbered in the order of the expression; the factors of a product may
        share the name of their term, as in the example. Values left out that no fit has started yet
        are NaN. The hyperparameters are attributes of the kernels: `kernel.variance.assign(2.0)`.

        Example:
            >>> from cgp.kernels import Constant, Matern12, Rotation
            >>> tide = Constant(4.0, name="tide") * Rotation(0.08, name="tide")
            >>> storm = Matern12(1.0, 20.0, name="storm") * Rotation(-0.06, name="storm")
            >>> print(*(tide + storm).parameters())
            tide.variance tide.frequency storm.variance storm.lengthscale storm.frequency
        """
        return values_by_name(named_parameters(self.named_layers()), self.left_out())


def _index_of_definition(kind: type, name: str) -> int:
    """The index, among a class and its bases, of the first class that defines a method."""
    return next(i for i, base in enumerate(kind.__mro__) if name in vars(base))


def _is_foreign(kind: type[CovarianceFunction]) -> bool:
    """Whether a class has methods of its own that are not of cgp."""
    methods = (kind.moments, kind.markov_form)
    return any(not method.__module__.startswith("cgp.kernels.") for method in methods)


def check_moments(moments: Any, kernel: Any) -> Pair:
    """Returns moments, if they agree with the flags of their kernel, or raises a TypeError."""
    if not (isinstance(moments, tuple) and len(moments) == 2):
        raise TypeError(
            f"moments of {kernel!r} must return (covariance, pseudo-covariance or None)"
        )
    k, c = moments
    if kernel.is_proper and c is not None:
        raise TypeError(
            f"moments of {kernel!r} returns a pseudo-covariance, but is_proper is True: its class "
            "must say is_proper = False"
        )
    if not kernel.is_proper and c is None:
        raise TypeError(
            f"moments of {kernel!r} returns no pseudo-covariance, but is_proper is False: return "
            "zeros, or say is_proper = True"
        )
    if kernel.is_real and k.dtype.is_complex:
        raise TypeError(
            f"moments of {kernel!r} returns a complex covariance, but is_real is True: its class "
            "must say is_real = False"
        )
    return k, c


def check_agreement(kernel: Any, x: tf.Tensor) -> None:
    """Raises, eagerly, where `moments` and `markov_form` of a kernel describe two processes.

    Covariances at up to six of the points `[..., 1]` are compared.
    """
    form = kernel.markov_form()
    at = np.unique(x.numpy())
    if len(at) == 1:  # a second point, at the scale of the fastest state
        rate = 1.0 if form.generator is None else np.max(np.abs(form.generator.A))
        at = np.append(at, at + (1.0 / rate if rate > 0 else 1.0))
    # The smallest and the largest, and some between.
    at = tf.constant(at[np.unique([1, *np.linspace(0, len(at) - 1, 5).astype(int)])])
    pairs = (
        check_moments(kernel.moments(at[:, None, None], at[None, :, None]), kernel),
        form.moments(at[:, None], at[None, :]),
    )
    (k, c), (other_k, other_c) = ([np.asarray(0 if a is None else a) for a in p] for p in pairs)
    # Both compute phases and decays in their own way, whose rounding adds up over long lags.
    tolerance = np.finfo(other_k.dtype).eps ** (1 / 3) * np.max(np.abs(other_k))
    for name, a, b in (("covariance", k, other_k), ("pseudo-covariance", c, other_c)):
        a, b = np.broadcast_arrays(a, b)
        far = ~(np.abs(a - b) <= tolerance) & ~(np.isnan(a) & np.isnan(b))
        if far.any():
            i, j = np.argwhere(far)[0]
            raise ValueError(
                f"moments and markov_form of {kernel!r} are of two processes: the {name} between "
                f"x = {at[i]:g} and x = {at[j]:g} is {a[i, j]:g} by moments, {b[i, j]:g} by "
                "markov_form. Correct one of them, or leave out moments, which then follows from "
                "markov_form"
            )


def check_stationary(kernel: Any, x1: tf.Tensor, x2: tf.Tensor) -> None:
    """Raises, eagerly, where the covariance of points changes as both move by the same distance.

    At up to six of the pairs.
    """
    pairs = [tf.reshape(a, [-1, a.shape[-1]])[:6] for a in (x1 + 0.0 * x2, x2 + 0.0 * x1)]
    points = np.concatenate(pairs)
    smallest, span = np.min(points, axis=0), 1.0 + np.ptp(points, axis=0)
    # Dates move to the origin, as their differences would be rounded anew farther away.
    distance = np.where(np.abs(smallest) > span, -smallest, span)
    before, after = (
        np.asarray(check_moments(kernel.moments(*points), kernel)[0])
        for points in (pairs, [a + distance for a in pairs])
    )
    far = np.abs(after - before) > np.finfo(after.dtype).eps ** (1 / 3) * np.max(np.abs(before))
    if np.any(far):
        i = np.argmax(far)
        raise ValueError(
            f"{kernel!r} says is_stationary = True, but its covariance at one difference differs "
            f"between places: {before[i]:g} between x = {pairs[0][i]} and {pairs[1][i]}, and "
            f"{after[i]:g} where both are moved by {distance}. Leave the attribute out"
        )


def multiply(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """The product of two tensors, each real or complex."""
    if a.dtype == b.dtype:
        return a * b
    real, complex_ = (a, b) if b.dtype.is_complex else (b, a)
    return tf.complex(real * tf.math.real(complex_), real * tf.math.imag(complex_))


def add(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """The sum of two tensors, each real or complex."""
    return a + b if a.dtype == b.dtype else as_complex(a) + as_complex(b)
