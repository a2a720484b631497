"""Linear systems in continuous time of any matrices, from step to step."""

import math

import tensorflow as tf

from cgp.kernels.markov import Generator, MarkovForm, over

# Terms of the series where the norm of A times the step is at most a half.
_TERMS = 20


def linear_sde(generator: Generator, h: tf.Tensor) -> MarkovForm:
    """The stationary process `z = h s`, `ds = A s dx + dβ`.

    Transition and noise, `F(x) = exp(A x)` and `Q(x) = ∫₀ˣ F(u) W F(u)ᴴ du`, come from their power
    series over a step short enough, and from there by doubling (scaling and squaring: Higham,
    *Functions of Matrices*, 2008, ch. 10): `F(2x) = F(x)²`, `Q(2x) = F(x) Q(x) F(x)ᴴ + Q(x)`.

    Args:
        generator: A, whose eigenvalues have negative real parts, and W.
        h: `[n]`.
    """

    def discretized(step):
        A, W = generator
        size = tf.reduce_max(tf.reduce_sum(tf.abs(A), axis=-1)) * tf.reduce_max(step)
        size = tf.maximum(tf.stop_gradient(size), 1e-30)
        doublings = tf.cast(tf.math.ceil(tf.math.log(2.0 * size) / math.log(2.0)), tf.int32)
        doublings = tf.maximum(doublings, 0)
        short = step * 0.5 ** tf.cast(doublings, step.dtype)
        short = tf.cast(short, A.dtype)[..., None, None]
        F, Q = _series(A, W, short)

        def double(k, F, Q):
            spread = tf.linalg.matmul(F, tf.linalg.matmul(Q, F, adjoint_b=True))
            return k + 1, tf.linalg.matmul(F, F), spread + Q

        _, F, Q = tf.while_loop(lambda k, *_: k < doublings, double, (tf.constant(0), F, Q))
        return F, Q

    stationary = _lyapunov(*generator)
    return MarkovForm(
        lambda step: discretized(step)[0],
        lambda x, step: discretized(step),
        lambda x: over(stationary, x),
        h,
        None,
        generator,
    )


def _series(A: tf.Tensor, W: tf.Tensor, step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """F and Q over short steps, `[..., 1, 1]`: the n-th derivatives of Q are L[n], L[n+1] =
    A L[n] + L[n] Aᴴ.
    """
    n = A.shape[-1]
    F = tf.eye(n, dtype=A.dtype) + tf.zeros_like(step)
    Q = tf.zeros_like(F)
    power, derivative, scale = tf.eye(n, dtype=A.dtype), W, step
    for k in range(1, _TERMS):
        power = tf.linalg.matmul(A, power)
        F += scale * power
        Q += scale * derivative
        half = tf.linalg.matmul(A, derivative)
        derivative = half + tf.linalg.adjoint(half)
        scale = scale * step / (k + 1.0)
    return F, Q


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
