"""Conversion of NumPy arrays to `tf.data` datasets in their own dtype.

Keras's own adapter casts every float array to the global floatx: it rounds the float64 value
1 + 1e-12 to 1, and a Julian date loses hours. It takes datasets as they are. These functions make
the dataset that Keras would make, without the cast. Beside them stand the checks of the arguments
that the methods `fit` of all models share.
"""

import math
import sys
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.linalg.arguments import check_whole
from cgp.training.optimizers import LBFGS


def are_arrays(*structures: Any) -> bool:
    """Tells whether all leaves are dense arrays, tensors or None, and at least one is not None."""
    leaves = [leaf for leaf in keras.tree.flatten(structures) if leaf is not None]
    return bool(leaves) and not any(
        isinstance(leaf, tf.RaggedTensor | tf.SparseTensor)  # left to Keras
        or not (tf.is_tensor(leaf) or hasattr(leaf, "__array__"))
        for leaf in leaves
    )


def compile_as_usual(model: keras.Model) -> None:
    """Compiles a model that has not been compiled, with the optimizer that is its default."""
    if not model.compiled:
        model.compile()


def check_epochs(epochs: int | None, initial_epoch: int) -> None:
    """Raises for a number of epochs that leaves no iteration after `initial_epoch`; None is any."""
    check_whole(initial_epoch, "initial_epoch", least=0)
    if epochs is None:
        return
    if not isinstance(epochs, int | float | np.number) or isinstance(epochs, bool):
        raise TypeError(f"epochs must be a whole number, got {epochs!r}")
    if epochs != int(epochs) or epochs <= initial_epoch:
        expected = "a larger whole number was expected"
        raise ValueError(f"epochs={epochs} leaves no iteration after {initial_epoch}: {expected}")


def where_watched(verbose: int | str) -> int | str:
    """`verbose`, with "auto" silent unless the output is a terminal or a notebook.

    A bar redraws its line, which a file or a pipe keeps a thousand times over.

    Example:
        >>> from cgp.training.batches import where_watched
        >>> where_watched(1)
        1
    """
    if verbose not in (0, 1, 2, "auto"):
        raise ValueError(f'verbose must be 0, 1, 2 or "auto", got {verbose!r}')
    output = sys.stdout
    if verbose != "auto" or type(output).__module__.startswith("ipykernel."):  # a notebook
        return verbose
    return verbose if hasattr(output, "isatty") and output.isatty() else 0


def check_restarts(restarts: Any, optimizer: Any) -> None:
    """Raises unless a fit under this optimizer can be started so many times."""
    check_whole(restarts, "restarts")
    if restarts > 1 and not isinstance(optimizer, LBFGS):
        raise ValueError(
            f"restarts={restarts} needs compile(optimizer=cgp.optimizers.LBFGS()), whose fits end "
            f"at an optimum; the optimizer is {type(optimizer).__name__}"
        )


def check_end(dataset: tf.data.Dataset) -> None:
    """Raises a ValueError for a dataset that repeats without end, whose losses have no sum."""
    if int(dataset.cardinality()) == tf.data.INFINITE_CARDINALITY:
        why = "and the dataset has no end: leave out its repeat()"
        raise ValueError(f"LBFGS needs the loss of all the data at once, {why}")


def require_one_replica(model: keras.Model, computation: str) -> None:
    """Raises if a computation needs data together that several replicas would split."""
    count = model.distribute_strategy.num_replicas_in_sync
    if count > 1:
        raise ValueError(
            f"{computation} needs all the data at once and runs on one replica, not on {count}: "
            "build the model outside the strategy"
        )


def mean_over_replicas(count: tf.Tensor) -> tf.Tensor:
    """The mean of a count over replicas, so that losses add up to the loss of the whole batch."""
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return count
    return context.all_reduce(tf.distribute.ReduceOp.MEAN, count)


def number_of_batches(data: Any, steps: int | None) -> int:
    """The number of batches in a dataset; for an endless one, `steps`, the batches of one pass.

    A dataset of a generator does not know how many it has: counting them takes one more pass.
    """
    cardinality = 0
    if isinstance(data, tf.data.Dataset):
        cardinality = int(data.cardinality())  # negative where it is not known, or infinite
        if cardinality == tf.data.UNKNOWN_CARDINALITY and steps is None:
            cardinality = int(data.reduce(np.int64(0), lambda count, *batch: count + 1))
    elif isinstance(data, keras.utils.PyDataset):
        cardinality = data.num_batches or 0
    return cardinality if cardinality > 0 else steps or 1


def pack(x: Any, y: Any = None, sample_weight: Any = None) -> tuple[tuple, int]:
    """Converts structures of arrays `[samples, ...]` to tensors, in their own dtype.

    Returns:
        `((x, y, sample_weight), samples)`: the tuple, without trailing parts that are None, and the
        number of samples. One array `sample_weight` is for all of `y`.
    """
    if sample_weight is not None and y is None:
        raise ValueError("sample_weight weights the loss of targets, and there is no y")
    if sample_weight is not None and keras.tree.is_nested(y) != keras.tree.is_nested(sample_weight):
        # As in Keras: one weight for each sample, the same for all outputs
        sample_weight = keras.tree.map_structure(lambda _: sample_weight, y)
    data = {"x": x, "y": y, "sample_weight": sample_weight}
    if any(np.ndim(a) == 0 for a in keras.tree.flatten(data) if a is not None):
        shapes = _describe(data, lambda a: a.shape)
        raise ValueError(f"each array must be [samples, ...], got shapes {shapes}")
    lengths = {a.shape[0] for a in keras.tree.flatten(data) if a is not None}
    if len(lengths) > 1:
        numbers = _describe(data, lambda a: a.shape[0])
        raise ValueError(f"all arrays must hold the same number of samples, got {numbers}")
    x, y, sample_weight = (
        keras.tree.map_structure(_to_tensor, keras.tree.lists_to_tuples(arrays))
        for arrays in (x, y, sample_weight)
    )
    # A tuple around x alone too: x may be a tuple itself, which would be taken for (x, y)
    targets = (a for a in (y, sample_weight) if a is not None)
    return (x, *targets), int(lengths.pop())


def _to_tensor(a: Any) -> Any:
    if np.ma.is_masked(a):
        raise ValueError("an array has masked elements, which Keras would train on: fill them")
    return a if a is None or tf.is_tensor(a) else tf.convert_to_tensor(np.asarray(a))


def _describe(data: dict, property_of: Callable) -> str:
    return ", ".join(
        f"{name}: {', '.join(str(property_of(a)) for a in keras.tree.flatten(x) if a is not None)}"
        for name, x in data.items()
        if x is not None
    )


def split(x: Any, y: Any, sample_weight: Any, fraction: float) -> tuple[tuple, tuple]:
    """Splits arrays into a first part for training and the last `fraction` for validation."""
    arrays = (x, y, sample_weight)
    _, n = pack(*arrays)
    at = math.floor(n * (1.0 - fraction))
    if not 0 < at < n:
        raise ValueError(
            f"validation_split={fraction} of {n} samples leaves nothing on one of the two sides"
        )

    def of_rows(rows: slice) -> tuple:
        return keras.tree.map_structure(
            lambda a: None if a is None else np.asarray(a)[rows], keras.tree.lists_to_tuples(arrays)
        )

    return of_rows(slice(None, at)), of_rows(slice(at, None))


def batches(
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    batch_size: int | None = None,
    shuffle: bool | str = False,
    steps: int | None = None,
) -> tf.data.Dataset:
    """Makes a dataset of batches from arrays `[samples, ...]`, in their own dtypes.

    The arguments mean what they mean in Keras. `batch_size` None is 32, or follows from `steps`,
    the batches in a pass; the last batch may be smaller. `shuffle` is True for a new order in each
    pass, "batch" to shuffle inside batches only. The cardinality is known.
    """
    arrays, n = pack(x, y, sample_weight)
    if not batch_size:
        batch_size = math.ceil(n / steps) if steps else 32

    def permuted(order: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        return tf.random.experimental.stateless_shuffle(order, tf.stack([seed, 0]))

    def rows(seed: tf.Tensor) -> tf.data.Dataset:
        order = tf.range(n, dtype=tf.int64)
        if shuffle and shuffle != "batch":
            order = permuted(order, seed)
        indices = tf.data.Dataset.from_tensor_slices(order)
        # Static shapes wherever all batches are full: XLA compiles once.
        return indices.batch(batch_size, drop_remainder=n % batch_size == 0)

    # A stateful shuffle inside a dataset repeats itself in every epoch if a global seed is set.
    seeds = tf.data.Dataset.random(rerandomize_each_iteration=True)
    dataset = seeds.take(1).flat_map(rows)
    if shuffle == "batch":
        dataset = tf.data.Dataset.zip(dataset, seeds).map(permuted)
    dataset = dataset.map(
        lambda i: tf.nest.map_structure(lambda a: None if a is None else tf.gather(a, i), arrays)
    )
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(math.ceil(n / batch_size)))
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return dataset.with_options(options).prefetch(1)
