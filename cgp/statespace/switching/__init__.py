"""Filters of models between which a Markov chain switches."""
