"""The Kalman filter and smoother as functions of arrays, and their adjoints."""
