"""The mean of a Markov process over exposures, by integrals beside its state.

While an exposure is on, its integral `y = ∫ R s dx` since the begin goes on beside the state s, and
the mean is y over the width. Over an exposure that is short beside the memory of the process, s at
its end all but determines y: a smoother would divide by what is left. The state of the exposure is
then this remainder, which is a sum of small noises without a difference of large terms,

    ε = y − Π(l) s,   Π(l) = ∫₀ˡ R e^{−Au} du,   dε = −Π(l) dβ,

l being the length since the begin: Π s is the integral that leads to s without noise. As e^{−Au}
grows with the decay of the process, the state is y itself once the exposure is long.

The noises over a step d come from `ν = ∫₀ᵈ e^{−Āu} dβ̄`, Ā being the drift of (s, y), which has the
covariance of that equation with the drift −Ā: the noise of (s, y) is `(F ν_s, g ν_s + ν_y)`, with
the transition F and `g = ∫ R F`, and the noise of ε is `ν_y − Π(l) ν_s`.
"""

from typing import NamedTuple

import tensorflow as tf

from cgp.kernels.functionals import Functional, integrated
from cgp.kernels.linear_sde import discretize
from cgp.kernels.markov import Generator, MarkovForm, block_diagonal, over_points
from cgp.linalg.arguments import as_complex


class Integrals(NamedTuple):
    """The integrals in the slots along a series of points, `[..., T, slots]`."""

    is_on: tf.Tensor
    """Whether an exposure goes on after a point, bool."""
    elapsed: tf.Tensor
    """The length since its begin at the point, real, in units of x; zero where none is on."""
    elapsed_then: tf.Tensor
    """The length since its begin at the next point."""

    def first(self) -> "Integrals":
        """The integrals of the first series."""
        return Integrals(*(a[0] for a in self))


class ExposedProcess:
    """A Markov process beside the integrals of its exposures, at the present hyperparameters."""

    def __init__(self, form: MarkovForm, functional: Functional):
        self._form, self._functional = form, functional
        self._slots = functional.stops.shape[-1]
        self._equation = integrated(form)
        A = tf.stop_gradient(self._equation.generator.A[: form.size, : form.size])
        decay = tf.reduce_max(-tf.math.real(tf.linalg.eigvals(A)))
        # An exposure is short up to this length; a process that keeps its state has no long one.
        self._short = tf.where(decay > 0.0, 1.0 / decay, tf.constant(float("inf"), decay.dtype))

    @property
    def _components(self) -> int:
        return self._form.emissions.shape[0]

    @property
    def states(self) -> int:
        """The number of states of integrals."""
        return self._slots * self._components

    def integrals(self, places: tf.Tensor, times: tf.Tensor) -> Integrals:
        """The integrals at times `[S, T]` in order, of samples at places `[X, N]`."""
        begins, stops = self._functional.begins(places)[..., None], self._functional.stops
        never = tf.constant(float("inf"), stops.dtype)
        begins = tf.where(tf.math.is_finite(stops), begins, never)  # [V, N, slots]
        # By slot: rearranged, not conjugated.
        begins, stops = (
            tf.linalg.matrix_transpose(a) for a in (begins, stops + 0.0 * places[..., None])
        )
        order = tf.argsort(begins, axis=-1, stable=True)
        begins, stops = (tf.gather(a, order, batch_dims=2) for a in (begins, stops))
        axes = tf.concat([tf.shape(times)[:1], tf.shape(begins)[1:]], axis=0)
        begins, stops = (tf.broadcast_to(a, axes) for a in (begins, stops))
        shape = tf.stack([axes[0], axes[1], tf.shape(times)[1]])
        of_slots = tf.broadcast_to(times[:, None, :], shape)
        last = _last_up_to(begins, of_slots)
        begin, stop = (tf.gather(a, tf.maximum(last, 0), batch_dims=2) for a in (begins, stops))
        is_on = (last >= 0) & (of_slots < stop)
        following = tf.concat([of_slots[..., 1:], of_slots[..., -1:]], axis=-1)
        elapsed, elapsed_then = (
            tf.where(is_on, at - begin, tf.zeros_like(begin)) for at in (of_slots, following)
        )
        # By point: rearranged, not conjugated.
        by_point = map(tf.linalg.matrix_transpose, (is_on, elapsed, elapsed_then))
        return Integrals(*(tf.ensure_shape(a, [None, None, self._slots]) for a in by_point))

    def covariance(self, P: tf.Tensor) -> tf.Tensor:
        """The covariance before any exposure; `[..., n, n]` is that of the process.

        Integrals have a variance before they begin, so that a smoother can divide by it.
        """
        return block_diagonal([P, over_points(tf.eye(self.states, dtype=P.dtype), P[..., 0, 0])])

    def rows(self, rows: tf.Tensor) -> tf.Tensor:
        """Emissions `[..., m, n]` of the process, of the state with integrals."""
        return tf.pad(rows, [[0, 0]] * (rows.shape.rank - 1) + [[0, self.states]])

    def sample_rows(self, places: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """The emissions of samples at places `[X, N]`, `[V, N, m, n]`; `rows` those of instants."""
        functional, rate = self._functional, self._equation.rate
        begins, ends = functional.begins(places), functional.ends(places)
        length, is_in_slot = ends - begins, tf.math.is_finite(functional.stops)
        is_exposure = tf.reduce_any(is_in_slot, axis=-1)
        share = tf.where(is_exposure & (length <= self._short), length, tf.zeros_like(length))
        of_state = self._flown_back(share)
        of_slot = as_complex(tf.cast(is_in_slot, length.dtype))[..., None, :, None]
        identity = tf.eye(self._components, dtype=of_slot.dtype)
        of_slot = of_slot * identity[:, None, :]  # a component reads its own state of the slot
        shape = [*tf.unstack(tf.shape(of_slot)[:2]), self._components, self.states]
        of_slot = tf.reshape(of_slot, shape)
        of_state = tf.broadcast_to(of_state, [*shape[:3], self._form.size])
        mean = tf.concat([of_state, of_slot], axis=-1)
        unit = tf.where(is_exposure, rate * length, tf.ones_like(length))
        mean /= as_complex(unit)[..., None, None]
        return tf.where(is_exposure[..., None, None], mean, self.rows(rows))

    def transitions(self, step: tf.Tensor, integrals: Integrals) -> tuple[tf.Tensor, tf.Tensor]:
        """Transition and process noise over steps `[..., T]`, `[..., T, n, n]`."""
        n, m = self._form.size, self._components
        A, W = self._equation.generator
        different, index = tf.unique(tf.reshape(step, [-1]))

        def at_steps(a: tf.Tensor) -> tf.Tensor:
            return tf.reshape(tf.gather(a, index), tf.concat([tf.shape(step), tf.shape(a)[1:]], 0))

        F, Q = (at_steps(a) for a in discretize(Generator(A, W), different))
        short_steps = tf.minimum(different, self._short)
        backward = at_steps(discretize(Generator(-A, W), short_steps)[1])
        # A remainder stays one while its exposure is short, and is then made the integral.
        is_on, elapsed = integrals.is_on, integrals.elapsed
        stays = is_on & (integrals.elapsed_then <= self._short)
        is_whole = is_on & ~stays
        is_any_short = tf.reduce_any(stays, axis=-1)[..., None, None]
        flown = self._flown_back(tf.where(elapsed <= self._short, elapsed, tf.zeros_like(elapsed)))
        g, of_process = F[..., None, n:, :n], F[..., :n, :n]
        identity = _where(is_on, tf.eye(m, dtype=F.dtype))

        # From (ν_s, ν_y) while an exposure is short, else from the noise of (s, y).
        by_backward = _where(stays, -flown) + _where(is_whole, g)
        of_slots = _where(is_any_short[..., 0], by_backward)
        of_slots = _rows_of_slots(tf.concat([of_slots, identity], axis=-1))
        of_state = tf.where(is_any_short, of_process, tf.eye(n, dtype=F.dtype))
        of_state = tf.pad(of_state, [[0, 0]] * step.shape.rank + [[0, 0], [0, m]])
        spread = tf.concat([of_state, of_slots], axis=-2)
        noise = tf.where(is_any_short, backward, Q)
        noise = tf.linalg.matmul(spread, tf.linalg.matmul(noise, spread, adjoint_b=True))

        # Where it begins the slot is emptied, once the exposure before it has been observed there.
        begins = is_on & (elapsed == 0.0) & (step > 0.0)[..., None]
        kept = tf.repeat(tf.cast(~begins, step.dtype), m, axis=-1)
        driven = _rows_of_slots(_where(is_whole, g + flown))
        of_state = tf.pad(of_process, [[0, 0]] * step.shape.rank + [[0, 0], [0, self.states]])
        of_slots = tf.concat([driven, tf.linalg.diag(as_complex(kept))], axis=-1)
        return tf.concat([of_state, of_slots], axis=-2), noise

    def _flown_back(self, length: tf.Tensor) -> tf.Tensor:
        """`rate Π(l)` of lengths `[...]`, `[..., m, n]`."""
        n = self._form.size
        A, W = self._equation.generator
        different, index = tf.unique(tf.reshape(length, [-1]))
        F, _ = discretize(Generator(-A, W), different)
        back = tf.gather(-F[:, n:, :n], index)
        return tf.reshape(back, tf.concat([tf.shape(length), tf.shape(back)[1:]], axis=0))


def _where(condition: tf.Tensor, matrices: tf.Tensor) -> tf.Tensor:
    """Matrices `[..., n, n]` where a condition `[...]` holds, else zero."""
    return tf.where(condition[..., None, None], matrices, tf.zeros_like(matrices))


def _last_up_to(begins: tf.Tensor, times: tf.Tensor) -> tf.Tensor:
    """The number of the last of begins `[S, slots, N]`, in order, up to times `[S, slots, T]`."""
    count = tf.shape(begins)[-1]
    rows = tf.reshape(begins, [-1, count]), tf.reshape(times, [-1, tf.shape(times)[-1]])
    return tf.reshape(tf.searchsorted(*rows, side="right"), tf.shape(times)) - 1


def _rows_of_slots(a: tf.Tensor) -> tf.Tensor:
    """Rows of the components of each slot, `[..., slots, m, k]`, one below another."""
    rows, columns = a.shape[-3] * a.shape[-2], a.shape[-1]
    return tf.reshape(a, tf.concat([tf.shape(a)[:-3], [rows, columns]], axis=0))
