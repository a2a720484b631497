"""Markov processes in closed form: sums of Matérn processes that turn.

A kernel that is such a sum says so in `markov_terms`, in a few numbers where `markov_form` has
functions that return matrices. Compiled ops work transitions out from them where they use them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf


class Term(NamedTuple):
    """An independent term of a sum of processes: a Matérn process times a rotation.

    Its states are those of `HalfIntegerMatern.markov_form`, the last of them is the signal. All
    numbers are real scalars of the precision of the kernel.
    """

    order: int
    """The number of derivatives of the process, 0, 1 or 2; it has order + 1 states."""
    variance: tf.Tensor
    """The variance, in squared units of z."""
    rate: tf.Tensor | None = None
    """The rate of the cascade of states, per unit of x; None for order 0 without decay."""
    frequency: tf.Tensor | None = None
    """The frequency, in cycles per unit of x; None without a rotation."""


Terms = tuple[Term, ...]
"""The terms of a sum, in the order of its states."""


def sum_of(processes: Sequence[Terms | None]) -> Terms | None:
    """The terms of a sum of processes; None where those of one process are not known."""
    sum_: Terms = ()
    for terms in processes:
        if terms is None:
            return None
        sum_ += terms
    return sum_


def product_of(a: Terms | None, b: Terms | None) -> Terms | None:
    """The terms of a product of processes, one for each pair; None where it has another form."""
    if a is None or b is None:
        return None
    if 1 not in (_size(a), _size(b)) and any(term.order for term in a + b):
        return None  # the states of a pair would not follow one another
    pairs = [(p, q) for p in a for q in b]
    if any(p.order + q.order and None not in (p.rate, q.rate) for p, q in pairs):
        return None  # a smooth process that decays faster is no Matérn process
    return tuple(
        Term(
            max(p.order, q.order),
            p.variance * q.variance,
            _added(p.rate, q.rate),
            _added(p.frequency, q.frequency),
        )
        for p, q in pairs
    )


def conjugate_of(terms: Terms | None) -> Terms | None:
    """The terms of the conjugate process, which turns the other way."""
    if terms is None:
        return None
    return tuple(
        term._replace(frequency=None if term.frequency is None else -term.frequency)
        for term in terms
    )


def _size(terms: Terms) -> int:
    return sum(term.order + 1 for term in terms)


def _added(a: tf.Tensor | None, b: tf.Tensor | None) -> tf.Tensor | None:
    """The sum of two rates or frequencies; one beside None stays the same object."""
    return b if a is None else a if b is None else a + b
