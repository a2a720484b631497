"""The site: `python -m docs` builds it, `python -m docs record` runs the examples that it shows."""
