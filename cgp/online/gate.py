"""Observations outside of their gate are skipped: a step that first looks at the prediction."""

from collections.abc import Callable

import numpy as np

from cgp.distributions.marginals import Step, innovation, within_gate
from cgp.observations import missing_value
from cgp.online.cell import Sample


def gated_step(
    sample: Sample,
    probability: float,
    forecast_of: Callable[[Sample], Step],
    take: Callable[[Sample], Step],
) -> Step:
    """Takes a sample whose observation is skipped where it lies outside of its gate.

    Args:
        sample: The sample of each stream, as `Cell.check` returned it.
        probability: The probability with which a right observation lies inside.
        forecast_of: The step of a sample, which leaves the state as it is.
        take: Takes a sample into the state.

    Returns:
        The step, whose innovation is also of observations that were skipped.

    Raises:
        ValueError: A probability that is not between 0 and 1.
    """
    z = sample.z
    missing = missing_value(z)
    forecast = forecast_of(sample._replace(z=np.full_like(z, missing)))
    deviation = innovation(z, forecast.predicted.mean)
    inside = within_gate(forecast._replace(innovation=deviation), probability)
    if np.all(inside):
        step = take(sample)
    else:
        each = inside[..., None] if forecast.joint else inside  # an observation has components
        step = take(sample._replace(z=np.where(each, z, missing)[()]))
    return step._replace(innovation=deviation, outside_gate=~inside)
