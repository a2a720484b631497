"""Shared layers that survive serialisation: a layer used by several stays one layer.

Keras serialises a layer that two others hold twice, and deserialises it as two. Here the owner of
the shared variables writes an identity, `shared_id`, into its config, and within a sharing scope
the same identity gives the same object. `cgp.Model` and `cgp.Functional` open the scope themselves,
so that a consumer needs only what Keras requires of it anyway:

    @keras.saving.register_keras_serializable(package="example")
    class Consumer(keras.layers.Layer):
        def __init__(self, kernel, dtype="float64", **kwargs):
            super().__init__(dtype=dtype, **kwargs)
            self.kernel = kernel

        def get_config(self):
            kernel = keras.saving.serialize_keras_object(self.kernel)
            return {**super().get_config(), "kernel": kernel}

        @classmethod
        def from_config(cls, config):
            kernel = keras.saving.deserialize_keras_object(config.pop("kernel"))
            return cls(kernel=kernel, **config)

`cgp.load_model` opens it for models of every kind. Around anything else, such as the `from_config`
of a `keras.Sequential` or of a bare layer, open it yourself: `with cgp.sharing_scope(): ...`.

`trainable = False` on one consumer freezes the shared variables for all others.
"""

import contextlib
import functools
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import keras

from cgp.training.keras_private import completed_by_keras

_scope = threading.local()  # .memo: shared_id -> the object it stands for, while a scope is open


@contextlib.contextmanager
def sharing_scope() -> Iterator[None]:
    """A context in which the configs of one shared layer are deserialised as one layer.

    An inner scope joins the outer one; each thread has its own.

    Example:
        >>> import cgp, keras
        >>> from cgp.training import Shareable, sharing_scope
        >>> class Owner(Shareable, keras.layers.Layer):
        ...     pass
        >>> config = Owner().get_config()
        >>> with sharing_scope():
        ...     first, second = Owner.from_config(config), Owner.from_config(config)
        >>> first is second, first is Owner.from_config(config)
        (True, False)
    """
    outer = getattr(_scope, "memo", None)
    _scope.memo = {} if outer is None else outer
    try:
        yield
    finally:
        _scope.memo = outer


class Shareable:
    """Mixin for layers that own variables and are handed to others; put it before the layer class.

    It adds `shared_id` to the config, and makes `from_config` use the sharing scope. A class with
    its own `from_config` (an owner made of owners) needs nothing further: it receives a config
    without the `shared_id`, and is not called for a layer that the scope already has.

    A layer made from a config gets a new identity. No two live layers have the same one: they would
    be merged the next time they are saved in one model.
    """

    @property
    def shared_id(self) -> str:
        """The identity of this layer, created when it is first read."""
        if getattr(self, "_shared_id", None) is None:
            self._shared_id = uuid.uuid4().hex
        return self._shared_id

    @completed_by_keras  # otherwise the arguments of the constructor would be missing
    def get_config(self) -> dict[str, Any]:
        """Returns the config of the layer, with its `shared_id`."""
        return {**super().get_config(), "shared_id": self.shared_id}  # type: ignore[misc]

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Makes the layer of a config, or finds it in the sharing scope."""
        return _revive(cls, super().from_config, config)  # type: ignore[misc]

    def load_own_variables(self, store: Any) -> None:
        """Loads the weights of the layer.

        Raises:
            ValueError: The file holds no weights for this layer, most often because it was saved as
                one shared layer and has been deserialised as two.
        """
        try:
            super().load_own_variables(store)  # type: ignore[misc]
        except ValueError as error:
            if len(store.keys()) > 0 or getattr(self, "_refused_values", None):
                raise
            name = self.name  # type: ignore[attr-defined]
            raise ValueError(
                f"the file holds no weights for the layer {name!r}. If the layer was shared when "
                "it was saved, load the model with cgp.load_model(path), or inside a "
                "cgp.sharing_scope(), which shares it again; otherwise the file is of another model"
            ) from error

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        wrap_from_config(cls, _revive)


def wrap_from_config(cls: Any, around: Callable) -> None:
    """Replaces a `from_config` that a class defines itself by `around(cls, make, config)`.

    `make` is the function of a config that it replaces. An inherited `from_config` stays.
    """
    if "from_config" not in cls.__dict__:
        return
    original = cls.__dict__["from_config"].__func__

    @functools.wraps(original)
    def from_config(cls: Any, config: dict, *args: Any, **kwargs: Any) -> Any:
        return around(cls, lambda config: original(cls, config, *args, **kwargs), config)

    cls.from_config = classmethod(from_config)


def _revive(cls: Any, make: Callable[[dict], Any], config: dict) -> Any:
    memo, shared_id = getattr(_scope, "memo", None), config.get("shared_id")
    config = {key: entry for key, entry in config.items() if key != "shared_id"}
    if shared_id is None or memo is None:  # an outer from_config has removed it
        return make(config)
    if shared_id not in memo:
        memo[shared_id] = make(config)
    layer = memo[shared_id]
    if not isinstance(layer, cls):
        kinds = f"a {type(layer).__name__} and for a {cls.__name__}"
        remedy = "the config has been edited, give each layer its own shared_id"
        raise ValueError(f"shared_id {shared_id} stands for {kinds}: {remedy}")
    return layer


def clone_model(model: keras.Model) -> keras.Model:
    """Copies a model, with fresh weights; layers that it shared are shared in the copy too.

    `keras.models.clone_model` gives each consumer in a plain Keras model its own kernel.

    Args:
        model: A `cgp.Model`, `cgp.Functional`, or Keras model of any kind. A class of your own
            needs `get_config`.

    Returns:
        A model of the same class, compiled if `model` was.

    Raises:
        TypeError: Not a model.
    """
    if not isinstance(model, keras.layers.Layer):  # Keras returns anything else as it is
        raise TypeError(f"model must be a Keras model, got {model!r}")
    with sharing_scope():
        return keras.models.clone_model(model)
