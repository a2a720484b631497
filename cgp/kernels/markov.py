"""Kernels over a line as linear systems driven by white noise: the state-space form.

A process of covariance K is `z(x) = h s(x) + g conj(s(x))`, s a complex proper state that is Markov
(Särkkä & Solin, *Applied Stochastic Differential Equations*, 2019, ch. 12). Transition matrices are
lower triangular, states in cascades: what drives comes before what is driven. Noise is worked out
as sums of what is positive: the difference of stationary covariances, `P − F P Fᴴ`, would lose all
digits over short steps.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from cgp.linalg.composite import as_complex


class Generator(NamedTuple):
    """`ds = A s dx + dβ`, `E[dβ dβᴴ] = W dx`, of a stationary state."""

    A: tf.Tensor
    """`[n, n]`, lower triangular."""
    W: tf.Tensor
    """`[n, n]`."""


class MarkovForm(NamedTuple):
    """A process as a linear system.

    Steps and points are real tensors of any shape, `[...]`.
    """

    transition: Callable[[tf.Tensor], tf.Tensor]
    """F over steps: `[...]` -> `[..., n, n]`, complex."""
    discretize: Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
    """F, and the noise Q, over steps from points: `(x, step)` -> twice `[..., n, n]`."""
    covariance: Callable[[tf.Tensor], tf.Tensor]
    """P of the state at points: `[...]` -> `[..., n, n]`."""
    h: tf.Tensor
    """`[n]`, complex."""
    h_conj: tf.Tensor | None = None
    """`[n]`; None where the process is proper."""
    generator: Generator | None = None
    """Of a stationary process in continuous time."""
    is_stationary: bool = True
    """Whether the covariance of the state is the same at all points."""

    @property
    def size(self) -> int:
        """N."""
        return self.h.shape[-1]

    def moments(self, x1: tf.Tensor, x2: tf.Tensor) -> tf.Tensor:
        """`E[z(x1) conj(z(x2))]` of a proper process, elementwise."""
        first = tf.minimum(x1, x2)
        column = tf.linalg.matvec(self.covariance(first), tf.math.conj(self.h))
        later = tf.linalg.matvec(self.transition(tf.abs(x1 - x2)), column)
        k = tf.reduce_sum(self.h * later, axis=-1)
        return tf.where(x1 < x2, tf.math.conj(k), k)


def over(matrix: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """A matrix `[n, n]` that is the same at all points `[...]`: `[..., n, n]`."""
    return tf.broadcast_to(matrix, tf.concat([tf.shape(x), tf.shape(matrix)], axis=0))


def stacked(rows) -> tf.Tensor:
    """Complex matrices `[..., n, n]` of rows of numbers and of tensors `[...]`, real or complex."""
    flat = [tf.convert_to_tensor(a) for row in rows for a in row]
    precise = next((a.dtype.real_dtype for a in flat if a.shape.rank), flat[0].dtype.real_dtype)
    flat = [as_complex(a if a.dtype.is_complex else tf.cast(a, precise)) for a in flat]
    shape = tf.shape(max(flat, key=lambda a: a.shape.rank))
    n = len(rows)
    matrix = tf.stack([tf.broadcast_to(a, shape) for a in flat], axis=-1)
    return tf.reshape(matrix, tf.concat([shape, [n, n]], axis=0))


def unit(n: int, dtype: tf.DType) -> tf.Tensor:
    """The row that picks the last of n states."""
    return tf.one_hot(n - 1, n, dtype=dtype)


# --- algebra ------------------------------------------------------------------------------------


def direct_sum(forms: list[MarkovForm]) -> MarkovForm:
    """The sum of independent processes: their states beside one another."""
    improper = any(form.h_conj is not None for form in forms)
    conjugated = [tf.zeros_like(f.h) if f.h_conj is None else f.h_conj for f in forms]
    generators = [form.generator for form in forms if form.generator is not None]

    def discretize(x, step):
        transitions, noises = zip(*(form.discretize(x, step) for form in forms), strict=True)
        return block_diagonal(transitions), block_diagonal(noises)

    return MarkovForm(
        lambda step: block_diagonal([form.transition(step) for form in forms]),
        discretize,
        lambda x: block_diagonal([form.covariance(x) for form in forms]),
        tf.concat([form.h for form in forms], axis=0),
        tf.concat(conjugated, axis=0) if improper else None,
        Generator(*map(block_diagonal, zip(*generators, strict=True)))
        if len(generators) == len(forms)
        else None,
        all(form.is_stationary for form in forms),
    )


def block_diagonal(blocks) -> tf.Tensor:
    """Matrices `[..., n, n]` along a diagonal."""
    blocks = list(blocks)
    sizes = [block.shape[-1] for block in blocks]
    rows = []
    for i, block in enumerate(blocks):
        before, after = sum(sizes[:i]), sum(sizes[i + 1 :])
        rows.append(tf.pad(block, [[0, 0]] * (block.shape.rank - 1) + [[before, after]]))
    return tf.concat(rows, axis=-2)


def product(a: MarkovForm, b: MarkovForm) -> MarkovForm:
    """The product of independent processes, or at least its covariance: the Kronecker product.

    Beside an improper process, a real one, whose covariance multiplies K and C alike.
    """

    def discretize(x, step):
        (F, Q), (G, R) = a.discretize(x, step), b.discretize(x, step)
        # (F P Fᴴ + Q) ⊗ (G S Gᴴ + R), less F P Fᴴ ⊗ G S Gᴴ, which is carried over.
        carried = tf.linalg.matmul(F, tf.linalg.matmul(a.covariance(x), F, adjoint_b=True))
        noise = kronecker(Q, b.covariance(x + step)) + kronecker(carried, R)
        return kronecker(F, G), noise

    def emission(first, second):
        return tf.reshape(first[:, None] * second[None, :], [-1])

    h_conj = None
    if a.h_conj is not None or b.h_conj is not None:
        # A real process is its own conjugate, though its state may not be.
        h_conj = emission(*(tf.math.conj(f.h) if f.h_conj is None else f.h_conj for f in (a, b)))
    generator = None
    if a.generator is not None and b.generator is not None:
        origin = tf.zeros([], a.h.dtype.real_dtype)
        (A, W), (B, V) = a.generator, b.generator
        P, S = a.covariance(origin), b.covariance(origin)
        one, other = (tf.eye(form.size, dtype=a.h.dtype) for form in (a, b))
        generator = Generator(
            kronecker(A, other) + kronecker(one, B), kronecker(W, S) + kronecker(P, V)
        )
    return MarkovForm(
        lambda step: kronecker(a.transition(step), b.transition(step)),
        discretize,
        lambda x: kronecker(a.covariance(x), b.covariance(x)),
        emission(a.h, b.h),
        h_conj,
        generator,
        a.is_stationary and b.is_stationary,
    )


def kronecker(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """`a ⊗ b`, `[..., n, n]`, `[..., m, m]` -> `[..., nm, nm]`; lower triangular if both are."""
    n, m = a.shape[-1], b.shape[-1]
    both = a[..., :, None, :, None] * b[..., None, :, None, :]
    return tf.reshape(both, tf.concat([tf.shape(both)[:-4], [n * m, n * m]], axis=0))


def conjugate(form: MarkovForm) -> MarkovForm:
    """The conjugate process."""
    conj = tf.math.conj
    generator = form.generator
    return MarkovForm(
        lambda step: conj(form.transition(step)),
        lambda x, step: tuple(map(conj, form.discretize(x, step))),
        lambda x: conj(form.covariance(x)),
        conj(form.h),
        None if form.h_conj is None else conj(form.h_conj),
        None if generator is None else Generator(*map(conj, generator)),
        form.is_stationary,
    )


def widely_linear(form: MarkovForm, coefficient: tf.Tensor) -> MarkovForm:
    """The process `u + c conj(u)`."""
    conj = tf.math.conj
    h, g = form.h, tf.zeros_like(form.h) if form.h_conj is None else form.h_conj
    return form._replace(h=h + coefficient * conj(g), h_conj=g + coefficient * conj(h))


def with_noise(transition, noise):
    """`discretize` of a transition and of a noise, functions of the step alone."""
    return lambda x, step: (transition(step), noise(step))


# --- systems --------------------------------------------------------------------------------------


def rotation(frequency: tf.Tensor) -> MarkovForm:
    """`e^{+i2π frequency (x1 − x2)}`: one state that turns."""
    rate = 2.0 * math.pi * frequency

    def turn(step):
        angle = rate * step
        return tf.complex(tf.cos(angle), tf.sin(angle))[..., None, None]

    one = tf.ones([1, 1], as_complex(rate).dtype)
    return MarkovForm(
        turn,
        with_noise(turn, lambda step: over(tf.zeros_like(one), step)),
        lambda x: over(one, x),
        one[0],
        None,
        Generator(1j * as_complex(rate) * one, tf.zeros_like(one)),
    )


def constant(variance: tf.Tensor) -> MarkovForm:
    """One state that stays."""
    one = tf.ones([1, 1], as_complex(variance).dtype)
    zero = tf.zeros_like(one)
    return MarkovForm(
        lambda step: over(one, step),
        lambda x, step: (over(one, step), over(zero, step)),
        lambda x: over(as_complex(variance) * one, x),
        one[0],
        None,
        Generator(zero, zero),
    )


def white(variance: tf.Tensor) -> MarkovForm:
    """One state that is drawn anew at each x, and is the same for all points there."""
    one = tf.ones([1, 1], as_complex(variance).dtype)

    def transition(step):
        return tf.cast(step == 0, one.dtype)[..., None, None]

    def noise(step):
        return as_complex(variance) * (1.0 - transition(step))

    return MarkovForm(
        transition,
        with_noise(transition, noise),
        lambda x: over(as_complex(variance) * one, x),
        one[0],
    )


def matern(order: int, variance: tf.Tensor, lengthscale: tf.Tensor) -> MarkovForm:
    """Matérn of smoothness order + ½: a cascade of as many first-order systems, and one more.

    All have the rate λ, so that `F[i, j] = e^{−λx} (λx)^{i−j} / (i−j)!`, and integrating the
    squares, `Q[i, j] ∝ C(i+j, i) 2^{−(i+j)} P(i+j+1, 2λx)`, P the incomplete gamma function.
    """
    rate = math.sqrt(2 * order + 1) / lengthscale
    n = order + 1
    dtype = as_complex(rate).dtype
    weights = np.array(
        [[math.comb(i + j, i) * 2.0 ** -(i + j) for j in range(n)] for i in range(n)]
    )
    weights /= weights[-1, -1]
    stationary = as_complex(variance * tf.constant(weights, variance.dtype))

    def transition(step):
        reach = rate * step
        decay = tf.exp(-reach)
        terms = [decay]  # by products: the derivative of 0⁰ that TensorFlow takes is no number
        for k in range(1, n):
            terms.append(terms[-1] * reach / k)
        zero = tf.zeros_like(decay)
        return stacked([[terms[i - j] if i >= j else zero for j in range(n)] for i in range(n)])

    def noise(step):
        shares = incomplete_gammas(2 * order + 1, 2.0 * rate * step)
        share = stacked([[shares[i + j] for j in range(n)] for i in range(n)])
        return stationary * share

    lower = np.eye(n, k=-1) - np.eye(n)
    drive = np.zeros([n, n])
    drive[0, 0] = 2.0 * weights[0, 0]
    return MarkovForm(
        transition,
        with_noise(transition, noise),
        lambda x: over(stationary, x),
        unit(n, dtype),
        None,
        Generator(
            as_complex(rate * tf.constant(lower, rate.dtype)),
            as_complex(variance * rate * tf.constant(drive, rate.dtype)),
        ),
    )


def incomplete_gammas(most: int, y: tf.Tensor) -> list[tf.Tensor]:
    """The regularised incomplete gamma functions P(k, y) for k = 1 … most, to full relative digits.

    From the last one down: `P(k, y) = P(k+1, y) + e^{−y} yᵏ/k!`, of terms that are positive.
    """
    decay = tf.exp(-y)
    found = [_incomplete_gamma(most, y)]
    for k in reversed(range(1, most)):
        found.append(found[-1] + decay * y**k / math.factorial(k))
    return found[::-1]


def _incomplete_gamma(k: int, y: tf.Tensor) -> tf.Tensor:
    @tf.custom_gradient
    def function(y):
        # TensorFlow's would differentiate by k as well, at length.
        def backward(bar):
            return bar * tf.exp(-y) * y ** (k - 1) / math.factorial(k - 1)

        return tf.math.igamma(tf.constant(float(k), y.dtype), y), backward

    return -tf.math.expm1(-y) if k == 1 else function(y)


def _since(x: tf.Tensor, start: float) -> tf.Tensor:
    """`x − start`, and no number before it."""
    return tf.where(x < start, tf.constant(np.nan, x.dtype), x - start)


def random_walk(variance: tf.Tensor, start: float) -> MarkovForm:
    """One state that adds up white noise."""
    one = tf.ones([1, 1], as_complex(variance).dtype)
    return MarkovForm(
        lambda step: over(one, step),
        lambda x, step: (over(one, step), as_complex(variance * step)[..., None, None]),
        lambda x: as_complex(variance * _since(x, start))[..., None, None],
        one[0],
        is_stationary=False,
    )


def integrated_random_walk(
    variance: tf.Tensor, slope_variance: tf.Tensor, start: float
) -> MarkovForm:
    """A slope that is a random walk, and the level that it leads to."""

    def transition(step):
        one, zero = tf.ones_like(step), tf.zeros_like(step)
        return stacked([[one, zero], [step, one]])

    def noise(step):
        rows = [[step, step**2 / 2.0], [step**2 / 2.0, step**3 / 3.0]]
        return as_complex(variance) * stacked(rows)

    def covariance(x):
        since = _since(x, start)
        first = stacked([[tf.ones_like(since), since], [since, since**2]])
        return noise(since) + as_complex(slope_variance) * first

    return MarkovForm(
        transition,
        with_noise(transition, noise),
        covariance,
        unit(2, as_complex(variance).dtype),
        is_stationary=False,
    )
