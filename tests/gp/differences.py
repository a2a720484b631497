"""Gradients by the variables of a model, against central differences."""

import numpy as np


def assert_are_differences(value, variables, gradients, h, each=False, **tolerance):
    """In one direction of all variables at random or, if `each`, by each of their elements."""
    start = [variable.numpy() for variable in variables]
    for steps in _units(start) if each else [_direction(start)]:
        values = []
        for sign in (1.0, -1.0):
            for variable, at, step in zip(variables, start, steps, strict=True):
                variable.assign(at + sign * h * step)
            values.append(float(value()))
        for variable, at in zip(variables, start, strict=True):
            variable.assign(at)
        found = sum(np.sum(g.numpy() * step) for g, step in zip(gradients, steps, strict=True))
        np.testing.assert_allclose(found, (values[0] - values[1]) / (2 * h), **tolerance)


def _direction(start):
    rng = np.random.default_rng(0)
    return [rng.normal(size=value.shape) for value in start]


def _units(start):
    for i, value in enumerate(start):
        for index in np.ndindex(*value.shape):
            steps = [np.zeros_like(other) for other in start]
            steps[i][index] = 1.0
            yield steps
