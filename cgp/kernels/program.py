"""Kernels as instructions for the compiled core, which then evaluates them without TensorFlow.

A kernel of cgp that is a function of the difference of two points has instructions; any kernel may
be evaluated by its `moments` instead. `covariance_program.h` runs them, and has the formulas.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np


class Code(IntEnum):
    """The operation of an instruction: the first push a value, the others combine values."""

    CONSTANT = 0
    WHITE = 1
    RBF = 2
    RATIONAL_QUADRATIC = 3
    MATERN12 = 4
    MATERN32 = 5
    MATERN52 = 6
    PERIODIC = 7
    ROTATION = 8
    SUM = 9
    PRODUCT = 10
    CONJUGATE = 11
    WIDELY_LINEAR = 12


class Instruction(NamedTuple):
    """An instruction and its numbers, of which those for each dimension of x are the last."""

    code: Code
    numbers: np.ndarray


Instructions = tuple[Instruction, ...]


def instruction(code: Code, *numbers: Any) -> Instruction:
    """The instruction with the values of parameters, or with numbers."""
    return Instruction(code, np.concatenate([np.ravel(n) for n in numbers]))


def joined(code: Code, programs: Iterable[Instructions | None]) -> Instructions | None:
    """The instructions of several kernels and one that combines them; None if one has none."""
    sequence: list[Instruction] = []
    programs = list(programs)
    for instructions in programs:
        if instructions is None:
            return None
        sequence += instructions
    return (*sequence, instruction(code, len(programs)))


def as_numbers(instructions: Instructions) -> np.ndarray:
    """Instructions as an array: the code of each, the count of its numbers, and the numbers."""
    rows = [[float(code), float(len(numbers)), *numbers] for code, numbers in instructions]
    return np.concatenate([np.zeros(0), *rows])
