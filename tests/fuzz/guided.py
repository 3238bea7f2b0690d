"""One target under libFuzzer: ``python -m tests.fuzz.guided target [libFuzzer's arguments]``."""

from __future__ import annotations

import logging
import sys
import warnings

import atheris

logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")
with atheris.instrument_imports(include=["airflow_hivelock"], enable_loader_override=False):
    from tests.fuzz.targets import TARGETS

target = TARGETS[sys.argv.pop(1)]
atheris.Setup(sys.argv, target.check)
atheris.Fuzz()
