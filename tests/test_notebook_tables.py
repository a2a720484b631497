"""The tables that notebooks show for models."""

from xml.etree import ElementTree

import numpy as np
import pytest

import cgp
from cgp.kernels import RBF, Matern12, Matern32, Rotation
from cgp.training.hyperparameters import Row, notebook_table

X, Z = np.arange(6.0), np.exp(1j * np.arange(6.0))


def table(model):
    """The title, and the value and note of each row by its name."""
    text = model._repr_html_()
    assert "color" not in text  # a notebook may be dark
    result = ElementTree.fromstring(text)  # tags are closed, and text is escaped
    rows = [[cell.text or "" for cell in row] for row in result.iter("tr")]
    assert all(len(row) == 3 for row in rows[1:])
    return rows[0][0], {name: (value, note) for name, value, note in rows[1:]}


def test_has_a_process_its_kernel_and_its_hyperparameters():
    carrier = Rotation(frequency=0.25)
    kernel = carrier * (Matern32(2.0, 20.0, fixed="variance") + RBF() * carrier)
    gp = cgp.ExactGP(kernel, noise_variance=0.5, mean=cgp.means.Constant(1.0 + 1j))
    title, rows = table(gp)
    assert title == "ExactGP"
    assert rows["kernel"] == (repr(kernel), "")
    assert rows["mean"][0] == repr(gp.mean)
    assert rows["matern32.variance"] == ("2.", "fixed")
    assert rows["matern32.lengthscale"] == ("20.", "")
    assert rows["rotation.frequency"] == ("0.25", "shared by 2 parts")
    assert rows["rbf.lengthscale"][1] == "starts from the data"
    assert rows["noise_variance"] == ("0.5", "")
    assert set(gp.parameters()) == set(rows) - {"kernel", "mean", "data"}
    assert rows["data"] == ("none", "")


@pytest.mark.parametrize("kind", [cgp.ExactGP, cgp.StateSpaceGP])
def test_says_a_process_how_many_data_it_holds(kind):
    gp = kind(Matern12(1.0, 2.0), noise_variance=0.5)
    gp.condition(X, np.where(X == 2.0, np.nan, Z))
    assert table(gp)[1]["data"][0] == "6 samples, 1 missing"
    gp.condition(X, np.stack([Z, 2 * Z]))
    assert table(gp)[1]["data"][0] == "2 series of 6 samples"


def test_counts_a_stream_the_samples_that_it_has_taken():
    gp = cgp.StateSpaceGP(Matern12(1.0, 2.0), noise_variance=0.5)
    gp.condition(X, Z)
    expected = gp.step(6.0, 1j), gp.step(7.0, 2j)
    gp.reset()
    gp.condition(X, Z)
    first = gp.step(6.0, 1j)
    assert table(gp)[1]["data"][0] == "7 samples"
    for a, b in zip((first, gp.step(7.0, 2j)), expected, strict=True):  # to look changes nothing
        np.testing.assert_allclose(a.predicted.mean, b.predicted.mean, rtol=1e-12)


def test_says_a_window_how_full_it_is():
    gp = cgp.RecursiveGP(Matern12(1.0, 2.0), noise_variance=0.5, capacity=4)
    assert table(gp)[1]["data"][0] == "0 points of at most 4, sliding"
    gp.process(X, Z)
    assert table(gp)[1]["data"][0] == "4 points of at most 4, sliding"
    gp = cgp.RecursiveGP(Matern12(1.0, 2.0), 0.5, capacity=4, policy="growing")
    gp.step(0.0, np.array([1j, np.nan]))
    assert table(gp)[1]["data"][0] == "0 to 1 points of at most 4 in each of 2 streams, growing"


def test_has_a_filter_its_model_and_the_matrices_that_it_learns():
    model = cgp.statespace.LinearGaussian([[0.9j]], [[0.5]], [[1.0]], [[0.5]])
    both = cgp.layers.Covariance([[0.5]], fixed="scale")
    kf = cgp.KalmanFilter(model, learn={"Q": both, "R": both, "F": cgp.layers.Matrix([[0.9j]])})
    title, rows = table(kf)
    assert title == "KalmanFilter"
    assert rows["model"] == (repr(model), "")
    assert rows["F"] == ("[[0.+0.9j]]", "learned")
    assert rows["Q"] == ("[[0.5+0.j]]", "learned, shared by 2 matrices, fixed: scale")
    assert set(rows) == {"model", "F", "Q", "R", "streams"}
    assert rows["streams"][0] == "none yet"
    kf.step(np.ones((3, 1), complex))
    assert table(kf)[1]["streams"][0] == "3"
    rule = cgp.statespace.SigmaPoints("cubature")
    likelihood = cgp.likelihoods.StudentT(degrees_of_freedom=4.0)
    _, rows = table(cgp.KalmanFilter(model, rule=rule, likelihood=likelihood))
    assert rows["rule"][0] == repr(rule)
    assert rows["likelihood"][0] == repr(likelihood)


def test_is_text_not_taken_for_markup():
    text = "<script>alert('&')</script>"
    result = ElementTree.fromstring(notebook_table(text, [Row(text, text, text)]))
    assert not list(result.iter("script"))
    assert [cell.text for cell in result.iter() if cell.text and cell.text.strip()] == [text] * 4
