"""Post-gradient updates: state derived from hyperparameters, recomputed when they change.

A layer that keeps something computed from trainable variables (a Cholesky factor, whitened
targets) keeps it in a non-trainable weight, so that a step costs one factorisation and prediction
none. Such a weight is stale as soon as a variable changes. The layer therefore registers a function
that recomputes it, and calls `refresh` before it reads it:

    @keras.saving.register_keras_serializable(package="example")
    class InducingFeatures(keras.layers.Layer):
        def __init__(self, kernel, points, dtype="float64", **kwargs):
            super().__init__(dtype=dtype, **kwargs)
            self.kernel, self.points = kernel, np.asarray(points)
            n = len(self.points)
            self.chol = self.add_weight(shape=(n, n, 2), initializer="zeros", trainable=False)
            cgp.register_post_update(self, kernel.variables, self._update)

        def _gram(self):
            return self.kernel.covariance(self.points)  # complex, [n, n]

        def _update(self):
            chol = cgp.linalg.cholesky(self._gram())
            self.chol.assign(tf.stack([tf.math.real(chol), tf.math.imag(chol)], axis=-1))

        def call(self, x):
            cgp.refresh(self)
            chol = tf.complex(self.chol[..., 0], self.chol[..., 1])
            chol = cgp.linalg.stored_cholesky(chol, self._gram())  # gradients reach the kernel
            cross = self.kernel.covariance(self.points, x)
            return tf.linalg.adjoint(tf.linalg.triangular_solve(chol, cross))  # [batch, n]

        def get_config(self):
            kernel = keras.saving.serialize_keras_object(self.kernel)
            return {**super().get_config(), "kernel": kernel, "points": self.points.tolist()}

        @classmethod
        def from_config(cls, config):
            kernel = keras.saving.deserialize_keras_object(config.pop("kernel"))
            return cls(kernel, **config)

`cgp.Model` and `cgp.Functional` run the update right after each gradient step. Every other change
of a variable (a manual `assign`, `load_weights`, weight averaging, a custom training loop) is
detected by `refresh`: each update has a snapshot of the variables that its state was computed from,
and state whose snapshot differs from the present values is recomputed before it is used.

Rules for an update: TensorFlow operations only; state written with `assign`, to weights made in
`__init__` or `build` with Keras's default aggregation; a function of the registered variables and
of constants alone (not of the batch: replicas would diverge); real weights, a complex state as a
trailing axis of two. State of a changing size goes into plain variables (`state_is_weights`). Under
XLA, which drops assertions, an update that should have failed leaves NaN instead.
"""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import is_
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from cgp.tensorflow_private import eager_context, execute_op
from cgp.training import keras_private
from cgp.training.keras_private import in_stateless_scope, replace_value, stored


class HostVariable(keras.Variable):
    """A weight whose value may be changed in place, as an array, at no cost.

    Writing a TensorFlow variable and reading it takes longer than a step of an online filter. So
    the array is the value, and is written to TensorFlow only once the variable is read.
    Whoever asks for the TensorFlow variable itself (`value`) may read and write it at any time:
    from then on each change is written at once, and each use reads it.

    Example:
        >>> from cgp.training.post_updates import HostVariable
        >>> variable = HostVariable((2,), "float64", "state")
        >>> variable.host()[0] = 3.0
        >>> variable.changed()
        >>> variable.numpy()
        array([3., 0.])
    """

    def __init__(self, shape: tuple[int, ...], dtype: str, name: str):
        self._host: np.ndarray | None = None
        self._is_ahead = self._is_shared = False
        keywords = {"dtype": dtype, "trainable": False, "autocast": False, "name": name}
        super().__init__(np.zeros(shape, dtype), **keywords)

    def host(self) -> np.ndarray:
        """The value as an array; after a change of it in place, `changed` must be called."""
        if in_stateless_scope():  # which may hold another value, to be left alone
            return np.asarray(super().value)
        return self._present_host()

    def _present_host(self) -> np.ndarray:
        if self._host is None or self._is_shared:
            self._host = stored(self).numpy()
        return self._host

    def replace(self, array: np.ndarray) -> None:
        """Replaces the value by an array of any shape; no graph may have been made with it."""
        replace_value(self, array)
        self._host, self._is_ahead, self._is_shared = None, False, False

    def changed(self) -> None:
        """Marks the array as changed in place, so that TensorFlow gets its new value."""
        if self._is_shared:
            stored(self).assign(self._host)
        else:
            self._is_ahead = True

    @property
    def value(self) -> Any:
        """The TensorFlow variable."""
        variable = super().value
        if variable is stored(self):  # else the variable of a stateless scope
            self._write()
            self._is_shared = True
        return variable

    def assign(self, value: Any) -> Any:
        """Assigns a value, as Keras's `assign` does."""
        if in_stateless_scope():
            return super().assign(value)
        if not tf.executing_eagerly():
            _ = self.value  # a graph assigns when it runs; until then the value is this one
        variable = super().assign(value)
        self._host = np.array(variable) if tf.executing_eagerly() else None
        self._is_ahead = False
        return variable

    def numpy(self) -> np.ndarray:
        """The value, as a new array."""
        return self.host().copy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("the value of a weight is only given as a copy")
        return np.asarray(self.numpy(), dtype)

    def __repr__(self) -> str:
        self._write()
        return super().__repr__()

    def _write(self) -> None:
        if self._is_ahead:
            with tf.init_scope():  # now, not when a graph runs
                stored(self).assign(self._host)
            self._is_ahead = False


def hosts_of(variables: Iterable[HostVariable]) -> list[np.ndarray]:
    """The arrays of several weights, which ask once whether the scope is stateless."""
    if in_stateless_scope():
        return [v.host() for v in variables]
    return [v._present_host() for v in variables]


_ZERO = np.zeros(1)


class _Comparison(NamedTuple):
    """The variables of an update beside the values that its state was computed from, as bytes."""

    present: bytes
    of_state: bytes
    differ: bool


class _PostUpdate:
    """An update, the variables it reads, and the values they had when it last ran.

    A class, as Keras tracks variables of other layers in lists, tuples and dictionaries.
    """

    def __init__(self, variables: tuple, update: Callable[[], None], snapshot: Any) -> None:
        self.variables, self.update, self.snapshot = variables, update, snapshot
        self.is_current = False
        self.is_kept_by_objectives = True  # in every evaluation of a loss
        self.is_left_out = False  # whether a loss is evaluated without it
        self._present_values = PresentValues(variables)
        self._comparison = _Comparison(b"", b"", True)

    def present(self) -> tf.Tensor:
        """The values of the variables in one vector that begins with a zero.

        So an update without variables is stale until it has run once: a stale snapshot is NaN.
        """
        values = [tf.reshape(tf.cast(v.value, tf.float64), [-1]) for v in self.variables]
        return tf.concat([tf.zeros([1], tf.float64), *values], axis=0)

    def invalidate(self) -> None:
        self.match_size()
        self.snapshot.assign(tf.fill([self.size()], tf.constant(float("nan"), tf.float64)))

    def size(self) -> int:
        return 1 + sum(v.shape.num_elements() for v in self.variables)

    def match_size(self) -> None:
        """Marks the state as stale if a variable has become a vector since (`Parameter.spread`)."""
        with tf.init_scope():
            if len(self.snapshot.numpy()) != self.size():
                is_weight = isinstance(self.snapshot, HostVariable)
                replace = self.snapshot.replace if is_weight else self.snapshot.assign
                replace(np.full(self.size(), np.nan))

    def run(self) -> None:
        """Recomputes the state; where that fails, the state stays marked as stale."""
        self.invalidate()
        if tf.executing_eagerly():
            self.update()
            self.snapshot.assign(self.present())
            return
        # TensorFlow orders operations on one variable, not on different ones: without the control
        # dependencies the snapshot could be taken although the update has failed.
        graph = tf.compat.v1.get_default_graph()
        before = len(graph.get_operations())
        self.update()
        done = graph.get_operations()[before:]
        if done:  # otherwise the update computes nothing
            with tf.control_dependencies(done):
                self.snapshot.assign(self.present())

    def stored(self) -> np.ndarray:
        """The values of the variables when the update last ran, eagerly."""
        snapshot = self.snapshot
        return snapshot.host() if isinstance(snapshot, HostVariable) else snapshot.numpy()

    def is_stale(self) -> bool | tf.Tensor:
        if tf.executing_eagerly():  # in a tenth of the time
            return self.comparison().differ
        self.match_size()
        return tf.reduce_any(tf.not_equal(tf.convert_to_tensor(self.snapshot), self.present()))

    def comparison(self) -> _Comparison:
        """The comparison of the variables with the values of the state, eagerly."""
        present, of_state = self._present_values.read(), self.stored().tobytes()
        comparison = self._comparison  # one object, as other threads may compare too
        if present == comparison.present and of_state == comparison.of_state:
            return comparison
        # NaN, the mark of stale state, differs from everything.
        numbers = np.concatenate([_ZERO, self._present_values.in_double(present)])
        differ = not np.array_equal(np.frombuffer(of_state), numbers)
        comparison = self._comparison = _Comparison(present, of_state, differ)
        return comparison

    def run_if_stale(self) -> None:
        if (
            self.is_current or keras_private.in_symbolic_scope()
        ):  # Keras infers shapes, and no values exist
            return
        if in_stateless_scope():  # state is an argument of the call: compute it there
            self.update()
            return

        def run() -> tf.Tensor:
            self.run()
            return tf.constant(True)

        stale = self.is_stale()
        if not tf.executing_eagerly():
            tf.cond(stale, run, lambda: tf.constant(False))
        elif stale:
            self.run()


class _Registry:
    """The updates of one layer, in an object that Keras does not search for variables."""

    def __init__(self) -> None:
        self.updates: list[_PostUpdate] = []


def _updates(layer: keras.layers.Layer) -> list[_PostUpdate]:
    registry = getattr(layer, "_post_updates", None)
    return [] if registry is None else registry.updates


def register_post_update(
    layer: keras.layers.Layer,
    variables: Iterable[keras.Variable],
    update: Callable[[], None],
    state_is_weights: bool = True,
) -> None:
    """Registers a function that recomputes state which a layer derives from variables.

    Call it in `__init__` or `build` of the layer, once for each piece of state; several are run in
    the order of registration. The layer gains a snapshot of the variables, NaN until the state has
    been computed. The snapshot is stored in the same way as the state: if the state is in weights,
    the snapshot is a non-trainable weight too, and a model that is loaded with both is current.

    Args:
        layer: The layer that keeps the state.
        variables: The Keras variables, real and of any layer, that the state depends on, trainable
            or not. They must exist: build the layers that own them first.
        update: Function without arguments, made of TensorFlow operations, that recomputes the
            state and writes it with `assign`. It runs in eager mode, in graphs, under XLA and in
            each replica of a `tf.distribute` strategy. Where it raises, the state stays stale.
            Where it depends on a condition, such as whether there are data, that must be decided
            at run time (`tf.cond`, a variable of size zero): a graph runs what was traced earlier.
        state_is_weights: Whether the state is kept in Keras weights. False for a state in plain
            `tf.Variable`s, of a size that may change: `get_weights`, `set_weights`, weight files
            and callbacks that restore weights leave out both the state and its snapshot. Keep it
            where TensorFlow finds it, as an attribute of the layer or of a `tf.Module` in it.

    Raises:
        TypeError: Something in `variables` is not a real Keras variable.
        ValueError: The layer is already built, and can take no further weight.

    Example:
        >>> import keras, tensorflow as tf
        >>> from cgp.training import refresh, register_post_update
        >>> class Squared(keras.layers.Layer):
        ...     def __init__(self):
        ...         super().__init__(dtype="float64")
        ...         self.root = self.add_weight(shape=(), initializer="ones")
        ...         self.square = self.add_weight(shape=(), initializer="zeros", trainable=False)
        ...         register_post_update(self, [self.root], self._update)
        ...
        ...     def _update(self):
        ...         self.square.assign(self.root.value ** 2)
        ...
        ...     def call(self, x):
        ...         refresh(self)
        ...         return self.square * x
        >>> layer = Squared()
        >>> layer.root.assign(3.0)
        <tf.Tensor: shape=(), dtype=float64, numpy=3.0>
        >>> float(layer(tf.constant(2.0, tf.float64)))
        18.0
    """
    variables = tuple(variables)
    check_variables(variables)
    stale = np.full(1 + sum(v.shape.num_elements() for v in variables), np.nan)
    name = f"post_update_snapshot_{len(_updates(layer))}"
    with tf.init_scope():
        if state_is_weights:
            make = functools.partial(HostVariable, stale.shape, "float64", name)
            snapshot = keras_private.add_variable(layer, make)
            snapshot.assign(stale)
        else:
            snapshot = tf.Variable(stale, trainable=False, name=name, shape=[None])
    if not state_is_weights:  # where TensorFlow's checkpoints and exports find it, as the state
        setattr(layer, f"_{name}", snapshot)
    if getattr(layer, "_post_updates", None) is None:
        layer._post_updates = _Registry()
    layer._post_updates.updates.append(_PostUpdate(variables, update, snapshot))


def leave_out_of_loss(layer: keras.layers.Layer) -> None:
    """Lets every `Objective` evaluate its loss without the states of a layer.

    The layer must compute its loss without them where `is_left_out_of_loss`. They are recomputed
    after the fit, or where something else reads them.
    """
    for update in _updates(layer):
        update.is_kept_by_objectives = False


def is_left_out_of_loss(layer: keras.layers.Layer) -> bool:
    """Whether an `Objective` is being evaluated without the states of a layer."""
    return any(update.is_left_out for update in _updates(layer))


def check_variables(variables: Iterable[keras.Variable]) -> None:
    """Raises a TypeError for variables that no update can depend on."""
    for v in variables:
        if not isinstance(v, keras.Variable):
            raise TypeError(f"variables must be Keras variables, got {v!r} of {type(v)}")
        if v.dtype.startswith("complex"):
            raise TypeError(
                f"{v.path} is {v.dtype}: keep complex weights as real ones with a last axis of two"
            )


def unregister_post_update(layer: keras.layers.Layer, update: Callable[[], None]) -> None:
    """Takes back the registration of an update whose state is in weights, with its snapshot."""
    registry = layer._post_updates
    for registered in [u for u in registry.updates if u.update == update]:
        registry.updates.remove(registered)
        keras_private.untrack_variable(layer, registered.snapshot)


def refresh(layer: keras.layers.Layer) -> None:
    """Recomputes the state of a layer whose variables have changed since it was computed.

    The layer calls it before it reads its state, in `call` and in other methods. It costs a
    comparison where nothing has changed.

    Args:
        layer: The layer; nothing happens without registered updates. Sublayers are not refreshed,
            as they call it themselves.

    Raises:
        Exception: Whatever an update raises; its state is then still stale.
    """
    if not isinstance(layer, keras.layers.Layer):
        raise TypeError(f"layer must be a layer of Keras, whose state is renewed, got {layer!r}")
    for update in _updates(layer):
        update.run_if_stale()


def invalidate(layer: keras.layers.Layer) -> None:
    """Marks the state of a layer as stale, so that the next `refresh` recomputes it.

    For a layer whose state also depends on data, when these are replaced.

    Args:
        layer: The layer that keeps the state.
    """
    for update in _updates(layer):
        update.invalidate()


def is_stale(layer: keras.layers.Layer) -> bool:
    """Whether, eagerly, a state of a layer would be recomputed by `refresh`."""
    return any(bool(update.is_stale()) for update in _updates(layer))


def confirm(layer: keras.layers.Layer) -> None:
    """Marks the state of a layer as current, for a layer that has just computed it itself.

    Args:
        layer: The layer that keeps the state.
    """
    for update in _updates(layer):
        update.match_size()
        update.snapshot.assign(update.present())


def current_values(layer: keras.layers.Layer) -> bytes | None:
    """The values from which the states of a layer were computed; None where one is stale, eagerly.

    As bytes, of the arrays of `values_of_states`.
    """
    compared = []
    for update in _updates(layer):
        comparison = update.comparison()
        if comparison.differ:
            return None
        compared.append(comparison.of_state)
    return b"".join(compared)


def values_of_states(layer: keras.layers.Layer) -> list[np.ndarray]:
    """The values from which states were computed, to be given back to `set_values_of_states`."""
    return [update.stored().copy() for update in _updates(layer)]


def set_values_of_states(layer: keras.layers.Layer, values: list[np.ndarray]) -> None:
    """Says from which values of variables the states of a layer have been computed."""
    for update, a in zip(_updates(layer), values, strict=True):
        update.match_size()
        if len(a) == update.size():  # else a variable has become a vector, and the state is stale
            update.snapshot.assign(a)


def snapshot(variables: Iterable[keras.Variable]) -> bytes:
    """The values of variables as bytes, to compare with later ones."""
    return PresentValues(variables).read()


class _Handles(NamedTuple):
    """Variables of TensorFlow with the arguments of the op that reads them together."""

    variables: tuple
    handles: list[Any] | None
    """None where one op cannot read them."""
    dtypes: Sequence[tf.DType]


class PresentValues:
    """The present values of the same variables, read again and again by one op.

    Whoever writes a variable, through Keras or past it, is noticed by its value alone.

    Args:
        variables: Keras variables.

    Example:
        >>> import keras
        >>> from cgp.training.post_updates import PresentValues
        >>> scale = keras.Variable(1.0, dtype="float64")
        >>> values = PresentValues([scale])
        >>> before = values.read()
        >>> _ = scale.value.assign_add(1.0)
        >>> values.read() == before
        False
    """

    def __init__(self, variables: Iterable[keras.Variable]):
        self._watched = tuple(variables)
        self._cached = _Handles((), None, ())

    def read(self) -> bytes:
        """The values, one after another, each in its own dtype; eagerly."""
        if in_stateless_scope():  # which may have other values
            return self._read_each()
        variables, cached = tuple(map(stored, self._watched)), self._cached
        if len(variables) != len(cached.variables) or not all(
            map(is_, variables, cached.variables)
        ):
            cached = self._cached = self._handles_of(variables)
        if cached.handles:
            try:
                names = eager_context(), "_ReadVariablesOp", None
                return b"".join(execute_op(*names, cached.handles, "dtypes", cached.dtypes))
            except tf.errors.OpError:  # they are on several devices; other errors come again below
                pass
        return self._read_each()

    def _handles_of(self, variables: tuple) -> _Handles:
        # Some have a copy on each device, or their values in an array.
        is_split = any(isinstance(v, tf.distribute.DistributedValues) for v in variables)
        is_split |= any(isinstance(v, HostVariable) for v in self._watched)
        handles = None if is_split else [v.handle for v in variables]
        return _Handles(variables, handles, [v.dtype for v in variables])

    def _read_each(self) -> bytes:
        return b"".join(v.value.numpy().tobytes() for v in self._watched)

    def in_double(self, values: bytes) -> np.ndarray:
        """The numbers that `read` returned as bytes, `[N]`, float64."""
        numbers, start = [np.zeros(0)], 0
        for v in self._watched:
            dtype = np.dtype(tf.as_dtype(stored(v).dtype).as_numpy_dtype)
            count = v.shape.num_elements()
            numbers.append(np.frombuffer(values, dtype, count, start).astype(np.float64))
            start += count * dtype.itemsize
        return np.concatenate(numbers)


def refresh_all(
    model: keras.layers.Layer, variables: Iterable[keras.Variable] | None = None
) -> None:
    """Refreshes a layer and every layer inside it, each once.

    With `variables`, only updates that depend on one of these are considered.
    """
    for update in _updates_inside(model, variables):
        update.run_if_stale()


@contextlib.contextmanager
def all_refreshed(model: keras.layers.Layer, variables: Iterable[keras.Variable]) -> Iterator[None]:
    """A context in which all states of a loss are current, so that layers need not refresh them.

    A graph made in it has each update once, where a layer that calls `refresh` would add another.
    The variables must not change inside. States that are left out of the loss are refreshed by
    layers that read them all the same.
    """
    updates = list(_updates_inside(model, variables))
    try:
        for update in updates:
            if update.is_kept_by_objectives:
                update.run_if_stale()
            update.is_current = update.is_kept_by_objectives
            update.is_left_out = not update.is_kept_by_objectives
        yield
    finally:
        for update in updates:
            update.is_current = update.is_left_out = False


def _updates_inside(
    model: keras.layers.Layer, variables: Iterable[keras.Variable] | None
) -> Iterator[_PostUpdate]:
    """The updates of a layer and of all inside it; arguments as for `refresh_all`."""
    ids = None if variables is None else {id(v) for v in variables}
    for layer in keras_private.flatten_layers(model):
        for update in _updates(layer):
            if ids is None or any(id(v) in ids for v in update.variables):
                yield update
