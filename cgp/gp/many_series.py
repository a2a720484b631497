"""Maximum likelihood of hyperparameters that many series share, in batches or in shards."""

from typing import Any

import keras
import tensorflow as tf

from cgp.gp.data import Data, as_data
from cgp.gp.starts import start_left_out, undone_on_error
from cgp.training import Model
from cgp.training.batches import check_end, require_one_replica
from cgp.training.objective import Shards
from cgp.training.optimizers import LBFGS


def fit(gp: Any, x: Any, engine: Any, **arguments: Any) -> keras.callbacks.History:
    """Learns from batches of series, none of which are taken in.

    Args:
        gp: A compiled `MaximumLikelihoodGP`.
        x: A dataset of pairs `(x, z)`, as for `condition`, or with an engine a list of such pairs,
            or of what the engine turns into them.
        engine: As for `cgp.Model.fit`.
        **arguments: Further arguments of `cgp.Model.fit`.

    Raises:
        ValueError: A dataset that is empty, or under `LBFGS` without an end; with an engine
            hyperparameters that were left out.
    """
    require_one_replica(gp, f"a {type(gp).__name__}, which learns on many machines by an engine,")
    if engine is not None:
        left_out = [name for name, p in gp.named_hyperparameters().items() if p.is_left_out]
        if left_out or gp.has_weak_prior:
            names = ", ".join(left_out) or "noise_variance"
            raise ValueError(
                f"{names} left out: values to start from are known of data that are here, not of "
                "shards elsewhere. Give them values"
            )
        return Model.fit(gp, x, engine=engine, **arguments)
    first = next(iter(x), None)
    if not isinstance(first, tuple) or len(first) != 2:
        problem = "is empty" if first is None else f"has {x.element_spec}"
        raise ValueError(f"a dataset must have pairs (x, z) of inputs and targets, and {problem}")
    with undone_on_error(gp):
        data = as_data(*first, None, gp.variable_dtype)
        start_left_out(gp, data)
        gp.check_data(data)
    if isinstance(gp.optimizer, LBFGS):
        check_end(x)
        return Model.fit(gp, Shards(list(x), map), **arguments)
    return Model.fit(gp, as_dataset(gp, x), **arguments)


def as_dataset(gp: Any, pairs: tf.data.Dataset) -> tf.data.Dataset:
    """A dataset of pairs `(x, z)` as one of `Data`, each of which is a batch."""
    if isinstance(pairs.element_spec[0], Data):
        return pairs

    def arranged(x: tf.Tensor, z: tf.Tensor) -> tuple[Data]:
        return (as_data(x, z, None, gp.variable_dtype, require_targets=False),)

    return pairs.map(arranged)
