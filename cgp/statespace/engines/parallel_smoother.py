"""The smoother by a scan in parallel over time: 2 log₂ T passes over arrays of all steps.

Given the state after some steps, the one before them is, with all observations up to it,

    p(x[k] | x[j], z[0..k]) = N(m[k] + E (x[j] − m[j]) + g, D Dᴴ),   j > k,

m being the filtered means; of j = k + 1, E is the gain J of the smoother, D its factor Y, and
g = J (m[k+1] − F m[k] − b). Such densities compose, and those from each step to the end, of which E
is zero, are the smoothed moments (Särkkä & García-Fernández, IEEE Trans. Autom. Control 66, 2021;
with factors, Yaghoobi, Corenflos, Hassan & Särkkä, arXiv:2207.00426, 2022). Deviations from the
filtered means, in place of the means, keep the digits of small ones.
"""

from typing import NamedTuple

import tensorflow as tf

from cgp.linalg.batch_last import adjoint, matmul, matvec, triangularize
from cgp.statespace.engines.chunked_smoother import smoother_gains
from cgp.statespace.engines.filter_step import State
from cgp.statespace.engines.forward_pass import System
from cgp.statespace.engines.parallel_scan import over_steps, scan


class _Element(NamedTuple):
    """The density of a state given that at a later step; see above."""

    E: tf.Tensor
    """`[n, n, T, B]`; in matrices B is 1 where all series share covariances."""
    g: tf.Tensor
    """`[n, T, B]`."""
    D: tf.Tensor
    """Lower triangular, `[n, n, T, B]`."""


def smooth(system: System, start: State, filtered: State) -> list[tf.Tensor]:
    """The moments of each state given all observations: as `chunked_smoother.smooth`."""
    del start
    system = over_steps(system)
    means, chols = over_steps(filtered)
    gains, roots = smoother_gains(system.F, system.Q_factor, chols)
    columns = zip(tf.unstack(system.F, axis=1), tf.unstack(means), strict=True)
    predicted = sum(column * mean for column, mean in columns) + system.b
    told = means[:, 1:] - predicted[:, :-1]
    smoothed = scan(
        _combine,
        _Element(
            _then(gains[:, :, :-1], tf.zeros_like(gains[:, :, -1:])),
            _then(matvec(gains[:, :, :-1], told), tf.zeros_like(means[:, -1:])),
            _then(roots[:, :, :-1], chols[:, :, -1:]),
        ),
        reverse=True,
    )
    later = _then(smoothed.D[:, :, 1:], smoothed.D[:, :, -1:])
    lags = matmul(later, adjoint(matmul(gains, later)))
    of_covariances = (tf.einsum("ijtb->tijb", a) for a in (smoothed.D, lags, gains))
    return [tf.einsum("ntb->tnb", means + smoothed.g), *of_covariances]


def _combine(first: _Element, then: _Element) -> _Element:
    """The density of two spans of time, the second of which follows the first."""
    return _Element(
        matmul(first.E, then.E),
        matvec(first.E, then.g) + first.g,
        triangularize(tf.concat([matmul(first.E, then.D), first.D], axis=1)),
    )


def _then(first: tf.Tensor, last: tf.Tensor) -> tf.Tensor:
    return tf.concat([first, last], axis=-2)
