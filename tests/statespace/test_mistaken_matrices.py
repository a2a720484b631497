"""Matrices and series that users give by mistake: errors say how they are written."""

import numpy as np
import pytest

from cgp import statespace
from cgp.statespace import LinearGaussian

F, Q, H, R = np.diag([0.9j, 0.8]), np.array([[1.0, 0.5], [0.5, 2.0]]), np.ones((3, 2)), np.eye(3)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"R": np.ones(3)}, r"got shape \(3,\): of a vector of variances, np.diag\(R\)$"),
        ({"R": np.ones(2)}, r"got shape \(2,\)$"),
        ({"Q": 0.1}, r"got shape \(\): of one variance, Q \* np.eye\(2\)$"),
        (
            {"initial_covariance": np.ones(2)},
            r"\(2,\): of a vector of variances, np.diag\(initial_covariance\)$",
        ),
        ({"F": np.ones(2)}, r"\(2,\): of a vector of its diagonal, np.diag\(F\)$"),
        ({"H": np.ones(2)}, r"got shape \(2,\)$"),
        ({"Q": np.linalg.cholesky(Q)}, "lower triangular: if it is a factor L, give L @ L.conj"),
        ({"Q": np.linalg.cholesky(Q).T}, "upper triangular: if it is a factor U, give U.conj"),
        ({"Q": [[1.0, 0.6], [0.5, 2.0]]}, r"differs from its adjoint by 0\.1$"),
        ({"Q": np.diag([1j, 1.0])}, r"differs from its adjoint by 2$"),
    ],
)
def test_say_how_a_matrix_is_written(given, match):
    with pytest.raises(ValueError, match=match):
        LinearGaussian(**{"F": F, "Q": Q, "H": H, "R": R, **given})


def test_say_how_three_phases_become_complex():
    model = LinearGaussian([[0.9j]], [[0.1]], [[1.0]], [[1.0]])
    phases = np.cos(0.3 * np.arange(9)[:, None] - 2 * np.pi / 3 * np.arange(3))
    with pytest.raises(TypeError, match="phases a, b, c become complex by Clarke") as caught:
        statespace.filter(model, phases)
    written = str(caught.value).split("Clarke's transform, ")[1].split(", values")[0]
    assert np.allclose(eval(written, {"np": np, "z": phases}), np.exp(0.3j * np.arange(9)))
    for other in (phases[:, :2], phases[:, 0], phases[:3]):
        with pytest.raises(TypeError, match="must be complex, got float64: ") as caught:
            statespace.filter(model, other)
        assert "Clarke" not in str(caught.value)
