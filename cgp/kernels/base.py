"""What a kernel is, and the algebra that makes kernels of kernels.

A kernel is a Keras layer that owns hyperparameters and evaluates second moments of a zero-mean
complex process z: the covariance `E[z(x1) conj(z(x2))]` and the pseudo-covariance
`E[z(x1) z(x2)]`, zero when the process is proper.
"""

import functools
from collections.abc import Iterator
from numbers import Real

import keras
import numpy as np
import tensorflow as tf

from cgp.training.parameters import POSITIVE, Parameter, Parameterized, named_parameters
from cgp.training.sharing import Shareable, sharing_scope

Moments = tuple[tf.Tensor, tf.Tensor | None]
"""Covariance, and pseudo-covariance or None for a proper kernel."""


def as_points(x, dtype, name: str = "x") -> tf.Tensor:
    """Inputs as a tensor `[..., N, D]` of the given real dtype; `[N]` becomes `[N, 1]`.

    Raises:
        TypeError: Complex inputs, or anything else but real numbers.
        ValueError: A scalar, or (eagerly) NaN.
    """
    x = x if tf.is_tensor(x) else np.asarray(x)
    if isinstance(x, np.ndarray) and x.dtype.kind not in "iufc":
        raise TypeError(
            f"{name} must be real numbers, got {x.dtype}: make dates, say, a number of days"
        )
    if tf.as_dtype(x.dtype).is_complex:
        raise TypeError(
            f"{name} must be real, got {tf.as_dtype(x.dtype).name}: embed a complex input as two "
            "real coordinates, np.stack([x.real, x.imag], axis=-1)"
        )
    x = tf.cast(x, dtype) if tf.is_tensor(x) else tf.convert_to_tensor(x.astype(str(dtype)))
    if x.shape.rank == 0:
        raise ValueError(f"{name} must be [N] or [..., N, D], got a scalar")
    if tf.executing_eagerly() and not bool(tf.reduce_all(tf.math.is_finite(x))):
        raise ValueError(f"{name} must be finite, but has NaN or infinite elements")
    return x[:, None] if x.shape.rank == 1 else x


def one_number(value, name: str, or_vector: bool = False):
    """`value`, if it is one number; or, with `or_vector`, one for each dimension of x.

    Raises:
        TypeError: It is no number.
        ValueError: It has another shape.
    """
    if np.asarray(value).dtype.kind not in "iufc":
        raise TypeError(f"{name} must be a number, got {value!r}")
    shape = np.shape(value)
    if len(shape) > int(or_vector) or 0 in shape:
        wanted = "one number" + (", or one for each dimension of x" if or_vector else "")
        raise ValueError(f"{name} must be {wanted}, got shape {shape}")
    return value


def per_dimension(parameter: Parameter, x: tf.Tensor) -> tf.Tensor:
    """The value of a parameter that is one number, or one for each dimension of `x` `[..., D]`.

    Raises:
        ValueError: One for each dimension, but of another number of dimensions.
    """
    value = parameter.value
    # Without this, a vector would broadcast against inputs of one dimension and make D of them.
    if value.shape.rank and not value.shape.is_compatible_with(x.shape[-1:]):
        raise ValueError(
            f"{parameter.name} has {value.shape[0]} elements, one for each dimension of x, but x "
            f"has {x.shape[-1]} dimensions"
        )
    return value


class Kernel(Shareable, Parameterized, keras.layers.Layer):
    """The base of all kernels. To write one, implement `moments` and declare the parameters.

    Kernels add and multiply with each other and with positive scalars, which scale the covariance.
    The same kernel object in two places is one set of hyperparameters.

    Args:
        name: A name for its parameters, as in `gp.parameters()`; by default the class's.
        dtype: "float64" (complex128 covariances) or "float32" (complex64).
    """

    is_proper: bool = True
    """Whether the pseudo-covariance is zero."""
    is_real: bool = True
    """Whether the covariance is real: it may then multiply an improper kernel."""
    is_markov: bool = False
    """Whether the process is Markov: whether it has an exact, finite state-space form."""
    parts: tuple["Kernel", ...] = ()
    """The kernels that this one is made of."""

    # NumPy then leaves `np.float64(2) * kernel` to us, and `array * kernel` is an error.
    __array_ufunc__ = None

    def __init__(self, *, name: str | None = None, dtype="float64", **kwargs):
        super().__init__(name=name, dtype=dtype or "float64", **kwargs)
        if self.variable_dtype not in ("float32", "float64"):
            raise ValueError(
                f"dtype must be float32 or float64 (covariances are then complex), got {dtype!r}"
            )
        self._given_name = name
        self.built = True  # everything a kernel has exists from here on: there is nothing to build

    def moments(self, x1: tf.Tensor, x2: tf.Tensor) -> Moments:
        """Covariance and pseudo-covariance between points, elementwise.

        Args:
            x1: `[..., D]`.
            x2: `[..., D]`; the batch axes of both broadcast.

        Returns:
            `(K, C)`, each of the broadcast batch shape; K may be real, C is None when proper.
        """
        raise NotImplementedError

    def covariance(self, x1, x2=None) -> tf.Tensor:
        """The covariance `E[z(x1) conj(z(x2))]`.

        Args:
            x1: Inputs, `[N1]` or `[..., N1, D]`.
            x2: Inputs, `[N2]` or `[..., N2, D]`; `x1` if None.

        Returns:
            `[..., N1, N2]`, complex.

        Raises:
            TypeError: Complex inputs.
            ValueError: NaN inputs, or shapes that do not fit.
        """
        return self.moments_matrix(x1, x2)[0]

    def pseudo_covariance(self, x1, x2=None) -> tf.Tensor:
        """The pseudo-covariance `E[z(x1) z(x2)]`; arguments and result as for `covariance`."""
        k, c = self.moments_matrix(x1, x2)
        return tf.zeros_like(k) if c is None else c

    def moments_matrix(self, x1, x2=None) -> Moments:
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
        return self._complex(self.moments(x1[..., :, None, :], x2[..., None, :, :]))

    def moments_diagonal(self, x) -> Moments:
        """Variance and pseudo-variance (None when proper) of each point, `[..., N]`."""
        x = as_points(x, self.variable_dtype)
        return self._complex(self.moments(x, x))

    def _complex(self, moments: Moments) -> Moments:
        k, c = moments
        return as_complex(k), None if c is None else as_complex(c)

    def walk(self) -> Iterator["Kernel"]:
        """This kernel and all it is made of, depth first."""
        yield self
        for part in self.parts:
            yield from part.walk()

    def named_layers(self) -> list[tuple[str, Parameterized]]:
        """This kernel and all it is made of, with the names that `parameters` gives them."""
        return [(kernel.prefix, kernel) for kernel in self.walk()]

    def parameters(self) -> dict[str, Parameter]:
        """The hyperparameters of this kernel and its parts by name, shared ones once.

        A name is that of the kernel, given or made from its class, a dot, and the parameter's own;
        kernels of one name are numbered in the order of the expression.
        """
        return named_parameters(self.named_layers())

    @property
    def prefix(self) -> str:
        """The name under which `parameters` lists this kernel."""
        return self._given_name or type(self).__name__.lower()

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

    def get_config(self):
        """The constructor's arguments, complex numbers as [re, im]."""
        config = super().get_config()
        own = {"name": self._given_name, "dtype": self.variable_dtype}
        return {**config, **own, **self.parameters_config()}

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(map(repr, self.own_parameters))})"


def as_complex(k: tf.Tensor) -> tf.Tensor:
    """A real or complex tensor as a complex one of the same precision."""
    return k if k.dtype.is_complex else tf.complex(k, tf.zeros_like(k))


def multiply(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """The product of two tensors, either of them real or complex."""
    if a.dtype == b.dtype:
        return a * b
    real, other = (a, b) if b.dtype.is_complex else (b, a)
    return tf.complex(real * tf.math.real(other), real * tf.math.imag(other))


def add(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """The sum of two tensors, either of them real or complex."""
    return a + b if a.dtype == b.dtype else as_complex(a) + as_complex(b)


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


class Composite(Kernel):
    """A kernel made of others, which it shares with whoever else holds them."""

    def __init__(self, parts, *, name=None, dtype=None, **kwargs):
        if isinstance(parts, Kernel):
            raise TypeError(f"{type(self).__name__} takes a list of kernels, got {parts!r}")
        flat: list[Kernel] = []
        for part in parts:
            if not isinstance(part, Kernel):
                raise TypeError(f"{type(self).__name__} is made of kernels, got {part!r}")
            # (a + b) + c is the sum of three; a part with a name of its own stays whole.
            same = type(part) is type(self) and part._given_name is None
            flat.extend(part.parts if same else [part])
        if not flat:
            raise ValueError(f"a {type(self).__name__} needs at least one kernel, got none")
        dtypes = {part.variable_dtype for part in flat}
        if len(dtypes) != 1:
            raise TypeError(
                f"the parts of a {type(self).__name__} must have one dtype, got {sorted(dtypes)}"
            )
        super().__init__(name=name, dtype=dtype or min(dtypes), **kwargs)
        if {self.variable_dtype} != dtypes:
            raise TypeError(f"dtype is {self.variable_dtype}, but the parts are {min(dtypes)}")
        self.parts = tuple(flat)
        self.is_real = all(part.is_real for part in flat)
        self.is_proper = all(part.is_proper for part in flat)
        self.is_markov = all(part.is_markov for part in flat)

    def get_config(self):
        """The parts, serialised."""
        parts = [keras.saving.serialize_keras_object(part) for part in self.parts]
        return {**super().get_config(), "parts": parts}

    @classmethod
    def from_config(cls, config):
        """The kernel of a config; parts that are one object in it are one object again."""
        with sharing_scope():
            parts = [keras.saving.deserialize_keras_object(part) for part in config["parts"]]
            return super().from_config({**config, "parts": parts})


@keras.saving.register_keras_serializable(package="cgp.kernels")
class Sum(Composite):
    """The kernel of a sum of independent processes; what `k1 + k2` makes.

    Args:
        parts: Kernels of one dtype.
        name: A name; an unnamed sum inside a sum is dissolved into it.
        dtype: That of the parts.
    """

    def moments(self, x1, x2):
        """See `Kernel.moments`."""
        ks, cs = zip(*(part.moments(x1, x2) for part in self.parts), strict=True)
        improper = [c for c in cs if c is not None]
        return functools.reduce(add, ks), functools.reduce(add, improper) if improper else None

    def __repr__(self):
        return " + ".join(map(repr, self.parts))


@keras.saving.register_keras_serializable(package="cgp.kernels")
class Product(Composite):
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
    """

    def __init__(self, parts, *, name=None, dtype=None, **kwargs):
        super().__init__(parts, name=name, dtype=dtype, **kwargs)
        turning = [part for part in self.parts if part.is_proper and not part.is_real]
        if turning and not self.is_proper:
            raise ValueError(
                f"{turning[0]!r} cannot multiply an improper kernel: put it inside, "
                "WidelyLinear(kernel * Rotation(...), coefficient)"
            )

    def moments(self, x1, x2):
        """See `Kernel.moments`."""
        pairs = [part.moments(x1, x2) for part in self.parts]
        k = functools.reduce(multiply, [k for k, _ in pairs])
        if self.is_proper:
            return k, None
        # A real process is its own conjugate: its C is its K.
        return k, functools.reduce(multiply, [k if c is None else c for k, c in pairs])

    def __repr__(self):
        return " * ".join(f"({p!r})" if isinstance(p, Sum) else repr(p) for p in self.parts)
