"""What a kernel is, and the algebra that makes kernels of kernels.

A kernel is a Keras layer that owns hyperparameters and evaluates second moments of a zero-mean
complex process z: the covariance `E[z(x1) conj(z(x2))]` and the pseudo-covariance
`E[z(x1) z(x2)]`, zero when the process is proper.

The algebra is here too, for the operators of a kernel are its sums and products.
"""

import functools
from collections.abc import Iterable, Iterator
from numbers import Real

import keras
import numpy as np
import tensorflow as tf

from cgp.distributions.forms import SecondMoments
from cgp.kernels import markov
from cgp.kernels.moments import Pair, add, check, multiply
from cgp.kernels.points import as_points, one_number
from cgp.linalg.composite import as_complex
from cgp.training.hyperparameters import HyperparameterLayer
from cgp.training.keras_private import flatten_layers, sublayers
from cgp.training.parameters import POSITIVE, Parameterized, named_parameters
from cgp.training.sharing import sharing_scope


class Kernel(HyperparameterLayer):
    """The base of all kernels. To write one, declare its parameters and implement `moments`.

    Kernels add and multiply with each other; positive scalars multiply and divide the covariance.
    The same kernel object in two places is one set of hyperparameters.

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
        >>> kernel = Line(2.0, fixed="variance") + RBF()
        >>> config = keras.saving.serialize_keras_object(kernel)
        >>> keras.saving.deserialize_keras_object(config)
        Line(variance=2. (fixed)) + RBF(variance=1., lengthscale=1.)
    """

    is_proper: bool = True
    """Whether the pseudo-covariance is zero: whether `moments` returns None for it."""
    is_real: bool = False
    """Whether the covariance is real: it may then multiply an improper kernel."""
    is_markov: bool = False
    """Whether it is Markov over one-dimensional inputs: has a finite state-space form."""
    parts: tuple["Kernel", ...] = ()
    """The kernels that this one is made of."""

    # NumPy then leaves `np.float64(2) * kernel` to us, and `array * kernel` is an error.
    __array_ufunc__ = None

    def moments(self, x1: tf.Tensor, x2: tf.Tensor) -> Pair:
        """Covariance and pseudo-covariance between points, elementwise.

        Args:
            x1: `[..., D]`.
            x2: `[..., D]`; the batch axes of both broadcast.

        Returns:
            `(K, C)`, each of the broadcast batch shape; K may be real, C is None when proper.
        """
        raise NotImplementedError

    def checked_moments(self, x1: tf.Tensor, x2: tf.Tensor) -> Pair:
        """`moments`, or a TypeError if they are not what the flags say."""
        return check(self.moments(x1, x2), self)

    def markov_form(self) -> markov.MarkovForm:
        """The process over one-dimensional inputs as a linear system, where it has such a form.

        Raises:
            ValueError: It has none: says which part of the kernel has not.
        """
        parts = [part for part in self.walk() if not part.is_markov and not part.parts]
        if not parts and any(isinstance(part, Product) for part in self.walk()):
            raise ValueError(
                f"{self!r} is not Markov: a product of two improper kernels has no state-space "
                "form; take ExactGP"
            )
        culprits = ", ".join(map(repr, parts or [self]))
        raise ValueError(
            f"{culprits} is not Markov: no finite state-space form is known of it, or its inputs "
            "have several dimensions. Periodic and RBF have approximations, "
            "cgp.kernels.MarkovApproximation; take ExactGP for others"
        )

    def covariance(self, x1, x2=None) -> tf.Tensor:
        """The covariance `E[z(x1) conj(z(x2))]`.

        Args:
            x1: Inputs, `[N1]` or `[..., N1, D]`.
            x2: Inputs, `[N2]` or `[..., N2, D]`; `x1` if None.

        Returns:
            `[..., N1, N2]`, complex.

        Raises:
            TypeError: Complex inputs.
            ValueError: NaN inputs, shapes that do not fit, or points that float32 does not tell
                apart.
        """
        return self.moments_matrix(x1, x2)[0]

    def pseudo_covariance(self, x1, x2=None) -> tf.Tensor:
        """The pseudo-covariance `E[z(x1) z(x2)]`; arguments and result as for `covariance`."""
        return self.moments_matrix(x1, x2).c_or_zeros()

    def moments_matrix(self, x1, x2=None) -> SecondMoments:
        """Covariance and pseudo-covariance (None when proper) between two sets of points."""
        x1 = as_points(x1, self.variable_dtype, "x1")
        x2 = x1 if x2 is None else as_points(x2, self.variable_dtype, "x2")
        if not x1.shape[-1:].is_compatible_with(x2.shape[-1:]):
            raise ValueError(
                f"x1 and x2 must have the same number of dimensions D, got shapes {x1.shape} and "
                f"{x2.shape}"
            )
        try:
            tf.broadcast_static_shape(x1.shape[:-2], x2.shape[:-2])
        except ValueError:
            raise ValueError(
                f"the batch axes of x1, {x1.shape}, and x2, {x2.shape}, do not broadcast"
            ) from None
        return self._complex(x1[..., :, None, :], x2[..., None, :, :])

    def moments_diagonal(self, x) -> SecondMoments:
        """Variance and pseudo-variance (None when proper) of each point, `[..., N]`."""
        x = as_points(x, self.variable_dtype)
        return self._complex(x, x)

    def _complex(self, x1: tf.Tensor, x2: tf.Tensor) -> SecondMoments:
        k, c = self.checked_moments(x1, x2)
        return SecondMoments(as_complex(k), None if c is None else as_complex(c))

    def walk(self) -> Iterator["Kernel"]:
        """This kernel and all kernels inside it, in whatever it holds, depth first."""
        yield self
        for layer in sublayers(self):
            inner = [layer] if isinstance(layer, Kernel) else flatten_layers(layer)
            for kernel in inner:
                if isinstance(kernel, Kernel):
                    yield from kernel.walk()

    def named_layers(self) -> list[tuple[str, Parameterized]]:
        """This kernel and all inside it, with the names that `parameters` gives them."""
        return [(kernel.prefix, kernel) for kernel in self.walk()]

    def parameters(self) -> dict[str, np.ndarray]:
        """The hyperparameters of this kernel and its parts by name: values, shared ones once.

        A name is that of the kernel, given or made from its class, a dot, and the parameter's own;
        kernels of one name are numbered in the order of the expression. The hyperparameters
        themselves are attributes of the kernels: `kernel.variance.assign(2.0)`.
        """
        return {name: p.numpy() for name, p in named_parameters(self.named_layers()).items()}

    def __add__(self, other):
        return Sum([self, other]) if isinstance(other, Kernel) else NotImplemented

    def __radd__(self, other):
        # sum([k1, k2]) starts at 0
        return self if isinstance(other, Real) and other == 0 else NotImplemented

    def __mul__(self, other):
        if isinstance(other, Kernel):
            return Product([self, other])
        if isinstance(other, Real):
            return Product([Constant(other, fixed="variance", dtype=self.variable_dtype), self])
        return NotImplemented

    __rmul__ = __mul__

    def __truediv__(self, other):
        return self * (1.0 / float(other)) if isinstance(other, Real) else NotImplemented

    def __neg__(self):
        raise TypeError(
            f"{self!r} cannot be negated or subtracted: minus a covariance is no covariance, and "
            "the difference of two independent processes has the sum of theirs"
        )

    def __sub__(self, other):
        return -self

    def __rsub__(self, other):
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
    is_markov = True

    def __init__(
        self, variance=1.0, *, fixed=(), priors=None, name=None, dtype="float64", **kwargs
    ):
        super().__init__(name=name, dtype=dtype, **kwargs)
        values = {"variance": (one_number(variance, "variance"), POSITIVE)}
        self.declare_parameters(values, fixed, priors)

    def moments(self, x1, x2):
        """See `Kernel.moments`."""
        shape = tf.broadcast_dynamic_shape(tf.shape(x1)[:-1], tf.shape(x2)[:-1])
        return tf.broadcast_to(self.variance.value, shape), None

    def markov_form(self):
        """See `Kernel.markov_form`."""
        return markov.constant(self.variance.value)


class Combination(Kernel):
    """A kernel made of others, which it shares with whoever else holds them."""

    argument = "parts"
    """The name under which the constructor takes them."""

    def __init__(self, parts: Iterable[Kernel], *, name=None, dtype=None, **kwargs):
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

    def get_config(self):
        """The constructor's arguments, the parts serialised."""
        parts = keras.saving.serialize_keras_object(getattr(self, self.argument))
        return {**super().get_config(), self.argument: parts}

    @classmethod
    def from_config(cls, config):
        """The kernel of a config; parts that are one object in it are one object again."""
        with sharing_scope():
            parts = keras.saving.deserialize_keras_object(config[cls.argument])
            return super().from_config({**config, cls.argument: parts})


def _flattened(kind: type[Kernel], parts) -> list[Kernel]:
    """(a + b) + c as the sum of three; a part with a name of its own stays whole."""
    if isinstance(parts, Kernel):
        raise TypeError(f"{kind.__name__} takes a list of kernels, got {parts!r}")
    flat: list[Kernel] = []
    for part in parts:
        flat.extend(part.parts if type(part) is kind and part._given_name is None else [part])
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
        >>> kernel = RBF(2.0) + Constant(0.5)
        >>> kernel
        RBF(variance=2., lengthscale=1.) + Constant(variance=0.5)
        >>> kernel.covariance([0.0]).numpy()
        array([[2.5+0.j]])
    """

    def __init__(self, parts, *, name=None, dtype=None, **kwargs):
        super().__init__(_flattened(type(self), parts), name=name, dtype=dtype, **kwargs)

    def moments(self, x1, x2):
        """See `Kernel.moments`."""
        ks, cs = zip(*(part.checked_moments(x1, x2) for part in self.parts), strict=True)
        improper = [c for c in cs if c is not None]
        return functools.reduce(add, ks), functools.reduce(add, improper) if improper else None

    def markov_form(self):
        """See `Kernel.markov_form`."""
        if not self.is_markov:
            return super().markov_form()
        return markov.direct_sum([part.markov_form() for part in self.parts])

    def __repr__(self):
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
        >>> kernel = 0.5 * RBF(2.0) * Rotation(frequency=0.25)
        >>> kernel.parts[1:]
        (RBF(variance=2., lengthscale=1.), Rotation(frequency=0.25))
        >>> kernel.covariance([1.0], [0.0]).numpy().round(4)
        array([[0.+0.6065j]])
    """

    def __init__(self, parts, *, name=None, dtype=None, **kwargs):
        super().__init__(_flattened(type(self), parts), name=name, dtype=dtype, **kwargs)
        # Two improper processes multiply K with K and C with C, as no product of states does.
        self.is_markov &= sum(not part.is_proper for part in self.parts) < 2
        turning = [part for part in self.parts if part.is_proper and not part.is_real]
        if turning and not self.is_proper:
            raise ValueError(
                f"{turning[0]!r}, whose is_real is False, cannot multiply an improper kernel: put "
                "it inside, WidelyLinear(kernel * Rotation(...), coefficient)"
            )

    def moments(self, x1, x2):
        """See `Kernel.moments`."""
        pairs = [part.checked_moments(x1, x2) for part in self.parts]
        k = functools.reduce(multiply, [k for k, _ in pairs])
        if self.is_proper:
            return k, None
        # A real process is its own conjugate: its C is its K.
        return k, functools.reduce(multiply, [k if c is None else c for k, c in pairs])

    def markov_form(self):
        """See `Kernel.markov_form`."""
        improper = [part for part in self.parts if not part.is_proper]
        if not self.is_markov or len(improper) > 1:
            return super().markov_form()
        return functools.reduce(markov.product, [part.markov_form() for part in self.parts])

    def __repr__(self):
        return " * ".join(f"({p!r})" if isinstance(p, Sum) else repr(p) for p in self.parts)
