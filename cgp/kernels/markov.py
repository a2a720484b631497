"""State-space forms of kernels over one-dimensional inputs, and how they combine.

A Markov process of covariance K is `z(x) = h s(x) + g conj(s(x))`, s a proper complex state that a
linear system driven by white noise moves on (Särkkä & Solin, *Applied Stochastic Differential
Equations*, 2019, ch. 12). The transition matrices of the kernels of cgp are lower triangular: in a
cascade, the state that drives comes before the state that is driven. Process noise is computed from
sums of positive terms: the difference of stationary covariances, `P − F P Fᴴ`, would lose all
digits over short steps.

The form of each kernel is in its class; this module has the parts that they share.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from cgp.linalg.arguments import as_complex

Pair = tuple[tf.Tensor, tf.Tensor | None]
"""Covariance, real or complex, and pseudo-covariance, or None when proper."""


class Generator(NamedTuple):
    """The stochastic differential equation of a stationary state: drift and diffusion.

    `ds = A s dx + dβ`, `E[dβ dβᴴ] = W dx`; complex matrices of the precision of the kernel.
    """

    A: tf.Tensor
    """The drift, `[n, n]`, per unit of x."""
    W: tf.Tensor
    """The diffusion, `[n, n]`, Hermitian, in squared units of z per unit of x."""


class MarkovForm(NamedTuple):
    """The state-space form of a kernel, which `Kernel.markov_form` returns.

    `z(x) = h s(x) + h_conj conj(s(x))`; from a point x to the next, at x + step, the state becomes
    `F s + q`, `E[q qᴴ] = Q`. Points and steps are real tensors of any shape `[...]`, matrices are
    complex tensors `[..., n, n]`, all of the precision of the kernel. `linear_sde` makes the form
    of a stationary differential equation.

    Example:
        A random walk that starts at x = 0, of unit variance per unit of x.

        >>> import tensorflow as tf
        >>> from cgp.kernels import MarkovForm
        >>> def matrices(a):
        ...     return tf.cast(a, tf.complex128)[..., None, None]
        >>> form = MarkovForm(
        ...     transition=lambda step: matrices(tf.ones_like(step)),
        ...     discretize=lambda x, step: (matrices(tf.ones_like(step)), matrices(step)),
        ...     covariance=lambda x: matrices(x),
        ...     h=tf.ones([1], tf.complex128),
        ...     is_stationary=False,
        ... )
        >>> x = tf.constant([1.0, 3.0], tf.float64)
        >>> covariance, pseudo_covariance = form.moments(x[:, None], x[None, :])
        >>> covariance.numpy().real, pseudo_covariance
        (array([[1., 1.],
               [1., 3.]]), None)
    """

    transition: Callable[[tf.Tensor], tf.Tensor]
    """The transition matrix F over steps: `step -> F`."""
    discretize: Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
    """Transition and process noise over steps from points: `(x, step) -> (F, Q)`."""
    covariance: Callable[[tf.Tensor], tf.Tensor]
    """The covariance P of the state at points: `x -> P`."""
    h: tf.Tensor
    """The emission of the state, `[n]`, complex; of a kernel of P outputs `[P, n]`."""
    h_conj: tf.Tensor | None = None
    """The emission of the conjugate of the state, shaped like h, complex; None for a proper
    process."""
    generator: Generator | None = None
    """The differential equation of the state, for a process in continuous time whose drift and
    diffusion do not change with x; None for another process."""
    is_stationary: bool = True
    """Whether P is the same at all points, and Q a function of the step alone."""
    coefficient: tf.Tensor | None = None
    """c, where the process is `u + c conj(u)` of the proper process `u = h s`; else None."""

    @property
    def size(self) -> int:
        """The number of states n."""
        return self.h.shape[-1]

    def moments(self, x1: tf.Tensor, x2: tf.Tensor) -> Pair:
        """Covariance and pseudo-covariance between points, elementwise.

        With `S = E[s(x1) s(x2)ᴴ] = F(x1 − x2) P(x2)` where x1 ≥ x2, the covariance is
        `h S hᴴ + g conj(S) gᴴ` and the pseudo-covariance `h S gᵀ + g conj(S) hᵀ`.

        Args:
            x1: Points, `[...]`.
            x2: Points, `[...]`; the shapes broadcast.

        Returns:
            `(K, C)`, complex `[...]`; C is None for a proper process.
        """
        return self.second_moments(self.covariance_of(x1, x2, self.emissions))

    @property
    def emissions(self) -> tf.Tensor:
        """The rows h and conj(g) of the components u and v of `z = u + conj(v)`, `[..., m, n]`.

        Both components are proper, as the state is. There is u alone where v is zero or `conj(c) u`
        (`coefficient`), and m is 1. With outputs the first axis is P.
        """
        if self.h_conj is None or self.coefficient is not None:
            return tf.expand_dims(self.h, -2)
        return tf.stack([self.h, tf.math.conj(self.h_conj)], axis=-2)

    def conjugate_emission(self, rows: tf.Tensor) -> tf.Tensor | None:
        """The emission of the conjugate of the state beside `rows` of components `[..., m, n]`.

        `[..., 1, n]`, or None for a proper process.
        """
        if self.coefficient is not None:
            return self.coefficient * tf.math.conj(rows)
        return None if self.h_conj is None else tf.math.conj(rows[..., 1:, :])

    def second_moments(self, m: tf.Tensor) -> Pair:
        """Covariance and pseudo-covariance of z, from those of its components, `[..., m, m]`."""
        u = m[..., 0, 0]
        if self.h_conj is None:
            return u, None
        if self.coefficient is not None:
            c, conjugate = self.coefficient, tf.math.conj(u)
            return u + c * tf.math.conj(c) * conjugate, c * (u + conjugate)
        k = u + tf.math.conj(m[..., 1, 1])
        return k, m[..., 0, 1] + tf.math.conj(m[..., 1, 0])

    def covariance_of(self, x1: tf.Tensor, x2: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """The covariance `E[R s(x1) (R s(x2))ᴴ]` of components `R s`, elementwise.

        Args:
            x1: Points, `[...]`.
            x2: Points, `[...]`; the shapes broadcast.
            rows: R, `[m, n]`, complex.

        Returns:
            Complex, `[..., m, m]`.
        """
        is_earlier = x1 < x2
        # Not by minimum and modulus, whose derivatives at coincident points are not those of m.
        earlier, step = tf.where(is_earlier, x1, x2), tf.where(is_earlier, x2 - x1, x1 - x2)
        columns = tf.linalg.matmul(self.covariance(earlier), rows, adjoint_b=True)
        m = tf.linalg.matmul(rows, tf.linalg.matmul(self.transition(step), columns))
        return tf.where(is_earlier[..., None, None], tf.linalg.adjoint(m), m)

    def derivative_emissions(self) -> tf.Tensor:
        """The rows `R A` by which the derivative is observed, `[..., m, n]` (see `emissions`).

        `dz = h A s dx + h dβ` has a derivative where no noise enters it, `h W hᴴ = 0`: the process
        is then differentiable in mean square (Särkkä & Solin, *Applied Stochastic Differential
        Equations*, 2019, §12.3).

        Raises:
            ValueError: No differential equation is known, or, eagerly, noise enters z directly.
        """
        if self.generator is None:
            raise ValueError("it has no differential equation")
        rows, (A, W) = self.emissions, self.generator
        if tf.executing_eagerly():
            noise = np.abs(tf.linalg.matmul(tf.linalg.matmul(rows, W), rows, adjoint_b=True))
            if np.max(noise) > 1e-12 * np.max(np.abs(W)) * np.max(np.abs(rows)) ** 2:
                raise ValueError("noise enters its value directly, as in a random walk")
        return tf.linalg.matmul(rows, A)


# --- matrices ------------------------------------------------------------------------------------


def over_points(matrix: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """Broadcasts a matrix `[n, n]` over points `[...]`: `[..., n, n]`."""
    return tf.broadcast_to(matrix, tf.concat([tf.shape(x), tf.shape(matrix)], axis=0))


def stack_matrices(rows: Sequence[Sequence[tf.Tensor]]) -> tf.Tensor:
    """Stacks rows of real tensors `[...]` of one shape into complex matrices `[..., n, n]`."""
    return as_complex(tf.stack([tf.stack(list(row), axis=-1) for row in rows], axis=-2))


def stationary_form(
    discretized: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]],
    P: tf.Tensor,
    h: tf.Tensor,
    generator: Generator | None = None,
) -> MarkovForm:
    """The form of a proper stationary process, from its transition and noise over steps."""
    return MarkovForm(
        lambda step: discretized(step)[0],
        lambda x, step: discretized(step),
        lambda x: over_points(P, x),
        h,
        None,
        generator,
    )


def noiseless_form(
    transition: Callable[[tf.Tensor], tf.Tensor], P: tf.Tensor, h: tf.Tensor, A: tf.Tensor
) -> MarkovForm:
    """The form of a proper stationary process whose states move on without noise."""
    zero = tf.zeros_like(P)
    return stationary_form(
        lambda step: (transition(step), over_points(zero, step)), P, h, Generator(A, zero)
    )


def emission_of_last(n: int, dtype: tf.DType) -> tf.Tensor:
    """The emission `[n]` that reads the last of n states."""
    return tf.one_hot(n - 1, n, dtype=dtype)


def block_diagonal(blocks: Iterable[tf.Tensor]) -> tf.Tensor:
    """Puts matrices `[..., n, n]` along a diagonal."""
    blocks = list(blocks)
    sizes = [block.shape[-1] for block in blocks]
    rows = []
    for i, block in enumerate(blocks):
        beside = [sum(sizes[:i]), sum(sizes[i + 1 :])]
        rows.append(tf.pad(block, [[0, 0]] * (block.shape.rank - 1) + [beside]))
    return tf.concat(rows, axis=-2)


def kronecker(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """`a ⊗ b`, `[..., n, n]`, `[..., m, m]` -> `[..., nm, nm]`; lower triangular if both are."""
    # Axes are added by ops of their own, and shapes are static where they are known: eagerly,
    # where a form is made for each first sample, that is four times as fast.
    a, b = (tf.expand_dims(tf.expand_dims(f, i), j) for f, i, j in ((a, -1, -3), (b, -2, -4)))
    blocks = a * b
    n = blocks.shape[-4] * blocks.shape[-3]
    batch = blocks.shape[:-4]
    if batch.is_fully_defined():
        return tf.reshape(blocks, [*batch, n, n])
    return tf.reshape(blocks, tf.concat([tf.shape(blocks)[:-4], [n, n]], axis=0))


# --- algebra -------------------------------------------------------------------------------------


def direct_sum(forms: Sequence[MarkovForm]) -> MarkovForm:
    """The form of a sum of independent processes: the direct sum of their states."""
    improper = any(form.h_conj is not None for form in forms)
    conjugated = [tf.zeros_like(f.h) if f.h_conj is None else f.h_conj for f in forms]
    generators = [form.generator for form in forms if form.generator is not None]

    def discretize(x: tf.Tensor, step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        transitions, noises = zip(*(form.discretize(x, step) for form in forms), strict=True)
        return block_diagonal(transitions), block_diagonal(noises)

    return MarkovForm(
        lambda step: block_diagonal(form.transition(step) for form in forms),
        discretize,
        lambda x: block_diagonal(form.covariance(x) for form in forms),
        tf.concat([form.h for form in forms], axis=-1),
        tf.concat(conjugated, axis=-1) if improper else None,
        Generator(*map(block_diagonal, zip(*generators, strict=True)))
        if len(generators) == len(forms)
        else None,
        all(form.is_stationary for form in forms),
    )


def product(a: MarkovForm, b: MarkovForm) -> MarkovForm:
    """The form of a product of independent processes: the Kronecker product of their states.

    At most one of them is improper; the other is then real, and multiplies K and C alike.
    """

    def discretize(x: tf.Tensor, step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        (F, Q), (G, R) = a.discretize(x, step), b.discretize(x, step)
        # (F P Fᴴ + Q) ⊗ (G S Gᴴ + R), less F P Fᴴ ⊗ G S Gᴴ, which the transition carries over.
        carried = tf.linalg.matmul(F, tf.linalg.matmul(a.covariance(x), F, adjoint_b=True))
        noise = kronecker(Q, b.covariance(x + step)) + kronecker(carried, R)
        return kronecker(F, G), noise

    def emission(first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
        products = first[..., :, None] * second[..., None, :]  # one of them may have outputs
        return tf.reshape(products, [*products.shape[:-2], products.shape[-2] * products.shape[-1]])

    h_conj = None
    if a.h_conj is not None or b.h_conj is not None:
        # A real process is its own conjugate, though its state may not be.
        h_conj = emission(*(tf.math.conj(f.h) if f.h_conj is None else f.h_conj for f in (a, b)))
    generator = None
    # The diffusion of a product has the covariances of its factors in it.
    are_stationary = a.is_stationary and b.is_stationary
    if are_stationary and a.generator is not None and b.generator is not None:
        origin = tf.zeros([], a.h.dtype.real_dtype)
        (A, W), (B, V) = a.generator, b.generator
        P, S = a.covariance(origin), b.covariance(origin)
        I_a, I_b = (tf.eye(form.size, dtype=a.h.dtype) for form in (a, b))
        generator = Generator(
            kronecker(A, I_b) + kronecker(I_a, B), kronecker(W, S) + kronecker(P, V)
        )
    return MarkovForm(
        lambda step: kronecker(a.transition(step), b.transition(step)),
        discretize,
        lambda x: kronecker(a.covariance(x), b.covariance(x)),
        emission(a.h, b.h),
        h_conj,
        generator,
        a.is_stationary and b.is_stationary,
        next((f.coefficient for f in (a, b) if f.coefficient is not None), None),
    )


def conjugate(form: MarkovForm) -> MarkovForm:
    """The form of the conjugate process."""
    conj = tf.math.conj

    def discretize(x: tf.Tensor, step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        F, Q = form.discretize(x, step)
        return conj(F), conj(Q)

    generator = form.generator
    return MarkovForm(
        lambda step: conj(form.transition(step)),
        discretize,
        lambda x: conj(form.covariance(x)),
        conj(form.h),
        None if form.h_conj is None else conj(form.h_conj),
        None if generator is None else Generator(*map(conj, generator)),
        form.is_stationary,
        None if form.coefficient is None else conj(form.coefficient),
    )


def widely_linear(form: MarkovForm, coefficient: tf.Tensor) -> MarkovForm:
    """The form of the process `u + c conj(u)`."""
    conj = tf.math.conj
    h, g = form.h, tf.zeros_like(form.h) if form.h_conj is None else form.h_conj
    improper = form._replace(h=h + coefficient * conj(g), h_conj=g + coefficient * conj(h))
    return improper._replace(coefficient=coefficient if form.h_conj is None else None)


# --- terms in closed form ------------------------------------------------------------------------

# Compiled ops compute the transitions of a sum of Matérn processes times rotations from its terms,
# of a few numbers each, where `markov_form` has functions that return matrices.


class Term(NamedTuple):
    """An independent term of a sum of processes: a Matérn process times a rotation.

    It has the states of `matern_form`, of which the last is the signal. All numbers are real
    scalars of the precision of the kernel.
    """

    order: int  # the number of derivatives of the process, 0, 1 or 2; it has order + 1 states
    variance: tf.Tensor  # in squared units of z
    rate: tf.Tensor | None = None  # of the cascade, per unit of x; None for order 0 without decay
    frequency: tf.Tensor | None = None  # in cycles per unit of x; None without a rotation


Terms = tuple[Term, ...]
"""The terms of a sum, in the order of its states."""


def terms_of_sum(processes: Sequence[Terms | None]) -> Terms | None:
    """The terms of a sum of processes; None unless the terms of each process are known."""
    of_processes = [terms for terms in processes if terms is not None]
    return tuple(itertools.chain(*of_processes)) if len(of_processes) == len(processes) else None


def terms_of_product(a: Terms | None, b: Terms | None) -> Terms | None:
    """The terms of a product of processes, one for each pair; None where it has another form."""
    if a is None or b is None:
        return None
    if 1 not in (_size(a), _size(b)) and any(term.order for term in a + b):
        return None  # the states of a pair would not follow one another
    pairs = [(p, q) for p in a for q in b]
    if any(p.order + q.order and None not in (p.rate, q.rate) for p, q in pairs):
        return None  # a smooth process that decays faster is no Matérn process
    return tuple(
        Term(max(p.order, q.order), p.variance * q.variance, *map(_added, p[2:], q[2:]))
        for p, q in pairs
    )


def terms_of_conjugate(terms: Terms | None) -> Terms | None:
    """The terms of the conjugate process, which turns the other way."""

    def turned(term: Term) -> Term:
        return term._replace(frequency=None if term.frequency is None else -term.frequency)

    return None if terms is None else tuple(map(turned, terms))


def _size(terms: Terms) -> int:
    return sum(term.order + 1 for term in terms)


def _added(a: tf.Tensor | None, b: tf.Tensor | None) -> tf.Tensor | None:
    """The sum of two rates or frequencies; one beside None stays the same object."""
    return b if a is None else a if b is None else a + b
