"""Conversion of complex second moments (K, C) to the covariance of the real composite [Re; Im].

For a zero-mean complex vector z with covariance `K = E[z zᴴ]` and pseudo-covariance `C = E[z zᵀ]`
(Schreier & Scharf, *Statistical Signal Processing of Complex-Valued Data*, 2010, §2.1),

    cov [Re z; Im z] = ½ [[Re(K + C),  Im(C − K)],
                          [Im(C + K),  Re(K − C)]].
"""

import tensorflow as tf

from cgp.linalg.arguments import ArrayLike, as_complex_vector, as_matrix, as_real_vector


def to_composite(covariance: ArrayLike, pseudo_covariance: ArrayLike) -> tf.Tensor:
    """The real composite covariance of a covariance K and a pseudo-covariance C.

    Blocks of a covariance need not be square: `K = E[a bᴴ]`, `C = E[a bᵀ]` give
    `E[[Re a; Im a] [Re b; Im b]ᵀ]`.

    Args:
        covariance: `[..., m, n]`, complex.
        pseudo_covariance: `[..., m, n]`, complex.

    Returns:
        `[..., 2m, 2n]`, real.

    Raises:
        TypeError: Not complex, or of two dtypes.
        ValueError: Shapes that differ.

    Example:
        >>> import numpy as np
        >>> from cgp.linalg import to_composite
        >>> to_composite(np.array([[3.0 + 0j]]), np.array([[1.0 + 2j]])).numpy()
        array([[2., 1.],
               [1., 1.]])
    """
    k = as_matrix(covariance, "covariance")
    c = as_matrix(pseudo_covariance, "pseudo_covariance", like=k)
    for x, name in ((k, "covariance"), (c, "pseudo_covariance")):
        if not x.dtype.is_complex:
            raise TypeError(f"{name} must be complex, got {x.dtype.name}")
    names = "covariance and pseudo_covariance must"
    if k.dtype != c.dtype:
        raise TypeError(f"{names} have one dtype, got {k.dtype.name} and {c.dtype.name}")
    if not k.shape[-2:].is_compatible_with(c.shape[-2:]):
        raise ValueError(f"{names} be of one shape, [..., m, n], got {k.shape} and {c.shape}")
    upper = tf.concat([tf.math.real(k + c), tf.math.imag(c - k)], axis=-1)
    lower = tf.concat([tf.math.imag(k + c), tf.math.real(k - c)], axis=-1)
    return 0.5 * tf.concat([upper, lower], axis=-2)


def from_composite(composite: ArrayLike) -> tuple[tf.Tensor, tf.Tensor]:
    """The covariance K and pseudo-covariance C of a real composite: inverts `to_composite`.

    Args:
        composite: `[..., 2m, 2n]`, real.

    Returns:
        `(covariance, pseudo_covariance)`, each `[..., m, n]`, complex.

    Raises:
        TypeError: Not real.
        ValueError: An odd number of rows or columns.

    Example:
        >>> import numpy as np
        >>> from cgp.linalg import from_composite
        >>> k, c = from_composite(np.array([[2.0, 1.0], [1.0, 1.0]]))
        >>> k.numpy(), c.numpy()
        (array([[3.+0.j]]), array([[1.+2.j]]))
    """
    composite = as_matrix(composite, "composite")
    if composite.dtype.is_complex:
        raise TypeError(f"composite must be real, got {composite.dtype.name}")
    if any(size is not None and size % 2 for size in composite.shape[-2:]):
        raise ValueError(f"composite must be [..., 2m, 2n], got shape {composite.shape}")
    top, bottom = tf.split(composite, 2, axis=-2)
    (rr, ri), (ir, ii) = tf.split(top, 2, axis=-1), tf.split(bottom, 2, axis=-1)
    return tf.complex(rr + ii, ir - ri), tf.complex(rr - ii, ir + ri)


def stack_parts(z: ArrayLike) -> tf.Tensor:
    """Stacks real and imaginary parts along the last axis, `[Re z; Im z]`.

    Args:
        z: Complex, `[..., n]`.

    Returns:
        Real, `[..., 2n]`.

    Raises:
        TypeError: Not complex.
        ValueError: A scalar.

    Example:
        >>> import numpy as np
        >>> from cgp.linalg import stack_parts
        >>> stack_parts(np.array([1 + 3j, 2 + 4j])).numpy()
        array([1., 2., 3., 4.])
    """
    z = as_complex_vector(z, "z")
    return tf.concat([tf.math.real(z), tf.math.imag(z)], axis=-1)


def join_parts(parts: ArrayLike) -> tf.Tensor:
    """The complex vector of stacked real and imaginary parts: the inverse of `stack_parts`.

    Args:
        parts: Real, `[..., 2n]`.

    Returns:
        Complex, `[..., n]`.

    Raises:
        TypeError: Not real.
        ValueError: A scalar, or an odd number of elements.

    Example:
        >>> import numpy as np
        >>> from cgp.linalg import join_parts
        >>> join_parts(np.array([1.0, 2.0, 3.0, 4.0])).numpy()
        array([1.+3.j, 2.+4.j])
    """
    parts = as_real_vector(parts, "parts")
    if parts.shape[-1] is not None and parts.shape[-1] % 2:
        raise ValueError(f"parts must be [..., 2n], got shape {parts.shape}")
    return tf.complex(*tf.split(parts, 2, axis=-1))


def interleave(composite: tf.Tensor, axis: int) -> tf.Tensor:
    """Reorders a composite axis `[Re; Im]` so that both parts of a component are neighbours.

    In this order components can be appended to, and removed from, the end of a factor. The axis is
    counted from the end. `join_parts` does not invert it.

    Example:
        >>> import numpy as np
        >>> from cgp.linalg.composite import interleave
        >>> interleave(np.array([1.0, 2.0, 3.0, 4.0]), axis=-1).numpy()
        array([1., 3., 2., 4.])
    """
    composite = tf.convert_to_tensor(composite)
    pairs = tf.stack(tf.split(composite, 2, axis=axis), axis=axis)
    return tf.ensure_shape(tf.reshape(pairs, tf.shape(composite)), composite.shape)
