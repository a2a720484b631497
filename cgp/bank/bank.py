"""Many streams of one estimator, each with a key, in one object."""

import threading
from collections.abc import Hashable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from cgp.bank.checks import check_order_of_index, checked_samples
from cgp.bank.keys import ABSENT, Keys, are_several, as_keys, as_objects, is_missing
from cgp.bank.serialized import from_bytes, to_bytes
from cgp.bank.states import States
from cgp.distributions.marginals import Step
from cgp.likelihoods import Likelihood
from cgp.linalg.arguments import ArrayLike, check_whole
from cgp.observations import check_same_labels, components
from cgp.online.cell import RefusedSample, Sample
from cgp.online.checks import cell_of
from cgp.online.structure import check_structure


class Bank:
    """Many streams, each with a key, that share the hyperparameters of one estimator.

    A call of `update` takes in samples of any keys, repeated, absent and new ones, and returns for
    each the result of `step` of an estimator for that key alone. Keys are integers, strings,
    tuples, or whatever else is hashable; 1, 1.0 and `np.int64(1)` are one key. Arrays of integers
    are fastest.

    A key begins at the initial state with its first sample. A key without a sample in a call keeps
    its state: the time of a `KalmanFilter` does not move for it. A sample of NaN moves it on.

    Only the model of the estimator is used: its own stream and its data are left alone. The
    estimator may be

    - a `KalmanFilter` of one model for all times, with inputs too; nonlinear ones, and those with a
      likelihood, too;
    - a `RecursiveGP`, whose samples may have noise or a likelihood of their own;
    - a `StateSpaceGP`, likewise; each key has its own place x;
    - a `cgp.online.Cell`.

    When its hyperparameters change, the states of a `KalmanFilter` go on with the new matrices, and
    the factors of a `RecursiveGP` are computed again. The states of a `StateSpaceGP` cannot be:
    `update` and `state` are refused then until `reset`.

    With the compiled core the samples of a `KalmanFilter` and a `StateSpaceGP` are taken in one
    pass, more than a million a second on one core where there are two complex states, and results
    are as for one key alone to the last bit. Without it, and where it does not know a model or a
    kernel, they are the same to rounding, by steps of a fixed width that are traced once for each
    bank.

    Iteration gives the keys in the order of their last samples, the oldest first: `evict` the first
    of them from time to time.

    Args:
        estimator: The model of all streams.
        capacity: The most keys. When it is reached, a new key takes the place of the key that has
            been without a sample for longest, which takes a call some 20 ms of a million keys, for
            one new key or many. None for no limit.

    Attributes:
        evicted: The keys that the last `update` or `set_state` dropped to make room, as a list.

    Raises:
        TypeError: Another estimator, or a capacity that is no integer.
        ValueError: A model that varies over time; a capacity below 1.

    Example:
        >>> import numpy as np, cgp
        >>> F = 0.95 * np.exp(0.3j)
        >>> model = cgp.statespace.LinearGaussian([[F]], [[0.1]], [[1.0]], [[1.0]])
        >>> bank = cgp.Bank(cgp.KalmanFilter(model))
        >>> step = bank.update(["north", "south", "north"], np.array([1.0j, 0.5, 0.9j]))
        >>> step.filtered.mean.shape, len(bank), "south" in bank
        ((3, 1), 2, True)
        >>> again = cgp.Bank.from_bytes(bank.to_bytes(), bank.estimator)
        >>> bool(again.state("north").mean == bank.state("north").mean)
        True
    """

    def __init__(self, estimator: Any, capacity: int | None = None):
        if capacity is not None:
            check_whole(capacity, "capacity")
        cell = cell_of(estimator, "the estimator of a Bank")
        cell.check_keys()
        self._estimator = estimator
        self._states = States(cell.for_keys(), estimator, capacity)
        self._mutex = threading.Lock()
        self.evicted: list[Any] = []

    @property
    def estimator(self) -> Any:
        """The model of all streams."""
        return self._estimator

    @property
    def capacity(self) -> int | None:
        """The most keys; None for no limit."""
        return self._states.slots.capacity

    def __len__(self) -> int:
        return len(self._states.slots)

    def __contains__(self, key: Hashable) -> bool:
        return not is_missing(key) and bool(self._states.slots.find(as_keys([key]))[0] != ABSENT)

    def __iter__(self) -> Iterator[Any]:
        slots = self._states.slots
        return iter(as_objects(slots.keys_at(slots.in_order())))

    def __repr__(self) -> str:
        limit = "" if self.capacity is None else f" of at most {self.capacity}"
        return f"Bank({self._estimator!r}, {len(self)} keys{limit})"

    # --- samples ---------------------------------------------------------------------------------

    def update(
        self,
        keys: Any,
        z: ArrayLike,
        x: ArrayLike | None = None,
        *,
        inputs: ArrayLike | None = None,
        noise_variance: ArrayLike | None = None,
        noise_groups: ArrayLike | None = None,
        likelihood: Likelihood | None = None,
    ) -> Step:
        """Takes samples in, one after another: predicts each, then updates the state of its key.

        Args:
            keys: The key of each sample, `[B]`: a list, or an array of integers, strings or
                objects. Samples of one key are in the order of time.
            z: Observations, `[B]`, or of a `KalmanFilter` `[B, M]`; NaN where missing.
            x: Inputs of a Gaussian process, `[B]`, or `[B, D]`; for a `StateSpaceGP` the inputs of
                each key in order.
            inputs: Known inputs of a `KalmanFilter` with B, `[B, k]`, from each observation to the
                next of its key.
            noise_variance: The known part of the noise of each sample of a Gaussian process, `[B]`
                or a number, as for its `step`.
            noise_groups: The group of the noise of each sample, `[B]` or an integer, as for `step`.
            likelihood: A `StudentT`, by which outliers get more noise, as for `step` of a Gaussian
                process; or None.

        Returns:
            A `Step` of NumPy arrays, as from `step` of the
            estimator, with a first axis of samples, `[B, ...]`.

        Raises:
            TypeError: Keys that cannot be hashed; observations or inputs whose dtype is not the
                estimator's; a likelihood that it does not take.
            ValueError: Keys that are missing, as None and NaN are; shapes that do not fit; infinite
                values; inputs that are not finite or go back; a state that would not be finite;
                more different keys than the capacity. The error names the key, and no state has
                changed.
            NotPositiveDefiniteError: The covariance of a window is not; nothing has changed.
        """
        if not tf.executing_eagerly():
            raise RuntimeError("samples are taken in outside of a tf.function: update(keys, z)")
        check_same_labels(keys=(keys, 0), z=(z, components(z)), x=(x, components(x)))
        labelled, keys, states = keys, as_keys(keys), self._states
        check_order_of_index(labelled, keys, z=z, x=x)
        sample = Sample(z, x, inputs, noise_variance, noise_groups)
        with self._mutex:
            try:
                states.forget_sizes()
                samples = checked_samples(states.cell, len(keys), sample)
                states.cell = states.cell.sized_for(samples)
                states.renew()
                plan = states.slots.plan(keys)
                step = states.take(plan, samples, likelihood)
            except RefusedSample as error:
                key = as_objects(keys)[error.index]
                message = f"{error}. It is sample {error.index}, of key {key!r}; no state"
                raise error.kind(f"{message} has changed") from error
            self.evicted = states.commit(plan)
        return step

    def evict(self, keys: Any) -> None:
        """Drops keys and their states.

        Args:
            keys: One key, a tuple too; or a list or an array of keys, all in the bank.

        Raises:
            KeyError: A key that is not there. Nothing has been dropped then.
        """
        with self._mutex:
            slots = self._states.slots_of(_listed(keys))
            self._states.slots.remove(np.unique(slots))

    def reset(self) -> None:
        """Drops all keys. Those that come begin again at the initial state."""
        with self._mutex:
            self._states.slots.remove(self._states.slots.in_order())

    # --- states ----------------------------------------------------------------------------------

    def state(self, keys: Any = ...) -> NamedTuple:
        """The states of keys, in the form in which the estimator shows its own.

        Args:
            keys: One key, a tuple too; or a list or an array of keys; or all keys, in the order of
                iteration, if it is left out.

        Returns:
            A named tuple of NumPy arrays, with a first axis of keys unless one key was given: of a
            `KalmanFilter` `(mean, chol)`, of a `StateSpaceGP` `(x, mean, chol)`, of a
            `RecursiveGP` the arrays of its window, `(size, x, z, age, chol)`.

        Raises:
            KeyError: A key that is not there.
            ValueError: States of a `StateSpaceGP` at other hyperparameters than the present ones.
            NotPositiveDefiniteError: The covariance of a window is not, at the present ones.
        """
        return self._of_keys(keys, self._state_at(keys))

    def _state_at(self, keys: Any) -> Any:
        """The states of keys, `[K, ...]`."""
        states = self._states
        with self._mutex:
            slots = states.slots.in_order() if keys is ... else states.slots_of(_listed(keys))
            states.renew()
            states.make_room()
            state = states.state_at(slots)
        return states.cell.shown(tf.nest.map_structure(np.array, state))

    def _of_keys(self, keys: Any, moments: Any) -> Any:
        """Arrays `[K, ...]`, without the first axis where one key was given."""
        if keys is ... or are_several(keys):
            return moments
        return tf.nest.map_structure(lambda a: None if a is None else a[0], moments)

    def forecast(self, ahead: Any, keys: Any = ..., inputs: ArrayLike | None = None) -> Any:
        """Forecasts from the states of keys, which stay as they are.

        Args:
            ahead: For a `KalmanFilter` the number of steps; for a Gaussian process places x, `[M]`
                or `[M, D]`, with a `StateSpaceGP` not before the last sample of a key.
            keys: As for `state`.
            inputs: Known inputs of a `KalmanFilter` with B, `[K, steps, k]`.

        Returns:
            A named tuple of NumPy arrays, with a first axis of keys unless one key was given: of a
            `KalmanFilter` as from `cgp.statespace.forecast`, of a Gaussian process the
            `Marginals(mean, variance, pseudo_variance)` of the signal.

        Raises:
            KeyError: A key that is not there.
            TypeError: An estimator without a forecast.
            ValueError: Steps below 1, inputs that do not fit, places before the last sample; and as
                for `state`.
        """
        state = self._state_at(keys)
        return self._of_keys(keys, self._states.cell.forecast(state, ahead, inputs))

    def set_state(self, keys: Any, state: Any) -> None:
        """Sets the states of keys, which are added where they are new; it counts as a sample.

        Args:
            keys: One key, a tuple too; or a list or an array of different keys.
            state: A tuple as from `state(keys)`; with a first axis of keys, or without one for all.
                The factor of a window is computed again from its points.

        Raises:
            TypeError: Not as many arrays, complex ones where real ones are expected, or ones of
                more precision than the estimator.
            ValueError: Shapes that do not fit, values that are not finite or that `update` refuses,
                a factor that is not lower triangular with a real diagonal that is not negative, a
                key given twice; more keys than the capacity. Nothing has changed then.
            NotPositiveDefiniteError: The covariance of a window is not; nothing has changed.
        """
        keys = _listed(keys)
        with self._mutex:
            self.evicted = self._states.set(keys, state)

    # --- bytes -----------------------------------------------------------------------------------

    def __reduce__(self) -> tuple:
        """Pickles or copies the bank by its bytes, with its estimator."""
        return type(self).from_bytes, (self.to_bytes(), self._estimator, self.capacity)

    def to_bytes(self) -> bytes:
        """All keys and states as bytes, without the estimator.

        Keys must be integers, strings, bytes, or tuples of such.

        Raises:
            TypeError: Another key.
        """
        with self._mutex:
            states = self._states
            slots = states.slots.in_order()
            head = {"model": self._structure(), "belongs": states.belongs}
            return to_bytes(head, states.slots.keys_at(slots), states.named(slots))

    def _structure(self) -> dict[str, Any]:
        """The structure of the model, the same at all values of its hyperparameters."""
        return {"estimator": type(self._estimator).__name__, **self._states.cell.structure()}

    @classmethod
    def from_bytes(cls, data: bytes, estimator: Any, capacity: int | None = None) -> "Bank":
        """A bank of the keys and states that `to_bytes` has written; it goes on as that one did.

        Args:
            data: The bytes.
            estimator: The estimator of the bank that wrote them, or one of the same structure:
                values of hyperparameters may have changed, as described at the class.
            capacity: As for `Bank`.

        Raises:
            TypeError: Not bytes.
            ValueError: Bytes that are damaged, or of something else; a model of another structure,
                as of another kernel, policy or number of states; more keys than the capacity;
                states that `set_state` refuses, or of a `StateSpaceGP` at other hyperparameters.

        Example:
            >>> import numpy as np, cgp
            >>> kernel = cgp.kernels.Matern32(1.0, 5.0) * cgp.kernels.Rotation(0.5)
            >>> bank = cgp.Bank(cgp.StateSpaceGP(kernel, noise_variance=0.1))
            >>> step = bank.update([7, 8, 7], np.array([1.0, 1j, -1.0 + 0j]), [0.0, 0.3, 0.9])
            >>> again = cgp.Bank.from_bytes(bank.to_bytes(), bank.estimator)
            >>> list(again), float(again.state(7).x)
            ([8, 7], 0.9)
        """
        bank = cls(estimator, capacity)
        head, keys, rows = from_bytes(data)
        if capacity is not None and len(keys) > capacity:
            raise ValueError(f"the bytes have {len(keys)} keys, more than the capacity, {capacity}")
        states = bank._states
        blank = states.blank_for(rows)
        arrays = {name: (tuple(a.shape[1:]), a.dtype.name) for name, a in blank.items()}
        read = {name: (a.shape[1:], a.dtype.name) for name, a in rows.items()}
        check_structure(
            # No arrays exist before the first sample, and none of noise in bytes of version 0.1.0.
            {**head.get("model", {}), "arrays": {**arrays, **read}},
            {**bank._structure(), "arrays": arrays},
        )
        if rows:
            states.restore(keys, rows, head.get("belongs", ""))
        return bank


def _listed(keys: Any) -> Keys:
    """Keys as a sequence; a single key becomes a sequence of one."""
    return as_keys(keys if are_several(keys) else [keys])
