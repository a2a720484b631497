"""One sample of a process by inducing points, as a cell.

A sample with whitened covariances a = L⁻¹ k(u, x)/σ (see `cgp.gp.sparse.bound`) adds a rank-one
term to the precision of the whitened signal at the inducing points,

    Λ ← λ Λ + a aᴴ,    b ← λ b + a y/σ,

two real ones in the composite of an improper process. Nothing is ever subtracted, so that Λ stays
positive definite in any number of steps. Without forgetting, λ = 1, the state after N samples is
that of all of them at once.

With forgetting the prior, the identity in Λ, would fade with the data, and predictions where no
data come any more would lose all bounds. One coordinate i of m after the other gets

    Λ ← Λ + (1 − λᵐ) eᵢ eᵢᴴ,

once in m steps, over which the prior in it has fallen from 1 to λᵐ: regularisation by one
coordinate at a time. A missing sample, NaN, leaves the state as it is: it adds nothing, forgets
nothing and restores nothing.
"""

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from cgp import native
from cgp.distributions.forms import SecondMoments, as_matrices, clipped
from cgp.distributions.marginals import Marginals, Step
from cgp.gp.data import Data
from cgp.gp.noise import SampleNoise
from cgp.gp.signal_plus_noise import SignalPlusNoise
from cgp.gp.sparse.bound import ConditionedSparse, white_samples
from cgp.gp.sparse.inducing_points import InducingPoints
from cgp.gp.stream_samples import GaussianProcessCell
from cgp.graphs import called_as_op
from cgp.kernels.points import as_points
from cgp.linalg import cholesky, cholesky_update
from cgp.linalg.arguments import complex_dtype, is_nan, nan, real_as
from cgp.linalg.composite import interleave
from cgp.linalg.gradients import without_gradient
from cgp.linalg.short_repr import short_repr
from cgp.online.cell import Compiled, Sample
from cgp.online.structure import structure_of
from cgp.statespace.online.online_step import check_state_factor


@short_repr
class SparseState(NamedTuple):
    """The whitened signal at the inducing points, given the samples so far, by its precision."""

    vector: Any
    """b, working, `[..., m]`, of an improper process of the composite, `[..., 2m]`."""
    chol: Any
    """The factor of Λ, `[..., m, m]` or `[..., 2m, 2m]`."""
    coordinate: Any
    """The coordinate whose prior is restored next, int32, `[...]`; 0 without forgetting."""


class SparseCell(GaussianProcessCell):
    """The signal at inducing points, and its update by a sample.

    Args:
        process: The signal and its noise.
        real_dtype: "float64" or "float32".
        check_inputs: As for `GaussianProcessCell`.
        inducing: The inducing points.
        weights: The variables that a state belongs to: those of kernel, noise and mean, and the
            inducing points.
        given_data: Returns the process given the data taken in by inducing points, from which
            streams begin; current where it is called eagerly.
        forgetting: λ.
    """

    State = SparseState
    unsound = (
        "the precision of the inducing points would not be finite any more, and is as it was: the "
        "sample or a hyperparameter is not finite, or too large"
    )

    def __init__(
        self,
        process: SignalPlusNoise,
        real_dtype: str,
        check_inputs: Callable[[np.ndarray], Any],
        inducing: InducingPoints,
        weights: Sequence[keras.Variable],
        given_data: Callable[[], ConditionedSparse],
        forgetting: float,
    ):
        super().__init__(process, real_dtype, check_inputs)
        self._inducing, self._weights, self.forgetting = inducing, [*weights], forgetting
        self._given_data = given_data

    @property
    def weights(self) -> list[keras.Variable]:
        """The variables of kernel, noise and mean, and the inducing points."""
        return self._weights

    def _check_chosen(self) -> None:
        if self._inducing.is_left_out:
            raise ValueError(
                "inducing points are not chosen yet: condition(x, z) on some data first, or give "
                "the points, as in inducing=x[::10]"
            )

    def of_inducing(self) -> "SparseCell":
        """The cell for places of as many dimensions as the inducing points have."""
        dimensions = self._inducing.variable.shape[-1]
        if dimensions == self.dimensions:
            return self
        cell = copy.copy(self)
        cell.dimensions = dimensions
        return cell

    def sized_for(self, samples: Sample) -> "SparseCell":
        """The cell for places of as many dimensions as the inducing points have."""
        self._check_chosen()
        cell = self.of_inducing()
        if samples.x.shape[-1] != cell.dimensions:
            raise ValueError(
                f"x must have as many dimensions as the inducing points, {cell.dimensions}, got "
                f"{samples.x.shape[-1]}"
            )
        return cell

    def sized_for_state(self, arrays: Mapping[str, Any]) -> "SparseCell":
        """The cell for places of as many dimensions as the inducing points have."""
        return self.of_inducing()

    def check_streams(self, streams: int | None) -> None:
        """Raises a ValueError for other numbers of streams than of series taken in."""
        self._check_chosen()
        series = self._given_data().vector.shape
        count = series[0] * series[2]
        if count not in (1, streams):
            raise ValueError(
                f"the data are {count} series, and the samples are of "
                f"{'one' if streams is None else streams}: z must be [{count}], a sample of each"
            )

    def check_keys(self) -> None:
        """Raises a ValueError for data of several series, as keys begin from one."""
        self.check_streams(None)

    def structure(self) -> dict[str, Any]:
        """Kernel, mean, the number of inducing points and the forgetting, as JSON values."""
        layers = {"kernel": self.process.kernel, "mean": self.process.mean}
        settings = {"inducing": list(self._inducing.variable.shape), "forgetting": self.forgetting}
        return {**{name: structure_of(a) for name, a in layers.items()}, **settings}

    # --- states ----------------------------------------------------------------------------------

    def initial_state(self, batch_size: Any, sample: Sample | None = None) -> SparseState:
        """The state given the data taken in; the prior before any."""
        self._check_chosen()
        factors = self._given_data()
        vector = tf.linalg.matrix_transpose(factors.vector)  # series in rows, not conjugated
        vector = tf.reshape(vector, [-1, tf.shape(vector)[-1]])
        return SparseState(
            tf.broadcast_to(vector, [batch_size, tf.shape(vector)[-1]]),
            tf.broadcast_to(
                factors.precision_chol,
                tf.concat([[batch_size], tf.shape(factors.precision_chol)[1:]], axis=0),
            ),
            tf.zeros([batch_size], tf.int32),
        )

    def blank_state(self, batch_size: int) -> SparseState:
        """NaN, for streams that have not begun."""
        size = self._inducing.variable.shape[0] * self.process.form.multiplicity
        real = tf.as_dtype(self.real_dtype)
        of_working_values = nan(complex_dtype(real) if self.process.is_proper else real)
        return SparseState(
            tf.fill([batch_size, size], of_working_values),
            tf.fill([batch_size, size, size], of_working_values),
            tf.zeros([batch_size], tf.int32),
        )

    def check_stored(self, arrays: Sequence[np.ndarray]) -> None:
        """Raises a ValueError for arrays of a file that are no state, begun or not."""
        super().check_stored(arrays)
        if np.isfinite(arrays[0]).all():
            check_state_factor(arrays[1], "the saved factor of the state")

    def compiled(self, streams: int | None) -> Compiled | None:
        """Graphs of steps on arrays, for which the factor of the inducing points is renewed."""
        self._given_data()
        return StepsOnArrays(self)

    # --- steps -----------------------------------------------------------------------------------

    def posterior_of(self, state: SparseState) -> ConditionedSparse:
        """The process given a state, `[B, ...]`, which has no gradient by hyperparameters."""
        factors = without_gradient(
            [self._given_data().chol, state.chol, state.vector[..., None]],
            [weight.value for weight in self._weights],
            "predictions given samples that were taken one at a time have no gradient by "
            "hyperparameters: learn from data, fit(x, z)",
        )
        return ConditionedSparse(self.process.form, *factors)

    def begun(self, state: SparseState) -> SparseState:
        """A state where it has begun, and else the initial one."""
        is_blank = is_nan(state.vector[:, 0])
        initial = self.initial_state(tf.shape(state.vector)[0])

        def chosen(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
            return tf.where(tf.reshape(is_blank, [-1] + [1] * (a.shape.rank - 1)), a, b)

        return SparseState(*map(chosen, initial, state))

    def _moments(
        self, factors: ConditionedSparse, x: tf.Tensor, noise: SampleNoise | None
    ) -> Marginals:
        """The moments at places `[B, M, D]` of the signal, or of observations with noise."""
        process, inducing = self.process, self._inducing.value[None]
        cross = process.form.covariance(process.kernel.moments_matrix(inducing, x))
        mean = process.form.join(factors.mean(cross, None)[..., 0])
        moments = clipped(factors.marginal(process.marginal(x), cross, None))
        if noise is not None:
            moments = process.with_noise(moments, noise)
        pseudo = moments.c_or_zeros() + tf.zeros_like(mean)
        return Marginals(process.plus_function(mean, x), tf.math.real(moments.k), pseudo)

    def step(self, state: SparseState, sample: Sample) -> tuple[SparseState, Step]:
        """Predicts a sample, then adds it to the precision of the inducing points."""
        x, z = sample.x[:, None], sample.z[:, None]
        noise = SampleNoise(sample.noise_variance, sample.group).map(lambda a: a[:, None])
        factors = self.posterior_of(state)
        predicted = self._moments(factors, x, noise)
        data = Data(x, z, tf.shape(z)[:1], noise)
        white = white_samples(self.process, data, self._inducing.value)
        a = tf.linalg.triangular_solve(factors.chol, white.cross)
        state = self._faded(state, ~is_nan(sample.z))
        chol = state.chol
        for number in range(self.process.form.multiplicity):
            chol = _updated(chol, a[..., number])
        vector = state.vector + tf.linalg.matvec(a, white.targets[:, 0])
        state = state._replace(vector=vector, chol=chol)
        filtered = self._moments(self.posterior_of(state), x, None)
        predicted, filtered = (m.map(lambda a: a[:, 0]) for m in (predicted, filtered))
        deviation = tf.where(is_nan(sample.z), nan(z.dtype), sample.z - predicted.mean)
        return state, Step(predicted, deviation, filtered)

    def scan(self, state: SparseState, samples: Sample) -> tuple[SparseState, Step]:
        """Takes a block: at once where nothing is forgotten or missing, else one by one."""
        loop = functools.partial(super().scan, state, samples)
        if self.forgetting < 1.0 or samples.arrived is not None:
            return loop()
        is_whole = ~tf.reduce_any(is_nan(samples.z))
        block = functools.partial(self._block, state, samples)
        result: tuple[SparseState, Step] = tf.cond(is_whole, block, loop)
        return result

    def _block(self, state: SparseState, samples: Sample) -> tuple[SparseState, Step]:
        """A block without missing samples.

        With θ, of precision Λ and mean Λ⁻¹ b, the block is y = Aᴴ θ + e, whose noise is white. Let
        R Rᴴ = I + Aᴴ Λ⁻¹ A be its covariance, and r = R⁻¹ (y − Aᴴ Λ⁻¹ b). By the diagonal block R_t
        of a sample, which is its innovation given those before it, the prediction of y_t has the
        mean y_t − R_t r_t and the covariance R_t R_tᴴ, and its signal given y_t the mean
        y_t − R_t⁻ᴴ r_t and the covariance I − R_t⁻ᴴ R_t⁻¹ (Kailath, Sayed & Hassibi, Linear
        Estimation, 2000, on innovations by a triangular factor).
        """
        process, form = self.process, self.process.form
        factors = self.posterior_of(state)
        noise = SampleNoise(samples.noise_variance, samples.group)
        data = Data(samples.x, samples.z, tf.shape(samples.z)[:1], noise)
        white = white_samples(process, data, self._inducing.value)
        a = tf.linalg.triangular_solve(factors.chol, white.cross)
        # Of the composite, both parts of a sample side by side.
        y, in_order = white.targets[:, 0], a
        if form.multiplicity > 1:
            y, in_order = interleave(y, -1), interleave(a, -1)
        v = tf.linalg.triangular_solve(factors.precision_chol, in_order)
        w = tf.linalg.triangular_solve(factors.precision_chol, factors.vector)
        gram = tf.linalg.matmul(v, v, adjoint_a=True)
        root = cholesky(gram + tf.eye(tf.shape(gram)[-1], dtype=gram.dtype))
        deviation = y[..., None] - tf.linalg.matmul(v, w, adjoint_a=True)
        r = self._by_sample(tf.linalg.triangular_solve(root, deviation)[..., 0])[..., None]
        blocks = self._by_sample(self._by_sample(tf.linalg.matrix_transpose(root), 2), 1)
        blocks = tf.einsum("btjti->btij", blocks)
        of_each = self._by_sample(in_order, 2)
        explained = tf.einsum("bmti,bmtj->btij", tf.math.conj(of_each), of_each)
        step = self._step_of_block(samples, noise, explained, blocks, r)
        precision = tf.linalg.matmul(state.chol, state.chol, adjoint_b=True)
        chol = cholesky(precision + tf.linalg.matmul(a, a, adjoint_b=True))
        vector = state.vector + tf.linalg.matvec(a, white.targets[:, 0])
        return SparseState(vector, chol, state.coordinate), step

    def _by_sample(self, a: tf.Tensor, axis: int = 1) -> tf.Tensor:
        """An axis of working values, sample after sample, as two: `[T k]` -> `[T, k]`."""
        shape, k = tf.shape(a), self.process.form.multiplicity
        return tf.reshape(a, tf.concat([shape[:axis], [-1, k], shape[axis + 1 :]], axis=0))

    def _step_of_block(
        self,
        samples: Sample,
        noise: SampleNoise,
        explained: tf.Tensor,
        blocks: tf.Tensor,
        r: tf.Tensor,
    ) -> Step:
        """The moments of a block from a_tᴴ a_t and R_t, `[B, T, k, k]`, and r_t, `[B, T, k, 1]`."""
        process, form = self.process, self.process.form
        prior = process.marginal(samples.x)
        no_signal = as_matrices(SecondMoments(tf.zeros_like(samples.z)))
        of_noise = noise.map(lambda a: a[..., None, None])
        scale = cholesky(form.covariance(process.with_noise(no_signal, of_noise)))

        def marginals(gain: tf.Tensor, covariance: tf.Tensor) -> Marginals:
            residual = form.join(tf.linalg.matmul(scale, tf.linalg.matmul(gain, r))[..., 0])[..., 0]
            # What the inducing points leave unexplained of the prior is as it was.
            change = tf.linalg.matmul(covariance - explained, scale, adjoint_b=True)
            moments = form.moments(tf.linalg.matmul(scale, change)).map(lambda a: a[..., 0, 0])
            moments = clipped(prior.map(tf.add, moments))
            pseudo = moments.c_or_zeros() + tf.zeros_like(residual)
            return Marginals(samples.z - residual, tf.math.real(moments.k), pseudo)

        identity = tf.eye(form.multiplicity, dtype=blocks.dtype)
        inverse = tf.linalg.triangular_solve(blocks, tf.zeros_like(blocks) + identity)
        predicted = marginals(blocks, tf.linalg.matmul(blocks, blocks, adjoint_b=True))
        gain = tf.linalg.adjoint(inverse)
        filtered = marginals(gain, identity - tf.linalg.matmul(gain, inverse))
        return Step(predicted, samples.z - predicted.mean, filtered)

    def _faded(self, state: SparseState, present: tf.Tensor) -> SparseState:
        """The state after a step of forgetting, with the prior of a coordinate restored."""
        if self.forgetting == 1.0:
            return state
        dtype, size = state.chol.dtype, state.chol.shape[-1]
        factor = tf.where(present, tf.constant(self.forgetting, dtype.real_dtype), 1.0)
        restored = tf.one_hot(state.coordinate, size, dtype=dtype.real_dtype)
        restored *= tf.sqrt(1.0 - factor**size)[:, None]
        chol = state.chol * real_as(tf.sqrt(factor), dtype)[:, None, None]
        following = (state.coordinate + tf.cast(present, tf.int32)) % size
        return SparseState(
            state.vector * real_as(factor, dtype)[:, None],
            _updated(chol, real_as(restored, dtype)),
            following,
        )

    def predict(self, state: SparseState, at: Sample) -> Marginals:
        """The signal at places `[B, M, D]` given the state."""
        state = SparseState(*map(tf.convert_to_tensor, state))
        return self._moments(self.posterior_of(state), tf.convert_to_tensor(at.x), None)

    def forecast(self, state: SparseState, ahead: Any, inputs: Any = None) -> Marginals:
        """The signal at any places x, `[M]`, `[M, D]` or `[B, M, D]`, given the state."""
        if inputs is not None:
            raise ValueError("a process has no known inputs")
        x = as_points(ahead, self.real_dtype)
        x = tf.broadcast_to(x, [len(state.chol), *x.shape[-2:]])
        return self.predict(state, Sample(None, x)).map(np.asarray)


class StepsOnArrays:
    """Steps of a cell by graphs of arrays.

    Variables of a stream are read and written by a graph in more time than a step takes.
    """

    def __init__(self, cell: SparseCell):
        self._cell = cell
        self._graphs: dict[tuple, Callable[..., list[tf.Tensor]]] = {}
        self._like: Any = None  # a state and a step, once traced

    def serves(self, arrays: Sequence[np.ndarray], sample: Sample, layer_weights: bytes) -> bool:
        """Whether the streams have begun."""
        return not np.isnan(arrays[0]).any()

    def __call__(self, arrays: Sequence[np.ndarray], sample: Sample) -> Step | None:
        """Takes a sample or a block, also of one stream without a batch axis."""
        streams, rank = len(arrays[0]), np.ndim(sample.x)
        is_block = rank == 3 or (rank == 2 and len(sample.x) != streams)
        is_single = np.ndim(sample.z) == int(is_block)
        if is_single:
            sample = sample.map(lambda a: np.asarray(a)[None])
        key = (is_block, streams, *(a is None for a in sample))
        if key not in self._graphs:
            self._graphs[key] = self._graph(arrays, sample, is_block)
        inputs = [*arrays, *(a for a in sample if a is not None)]
        # Copies: TensorFlow would write into the memory of arrays.
        *results, is_sound = self._graphs[key](*map(tf.constant, inputs))
        if not bool(is_sound):
            return None
        after, step = tf.nest.pack_sequence_as(self._like, [a.numpy() for a in results])
        for a, values in zip(arrays, after, strict=True):
            np.copyto(a, values)
        return step.map(lambda a: a[0]) if is_single else step

    def _graph(
        self, arrays: Sequence[np.ndarray], sample: Sample, is_block: bool
    ) -> Callable[..., list[tf.Tensor]]:
        cell, names = self._cell, [n for n, a in sample._asdict().items() if a is not None]

        def take(*tensors: tf.Tensor) -> list[tf.Tensor]:
            state = cell.State(*tensors[: len(arrays)])
            fields = dict(zip(names, tensors[len(arrays) :], strict=True))
            with native.own_graph():
                after, step = (cell.scan if is_block else cell.step)(state, Sample(**fields))
            self._like = after, step
            return [*tf.nest.flatten((after, step)), cell.is_sound(after, step)]

        specs = [tf.TensorSpec(a.shape, a.dtype) for a in arrays]
        for name in names:
            a = getattr(sample, name)
            axes = (a.shape[0], None, *a.shape[2:]) if is_block else a.shape
            specs.append(tf.TensorSpec(axes, a.dtype))
        graph = tf.function(take, input_signature=specs, autograph=False)
        return called_as_op(graph.get_concrete_function())


def _updated(chol: tf.Tensor, vector: tf.Tensor) -> tf.Tensor:
    """`cholesky_update`, in the graph of a stream by the compiled op."""
    if tf.executing_eagerly() or not native.serves_own_graph():
        return cholesky_update(chol, vector)
    ones = tf.ones(tf.shape(chol)[:1], chol.dtype.real_dtype)
    return tf.ensure_shape(native.op("cgp_cholesky_update")(chol, vector, ones), chol.shape)
