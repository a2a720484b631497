"""The sliding policy: the oldest point leaves a full window.

The process is the exact process of the last C samples. The covariance of the points that stay is
the product of the lower rows of the factor without its first column, plus a rank-one term of this
column: a Cholesky update, without a subtraction. The new sample becomes the last row, so that its
prediction from the points that stay can be read off the factor.
"""

import functools

import tensorflow as tf

from cgp.distributions import Marginals
from cgp.distributions.forms import SecondMoments, clipped
from cgp.gp.recursive.window import OneStepPrediction, Window, put_row, select_streams
from cgp.gp.recursive.window_recursion import Policy, WindowRecursion
from cgp.linalg import cholesky_update
from cgp.linalg.arguments import as_complex


class Sliding(Policy):
    """The policy of a window that drops its oldest point; arguments as for `Policy`."""

    is_compiled = True

    def replace(
        self,
        recursion: WindowRecursion,
        window: Window,
        sample: OneStepPrediction,
        z: tf.Tensor,
        is_observed: tf.Tensor,
        full: tf.Tensor,
    ) -> tuple[Window, Marginals]:
        """The oldest point leaves where windows are full, and the sample becomes the last."""
        slid = self._slide(window, sample, z)
        after = slid
        if window.x.shape[0] > 1:

            def some_have_room() -> Window:  # or nothing to take in
                appended = recursion.append(window, sample, z, is_observed & ~full)
                select = functools.partial(select_streams, full)
                return tf.nest.map_structure(select, slid, appended)

            after = tf.cond(tf.reduce_all(full), lambda: slid, some_have_room)
        sample = self._given_the_others(recursion, after, sample, z, full)
        return after, recursion.filtered(sample, z, is_observed)

    def _slide(self, window: Window, sample: OneStepPrediction, z: tf.Tensor) -> Window:
        """The window with the sample in place of the oldest point."""
        m = self.process.form.multiplicity
        chol = tf.roll(window.chol, [-m, -m], axis=[1, 2])
        row = tf.concat([tf.linalg.adjoint(sample.white)[..., m:], sample.pivot], axis=-1)
        last = tf.fill([window.x.shape[0]], window.x.shape[1] - 1)
        blocks = tf.reshape(chol, [-1, window.x.shape[1], m, chol.shape[-1]])
        chol = tf.reshape(put_row(blocks, last, row, tf.ones_like(last, tf.bool)), tf.shape(chol))
        chol = tf.linalg.band_part(chol, -1, 0)  # above it are the columns of the oldest point
        # The columns of the oldest point, whose outer products the other rows gain.
        gone = [window.chol[:, m:, :m], tf.linalg.adjoint(sample.white[:, :m])]
        gone = tf.concat(gone, axis=1)
        for j in range(m):
            chol = cholesky_update(chol, gone[..., j])

        def moved(buffer: tf.Tensor, a: tf.Tensor) -> tf.Tensor:
            return tf.concat([buffer[:, 1:], tf.expand_dims(a, 1)], axis=1)

        row = (sample.x, z, tf.zeros_like(window.age[:, 0]), *sample.noise)
        return window.map_points(moved, row)._replace(chol=chol)

    def _given_the_others(
        self,
        recursion: WindowRecursion,
        window: Window,
        sample: OneStepPrediction,
        z: tf.Tensor,
        full: tf.Tensor,
    ) -> OneStepPrediction:
        """The prediction of the last point of a full window from the others; elsewhere `sample`.

        The last row of the factor is [wᴴ √S], and the last of L⁻¹ y the innovation over √S.
        """
        form, m = self.process.form, self.process.form.multiplicity
        white = tf.linalg.triangular_solve(window.chol, recursion.targets(window))
        pivot = window.chol[:, -m:, -m:]
        innovation = form.join(tf.linalg.matvec(pivot, white[:, -m:, 0]))[:, 0]
        variance = form.moments(tf.linalg.matmul(pivot, pivot, adjoint_b=True))
        noise = self.process.with_noise(sample.signal.map(tf.zeros_like), sample.noise)
        noise = SecondMoments(noise.k + as_complex(sample.jitter), noise.c)
        signal = clipped(variance.map(lambda a: a[:, 0, 0]).map(tf.subtract, noise))
        signal = signal.map(functools.partial(tf.where, full), sample.signal)
        mean = tf.where(full, z - innovation, sample.mean)
        pivot = recursion.pivot(signal, sample.jitter, sample.noise)
        return sample._replace(mean=mean, signal=signal, pivot=pivot)
