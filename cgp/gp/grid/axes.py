"""The axes of a grid: the kernel along each, and the order of its cells."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from cgp.distributions.forms import Form
from cgp.kernels.along import Along
from cgp.kernels.base import Constant, Kernel, Product


class AxisKernels(NamedTuple):
    """The factors of a kernel that is a product over the axes of a grid."""

    axes: tuple[Kernel, ...]
    """The kernel of each coordinate, over one dimension."""
    scales: tuple[Constant, ...]
    """Constants that multiply them."""


def axis_kernels(kernel: Kernel) -> AxisKernels:
    """The kernel along each axis of a product of `Along`, or a ValueError that says what is not.

    Several factors along one axis are their product.
    """
    # A subclass may have moments of its own.
    is_product = isinstance(kernel, Product) and type(kernel).moments is Product.moments
    factors = kernel.parts if is_product else (kernel,)
    along: dict[int, list[Kernel]] = {}
    scales = []
    for factor in factors:
        if isinstance(factor, Along) and type(factor).moments is Along.moments:
            along.setdefault(factor.axis, []).append(factor.kernel)
        elif isinstance(factor, Constant):
            scales.append(factor)
        else:
            raise ValueError(
                "the kernel of a GridGP must be a product of Along(kernel, axis), one for each "
                f"axis of the grid, got the factor {factor!r}: put it inside Along, or take "
                "ExactGP, whose kernel may be a sum over several coordinates"
            )
    for axis in range(max(along, default=0) + 1):
        if axis not in along:
            raise ValueError(
                f"no factor is along axis {axis}: the kernel of a GridGP must have Along(kernel, "
                f"{axis}), as Along(Constant(1.0), {axis}) for a signal that is constant along it"
            )
    kernels = (along[axis] for axis in sorted(along))
    axes = tuple(inner[0] if len(inner) == 1 else Product(inner) for inner in kernels)
    improper = [axis for axis, inner in enumerate(axes) if not inner.is_proper]
    if len(improper) > 1:
        raise ValueError(
            f"the kernels along axes {improper} are improper: a GridGP takes an improper kernel "
            "along one axis, and real ones along the others"
        )
    return AxisKernels(axes, tuple(scales))


class Layout(NamedTuple):
    """The order of cells in computations.

    Rows of cells are in C order of the axes, of an improper process all real parts first. Arrays
    of cells have the axes in `order`; an axis `composite` has real and imaginary parts of all of
    its coordinates one after the other, so that it is twice as long.
    """

    order: tuple[int, ...]
    composite: int | None
    form: Form

    def cells(self, rows: tf.Tensor, sizes: Sequence[int]) -> tf.Tensor:
        """Rows `[S, m N]` as arrays `[S, …]`, m being 2 for an improper process, else 1."""
        if self.composite is None:
            return self.ordered(tf.reshape(rows, [-1, *sizes]))
        parts = tf.reshape(rows, [-1, 2, *sizes])
        before = range(2, self.composite + 2)
        after = range(self.composite + 2, len(sizes) + 2)
        doubled = list(sizes)
        doubled[self.composite] *= 2
        arrays = tf.transpose(parts, [0, *before, 1, *after])  # no numbers change
        return self.ordered(tf.reshape(arrays, [-1, *doubled]))

    def rows(self, cells: tf.Tensor, sizes: Sequence[int]) -> tf.Tensor:
        """Arrays as rows, the inverse of `cells`."""
        arrays = self.in_place(cells)
        if self.composite is None:
            return tf.reshape(arrays, [-1, math.prod(sizes)])
        split = [*sizes[: self.composite], 2, *sizes[self.composite :]]
        axes = [axis for axis in range(1, len(split) + 1) if axis != self.composite + 1]
        parts = tf.transpose(tf.reshape(arrays, [-1, *split]), [0, self.composite + 1, *axes])
        return tf.reshape(parts, [-1, 2 * math.prod(sizes)])

    def ordered(self, a: tf.Tensor) -> tf.Tensor:
        """An array `[S, n_0, n_1, …]` with its axes in this order."""
        return tf.transpose(a, [0, *(axis + 1 for axis in self.order)])  # no numbers change

    def in_place(self, a: tf.Tensor) -> tf.Tensor:
        """An array with its axes in their own order again."""
        places = [self.order.index(axis) for axis in range(len(self.order))]
        return tf.transpose(a, [0, *(place + 1 for place in places)])  # no numbers change
