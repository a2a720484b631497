"""The model classes of cgp, to subclass and to build from tensors.

There are two because Keras rewrites the bases of a class that has once been built from tensors, and
no subclass of it works from then on.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import keras

from cgp.linalg.arguments import is_complex
from cgp.training import keras_private
from cgp.training.layer_arguments import names_told
from cgp.training.sharing import sharing_scope
from cgp.training.trainer import Trainer


@keras.saving.register_keras_serializable(package="cgp")
class Model(Trainer, keras.Model):
    """A Keras model to subclass, for layers with post-gradient updates and data in float64.

    Over `keras.Model`:

    - `train_step` runs the registered post updates (`cgp.register_post_update`) after the gradient
      step, `fit` once more at its end;
    - NumPy arrays reach `call` in their own dtype, float64 and complex128 included;
    - `compile(optimizer=cgp.optimizers.LBFGS())` lets `fit` run SciPy's L-BFGS;
    - layers that share a kernel go on sharing it when loaded, cloned, pickled or copied.

    The dtype is float64 whatever Keras's global floatx. A subclass whose `call` takes complex data
    should define `build`: Keras builds a loaded model by tracing `call` on float32.

    Args:
        **kwargs: `name`, `dtype`, `trainable`, as for `keras.Model`.

    Raises:
        TypeError: Construction from input and output tensors: that is `cgp.Functional`.

    Example:
        >>> import keras, numpy as np, tensorflow as tf, cgp
        >>> class Mean(cgp.Model):
        ...     def __init__(self, **kwargs):
        ...         super().__init__(**kwargs)
        ...         self.mean = self.add_weight(shape=(), initializer="zeros")
        ...
        ...     def call(self, x):
        ...         self.add_loss(tf.reduce_mean((x - self.mean) ** 2))
        ...         return x - self.mean
        >>> model = Mean()
        >>> model.compile(optimizer=cgp.optimizers.LBFGS())
        >>> history = model.fit(np.array([1.0, 2.0, 6.0]), verbose=0)
        >>> print(f"{float(model.mean):.6f}")
        3.000000
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if args or "inputs" in kwargs or "outputs" in kwargs:
            raise TypeError(
                "cgp.Model is to be subclassed: build a model from input and output tensors with "
                "cgp.Functional(inputs, outputs)"
            )
        kwargs["dtype"] = kwargs.get("dtype") or "float64"
        with names_told(type(self)):
            super().__init__(**kwargs)


@keras.saving.register_keras_serializable(package="cgp")
class Functional(Trainer, keras_private.FunctionalModel):
    """A Keras functional model with all that `cgp.Model` adds.

    Give the inputs their dtype, `keras.Input(shape, dtype="float64")` or `"complex128"`: Keras
    casts what it is fed to the dtype of the input, float32 unless told otherwise.

    Args:
        inputs: `keras.Input` tensor, or structure of them.
        outputs: Output tensor, or structure of them.
        name: Name of the model.
        **kwargs: `trainable`.

    Raises:
        TypeError: A layer or operation of Keras that is fed with complex values, but for those of
            `cgp.training.model`, which are exact: the others round complex128 to
            complex64, drop imaginary parts, or fail in training. Where a layer of your own, or
            a `Lambda`, declares a real dtype for complex results, the first run finds it out. On a
            call, complex data for an input that is real: Keras would drop the imaginary part.

    Example:
        >>> import keras, numpy as np, cgp
        >>> x = keras.Input((1,), dtype="float64")
        >>> model = cgp.Functional(x, keras.layers.Dense(1, dtype="float64")(x))
        >>> model.compile(keras.optimizers.SGD(0.1), keras.losses.MeanSquaredError(dtype="float64"))
        >>> history = model.fit(np.ones((8, 1)), np.ones((8, 1)), epochs=2, verbose=0)
        >>> len(history.history["loss"])
        2
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Keras up to 3.13 serialises only a class whose constructor has this signature.
        super().__init__(*args, **kwargs)
        self.dtype_policy = keras.DTypePolicy("float64")
        check_graph(self, list(map(is_complex, self.inputs)))

    def call(
        self, inputs: Any, training: bool | None = None, mask: Any = None, **kwargs: Any
    ) -> Any:
        """Runs the graph of layers."""
        check_inputs(self, map(is_complex, keras.tree.flatten(inputs)))
        return super().call(inputs, training=training, mask=mask, **kwargs)

    def graph_context(self) -> AbstractContextManager:
        """The sharing scope, as Keras clones a functional model on a run through its graph."""
        return sharing_scope()

    def check_call(self, operation: Any, arguments: list) -> None:
        """Checks the values of layers that have declared another dtype, on the first run."""
        if not any(isinstance(a, keras.KerasTensor) for a in arguments):
            check_call(operation, arguments)


# --- complex values in a graph of layers and operations of Keras ----------------------------------

# Keras knows complex64 alone: operations that promote dtypes, as `add` and `matmul`, round to it;
# `cast` to a real dtype drops imaginary parts; noise and pooling have no complex kernels. What only
# moves values, or repeats them, is exact. A layer of the user, a `Lambda` too, is trusted.
KEEPING_LAYERS = frozenset(
    """Concatenate Cropping1D Cropping2D Cropping3D Flatten Identity Permute RepeatVector Reshape
    UpSampling1D UpSampling3D ZeroPadding1D ZeroPadding2D ZeroPadding3D""".split()  # noqa: SIM905
)
"""Layers of Keras that keep complex values as they are; also in a `TimeDistributed`."""

REAL_OPERATIONS = frozenset({"Absolute", "Imag", "Real"})
"""Operations whose results are real, and exact, though Keras may declare complex ones."""

KEEPING_OPERATIONS = REAL_OPERATIONS | frozenset(
    """Concatenate Conjugate Diagonal ExpandDims Flip GetItem Moveaxis Negative Pad Ravel Repeat
    Reshape Roll Split Squeeze Stack StopGradient Swapaxes Take Tile Transpose""".split()  # noqa: SIM905
)
"""Operations of `keras.ops`, and of tensors as `a[:, -1]`, that are exact for complex values."""


def check_inputs(model: Any, are_complex: Iterable[bool]) -> None:
    """Raises a TypeError where a real input of a functional model is fed with complex values."""
    for fed, declared in zip(are_complex, model.inputs, strict=False):
        if fed and not is_complex(declared):
            raise TypeError(
                f"input {declared.name!r} is {declared.dtype} but was given complex data: "
                'declare it with keras.Input(..., dtype="complex128")'
            )


def check_graph(model: Any, are_complex: Sequence[bool]) -> list[bool]:
    """Raises where a functional model would round complex values or drop a part of them.

    What tensors declare is not enough: most layers of Keras declare their own dtype for whatever
    they return. Returns whether each of its outputs is complex, from whether each of its inputs is.
    """
    check_inputs(model, are_complex)
    complex_by_id = dict(zip(map(id, model.inputs), are_complex, strict=False))

    def holds_complex(leaf: Any) -> bool:
        return complex_by_id.get(id(leaf), is_complex(leaf))

    for operation, arguments, outputs in keras_private.calls_in_graph(model):
        flags = check_call(operation, arguments, holds_complex)
        if flags is None:  # of real values
            flags = list(map(is_complex, outputs))
            if any(flags) and _is_of_keras(operation):
                if not any(map(is_complex, arguments)):  # as by `cast`
                    raise TypeError(_refusal(operation))
                flags = [False]  # declared so because a real argument was, as by `Absolute`
        flags = flags * len(outputs) if len(flags) == 1 else flags
        complex_by_id |= zip(map(id, outputs), flags, strict=True)
    return list(map(holds_complex, model.outputs))


def check_call(
    operation: Any, arguments: Sequence[Any], holds_complex: Callable[[Any], bool] = is_complex
) -> list[bool] | None:
    """Raises where an operation of Keras would round complex values or mix them with real ones.

    Returns:
        Whether its outputs are complex, one by one or all alike; None where they are as declared.
    """
    tensors = [a for a in arguments if hasattr(a, "dtype")]
    graph = keras_private.graph_of(operation)
    if graph is not None:
        return check_graph(graph, list(map(holds_complex, tensors)))
    if not _is_of_keras(operation) or not any(map(holds_complex, arguments)):
        return None
    if isinstance(operation, keras.layers.TimeDistributed):
        return check_call(operation.layer, arguments, holds_complex)
    is_layer, name = isinstance(operation, keras.layers.Layer), type(operation).__name__
    if name not in (KEEPING_LAYERS if is_layer else KEEPING_OPERATIONS):
        raise TypeError(_refusal(operation))
    if any("float" in str(a.dtype) and not holds_complex(a) for a in tensors):
        raise TypeError(
            f"{operation.name!r}, {name} of Keras, is given complex values beside real ones, for "
            "which Keras takes complex64: make all of them complex before, as by keras.layers."
            'Lambda(tf.cast, dtype="complex128", arguments={"dtype": "complex128"})'
        )
    return [is_layer or name not in REAL_OPERATIONS]


def _is_of_keras(operation: Any) -> bool:
    is_trusted = isinstance(operation, keras.layers.Lambda)
    return type(operation).__module__.startswith("keras.") and not is_trusted


def _refusal(operation: Any) -> str:
    return (
        f"{operation.name!r}, {type(operation).__name__} of Keras, rounds complex values to "
        "complex64, drops a part of them, or takes none. Where it may treat real and imaginary "
        "parts as features, put cgp.layers.RealImag() before it, and cgp.layers.ToComplex() after "
        "it if complex values are to go on. Otherwise compute with TensorFlow, in a layer of your "
        'own, or by keras.layers.Lambda(function, dtype="complex128") of a function made of tf.*'
    )
