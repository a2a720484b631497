"""The model classes of cgp, to subclass and to build from tensors.

There are two because Keras rewrites the bases of a class that has once been built from tensors, and
no subclass of it works from then on.
"""

from contextlib import AbstractContextManager
from typing import Any

import keras

from cgp.linalg.arguments import is_complex
from cgp.training import keras_private
from cgp.training.complex_graphs import check_call, check_graph, check_inputs
from cgp.training.sharing import sharing_scope
from cgp.training.trainer import Trainer
from cgp.training.unknown_arguments import names_told


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
            `cgp.training.complex_graphs`, which are exact: the others round complex128 to
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
        """Sees the values of layers that have declared another dtype, when the model first runs."""
        if not any(isinstance(a, keras.KerasTensor) for a in arguments):
            check_call(operation, arguments)
