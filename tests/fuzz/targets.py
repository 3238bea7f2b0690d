"""All targets, by name. Loading them loads Airflow."""

from __future__ import annotations

from tests.fuzz import connections, handed, hives, page, rows, text, znodes

TARGETS = {
    target.name: target
    for module in (text, znodes, rows, hives, connections, handed, page)
    for target in module.TARGETS
}
