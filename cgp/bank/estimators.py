"""The estimators that a bank is of."""

from typing import Any

from cgp.bank.kalman import KalmanStates
from cgp.bank.process import ProcessStates
from cgp.bank.states import States
from cgp.bank.window import WindowStates
from cgp.gp import RecursiveGP, StateSpaceGP
from cgp.layers import KalmanFilter

Estimator = KalmanFilter | RecursiveGP | StateSpaceGP


def states_of(estimator: Any) -> States:
    """How the states of an estimator begin and take samples.

    Raises:
        TypeError: Another estimator.
        ValueError: One that has no states of a fixed size for each key.
    """
    if isinstance(estimator, KalmanFilter):
        return KalmanStates(estimator)
    if isinstance(estimator, StateSpaceGP):
        return ProcessStates(estimator)
    if isinstance(estimator, RecursiveGP):
        return WindowStates(estimator)
    raise TypeError(
        "a Bank is of a KalmanFilter, a RecursiveGP or a StateSpaceGP, got "
        f"{type(estimator).__name__}"
    )
