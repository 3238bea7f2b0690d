"""Run applications in one driver, one after the other: ``in_turn.py '[["a.py", "--dt", "2013-01-15"], ["b.py"]]'``.

All applications share one JVM, because a JVM takes longer to start than the jobs run.
"""

from __future__ import annotations

import json
import runpy
import sys

for argv in json.loads(sys.argv[1]):
    sys.argv = argv
    runpy.run_path(argv[0], run_name="__main__")
