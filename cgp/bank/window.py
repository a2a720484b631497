"""The states of a bank of a `RecursiveGP`: its windows."""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cgp.bank.checks import of_process
from cgp.bank.rounds import WIDTH, empty_step, in_rounds, turns
from cgp.bank.states import Fields, Refused, Rows
from cgp.bank.structure import in_declared_order, structure_of
from cgp.distributions.marginals import Step
from cgp.gp import RecursiveGP
from cgp.gp.recursive.native_window import CompiledWindow
from cgp.gp.recursive.window import Window
from cgp.gp.stream_samples import CheckedRange
from cgp.linalg import NotPositiveDefiniteError
from cgp.linalg.arguments import complex_dtype
from cgp.linalg.short_repr import short_repr
from cgp.training.post_updates import snapshot

# Elements of the factors that go through a step together.
_ELEMENTS = 2**22


@short_repr
class WindowState(NamedTuple):
    """A window: the points that it holds, the oldest first, and their factor."""

    size: np.ndarray
    """The number of points, `[...]`; rows after them are empty."""
    x: np.ndarray
    """Inputs, `[..., C, D]`."""
    z: np.ndarray
    """Observations, `[..., C]`."""
    age: np.ndarray
    """Steps of forgetting that each point has been through, `[..., C]`."""
    chol: np.ndarray
    """The factor of their covariance, `[..., C, C]`; of an improper process that of the real
    composite, `[..., 2C, 2C]`, two rows to a point."""


class WindowStates:
    """Windows, each of its own stream.

    Their factors belong to hyperparameters, and are computed again when these change.

    Args:
        layer: The process.

    Raises:
        ValueError: The budget policy, or groups of noise.
    """

    dimensions, shape = None, ()

    def __init__(self, layer: RecursiveGP):
        if layer.policy == "budget" or len(layer._process.noise_variance.variable.shape):
            raise ValueError(
                'a Bank is of a RecursiveGP of policy "sliding" or "growing" and of one noise '
                f"variance, got {layer.policy!r} and noise_variance {layer.noise_variance}"
            )
        self._recursion, self._layer = layer._recursion, layer
        self._process, self._capacity = self._recursion.process, layer.capacity
        self._real = np.dtype(layer.variable_dtype)
        self._complex = np.dtype(complex_dtype(self._real.name).as_numpy_dtype)
        self._rows = self._capacity * self._process.form.multiplicity
        self._width = max(1, min(WIDTH, _ELEMENTS // self._rows**2))
        self._range = CheckedRange(layer._check_inputs)
        self._by_core = CompiledWindow(self._recursion)
        self._graph: Any = None
        self._weights = in_declared_order(self._process.weights, layer)
        self._values = self.values()

    def fields(self, dimensions: int) -> Fields:
        """See `States.fields`."""
        C, n = self._capacity, self._rows
        working = self._complex if self._process.is_proper else self._real
        return {
            "size": ((), np.dtype(np.int32)),
            "x": ((C, dimensions), self._real),
            "z": ((C,), self._complex),
            "age": ((C,), self._real),
            "chol": ((n, n), working),
        }

    def structure(self) -> dict[str, Any]:
        """See `States.structure`."""
        layer = self._layer
        settings = {name: getattr(layer, name) for name in ("capacity", "policy", "forgetting")}
        kernel, mean = structure_of(layer.kernel), structure_of(layer.mean)
        return {"kernel": kernel, "mean": mean, **settings}

    def values(self) -> bytes:
        """See `States.values`."""
        return snapshot(self._weights)

    def checked(self, z: Any, x: np.ndarray | None) -> np.ndarray:
        """See `States.checked`."""
        return of_process(z, x, self._real, self._range)

    def begin(self, rows: Rows, slots: np.ndarray, z: np.ndarray, x: np.ndarray | None) -> None:
        """See `States.begin`: an empty window."""
        for name in ("size", "x", "z", "age"):
            rows[name][slots] = 0
        rows["chol"][slots] = np.eye(self._rows)

    def take(self, rows: Rows, slots: np.ndarray, z: np.ndarray, x: np.ndarray | None) -> Step:
        """See `States.take`."""
        if not self._recursion.policy.replaces:
            seen = np.flatnonzero(~np.isnan(z))
            held = rows["size"][slots[seen]] + turns(slots[seen])
            if np.any(held >= self._capacity):
                raise Refused(
                    seen[np.argmax(held >= self._capacity)],
                    f"capacity is {self._capacity}, and a growing process that is full takes no "
                    'more: make it with a larger capacity, or with policy="sliding"',
                )
        by_core = self._by_core.serves(self._values)
        return in_rounds(
            self._take_compiled if by_core else self._take_traced,
            *(rows, slots, z, x, empty_step(z, z)),
            width=self._width,
            fill=not by_core,
        )

    def _take_compiled(
        self, states: Rows, z: np.ndarray, x: np.ndarray | None
    ) -> tuple[Rows, Step]:
        assert x is not None
        found = self._by_core.take(x[:, None], z[:, None], list(states.values()))
        if found is None:
            raise self._failure()
        return states, found.map(lambda a: a[:, 0])

    def _take_traced(self, states: Rows, z: np.ndarray, x: np.ndarray | None) -> tuple[Rows, Step]:
        """`_take_compiled` where the compiled core does not serve."""
        assert x is not None
        given = [*states.values(), x, z]
        if self._graph is None:
            signature = [tf.TensorSpec(a.shape, a.dtype) for a in given]
            self._graph = tf.function(self._advance, signature, autograph=False)
        try:
            found = self._graph(*map(tf.constant, given))
        except tf.errors.InvalidArgumentError as error:
            raise self._failure() from error
        after, found = tf.nest.map_structure(np.asarray, found)
        diagonal = np.diagonal(after["chol"], axis1=-2, axis2=-1).real
        if not np.all((diagonal > 0) & (diagonal < np.inf)):
            raise self._failure()
        return after, found

    def _advance(self, *given: tf.Tensor) -> tuple[dict[str, tf.Tensor], Step]:
        *held, x, z = given
        after, found = self._recursion.step(self._window(*held), x, z)
        return {name: getattr(after, name) for name in WindowState._fields}, found

    def _window(self, *held: Any) -> Window:
        """Windows of arrays in the order of fields."""
        size, x, z, age, chol = held
        return Window(size, x, z, age, chol, noise=(tf.zeros_like(age),))

    def _failure(self) -> NotPositiveDefiniteError:
        return NotPositiveDefiniteError(
            "the covariance of the points is not positive definite at these hyperparameters: "
            f"{self._layer.parameters()}"
        )

    def renew(self, rows: Rows, slots: np.ndarray) -> None:
        """See `States.renew`."""
        if len(slots):
            rows["chol"][slots] = self._factors(rows, slots)
        self._values = self.values()

    def _factors(self, rows: Rows, slots: np.ndarray) -> np.ndarray:
        """The factors that follow from the points in these slots."""
        chols = np.empty((len(slots), *rows["chol"].shape[1:]), rows["chol"].dtype)
        for begin in range(0, len(slots), self._width):
            block = slice(begin, begin + self._width)
            held = {name: tf.constant(rows[name][slots[block]]) for name in WindowState._fields}
            held["chol"] = tf.eye(self._rows, batch_shape=[len(held["z"])], dtype=chols.dtype)
            window = self._window(*held.values())
            if self._recursion.forgetting < 1.0:
                # Points are told to be forgotten by the diagonal of the covariance, of any factor.
                variance = tf.linalg.diag_part(self._recursion.covariance(window))
                window = window._replace(chol=tf.linalg.diag(tf.sqrt(variance)))
            chols[block] = self._recursion.refactorized(window).chol
        return chols

    def shown(self, rows: Rows) -> WindowState:
        """See `States.shown`."""
        return WindowState(**rows)

    def working(self, state: tuple[np.ndarray, ...]) -> Rows:
        """See `States.working`."""
        size = state[0]
        if np.any((size < 0) | (size > self._capacity)):
            raise ValueError(f"a window has 0 to {self._capacity} points, got size {size}")
        return dict(zip(WindowState._fields, state, strict=True))

    def completed(self, rows: Rows) -> Rows:
        """See `States.completed`: the factors, of windows as `update` leaves them."""
        fields = self.fields(rows["x"].shape[-1])
        rows = {name: a if a.ndim > len(fields[name][0]) else a[None] for name, a in rows.items()}
        (count,) = np.broadcast_shapes(*((len(a),) for a in rows.values()))
        rows = {name: np.broadcast_to(a, (count, *a.shape[1:])) for name, a in rows.items()}
        used = np.arange(self._capacity) < rows["size"][:, None]
        x, z, age = rows["x"], rows["z"], rows["age"]
        if np.any(x[~used]) or np.any(z[~used]) or np.any(age[~used]):
            raise ValueError(
                "x, z and age of a window must be zero in rows after its `size` points"
            )
        if np.any(age < 0.0):
            raise ValueError(f"age of a state must not be negative, got {age}")
        of_process(z[used], x[used], self._real, self._range)
        return {**rows, "chol": self._factors(rows, np.arange(count))}
