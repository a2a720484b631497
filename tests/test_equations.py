"""Equations of docstrings, in plain text, as LaTeX of the site."""

import inspect

import pytest

import cgp
from docs.equations import array, is_code, latex


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A = L Lᴴ", r"A=L\,L^{\mathsf{H}}"),
        ("(z−m)ᴴ K⁻¹", r"(z-m)^{\mathsf{H}}\,K^{-1}"),
        ("i2π delay_spread (f1 − f2)", r"i2π\,\text{delay_spread}\,(f_{1}-f_{2})"),
        ("|c|² K̄", r"\vert c\vert ^{2}\,\bar{K}"),
        ("B_conj ū[t]", r"B_{\text{conj}}\,\bar{u}[t]"),
        ("e^{−√5 r}", r"e^{-\sqrt{5}\,r}"),
        ("E[w wᵀ] = pseudo_Q", r"E[w\,w^{\mathsf{T}}]=\text{pseudo_Q}"),
        ("s_{k−1} + dp/dx", "s_{k-1}+dp/dx"),
    ],
)
def test_is_plain_text_set_as_a_formula(text, expected):
    assert latex(text) == expected


def test_do_wide_spaces_begin_a_column():
    rows = array(["    covariance         K,", "    pseudo-covariance  C"])
    begin, end = r"\begin{array}{ll} ", r" \end{array}"
    body = r"\text{covariance} & K, \\ \text{pseudo-covariance} & C"
    assert rows == begin + body + end
    assert "&" not in array(["    x[t+1] = F x[t],", "    z[t]   = H x[t]"])


def test_is_indented_code_told_from_an_equation():
    docstring = inspect.getdoc(cgp.layers.GPInterpolator)
    code = [line for line in docstring.splitlines() if line.startswith("    interpolator = ")]
    assert is_code(code)
    assert not is_code(["    x[t+1] = f(x[t]) + w[t],   w[t] ~ N(0, Q[t])"])
    assert not is_code(["    covariance  variance / (1 + i2π delay_spread (f1 − f2))."])
