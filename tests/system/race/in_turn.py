"""Run applications in one driver, one after the other: ``in_turn.py '[["a.py", "--dt", "2013-01-15"], ["b.py"]]'``.

A JVM takes longer to start than all of the example jobs to run.
"""

from __future__ import annotations

import json
import runpy
import sys

for argv in json.loads(sys.argv[1]):
    sys.argv = argv
    runpy.run_path(argv[0], run_name="__main__")
