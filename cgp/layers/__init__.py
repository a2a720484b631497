"""Layers for pipelines: the Kalman filter, and matrices that are learned."""

from cgp.layers.kalman_filter import KalmanFilter
from cgp.layers.matrices import Covariance, Matrix

__all__ = ["Covariance", "KalmanFilter", "Matrix"]
