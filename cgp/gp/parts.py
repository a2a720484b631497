"""The share of one term of a sum of kernels in the posterior of the whole process.

Given the data the terms are correlated, though they are independent before: the covariance of term
j with the data is its own kernel, and all that the data say comes through the whole covariance
(Duvenaud, *Automatic Model Construction with Gaussian Processes*, 2014, §2.4.5).
"""

from cgp.gp.signal_plus_noise import SignalPlusNoise
from cgp.kernels.base import Kernel, Sum


def of_part(process: SignalPlusNoise, part: Kernel | None) -> SignalPlusNoise:
    """A process whose predictions are of one term, without the mean, in the form of the whole.

    With None for the part the process itself.
    """
    if part is None:
        return process
    return process.of_term(part)


def check_request(kernel: Kernel, part: Kernel | None, observed: bool) -> None:
    """Raises a ValueError unless a part is a term of a kernel, that very object, or None."""
    if part is None:
        return
    if not any(part is term for term in _terms(kernel)):
        raise ValueError(
            f"part must be one of the terms of the kernel, the same object: "
            f"{', '.join(map(repr, _terms(kernel)))}; got {part!r}"
        )
    if observed:
        raise ValueError("a measurement is of the whole signal: observed must be False for a part")


def states_of(kernel: Kernel, part: Kernel) -> tuple[int, int]:
    """The first state of a term in the Markov form of a kernel, and how many it has."""
    first = 0
    for term in _terms(kernel):
        size = term.markov_form().size
        if term is part:
            return first, size
        if not isinstance(term, Sum):  # the terms of a sum inside follow it
            first += size
    raise ValueError(f"{part!r} is no term of {kernel!r}")


def _terms(kernel: Kernel) -> list[Kernel]:
    """A kernel, and of a sum its terms, those of sums inside included, in order."""
    inside = [t for part in kernel.parts for t in _terms(part)] if isinstance(kernel, Sum) else []
    return [kernel, *inside]
