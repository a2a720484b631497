"""How a release is built and tried; CONTRIBUTING.md says in which order."""
