"""Models of states and observations, and their initial states."""
