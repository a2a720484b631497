"""Names that are given to the terms of a sum, as `parameters` lists them."""

import cgp
from cgp.kernels import RBF, Constant, Matern12, Rotation


def test_do_the_factors_of_a_term_share_its_name():
    tide = Constant(4.0, name="tide") * Rotation(0.08, name="tide")
    storm = Matern12(1.0, 20.0, name="storm") * Rotation(-0.06, name="storm")
    assert list(cgp.ExactGP(tide + storm, noise_variance=0.1).parameters()) == [
        "noise_variance",
        "tide.variance",
        "tide.frequency",
        "storm.variance",
        "storm.lengthscale",
        "storm.frequency",
    ]


def test_is_a_name_numbered_where_a_parameter_would_repeat():
    kernel = Constant(1.0, name="slow") + RBF(2.0, 4.0, name="slow")
    assert kernel.parameters() == {
        "slow.variance": 1.0,
        "slow_2.variance": 2.0,
        "slow_2.lengthscale": 4.0,
    }
