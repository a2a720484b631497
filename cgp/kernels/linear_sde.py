"""Linear systems in continuous time of any matrices, from step to step."""

import math

import tensorflow as tf

from cgp.kernels.markov import Generator, MarkovForm, over
from cgp.linalg.composite import real_as

# Terms of the series where the norm of A times the step is at most a half.
_TERMS = 20


def linear_sde(
    generator: Generator, h: tf.Tensor, stationary: tf.Tensor | None = None
) -> MarkovForm:
    """The stationary process `z = h s`, `ds = A s dx + dβ`.

    Transition and noise, `F(x) = exp(A x)` and `Q(x) = ∫₀ˣ F(u) W F(u)ᴴ du`, come from their power
    series over a step short enough, and from there by doubling (scaling and squaring: Higham,
    *Functions of Matrices*, 2008, ch. 10): `F(2x) = F(x)²`, `Q(2x) = F(x) Q(x) F(x)ᴴ + Q(x)`. Each
    step has as many doublings as it needs, and what doubles is `F − 1`, so that slow states keep
    their digits beside fast ones, and short steps beside long ones.

    Args:
        generator: A, whose eigenvalues have negative real parts, and W.
        h: `[n]`.
        stationary: The covariance P of the state, `[n, n]`, if it is known.
    """

    def discretized(step):
        A, W = generator
        size = tf.reduce_max(tf.reduce_sum(tf.abs(tf.stop_gradient(A)), axis=-1))
        reach = tf.maximum(2.0 * size * step, 1.0)
        doublings = tf.math.ceil(tf.math.log(reach) / math.log(2.0))
        short = step * 0.5**doublings
        E, Q = _series(A, W, size, short)
        one = tf.eye(A.shape[-1], dtype=A.dtype)

        def double(k, E, Q):
            F = one + E
            spread = tf.linalg.matmul(F, tf.linalg.matmul(Q, F, adjoint_b=True))
            more = (k < doublings)[..., None, None]
            E = tf.where(more, 2.0 * E + tf.linalg.matmul(E, E), E)
            return k + 1, E, tf.where(more, spread + Q, Q)

        most = tf.reduce_max(doublings)
        start = (tf.zeros_like(most), E, Q)
        _, E, Q = tf.while_loop(lambda k, *_: k < most, double, start)
        return one + E, Q

    if stationary is None:
        stationary = _lyapunov(*generator)
    return MarkovForm(
        lambda step: discretized(step)[0],
        lambda x, step: discretized(step),
        lambda x: over(stationary, x),
        h,
        None,
        generator,
    )


def _series(A, W, size, step) -> tuple[tf.Tensor, tf.Tensor]:
    """`F − 1` and Q over short steps, `[...]`.

    The derivatives of Q at 0 are L[1] = W, L[k+1] = A L[k] + L[k] Aᴴ. Of A and the steps, powers of
    `A / size` and of `size · step`, so that none is too large or too small for its digits.
    """
    A = A / real_as(size, A.dtype)
    short, reach = (real_as(a, A.dtype)[..., None, None] for a in (step, size * step))
    power, derivative, scale = A, W, tf.ones_like(reach)
    E, Q = tf.zeros_like(reach * A), tf.zeros_like(reach * A)
    for k in range(1, _TERMS):
        Q += scale * short * derivative
        scale = scale * reach
        E += scale * power
        power = tf.linalg.matmul(A, power) / (k + 1.0)
        half = tf.linalg.matmul(A, derivative)
        derivative = (half + tf.linalg.adjoint(half)) / (k + 1.0)
    return E, Q


def _lyapunov(A: tf.Tensor, W: tf.Tensor) -> tf.Tensor:
    """P with `A P + P Aᴴ + W = 0`."""
    n = A.shape[-1]
    one = tf.linalg.LinearOperatorIdentity(n, dtype=A.dtype)
    full = tf.linalg.LinearOperatorFullMatrix
    # Of the rows of P one after the other: (A ⊗ I + I ⊗ Ā) vec P.
    left = tf.linalg.LinearOperatorKronecker([full(A), one]).to_dense()
    right = tf.linalg.LinearOperatorKronecker([one, full(tf.math.conj(A))]).to_dense()
    solution = tf.linalg.solve(left + right, -tf.reshape(W, [-1, 1]))
    P = tf.reshape(solution, [n, n])
    return 0.5 * (P + tf.linalg.adjoint(P))
