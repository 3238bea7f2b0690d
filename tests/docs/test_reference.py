"""docs/reference.md has the same contents as the docstrings."""

from __future__ import annotations

import re

import airflow_hivelock
from airflow_hivelock import locks
from tests.docs import markup
from tests.docs.reference import PAGE, reference


def test_the_reference_is_what_the_docstrings_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "docs/reference.md is stale: make reference"


def test_every_public_name_is_in_the_reference() -> None:
    page = PAGE.read_text(encoding="utf-8")
    public = (*airflow_hivelock.__all__, *locks.__all__)
    assert not [name for name in public if not re.search(rf"^(#+ |[├└│─ ]+){name}\b|^{name}$", page, re.MULTILINE)]


def test_a_docstring_becomes_markdown() -> None:
    """Two lines.

    :param one: what ``one`` is,
        on two lines.
    :raises InvalidRequest: a :class:`~airflow_hivelock.locks.model.LockObject` that is none.

    ===  =====
    a    ``b``
    ===  =====
    """
    doc = markup.parse(test_a_docstring_becomes_markdown.__doc__)
    assert doc.text == "Two lines.\n\n|  |  |\n| --- | --- |\n| a | `b` |"
    assert doc.params == {"one": "what `one` is, on two lines."}
    assert doc.raises == (("InvalidRequest", "a `LockObject` that is none."),)
