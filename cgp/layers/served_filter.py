"""A Kalman filter as a SavedModel."""

from typing import TYPE_CHECKING, cast

import tensorflow as tf

from cgp.distributions.marginals import Step
from cgp.layers.filter_outputs import outputs
from cgp.statespace.online.online_step import step
from cgp.statespace.online.stream_samples import StateArrays
from cgp.training.serving import Online, Outputs, Served, step_outputs

if TYPE_CHECKING:
    from cgp.layers.kalman_filter import KalmanFilter


def served(kf: "KalmanFilter") -> Served:
    """The functions of a filter: `predict` of series, and `step` of its streams.

    Args:
        kf: The filter. Steps go on from its present state.
    """
    state, noise = kf.state, kf.learned_model.noise
    sizes = {"z": (noise.observation_size, noise.series_dtype)}
    if noise.B is not None:
        sizes["inputs"] = (noise.B.shape[-1], noise.state_dtype)

    def arguments(*axes: int | None) -> list[tf.TensorSpec]:
        return [tf.TensorSpec([*axes, k], dtype, name) for name, (k, dtype) in sizes.items()]

    def predict(_: StateArrays, z: tf.Tensor, inputs: tf.Tensor | None = None) -> Outputs:
        # Not `call`, whose loss the filter would keep, a tensor of this graph.
        return outputs(*kf._moments(kf.learned_model.model(), z, None, inputs)[1:])

    def advance(
        state: StateArrays, z: tf.Tensor, inputs: tf.Tensor | None = None
    ) -> tuple[StateArrays, Outputs]:
        following, found = step(
            kf.model, state, z, inputs=inputs, rule=kf.rule, likelihood=kf.likelihood
        )
        return StateArrays(*following), step_outputs(cast("Step", found))

    return Served(
        StateArrays(*map(tf.constant, state)),
        predict,
        arguments(None, None),
        Online(advance, arguments(*state.mean.shape[:-1])),
    )
