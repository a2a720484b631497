"""In a graph of the user's, cgp is called as it stands: AutoGraph rewrites none of it."""

import sys

import numpy as np
import pytest
import tensorflow as tf

import cgp
from cgp import statespace
from tests.long_cases import long_except

X = np.arange(5.0)
Z = np.exp(0.3j * X)
WALK = statespace.LinearGaussian([[0.9j]], [[0.1]], [[1.0]], [[0.5]])
CURVED = statespace.NonlinearGaussian(
    lambda x: 0.9 * x,
    lambda x: x + 0.1 * x**2,
    Q=[[0.1]],
    R=[[0.5]],
    initial_mean=[0.0],
    initial_covariance=[[1.0]],
)


def process(kind):
    gp = kind(cgp.kernels.Matern32(1.0, 1.0), noise_variance=0.1)
    if kind is cgp.RecursiveGP:
        gp.process(X, Z)
    else:
        gp.condition(X, Z)
    return gp


# What is made before the graph, and what is called in it.
VERBS = {
    "covariance": (cgp.kernels.RBF, lambda kernel, z: kernel.covariance(X)),
    "exact posterior": (
        lambda: process(cgp.ExactGP),
        lambda gp, z: gp.posterior(X + 0.5).covariance(),
    ),
    "state-space posterior": (
        lambda: process(cgp.StateSpaceGP),
        lambda gp, z: gp.posterior(X + 0.5).variance(),
    ),
    "recursive posterior": (
        lambda: process(cgp.RecursiveGP),
        lambda gp, z: gp.posterior(X + 0.5).sample(seed=1),
    ),
    "likelihood of a process": (
        lambda: process(cgp.ExactGP),
        lambda gp, z: gp.log_marginal_likelihood(X, z),
    ),
    "filter": (lambda: WALK, lambda walk, z: statespace.filter(walk, z).filtered_means),
    "nonlinear filter": (
        lambda: CURVED,
        lambda curved, z: statespace.filter(curved, tf.math.real(z)).filtered_means,
    ),
    "smooth": (lambda: WALK, lambda walk, z: statespace.smooth(walk, z).smoothed_means),
    "log likelihood": (lambda: WALK, statespace.log_likelihood),
    "forecast": (
        lambda: statespace.filter(WALK, Z),
        lambda result, z: statespace.forecast(WALK, result, 3).state_means,
    ),
    "step": (lambda: WALK, lambda walk, z: statespace.step(walk, None, z[:1])[1].filtered.mean),
    "particles": (
        lambda: WALK,
        lambda walk, z: statespace.particle_filter(walk, z, 50, seed=1).filtered_means,
    ),
    "sample": (lambda: WALK, lambda walk, z: statespace.sample(walk, 5, seed=1)[1]),
    "posterior sample": (
        lambda: WALK,
        lambda walk, z: statespace.posterior_sample(walk, z, 2, seed=1),
    ),
}


@pytest.mark.parametrize(
    "verb",
    long_except(VERBS, "covariance", "filter", "log likelihood"),
)
def test_is_none_of_it_rewritten_in_a_graph(verb):
    rewritten, called = set(), set()

    def watch(frame, event, argument):
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.startswith("cgp."):
            called.add(module)
            if "__autograph_generated_file" in frame.f_code.co_filename:
                rewritten.add(f"{module}.{frame.f_code.co_name}")

    make, function = VERBS[verb]
    made = make()

    @tf.function
    def graph(z):
        return function(made, z)

    sys.setprofile(watch)
    try:
        graph.get_concrete_function(tf.constant(Z))
    finally:
        sys.setprofile(None)
    assert called
    assert not rewritten
