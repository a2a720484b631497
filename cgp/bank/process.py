"""The states of a bank of a `StateSpaceGP`."""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cgp import native
from cgp.bank.checks import of_process
from cgp.bank.rounds import WIDTH, empty_step, in_rounds
from cgp.bank.states import Fields, Refused, Rows, of_parts, with_parts
from cgp.bank.structure import in_declared_order, structure_of
from cgp.distributions.marginals import Marginals, Step, innovation
from cgp.gp import StateSpaceGP
from cgp.gp.state_space.discretization import DiscretizedProcess
from cgp.gp.state_space.process_stream import advance
from cgp.gp.stream_samples import CheckedRange
from cgp.linalg.arguments import complex_dtype
from cgp.linalg.short_repr import short_repr
from cgp.statespace.engines.filter_step import State, with_pseudo_variance
from cgp.statespace.online.native_step import NOT_FINITE
from cgp.statespace.online.native_walk import CompiledWalk
from cgp.training.post_updates import snapshot

# Samples whose transitions are held together.
_BLOCK = 4096


@short_repr
class PlacedState(NamedTuple):
    """The state of a process after the last sample, as `StateSpaceGP.state`, and where that was."""

    x: np.ndarray
    """The place, `[...]`."""
    mean: np.ndarray
    """`[..., n]`."""
    chol: np.ndarray
    """`[..., n, n]`; of an improper process that of the real composite, `[..., 2n, 2n]`."""


class ProcessStates:
    """States after the last sample, each at a place of its own.

    They belong to the hyperparameters that they were computed with: no samples are kept from which
    they could be computed again.

    Args:
        layer: The process.

    Raises:
        ValueError: Groups of noise, or a likelihood of other than normal noise.
    """

    dimensions, shape = 1, ()

    def __init__(self, layer: StateSpaceGP):
        if not isinstance(layer.likelihood, str) or len(
            layer._process.noise_variance.variable.shape
        ):
            raise ValueError(
                "a Bank is of a StateSpaceGP of data in normal noise of one variance, got "
                f"likelihood {layer.likelihood!r} and noise_variance {layer.noise_variance}"
            )
        self._process = layer._process
        # A state is of samples less the mean function, and so belongs to that too.
        mean = [] if layer.mean is None else layer.mean.weights
        self._weights = in_declared_order([*self._process.weights, *mean], layer)
        self._real = np.dtype(layer.variable_dtype)
        self._complex = np.dtype(complex_dtype(self._real.name).as_numpy_dtype)
        self._dtype = self._complex if self._process.is_proper else self._real
        self._range = CheckedRange(lambda x: layer.kernel.check_points(tf.constant(x, self._real)))
        self._graph: Any = None
        self._read()

    def _read(self) -> None:
        """Takes the present hyperparameters."""
        self._markov = DiscretizedProcess(self._process)
        self._H = self._markov.emission().numpy()
        self._walk: CompiledWalk | None = None

    def fields(self, dimensions: int) -> Fields:
        """See `States.fields`."""
        n = self._H.shape[-1]
        return {"x": ((), self._real), "mean": ((n,), self._dtype), "chol": ((n, n), self._dtype)}

    def structure(self) -> dict[str, Any]:
        """See `States.structure`."""
        process = self._process
        return {"kernel": structure_of(process.kernel), "mean": structure_of(process.mean)}

    def values(self) -> bytes:
        """See `States.values`."""
        return snapshot(self._weights)

    def checked(self, z: Any, x: np.ndarray | None) -> np.ndarray:
        """See `States.checked`."""
        return of_process(z, x, self._real, self._range)

    def begin(self, rows: Rows, slots: np.ndarray, z: np.ndarray, x: np.ndarray | None) -> None:
        """See `States.begin`: the prior, where the first sample is."""
        assert x is not None
        places = x[:1, 0] if self._markov.is_stationary else x[:, 0]
        _, chol = self._markov.initial(tf.constant(places))
        rows["x"][slots], rows["mean"][slots], rows["chol"][slots] = x[:, 0], 0.0, chol.numpy()

    def take(self, rows: Rows, slots: np.ndarray, z: np.ndarray, x: np.ndarray | None) -> Step:
        """See `States.take`."""
        assert x is not None
        before = _places_before(rows["x"], slots, x[:, 0])
        back = np.flatnonzero(x[:, 0] < before)
        if len(back):
            first = back[0]
            raise Refused(first, f"x must not go back: got {x[first, 0]:g} after {before[first]:g}")
        if native.core().ops is None:
            to = empty_step(z, z)
            return in_rounds(self._step, rows, slots, z, x, to, width=WIDTH, fill=True)
        function = self._function(x)
        parts = []
        for begin in range(0, max(len(z), 1), _BLOCK):
            block = slice(begin, begin + _BLOCK)
            found = self._take_compiled(
                rows, slots[block], (z - function)[block], before[block], x[block, 0]
            )
            if isinstance(found, int):
                raise Refused(begin + found, NOT_FINITE)
            parts.append(found)
        rows["x"][slots] = x[:, 0]  # of several samples of one key the last assignment counts
        predicted, filtered = (
            Marginals(*(np.concatenate(arrays)[:, 0] for arrays in zip(*moments, strict=True)))
            for moments in zip(*parts, strict=True)
        )
        predicted, filtered = (m._replace(mean=m.mean + function) for m in (predicted, filtered))
        return Step(predicted, innovation(z, predicted.mean), filtered)

    def _function(self, x: np.ndarray) -> np.ndarray | float:
        """The mean function at places `[B, 1]`, `[B]`; zero where there is none."""
        if self._process.mean is None:
            return 0.0
        zeros = tf.zeros([len(x), 1], self._complex)
        return self._process.plus_function(zeros, tf.constant(x[:, None])).numpy()[:, 0]

    def _take_compiled(
        self, rows: Rows, slots: np.ndarray, z: np.ndarray, before: np.ndarray, x: np.ndarray
    ) -> tuple[Marginals, Marginals] | int:
        """Changes states; the moments of z before, and of the signal, less the mean function."""
        if self._walk is None:
            R = self._markov.noise().numpy()
            self._walk = CompiledWalk(self._H, R, not self._process.is_proper, predicts_first=True)
        found = self._markov.transitions(before, x - before)
        F, Q_factor = (np.ascontiguousarray(a, self._dtype) for a in found)
        return self._walk(F, Q_factor, z[:, None], slots, rows["mean"], rows["chol"])

    def _step(self, states: Rows, z: np.ndarray, x: np.ndarray | None) -> tuple[Rows, Step]:
        """The same without the compiled core, of a round."""
        assert x is not None
        if self._graph is None:
            given = [*states.values(), x[:, 0], z]
            signature = [tf.TensorSpec(a.shape, a.dtype) for a in given]
            self._graph = tf.function(self._advance, signature, autograph=False)
        found = self._graph(*map(tf.constant, (*states.values(), x[:, 0], z)))
        (mean, chol), predicted, filtered = tf.nest.map_structure(np.asarray, found)
        if not all(np.isfinite(a).all() for a in (mean, chol, predicted.variance)):
            raise ValueError(NOT_FINITE)
        after = {"x": x[:, 0], "mean": mean, "chol": chol}
        return after, Step(predicted, innovation(z, predicted.mean), filtered)

    def _advance(
        self, last: tf.Tensor, mean: tf.Tensor, chol: tf.Tensor, x: tf.Tensor, z: tf.Tensor
    ) -> tuple[State, Marginals, Marginals]:
        move = tf.experimental.numpy.moveaxis
        state = State(move(mean, 0, -1), move(chol, 0, -1))
        after, *moments = advance(self._process, state, last, x, z, tf.zeros_like(x))
        after = State(*(move(a, -1, 0) for a in after))
        predicted, filtered = (with_pseudo_variance(*m).map(lambda a: a[0]) for m in moments)
        return after, predicted, filtered

    def renew(self, rows: Rows, slots: np.ndarray) -> None:
        """See `States.renew`."""
        if len(slots):
            raise ValueError(
                "the hyperparameters have changed, and the states of a StateSpaceGP belong to "
                "those before: reset the bank, which begins again, or make one of another model"
            )
        self._read()

    def shown(self, rows: Rows) -> PlacedState:
        """See `States.shown`."""
        mean = rows["mean"] if self._process.is_proper else of_parts(rows["mean"])
        return PlacedState(rows["x"], mean, rows["chol"])

    def working(self, state: tuple[np.ndarray, ...]) -> Rows:
        """See `States.working`."""
        x, mean, chol = state
        mean = mean if self._process.is_proper else with_parts(mean)
        return {"x": x, "mean": mean, "chol": chol}

    def completed(self, rows: Rows) -> Rows:
        """See `States.completed`."""
        if rows["x"].size:
            self._range.admit(rows["x"].reshape(1, -1, 1))
        return rows


def _places_before(held: np.ndarray, slots: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The place of the sample before each one, of the same key.

    Args:
        held: The place of the last sample of each slot.
        slots: Of the samples, `[B]`.
        x: Their places, `[B]`.
    """
    order = np.argsort(slots, kind="stable")
    before = held[slots]
    again = np.flatnonzero(slots[order][1:] == slots[order][:-1])
    before[order[again + 1]] = x[order[again]]
    return before
