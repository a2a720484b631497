"""Tests of processes by inducing points."""
