"""Blocks of Python code in the Markdown of a page."""

import re

BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
