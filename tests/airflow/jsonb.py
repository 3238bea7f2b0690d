"""JSON as PostgreSQL's jsonb gives it back, for tests without a server; ``test_jsonb.py`` compares it with a real one.

MySQL's JSON orders keys in the same way. SQLite keeps the text, and so hides what depends on the order.
"""

from __future__ import annotations

import json
from typing import Any


def stored(value: Any) -> Any:
    """*value*, plain, as it comes back."""
    return _ordered(json.loads(json.dumps(value)))


def dumps(value: Any) -> str:
    """As SQLAlchemy's ``json_serializer``: what a database keeps as text comes back as jsonb would give it."""
    return json.dumps(stored(value))


def _ordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _ordered(value[key]) for key in sorted(value, key=lambda key: (len(key.encode()), key.encode()))}
    return [_ordered(item) for item in value] if isinstance(value, list) else value
