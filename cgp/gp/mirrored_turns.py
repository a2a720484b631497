"""A rotation that was given the sign of another convention: the data turn the other way."""

import warnings
from typing import Any

from cgp.kernels import Kernel, Product, Rotation, Sum
from cgp.kernels.data_scales import DataScales

_NARROW = 0.5  # of a frequency: how far around it its tone is looked for
_OTHER_WAY = 30.0  # of the power there: that around the opposite frequency
_MOST = 0.5  # of all power, that is there


def warn_of_mirrored_turns(gp: Any, scales: DataScales) -> None:
    """Warns of a frequency that was given, where the power of z is at the opposite one.

    So is that of S-parameters whose delay τ is `Rotation(frequency=-τ)`, but whose sign of i is the
    other one.

    Args:
        gp: A `GaussianProcess`.
        scales: The scales of its data.
    """
    terms = gp.kernel.parts if isinstance(gp.kernel, Sum) else (gp.kernel,)
    frequencies = [_turn(term) for term in terms]
    for frequency in frequencies:
        if frequency is None:
            continue
        shares = scales.share_around(frequency, _NARROW), scales.share_around(-frequency, _NARROW)
        others = [f for f in frequencies if f is not None and f * frequency < 0.0]
        if not others and shares[1] > max(_MOST, _OTHER_WAY * shares[0]):
            warnings.warn(
                f"a rotation was given the frequency {frequency:.4g}, and z turns the other way: "
                f"{shares[1]:.0%} of its power is around {-frequency:.4g}. The sign of i may be "
                "that of another convention (a delay τ over a frequency is frequency=-τ where "
                "waves are e^{+iωt}): fit conj(z), or give the opposite frequency",
                RuntimeWarning,
                stacklevel=4,
            )
            return


def _turn(term: Kernel) -> float | None:
    """The frequency given to a term, the sum of those of a product; None where one is left out."""
    parts = term.parts if isinstance(term, Product) else (term,)
    turns = [part.frequency for part in parts if isinstance(part, Rotation)]
    if not turns or any(turn.initial is None or turn.numpy().ndim for turn in turns):
        return None
    return float(sum(turn.numpy() for turn in turns))
