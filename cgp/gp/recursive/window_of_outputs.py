"""The window of a process of several outputs, as a cell.

A point of the window is a value: the place of its sample and the number of its output, as the
kernel has points. The values of a sample enter one after another, each by a rank-one update, and
the sample is predicted from the window before all of them.
"""

import copy
import functools
from typing import Any

import tensorflow as tf

from cgp.distributions import Marginals, Step
from cgp.distributions.forms import SecondMoments, clipped
from cgp.distributions.marginals import JointMoments
from cgp.gp.data import Data, arranged
from cgp.gp.noise import SampleNoise
from cgp.gp.outputs import by_outputs, points_of_outputs
from cgp.gp.recursive import native_scan
from cgp.gp.recursive.window import Window
from cgp.gp.recursive.window_cell import WindowCell
from cgp.linalg.arguments import is_nan, nan
from cgp.online.cell import Cell, Compiled, Sample


def check_settings(outputs: int | None, capacity: int, forgetting: float) -> None:
    """Raises a ValueError for settings that no window of outputs can have."""
    if outputs is None:
        return
    if forgetting < 1.0:
        raise ValueError(
            f"forgetting is of one signal, and the kernel has {outputs} outputs: multiply it by a "
            "Matern12 of variance 1, by which past and present are correlated less and less"
        )
    if capacity < outputs:
        raise ValueError(
            f"capacity counts values, at least one for each of {outputs} outputs, got {capacity}"
        )


class WindowOfOutputs(WindowCell):
    """The values in a window and their factor, and their update by a sample of P outputs."""

    outputs: int
    coordinates_besides_place = 1
    traces_steps = True
    _has_gradients = False

    def values(self, samples: Sample) -> Data:
        """The values of samples `[B, T, P]` as data `[B, T P]`, at points of the kernel."""
        z = tf.convert_to_tensor(samples.z)

        def side_by_side(a: tf.Tensor) -> tf.Tensor:
            count = None if z.shape[1] is None else z.shape[1] * self.outputs
            a = tf.reshape(tf.broadcast_to(a, tf.shape(z)), [tf.shape(z)[0], -1])
            return tf.ensure_shape(a, [z.shape[0], count])

        group = tf.range(self.outputs) if self.process.noise_is_by_output else samples.group
        noise = SampleNoise(samples.noise_variance, group).map(side_by_side)
        x = points_of_outputs(tf.convert_to_tensor(samples.x), self.outputs)
        return arranged(x, side_by_side(z), noise)

    def samples(self, values: Data) -> Sample:
        """The inverse of `values`."""
        noise = values.noise
        if self.process.noise_is_by_output:
            noise = noise._replace(group=None)
        noise = noise.map(lambda a: by_outputs(a, self.outputs))
        x = values.x[:, :: self.outputs, :-1]
        return Sample(by_outputs(values.z, self.outputs), x, None, noise.variance, noise.group)

    def step(self, state: Any, sample: Sample) -> tuple[Any, Step]:
        """Predicts samples `[B, P]`, and takes in the values that are not missing."""
        values = self.values(sample.map(lambda a: tf.expand_dims(a, 1)))
        window = self.window(state)
        before, signal = self._signal(window, values.x)
        observed = self.process.matrix_with_noise(signal, values.noise)
        joint = JointMoments(observed.k, observed.c_or_zeros())
        variance, pseudo_variance = map(tf.linalg.diag_part, joint)
        predicted = Marginals(before, tf.math.real(variance), pseudo_variance)
        is_native = not self._has_gradients and native_scan.serves(self.recursion)
        scan = functools.partial(native_scan.scan, self.recursion)
        window, _ = (scan if is_native else self.recursion.scan)(
            window, values.x, values.z, values.noise
        )
        filtered = self._filtered(before, signal, values)
        absent = is_nan(sample.z)
        innovation = tf.where(absent, nan(before.dtype), sample.z - before)
        return self.state(window), Step(predicted, innovation, filtered, joint)

    def scan(self, state: Any, samples: Sample) -> tuple[Any, Step]:
        """`step` for each of T samples."""
        return Cell.scan(self, state, samples)

    def differentiable_scan(self, state: Any, samples: Sample) -> tuple[Any, Step]:
        """`scan` by TensorFlow, which has gradients."""
        cell = copy.copy(self)
        cell._has_gradients = True
        return cell.scan(state, samples)

    def _signal(self, window: Window, x: tf.Tensor) -> tuple[tf.Tensor, SecondMoments]:
        """The mean `[B, P]` and moments `[B, P, P]` of the signal at the points of a sample."""
        process, form, held = self.process, self.process.form, window.x.shape[1]
        moments = process.kernel.moments_matrix(tf.concat([window.x, x], axis=1), x)
        cross = process.in_data_order(form.covariance(moments.map(lambda a: a[:, :held])))
        cross *= process.keep(window.data(), cross.dtype)[..., None]
        targets = self.recursion.targets(window)
        white = tf.linalg.triangular_solve(window.chol, tf.concat([cross, targets], axis=-1))
        w, residual = white[..., :-1], white[..., -1:]
        mean = form.join(tf.linalg.matmul(w, residual, adjoint_a=True)[..., 0])
        of_window = form.moments(tf.linalg.matmul(w, w, adjoint_a=True))
        signal = moments.map(lambda a: a[:, held:]).map(tf.subtract, of_window)
        return process.plus_function(mean, x), signal

    def _filtered(self, mean: tf.Tensor, signal: SecondMoments, values: Data) -> Marginals:
        """The signal at the points of a sample given its values too, by the update of a filter.

        In Joseph's form, (1 − G) Σ (1 − G)ᴴ + G R Gᴴ, as the difference of Σ and G Σ would lose the
        digits of a small noise R.
        """
        process, form = self.process, self.process.form
        jitter = self.recursion.jitter(process.marginal(values.x), values.noise)
        nothing = signal.map(tf.zeros_like)
        sigma = form.covariance(signal)
        R = form.covariance(process.matrix_with_noise(nothing, values.noise))
        m, dtype = form.multiplicity, sigma.dtype
        keep = tf.cast(tf.concat([values.present] * m, axis=-1), dtype)
        S = (sigma + R) * keep[:, :, None] * keep[:, None, :]
        diagonal = tf.linalg.diag_part(S) + tf.cast(tf.concat([jitter / m] * m, axis=-1), dtype)
        S = tf.linalg.set_diag(S, diagonal + (1.0 - keep))  # 1 where values are missing
        cross = tf.linalg.adjoint(sigma * keep[:, None, :])
        gain = tf.linalg.adjoint(tf.linalg.cholesky_solve(tf.linalg.cholesky(S), cross))
        innovation = tf.where(values.present, values.z - mean, tf.zeros_like(mean))
        mean += form.join(tf.linalg.matvec(gain, form.split(innovation)))
        unexplained = tf.eye(gain.shape[-1], dtype=dtype) - gain
        spread = tf.linalg.matmul(unexplained, sigma)
        covariance = tf.linalg.matmul(spread, unexplained, adjoint_b=True)
        covariance += tf.linalg.matmul(tf.linalg.matmul(gain, R), gain, adjoint_b=True)
        k, c = clipped(form.moments(covariance).map(tf.linalg.diag_part))
        return Marginals(mean, tf.math.real(k), tf.zeros_like(mean) if c is None else c)

    def predict(self, state: Any, at: Sample) -> Marginals:
        """The signal at places `[B, M, D]` given the windows, `[B, M, P]`."""
        points = points_of_outputs(tf.convert_to_tensor(at.x), self.outputs)
        of_points = super().predict(state, Sample(None, points))
        return of_points.map(lambda a: by_outputs(a, self.outputs))

    def compiled(self, streams: int | None) -> Compiled | None:
        """None: the compiled core knows no kernels of several outputs."""
        return None

    def chunks(self, samples: Sample) -> list[slice]:
        """The chunks of a block, as of any cell."""
        return Cell.chunks(self, samples)
