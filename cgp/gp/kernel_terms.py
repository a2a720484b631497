"""Terms of a sum of kernels, whose share in the posterior of the whole process is predicted.

Given the data the terms are correlated, though they are independent before: the covariance of term
j with the data is its own kernel, and all that the data say comes through the whole covariance
(Duvenaud, *Automatic Model Construction with Gaussian Processes*, 2014, §2.4.5).
"""

import numpy as np

from cgp.kernels.base import Kernel, Sum


def check_terms(kernel: Kernel, part: Kernel | None, observed: bool) -> None:
    """Raises a ValueError unless a part is a term of a kernel, the same object, a sum, or None."""
    if part is None:
        return
    if not _terms_of_part(kernel, part):
        raise ValueError(
            f"part must be one of the terms of the kernel, the same object, or a sum of some: "
            f"{', '.join(map(repr, _terms(kernel)))}; got {part!r}"
        )
    if observed:
        raise ValueError("a measurement is of the whole signal: observed must be False for a part")


def states_of(kernel: Kernel, part: Kernel) -> np.ndarray:
    """Whether each state of the Markov form of a kernel belongs to a part, bool `[n]`."""
    chosen_terms = _terms_of_part(kernel, part)
    is_of_part = np.zeros(kernel.markov_form().size, bool)
    first = 0
    for term in _terms(kernel):
        size = term.markov_form().size
        if any(term is chosen for chosen in chosen_terms):
            is_of_part[first : first + size] = True
        if not isinstance(term, Sum):  # the terms of a sum inside follow it
            first += size
    return is_of_part


def _terms_of_part(kernel: Kernel, part: Kernel) -> list[Kernel]:
    """The terms of a kernel that a part consists of; none if it is no term and no sum of some."""
    terms = _terms(kernel)
    if any(part is term for term in terms):
        return [part]
    summands = part.parts if isinstance(part, Sum) else []
    are_terms = all(any(summand is term for term in terms) for summand in summands)
    ids = [id(term) for summand in summands for term in _terms(summand)]
    return [*summands] if are_terms and len(set(ids)) == len(ids) else []


def _terms(kernel: Kernel) -> list[Kernel]:
    """A kernel and, of a sum, its terms, with those of nested sums, in order."""
    summands = kernel.parts if isinstance(kernel, Sum) else ()
    return [kernel, *(term for summand in summands for term in _terms(summand))]
