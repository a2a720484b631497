"""The mean functions of several outputs, one of each."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from cgp.gp.means.base import Mean
from cgp.kernels.functionals import VALUES, Functional
from cgp.linalg.arguments import as_complex
from cgp.training.parameters import Parameter, Parameterized
from cgp.training.sharing import sharing_scope


@keras.saving.register_keras_serializable(package="cgp.means")
class Outputs(Mean):
    """The mean of a process of P outputs, whose kernel has as many: a mean function of each.

    Args:
        means: A mean for each output, None for zero. The same one in several places has the same
            coefficients in all of them; marginalised ones are of each output. A `Rational` or
            `Exponentials` in several places has the same poles in all of them, located from all
            together (a `Rational` at inputs where none is missing), and residues of each output.
        name: A name.
        dtype: The dtype of the means.

    Raises:
        TypeError: No means, means of several dtypes, means of real beside those of complex
            coefficients.
        ValueError: Fewer than two; a mean that has outputs itself.

    Example:
        >>> import cgp
        >>> from cgp.kernels import RBF, Coregionalized
        >>> kernel = Coregionalized(RBF(1.0, 1.0), outputs=2, mixing=[1.0, 1j])
        >>> mean = cgp.means.Outputs([cgp.means.Constant(1 + 2j), None])
        >>> gp = cgp.ExactGP(kernel, 0.1, mean=mean)
        >>> gp.predict([0.0])["mean"]
        array([[1.+2.j, 0.+0.j]])
    """

    outputs: int

    def __init__(
        self,
        means: Sequence[Mean | None],
        *,
        name: str | None = None,
        dtype: str | None = None,
        **kwargs: Any,
    ):
        if isinstance(means, Mean):
            raise TypeError(f"Outputs takes a list, a mean for each output, got {means!r}")
        means = tuple(means)
        for mean in means:
            if mean is not None and not isinstance(mean, Mean):
                raise TypeError(f"Outputs is made of means, and None for zero, got {mean!r}")
            if isinstance(mean, Outputs):
                raise ValueError(f"Outputs is made of means of one signal, got {mean!r}")
        if len(means) < 2:
            raise ValueError(f"Outputs needs a mean for each of at least two outputs, got {means}")
        have_real = {mean.has_real_coefficients for mean in means if mean is not None}
        if len(have_real) > 1:
            raise TypeError(
                "the coefficients of all outputs must be complex, or real as of real_response=True "
                f"(None for a mean of zero), got {means}"
            )
        dtypes = {mean.variable_dtype for mean in means if mean is not None} or {"float64"}
        if len(dtypes) > 1:
            raise TypeError(f"the means of outputs must have one dtype, got {sorted(dtypes)}")
        super().__init__(name=name, dtype=dtype or dtypes.pop(), **kwargs)
        self.means, self.outputs = means, len(means)
        self.has_real_coefficients = have_real == {True}

    @property
    def marginalized(self) -> bool:
        """Whether a mean has coefficients that are marginalised."""
        return any(getattr(mean, "marginalized", False) for mean, _ in self.different())

    def different(self) -> Iterator[tuple[Mean, list[int]]]:
        """Each mean once, with the numbers of its outputs."""
        numbers: dict[int, list[int]] = {}
        for number, mean in enumerate(self.means):
            numbers.setdefault(id(mean), []).append(number)
        for of_mean in numbers.values():
            mean = self.means[of_mean[0]]
            if mean is not None:
                yield mean, of_mean

    def named_layers(self) -> list[tuple[str, Parameterized]]:
        """The means, with their prefixes in `gp.parameters()`."""
        return [layer for mean, _ in self.different() for layer in mean.named_layers()]

    def left_out(self) -> list[Parameter]:
        """The coefficients without a value."""
        return [p for mean, _ in self.different() for p in mean.left_out()]

    def evaluate(self, x: tf.Tensor) -> tf.Tensor | None:
        """The mean at points `[..., N, D + 1]`, the last coordinate the number of the output."""
        return self._sum(x, lambda mean, places: mean.evaluate(places))

    def evaluate_samples(self, x: tf.Tensor, functional: Functional) -> tf.Tensor | None:
        """The value or derivative of the mean of its output that each sample measures."""
        return self._sum(x, lambda mean, places: mean.evaluate_samples(places, functional))

    def _sum(
        self, x: tf.Tensor, evaluate: Callable[[Mean, tf.Tensor], tf.Tensor | None]
    ) -> tf.Tensor | None:
        terms = [values * as_complex(is_there) for values, is_there in self._evaluated(x, evaluate)]
        return tf.add_n(terms) if terms else None

    def basis(self, x: tf.Tensor) -> tf.Tensor | None:
        """The basis functions of all marginalised trends, each zero at other outputs."""
        return self._columns(x, lambda mean, places: mean.basis(places))

    def sample_basis(self, x: tf.Tensor, functional: Functional) -> tf.Tensor | None:
        """The value or derivative of each basis function that samples observe, `[..., N, q]`.

        Basis functions of a marginalised trend are zero at the points of other outputs.
        """
        return self._columns(x, lambda mean, places: mean.sample_basis(places, functional))

    def _columns(
        self, x: tf.Tensor, evaluate: Callable[[Mean, tf.Tensor], tf.Tensor | None]
    ) -> tf.Tensor | None:
        number, columns = _numbers_of_outputs(x), []
        for mean, of_mean in self.different():
            basis = evaluate(mean, x[..., :-1])
            if basis is not None:
                at_outputs = tf.one_hot(number, self.outputs, dtype=x.dtype)
                columns += [basis * as_complex(at_outputs[..., p, None]) for p in of_mean]
        return tf.concat(columns, axis=-1) if columns else None

    def _evaluated(
        self, x: tf.Tensor, evaluate: Callable[[Mean, tf.Tensor], tf.Tensor | None]
    ) -> Iterator[tuple[tf.Tensor, tf.Tensor]]:
        """What each mean has at all points, and 1 at those of its outputs, else 0, `[..., N]`."""
        number = _numbers_of_outputs(x)
        for mean, numbers in self.different():
            values = evaluate(mean, x[..., :-1])
            if values is not None:
                is_there = [float(output in numbers) for output in range(self.outputs)]
                yield values, tf.gather(tf.constant(is_there, x.dtype), number)

    def check_determined(
        self,
        x: tf.Tensor,
        present: np.ndarray,
        functional: Functional = VALUES,
        *,
        leave_out: bool = False,
    ) -> None:
        """Raises, eagerly, where data do not determine the coefficients of an output."""
        for mean, of_mean in self.different():
            for output in of_mean:
                at = slice(output, None, self.outputs)
                of_output = Functional(*(None if a is None else a[:, at] for a in functional))
                try:
                    mean.check_determined(
                        x[:, at, :-1], present[:, at], of_output, leave_out=leave_out
                    )
                except ValueError as error:
                    raise ValueError(f"of output {output}, {error}") from None

    def nearest(self, x: np.ndarray, z: np.ndarray) -> np.ndarray:
        """The means nearest to series `[B P, N]`, the outputs of each one after another."""
        nearest = np.zeros(z.shape, complex)
        series = nearest.reshape(-1, self.outputs, z.shape[-1])
        for mean, of_mean in self.different():
            of_outputs = z.reshape(series.shape)[:, of_mean].reshape(-1, z.shape[-1])
            at_mean = mean.nearest(x, of_outputs)
            series[:, of_mean] = at_mean.reshape(-1, len(of_mean), z.shape[-1])
        return nearest

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, with the means serialised."""
        serialize = keras.saving.serialize_keras_object
        means = [None if mean is None else serialize(mean) for mean in self.means]
        return {**super().get_config(), "means": means}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The mean of a config; means that are one object in it are one object again."""
        with sharing_scope():
            deserialize = keras.saving.deserialize_keras_object
            means = [None if mean is None else deserialize(mean) for mean in config["means"]]
            return super().from_config({**config, "means": means})

    def __repr__(self) -> str:
        return f"Outputs([{', '.join(map(repr, self.means))}])"


def _numbers_of_outputs(x: tf.Tensor) -> tf.Tensor:
    """The numbers of the outputs of points `[..., N, D + 1]`, int32."""
    return tf.cast(tf.round(x[..., -1]), tf.int32)
