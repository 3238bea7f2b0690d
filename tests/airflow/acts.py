"""An operator that takes locks and does what a test wants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.empty import EmptyOperator

from airflow_hivelock import HiveLockMixin

if TYPE_CHECKING:
    from collections.abc import Callable


class Plain(EmptyOperator):
    def execute(self, context: Any) -> None:
        self.act()  # type: ignore[attr-defined]


class Acts(HiveLockMixin, Plain):
    """Calls *act* as its work."""

    def __init__(self, *, act: Callable[[], Any] = lambda: None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.act = act
