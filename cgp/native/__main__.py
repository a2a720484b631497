"""Says whether the compiled core is active: `python -m cgp.native`."""

import sys

from cgp.native import core

found = core()
print(f"compiled core: {'active' if found.ops else 'not active'}, {found.reason}")
sys.exit(0 if found.ops else 1)
