"""Many streams, each with a key, in one object."""

from cgp.bank.bank import Bank

__all__ = ["Bank"]
