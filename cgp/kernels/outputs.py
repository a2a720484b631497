"""Kernels of several signals at once: antennas, polarisations, phases, stations.

A process of P outputs over points x is one process over pairs (x, p): the last coordinate of a
point is the number of its output, from 0, and its P values at one x are P points (Álvarez, Rosasco
& Lawrence, *Kernels for Vector-Valued Functions: A Review*, Found. Trends Mach. Learn. 4, 2012).
Missing values, posterior and draws then need nothing else.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from cgp.kernels.base import Combination, Kernel, sum_of_pairs
from cgp.kernels.covariance_function import multiply
from cgp.kernels.data_scales import StartRules
from cgp.kernels.improper import UnaryCombination
from cgp.kernels.markov import MarkovForm, Pair, direct_sum
from cgp.kernels.partials import Partials
from cgp.kernels.spectrum import Spectrum
from cgp.linalg.arguments import ArrayLike, as_complex, check_whole
from cgp.training.parameters import Constraint, Parameter


class _KernelOfOutputs(Combination):
    """A kernel over points `[..., D + 1]`, whose last coordinate is the number of an output."""

    outputs: int

    @property
    def trend_degree(self) -> int | None:
        """The highest degree of the kernels inside, if all are trends; else None."""
        degrees = [kernel.trend_degree for kernel in self.parts]
        return None if None in degrees else max(degree or 0 for degree in degrees)

    def checked_moments(self, x1: tf.Tensor, x2: tf.Tensor) -> Pair:
        """The moments between points, or an error where these have no number of an output."""
        for x in (x1, x2):
            if tf.executing_eagerly():
                self._check_numbers(x)
        return super().checked_moments(x1, x2)

    def _check_numbers(self, x: tf.Tensor) -> None:
        number = np.asarray(x[..., -1])
        is_output = (number == np.round(number)) & (number >= 0) & (number < self.outputs)
        if x.shape[-1] < 2 or not is_output.all():
            of_none = "" if x.shape[-1] < 2 else f" and the number {number[~is_output][0]:g}"
            raise ValueError(
                f"points of a kernel of {self.outputs} outputs are [..., D + 1], the last "
                f"coordinate the number of the output, 0 to {self.outputs - 1}, got shape "
                f"{x.shape}{of_none}"
            )

    def spectrum(self) -> Spectrum:
        """Raises a ValueError: each output has a spectrum, and each pair a cross-spectrum."""
        raise ValueError(
            f"{type(self).__name__} has a spectrum for each output: take that of a kernel inside, "
            "kernel.parts[0].spectral_density(f), times the squared modulus of a gain"
        )


@keras.saving.register_keras_serializable(package="cgp.kernels")
class Coregionalized(_KernelOfOutputs, UnaryCombination):
    """The kernel of P outputs that observe the same sources, each with gains of its own.

    Output p is `z_p(x) = Σ_q a_pq u_q(x)`, u_q being R independent processes of one kernel K, C:

        covariance         E[z_p(x1) conj(z_r(x2))] = K(x1, x2) Σ_q a_pq conj(a_rq),
        pseudo-covariance  E[z_p(x1) z_r(x2)]       = C(x1, x2) Σ_q a_pq a_rq,

    the intrinsic model of coregionalisation (Goovaerts, *Geostatistics for Natural Resources
    Evaluation*, 1997, ch. 4), with complex gains: `a_pq` is the amplitude and the phase with which
    an antenna, a phase or a station receives a source.

    A common factor of all gains would be the same as another variance and phase of the sources, so
    the reference has the gain 1. Beyond one source the mixing matrix is lower trapezoidal, the
    reference its first row, with a positive diagonal: other matrices are these times a unitary one,
    and describe the same process.

    Gains left out start from the leading eigenvectors of the correlation of the data over outputs.

    Args:
        kernel: The kernel of the sources. An improper one has one source.
        outputs: P, the number of outputs.
        rank: R, the number of sources, at most P.
        reference: The output whose gain is 1.
        mixing: The gains, complex `[P, R]`, or `[P]` of one source; None to start from the data.
        priors: TFP distributions by name; of "mixing" over its `[P, R, 2]` real and imaginary
            parts.
        fixed, name: As for `RBF`.
        dtype: The dtype of the kernel.

    Raises:
        TypeError: No kernel; numbers that are not whole.
        ValueError: A kernel that has outputs itself, a rank above P, or above 1 of an improper
            kernel; a mixing matrix of another form.

    Example:
        Points are pairs of x and the number of an output.

        >>> from cgp.kernels import Coregionalized, Matern12
        >>> kernel = Coregionalized(Matern12(2.0, 1.0), outputs=2, mixing=[1.0, 0.5j])
        >>> kernel.covariance([[0.0, 0], [0.0, 1]]).numpy()
        array([[2. +0.j, 0. -1.j],
               [0. +1.j, 0.5+0.j]])
    """

    def __init__(
        self,
        kernel: Kernel,
        outputs: int,
        rank: int = 1,
        reference: int = 0,
        mixing: ArrayLike | None = None,
        *,
        fixed: str | Iterable[str] = (),
        priors: Mapping[str, Any] | None = None,
        name: str | None = None,
        dtype: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(kernel, name=name, dtype=dtype, **kwargs)
        check_whole(outputs, "outputs", least=2)
        check_whole(rank, "rank")
        if rank > outputs:
            raise ValueError(
                f"rank must be at most the number of outputs, {outputs}, got {rank}: more sources "
                "than outputs describe no other process"
            )
        if rank > 1 and not kernel.is_proper:
            raise ValueError(
                f"rank must be 1 for an improper kernel, got {rank} of {kernel!r}: add a "
                "Coregionalized of each source"
            )
        check_whole(reference, "reference", least=0)
        if reference >= outputs:
            raise ValueError(f"reference must be an output, 0 to {outputs - 1}, got {reference}")
        self.outputs, self.rank, self.reference = outputs, rank, reference
        self.is_real = False
        constraint = trapezoidal(outputs, rank, reference)
        gains = None if mixing is None else self._gains(mixing, constraint)
        self.declare_parameters({"mixing": (gains, constraint)}, fixed, priors)

    def _gains(self, mixing: ArrayLike, constraint: Constraint) -> np.ndarray:
        gains = np.asarray(mixing)
        gains = gains[:, None] if gains.ndim == 1 and self.rank == 1 else gains
        if gains.shape != (self.outputs, self.rank):
            raise ValueError(
                f"mixing must be [{self.outputs}, {self.rank}], a gain of each output for each "
                f"source, got shape {np.shape(mixing)}"
            )
        if gains.dtype.kind in "iufc" and not constraint.contains(gains.astype(complex)):
            remedy = (
                f"divide it by mixing[{self.reference}], and multiply the variance of the kernel "
                f"by abs(mixing[{self.reference}]) ** 2"
                if self.rank == 1
                else "the Cholesky factor of mixing @ mixing.conj().T, the reference first, over "
                "its first element has that form"
            )
            raise ValueError(f"mixing must be {constraint.description}, got {mixing!r}: {remedy}")
        return gains

    def starts(
        self, rules: StartRules, power: float, is_selected: Callable[[Parameter], bool]
    ) -> Iterator[tuple[Parameter, ArrayLike | None]]:
        """Hyperparameters and starting values: the gains, and the kernel from the source they give.

        Each kernel takes the next eigenvectors of the correlation of the data over outputs.
        """
        scales, mixing = rules.scales, rules.mixing(self.rank, self.reference)
        if is_selected(self.mixing):
            yield self.mixing, mixing
        else:
            mixing = self.mixing.numpy()
        source = scales.source(mixing)
        with rules.on(source):
            share = power * source.total / scales.total
            yield from self.kernel.starts(rules, share, is_selected)

    def moments(self, x1: tf.Tensor, x2: tf.Tensor) -> Pair:
        """Covariance and pseudo-covariance between points, elementwise."""
        return self._received(x1, x2, self.kernel.checked_moments(x1[..., :-1], x2[..., :-1]))

    def partials(self, x1: tf.Tensor, x2: tf.Tensor) -> Partials:
        """The moments and their partial derivatives, the gains times those of a source."""
        of_source = self.kernel.partials(x1[..., :-1], x2[..., :-1])
        return Partials(*(self._received(x1, x2, pair) for pair in of_source))

    def _received(self, x1: tf.Tensor, x2: tf.Tensor, of_source: Pair) -> Pair:
        """The moments of outputs, or their derivatives, from those of a source."""
        mixing = self.mixing.value
        gains1, gains2 = (tf.gather(mixing, _numbers(x)) for x in (x1, x2))
        k, c = of_source
        k = multiply(k, tf.reduce_sum(gains1 * tf.math.conj(gains2), axis=-1))
        return k, None if c is None else multiply(c, tf.reduce_sum(gains1 * gains2, axis=-1))

    def markov_form(self) -> MarkovForm:
        """The state-space form: the states of all sources, which every output observes."""
        form = self.kernel.markov_form()
        gains = tf.unstack(self.mixing.value[..., None], axis=1)  # [P, 1] of each source
        return direct_sum([_observed(form, a) for a in gains])

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        sizes = {"outputs": self.outputs, "rank": self.rank, "reference": self.reference}
        return {**super().get_config(), **sizes}

    def __repr__(self) -> str:
        gains = ", ".join(map(repr, self.own_parameters))
        return f"Coregionalized({self.kernel!r}, outputs={self.outputs}, {gains})"

    # Methods of a class that has moments of its own replace inherited ones that follow from them.
    spectrum = _KernelOfOutputs.spectrum


@keras.saving.register_keras_serializable(package="cgp.kernels")
class Outputs(_KernelOfOutputs):
    """The kernel of P outputs that are independent, each a process of a kernel of its own.

    Beside a `Coregionalized` it is what each output has for itself: its drift, its interference.

    Args:
        kernels: A kernel for each output; the same one in several places is one set of
            hyperparameters, of processes that are independent all the same.
        name: A name.
        dtype: The dtype of the kernels.

    Raises:
        TypeError: No kernels, or kernels of several dtypes.
        ValueError: Fewer than two; kernels that have outputs themselves.

    Example:
        >>> from cgp.kernels import Matern12, Outputs
        >>> kernel = Outputs([Matern12(1.0, 1.0), Matern12(4.0, 1.0)])
        >>> kernel.covariance([[0.0, 0], [0.0, 1]]).numpy().real
        array([[1., 0.],
               [0., 4.]])
    """

    arguments = ("kernels",)

    def __init__(
        self,
        kernels: Sequence[Kernel],
        *,
        name: str | None = None,
        dtype: str | None = None,
        **kwargs: Any,
    ):
        if isinstance(kernels, Kernel):
            raise TypeError(f"Outputs takes a list, a kernel for each output, got {kernels!r}")
        super().__init__(kernels, name=name, dtype=dtype, **kwargs)
        if len(self.parts) < 2:
            raise ValueError("Outputs needs a kernel for each of at least two outputs, got one")
        self.outputs = len(self.parts)

    @property
    def kernels(self) -> list[Kernel]:
        """The kernel of each output."""
        return list(self.parts)

    def starts(
        self, rules: StartRules, power: float, is_selected: Callable[[Parameter], bool]
    ) -> Iterator[tuple[Parameter, ArrayLike | None]]:
        """Hyperparameters and starting values, of each kernel from the data of its outputs."""
        scales = rules.scales
        for kernel in self._different():
            of_kernel = scales.of_outputs([p for p, k in enumerate(self.parts) if k is kernel])
            with rules.on(of_kernel):
                share = power * of_kernel.total / scales.total
                yield from kernel.starts(rules, share, is_selected)

    def moments(self, x1: tf.Tensor, x2: tf.Tensor) -> Pair:
        """Covariance and pseudo-covariance between points, elementwise."""
        return self._of_one_output(
            x1, x2, [k.checked_moments(x1[..., :-1], x2[..., :-1]) for k in self._different()]
        )

    def partials(self, x1: tf.Tensor, x2: tf.Tensor) -> Partials:
        """The moments and their partial derivatives."""
        of_kernels = [k.partials(x1[..., :-1], x2[..., :-1]) for k in self._different()]
        return Partials(
            *(self._of_one_output(x1, x2, pairs) for pairs in zip(*of_kernels, strict=True))
        )

    def _different(self) -> Iterator[Kernel]:
        """The kernels, each once, in their order."""
        return iter({id(kernel): kernel for kernel in self.parts}.values())

    def _of_one_output(self, x1: tf.Tensor, x2: tf.Tensor, pairs: Sequence[Pair]) -> Pair:
        """The moments of the kernel of an output between its own points, zero between others."""
        number = _numbers(x1)
        is_same, kernels = number == _numbers(x2), list(self._different())
        terms = []
        for kernel, (k, c) in zip(kernels, pairs, strict=True):
            is_kernel = tf.gather([part is kernel for part in self.parts], number)
            of_kernel = tf.cast(is_same & is_kernel, self.variable_dtype)
            terms.append((multiply(of_kernel, k), None if c is None else multiply(of_kernel, c)))
        return sum_of_pairs(terms)

    def markov_form(self) -> MarkovForm:
        """The state-space form: the states of all kernels, each observed by its output."""
        forms = [kernel.markov_form() for kernel in self.parts]
        rows = tf.eye(self.outputs, dtype=forms[0].h.dtype)[..., None]
        return direct_sum(list(map(_observed, forms, tf.unstack(rows))))

    def scale_parameters(self) -> list[Parameter] | None:
        """The parameters that scale all moments: the scales of all kernels together."""
        of_kernels = [kernel.scale_parameters() for kernel in self._different()]
        return None if None in of_kernels else [p for ps in of_kernels for p in ps or ()]

    def __repr__(self) -> str:
        return f"Outputs([{', '.join(map(repr, self.parts))}])"

    # Methods of a class that has moments of its own replace inherited ones that follow from them.
    spectrum = _KernelOfOutputs.spectrum


def _observed(form: MarkovForm, gains: tf.Tensor) -> MarkovForm:
    """The form of P outputs that observe a process of one signal with gains `[P, 1]`."""
    return form._replace(
        h=gains * form.h,
        h_conj=None if form.h_conj is None else gains * form.h_conj,
        coefficient=None,  # u + c conj(u) has another c once it is turned
    )


def _numbers(x: tf.Tensor) -> tf.Tensor:
    """The numbers of the outputs of points `[..., D + 1]`, int32 `[...]`."""
    return tf.cast(tf.round(x[..., -1]), tf.int32)


def trapezoidal(outputs: int, rank: int, reference: int) -> Constraint:
    """Lower trapezoidal matrices `[P, R]`, the reference the first row, 1 its first element.

    The rest of the diagonal is positive. Unconstrained are the logarithms of these, and the real
    and imaginary parts of the elements below the diagonal, one after the other.
    """
    order = [reference, *(p for p in range(outputs) if p != reference)]
    source = np.zeros((outputs, rank), int)  # where elements are in (0, 1, diagonal, below)
    below = [(p, q) for row, p in enumerate(order) for q in range(min(row, rank))]
    for q in range(rank):
        source[order[q], q] = 1 + q
    for number, element in enumerate(below):
        source[element] = 1 + rank + number
    diagonal = [(order[q], q) for q in range(1, rank)]

    def forward(raw: tf.Tensor) -> tf.Tensor:
        logs, gains = raw[..., : rank - 1], raw[..., rank - 1 :]
        constants = tf.broadcast_to(
            tf.constant([0.0, 1.0], raw.dtype), tf.concat([tf.shape(raw)[:-1], [2]], axis=0)
        )
        real_elements = map(as_complex, (constants, tf.exp(logs)))
        complex_elements = tf.complex(gains[..., 0::2], gains[..., 1::2])
        elements = tf.concat([*real_elements, complex_elements], axis=-1)
        return tf.gather(elements, source, axis=-1)

    def inverse(mixing: np.ndarray) -> np.ndarray:
        logs = [np.log(mixing[element].real) for element in diagonal]
        gains = [number for e in below for number in (mixing[e].real, mixing[e].imag)]
        return np.array([*logs, *gains])

    def contains(mixing: np.ndarray) -> bool:
        if mixing.shape != source.shape:
            return False
        is_zero = np.all(mixing[source == 0] == 0) and abs(mixing[reference, 0] - 1) <= 1e-6
        on_diagonal = np.array([mixing[element] for element in diagonal])
        return bool(is_zero and np.all(on_diagonal.imag == 0) and np.all(on_diagonal.real > 0))

    def unit(sizes: np.ndarray) -> np.ndarray:
        """Gains have the unit of their output over that of the reference."""
        of_gains = np.repeat([sizes[p] / sizes[reference] for p, _ in below], 2)
        return np.concatenate([np.ones(rank - 1), of_gains])

    form = f"[{outputs}, {rank}], 1 for the reference, output {reference}"
    form += ", and lower trapezoidal from there, with a positive diagonal" if rank > 1 else ""
    is_log = np.arange(rank - 1 + 2 * len(below)) < rank - 1
    return Constraint(
        form,
        contains,
        forward,
        inverse,
        is_complex=True,
        step=np.ones(is_log.size),
        placeholder=(source > 0).astype(float),
        unit_of_outputs=unit,
        log_jacobian=lambda raw: tf.where(is_log, raw, tf.zeros_like(raw)),
    )
