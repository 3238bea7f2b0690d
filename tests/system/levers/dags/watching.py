"""The DAGs of the guide on alerts in Airflow, as a user copies them. An hour is some seconds here, and their database is *watched*."""

from __future__ import annotations

from tests.docs.blocks import Kind, blocks
from tests.system.levers.stores import AN_HOUR_S

for block in blocks(Kind.DAG):
    if block.page == "docs/guides/watch-and-alert.md":
        text = block.padded.replace("hours=1", f"seconds={AN_HOUR_S}").replace('"dw.', '"watched.')
        exec(compile(text, block.page, "exec", dont_inherit=True), globals())
