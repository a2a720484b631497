"""Complex values in a graph of Keras's layers and operations: which keep them, and which do not.

Keras knows complex64 alone: `add`, `matmul` and what else promotes dtypes rounds complex128 to it;
`cast` to a real dtype drops imaginary parts; noise and pooling have no complex kernels. What only
moves values, or repeats them, is exact. A layer of the user's own, a `Lambda` too, is trusted.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import keras

from cgp.linalg.arguments import is_complex
from cgp.training import keras_private

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
    """Raises a TypeError where an input that is real is fed with complex values.

    Args:
        model: A functional model.
        are_complex: Whether the values for each of its inputs are complex.
    """
    for fed, declared in zip(are_complex, model.inputs, strict=False):
        if fed and not is_complex(declared):
            raise TypeError(
                f"input {declared.name!r} is {declared.dtype} but was given complex data: "
                'declare it with keras.Input(..., dtype="complex128")'
            )


def check_graph(model: Any, are_complex: Sequence[bool]) -> list[bool]:
    """Raises where a functional model would round complex values or drop a part of them.

    What tensors declare is not enough: most layers of Keras declare their own dtype for whatever
    they return.

    Args:
        model: The model.
        are_complex: Whether the values for each of its inputs are complex.

    Returns:
        Whether each of its outputs is complex.

    Raises:
        TypeError: As `check_call`; an input of a model inside that is real.
    """
    check_inputs(model, are_complex)
    pairs = zip(model.inputs, are_complex, strict=False)
    complex_by_id = {id(tensor): fed for tensor, fed in pairs}

    def holds_complex(leaf: Any) -> bool:
        return complex_by_id[id(leaf)] if id(leaf) in complex_by_id else is_complex(leaf)

    for operation, arguments, outputs in keras_private.calls_in_graph(model):
        flags = check_call(operation, arguments, holds_complex)
        if flags is None:  # of real values
            flags = list(map(is_complex, outputs))
            if any(flags) and _is_of_keras(operation):
                if not any(map(is_complex, arguments)):  # as by `cast`
                    raise TypeError(_refusal(operation))
                flags = [False]  # declared so because a real argument was, as by `Absolute`
        flags = flags * len(outputs) if len(flags) == 1 else flags
        pairs = zip(outputs, flags, strict=True)
        complex_by_id |= {id(tensor): fed for tensor, fed in pairs}
    return list(map(holds_complex, model.outputs))


def check_call(
    operation: Any, arguments: Sequence[Any], holds_complex: Callable[[Any], bool] = is_complex
) -> list[bool] | None:
    """Raises where an operation of Keras would round complex values or drop a part of them.

    Args:
        operation: A layer, or an operation.
        arguments: What it is called on, flat.
        holds_complex: Tells whether an argument is complex.

    Returns:
        Whether its outputs are complex, one by one or all alike; None where they are as declared.

    Raises:
        TypeError: It does not keep complex values, or mixes them with real ones; see `check_graph`
            of a model.
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
