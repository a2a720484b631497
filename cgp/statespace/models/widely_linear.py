"""Widely linear models: improper noise, and terms in the conjugates of state and input."""

import tensorflow as tf

from cgp.distributions.forms import CompositeForm
from cgp.linalg.arguments import ArrayLike, check_finite, hermitian_gap
from cgp.linalg.cholesky import NotPositiveDefiniteError
from cgp.linalg.composite import to_composite
from cgp.statespace.models.linear_gaussian import LinearGaussian, check_model
from cgp.statespace.models.model_base import FactoredCovariance, as_dtype


def widely_linear(
    model: LinearGaussian,
    pseudo_Q: ArrayLike | None = None,
    pseudo_R: ArrayLike | None = None,
    F_conj: ArrayLike | None = None,
    H_conj: ArrayLike | None = None,
    initial_pseudo_covariance: ArrayLike | None = None,
    B_conj: ArrayLike | None = None,
    pseudo_S: ArrayLike | None = None,
) -> LinearGaussian:
    """Makes a model of improper signals, for the same functions (`filter`, `smooth`, …).

        x[t+1] = F x[t] + F_conj x̄[t] + B u[t] + B_conj ū[t] + w[t],   E[w wᵀ] = pseudo_Q
        z[t]   = H x[t] + H_conj x̄[t] + v[t],                          E[v vᵀ] = pseudo_R

    Computations use the real composite `[Re; Im]`, at half the cost of the augmented complex form
    (Schreier & Scharf, *Statistical Signal Processing of Complex-Valued Data*, 2010; Dini & Mandic,
    IEEE Trans. Neural Netw. Learn. Syst. 23, 2012). Series and means are complex; factors are
    of the real composite, `[..., 2n, 2n]`, and covariances of observations come as pairs, `E[v vᴴ]`
    and `E[v vᵀ]`.

    Args:
        model: A complex model, whose F, Q, H, R, B and initial moments are kept.
        pseudo_Q: Pseudo-covariance of the process noise, `[n, n]`, symmetric. This and all of the
            following are zero if None, and may vary over time like the matrices of the model.
        pseudo_R: Pseudo-covariance of the observation noise, `[m, m]`, symmetric.
        F_conj: Transition matrix of the conjugate state, `[n, n]`.
        H_conj: Observation matrix of the conjugate state, `[m, n]`.
        initial_pseudo_covariance: `[n, n]`, symmetric. Must be None where the model's initial
            covariance is "stationary": then both stationary moments are solved for.
        B_conj: Input matrix of the conjugate input, `[n, k]`.
        pseudo_S: Pseudo-covariance of process and observation noise, `E[w vᵀ]`, `[n, m]`, of a
            model with S.

    Returns:
        A `LinearGaussian` with the matrices of the real composite.

    Raises:
        TypeError: The model is real, or widely linear already.
        ValueError: Shapes that do not fit, or a pseudo-covariance that is not symmetric; pseudo_S
            of a model without S.
        NotPositiveDefiniteError: A pseudo-covariance that no noise of that covariance can have.

    Example:
        >>> import numpy as np
        >>> from cgp import statespace
        >>> proper = statespace.LinearGaussian([[0.9 + 0j]], [[0.19]], [[1.0]], [[1.0]])
        >>> improper = statespace.widely_linear(proper, pseudo_Q=[[0.19]])  # along the real axis
        >>> result = statespace.filter(improper, np.array([1.0 + 1.0j]))
        >>> result.filtered_means.numpy().round(6)
        array([[0.666667+0.j]])
    """
    check_model(model)
    if not model.is_proper:
        raise TypeError("the model is widely linear already: start from the proper one")
    if not model.dtype.is_complex:
        raise TypeError(
            f"a widely linear model is of complex signals, but the model is {model.dtype.name}"
        )
    conjugated = {"F": F_conj, "H": H_conj, "B": B_conj}
    matrices = {
        name: composite_rows(
            getattr(model, name),
            None if matrix is None else _like(matrix, getattr(model, name), f"{name}_conj"),
        )
        for name, matrix in conjugated.items()
        if getattr(model, name) is not None
    }
    matrices["Q"] = composite_covariance(model.Q, pseudo_Q, "Q")
    matrices["R"] = composite_covariance(model.R, pseudo_R, "R")
    if model.B is None and B_conj is not None:
        raise ValueError("B_conj was given, but the model has no B: give it one, of zeros perhaps")
    if model.S is not None:
        pseudo = (
            tf.zeros_like(model.S) if pseudo_S is None else _like(pseudo_S, model.S, "pseudo_S")
        )
        matrices["S"] = to_composite(
            model.S + tf.zeros_like(pseudo), pseudo + tf.zeros_like(model.S)
        )
    elif pseudo_S is not None:
        raise ValueError(
            "pseudo_S was given, but the model has no S: give it one, of zeros perhaps"
        )
    form = CompositeForm()
    matrices["initial_mean"] = form.split(model.initial_mean)
    if model.initial is None:
        matrices["initial_covariance"] = composite_covariance(
            model.initial_covariance, initial_pseudo_covariance, "initial_covariance"
        )
    elif initial_pseudo_covariance is not None:
        raise ValueError(
            f'the initial covariance of the model is "{model.initial}", which leaves no choice of '
            "initial_pseudo_covariance: give the model a matrix"
        )
    return LinearGaussian.from_tensors(matrices, model.initial, form=form)


def composite_rows(a: tf.Tensor, conjugated: tf.Tensor | None) -> tf.Tensor:
    """The real composite of `a x + conjugated x̄`, of matrices of one shape; None for zero."""
    form = CompositeForm()
    if conjugated is None:
        return form.basis(a)
    upper, lower = tf.split(form.basis(conjugated), 2, axis=-1)
    # The imaginary part of x̄ is that of x, negated.
    return form.basis(a) + tf.concat([upper, -lower], axis=-1)


def composite_covariance(
    covariance: tf.Tensor, pseudo: ArrayLike | None, name: str
) -> FactoredCovariance:
    """The real composite of a covariance and pseudo-covariance; errors name them."""
    if pseudo is None:
        composite = to_composite(covariance, tf.zeros_like(covariance))
        return FactoredCovariance.checked(composite, name)
    pseudo_name = f"pseudo_{name}" if len(name) == 1 else "initial_pseudo_covariance"
    pseudo = _like(pseudo, covariance, pseudo_name)
    gap = hermitian_gap(pseudo, symmetric=True) if tf.executing_eagerly() else 0.0
    if gap:
        raise ValueError(
            f"{pseudo_name} must be symmetric: it differs from its transpose by {gap:.3g}"
        )
    composite = to_composite(covariance + tf.zeros_like(pseudo), pseudo + tf.zeros_like(covariance))
    try:
        return FactoredCovariance.checked(composite, name)
    except NotPositiveDefiniteError:
        raise NotPositiveDefiniteError(
            f"{pseudo_name} is impossible: there is no signal of covariance {name} that has "
            "it (of a single number, its modulus is at most the variance)"
        ) from None


def _like(a: ArrayLike, like: tf.Tensor, name: str) -> tf.Tensor:
    """Converts `a` to the dtype of `like`, and checks that their matrix shapes agree."""
    matrix = as_dtype(a, like.dtype, name)
    if matrix.shape.rank < 2 or matrix.shape[-2:] != like.shape[-2:]:
        raise ValueError(f"{name} must be {list(like.shape[-2:])}, got shape {matrix.shape}")
    if tf.executing_eagerly():
        check_finite(matrix, name)
    return matrix
