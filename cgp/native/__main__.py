"""Says whether the compiled core is active: `python -m cgp.native`."""

import sys

from cgp.native import core

loaded = core()
print(f"compiled core: {'active' if loaded.ops else 'not active'}, {loaded.reason}")
sys.exit(0 if loaded.ops else 1)
