"""The arguments `observed` and `widths` of data: what each sample measures of the signal."""

import heapq
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from cgp.kernels.functionals import VALUES, Functional
from cgp.linalg.arguments import ArrayLike, is_nan

WORDS = ("value", "derivative")
"""What a sample may be an observation of."""


class Measurements(NamedTuple):
    """The arguments `observed` and `widths` of a method, not checked yet."""

    observed: ArrayLike | None = None
    widths: ArrayLike | None = None

    def of_data(self, x: tf.Tensor, z: tf.Tensor) -> Functional:
        """The functional of samples z, `[..., N]`, at inputs x, `[..., N, D]`.

        Raises:
            TypeError: Widths that are not real numbers, words that are no strings.
            ValueError: Words that are not known, widths that are negative or not finite, a width of
                a derivative, a width that is lost to rounding beside x; shapes that do not fit,
                inputs of several dimensions.
        """
        derivative, width = self._derivative(z), self._width(x, z)
        if derivative is not None and width is not None:
            derivative_of_each = np.broadcast_to(
                derivative, np.broadcast_shapes(derivative.shape, width.shape)
            )
            if np.any(derivative_of_each & (width > 0.0)):
                raise ValueError(
                    'widths must be 0 where observed is "derivative": the mean of a derivative '
                    "over an exposure is the difference of two values over its width"
                )
        derivative = derivative if derivative is not None and np.any(derivative) else None
        width = width if width is not None and np.any(width > 0.0) else None
        if derivative is None and width is None:
            return VALUES
        if x.shape[-1] != 1:
            raise ValueError(
                "observed and widths are of signals over a line: x must have one dimension, got "
                f"{x.shape[-1]}"
            )
        functional = Functional(derivative, width)
        if width is not None:
            functional = functional._replace(stops=_stops(self._places(x), functional))
        return functional.map(tf.constant)

    def of_outputs(self, samples: int, outputs: int) -> "Measurements":
        """The arguments of samples `[..., N, P]` of P outputs as those of samples `[..., N P]`.

        Raises:
            ValueError: Widths, which are of one signal; words that do not broadcast.
        """
        if self.widths is not None:
            raise ValueError("widths are of one signal, and the kernel has outputs: leave them out")
        words = np.asarray(self.observed)
        try:
            words = np.broadcast_to(words, np.broadcast_shapes(words.shape, (samples, outputs)))
        except ValueError:
            raise ValueError(
                f"observed must broadcast against z, [..., {samples}, {outputs}], got shape "
                f"{words.shape}"
            ) from None
        return Measurements(words.reshape(*words.shape[:-2], -1))

    def _derivative(self, z: tf.Tensor) -> np.ndarray | None:
        if self.observed is None:
            return None
        words = np.asarray(self.observed)
        if not all(isinstance(word, str) for word in words.ravel()):
            raise TypeError(
                'observed must be "value" or "derivative", one word or one for each sample, of a '
                'mask by np.where(mask, "derivative", "value"), got '
                f"{type(words.ravel()[0]).__name__}"
            )
        unknown = [str(word) for word in words.ravel() if word not in WORDS]
        if unknown:
            raise ValueError(
                f'observed must be "value" or "derivative", got {unknown[0]!r}; the mean over an '
                "exposure is a value with a width, widths=..."
            )
        return _by_series(words == "derivative", z, "observed")

    def _width(self, x: tf.Tensor, z: tf.Tensor) -> np.ndarray | None:
        if self.widths is None:
            return None
        width = np.asarray(self.widths)
        if width.dtype.kind not in "iuf":
            raise TypeError(f"widths must be real numbers, in units of x, got {width.dtype}")
        width = _by_series(width.astype(x.dtype.as_numpy_dtype), z, "widths")
        present = np.ones(z.shape[-1:], bool)
        if tf.executing_eagerly():
            present = np.any(~is_nan(z).numpy().reshape(-1, z.shape[-1]), axis=0)
        refused = width[present & ~((width >= 0.0) & np.isfinite(width))]
        if refused.size:
            raise ValueError(
                f"widths must be finite and not negative, 0 for an instant, got {refused.flat[0]:g}"
            )
        width = np.where(present, width, np.zeros_like(width))
        if np.any(width > 0.0):
            places = self._places(x)
            lengths = (places + 0.5 * width) - (places - 0.5 * width)
            lost = np.abs(lengths - width) > np.sqrt(np.finfo(width.dtype).eps) * width
            if np.any(lost):
                raise ValueError(
                    f"a width of {np.broadcast_to(width, lost.shape)[lost].flat[0]:g} is lost to "
                    "rounding beside x: count x from a nearer origin"
                )
        return width

    def _places(self, x: tf.Tensor) -> np.ndarray:
        """The places `[X, N]` of inputs, whose values must be known."""
        places = tf.get_static_value(x)
        if places is None:
            raise ValueError("widths are of known x: in a tf.function give x as an array")
        return np.asarray(places)[..., 0].reshape(-1, places.shape[-2])


def _by_series(a: np.ndarray, z: tf.Tensor, name: str) -> np.ndarray:
    """An argument broadcast against z, `[..., N]`, as `[1, N]` or `[B, N]`."""
    shape = tuple(z.shape)
    try:
        a = np.broadcast_to(a, np.broadcast_shapes(a.shape, shape[-1:]))
        np.broadcast_to(a, shape)
    except ValueError:
        raise ValueError(
            f"{name} must be [N] or [..., N], broadcast against z of shape {shape}, got shape "
            f"{a.shape}"
        ) from None
    if a.size == shape[-1]:
        return a.reshape(1, -1)
    return np.broadcast_to(a, shape).reshape(-1, shape[-1])


def _stops(places: np.ndarray, functional: Functional) -> np.ndarray:
    """The stops of the integrals of exposures at places `[X, N]`, real, `[V, N, slots]`.

    Exposures that overlap have different slots, as few as there can be (interval partitioning:
    Kleinberg & Tardos, *Algorithm Design*, 2005, §4.1), unless they begin together. Begins closer
    than rounding leaves to a difference of their integrals are one.
    """
    begins, ends, width = np.broadcast_arrays(
        functional.begins(places), functional.ends(places), functional.width
    )
    slots, stops = np.full(begins.shape, -1), np.full(begins.shape, np.nan, begins.dtype)
    for row, begin, end, is_exposure, stop in zip(
        slots, begins, ends, width > 0.0, stops, strict=True
    ):
        exposures = np.flatnonzero(is_exposure)
        exposures = exposures[np.argsort(begin[exposures], kind="stable")]
        lengths = end[exposures] - begin[exposures]
        closest = np.sqrt(np.finfo(begin.dtype).eps) * np.minimum(lengths[1:], lengths[:-1])
        is_apart = np.append(True, np.diff(begin[exposures]) > closest)[: len(exposures)]
        group, different = np.cumsum(is_apart) - 1, begin[exposures][is_apart]
        last_stops = np.full(different.shape, -np.inf)
        np.maximum.at(last_stops, group, end[exposures])
        slot_of_group = np.zeros(different.shape, int)
        busy: list[tuple[float, int]] = []  # stops of slots
        for number, (start, finish) in enumerate(zip(different, last_stops, strict=True)):
            is_free = bool(busy) and busy[0][0] <= start
            slot_of_group[number] = heapq.heappop(busy)[1] if is_free else len(busy)
            heapq.heappush(busy, (finish, slot_of_group[number]))
        row[exposures], stop[exposures] = slot_of_group[group], last_stops[group]
    is_in_slot = slots[..., None] == np.arange(slots.max() + 1)
    return np.where(is_in_slot, stops[..., None], np.asarray(np.nan, stops.dtype))
