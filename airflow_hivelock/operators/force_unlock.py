"""HiveForceUnlockOperator: frees leases that their owners do not release."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperator

from airflow_hivelock import metrics
from airflow_hivelock.hooks import HiveLockHook
from airflow_hivelock.locks import rules
from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.invalid import MAX_REASON_LENGTH, printable
from airflow_hivelock.operators.arguments import (
    as_written,
    check_callbacks,
    check_connection,
    check_lists,
    check_objects,
    check_span,
    check_switch,
    is_rendered,
    names_nothing,
)
from airflow_hivelock.spec import Owner
from airflow_hivelock.work.stale import Verdict, judge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_hivelock.locks.manager import LockManager
    from airflow_hivelock.locks.model import Holder, Lease


_RELEASED = Verdict(False, "it was released or taken over in the meantime")


class HiveForceUnlockOperator(BaseOperator):
    """Release leases by force. Return a report with reasons. The audit trail has each release.

    :param leases: the ids of the leases to check. None means all, unless a template or XCom is None: that is an error.
    :param objects: check only leases that lock one of these objects, or an object below it. None means all, as for
        *leases*.
    :param stale: release only stale leases: this Airflow's own leases with a run that is over or unknown. False
        releases all leases of ``leases`` or ``objects``, of any owner.
    :param min_age: skip leases that were granted or renewed within this time.
    :param dry_run: only report. ``dry_run`` and ``min_age`` can be templates in a DAG that renders native objects.
    :param reason: the reason for the audit trail.
    """

    template_fields: Sequence[str] = ("leases", "objects", "min_age", "only_report", "reason")

    def __init__(
        self,
        *,
        leases: Sequence[str] | None = None,
        objects: Sequence[str] | None = None,
        stale: bool = True,
        min_age: timedelta | str = timedelta(minutes=5),
        dry_run: bool | str = False,
        reason: str = "stale",
        hivelock_conn_id: str = HiveLockHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not stale and leases is None and objects is None:
            raise InvalidRequest(f"{self.task_id}: stale=False frees leases of any owner. Pass leases or objects")
        self.leases = leases
        self.objects = objects
        self.stale = stale
        self.min_age = min_age
        self.only_report = dry_run  # self.dry_run is Airflow's method
        self.reason = reason
        self.hivelock_conn_id = hivelock_conn_id
        self._given = [name for name in ("leases", "objects") if getattr(self, name) is not None]
        self._check_arguments()

    def resolve_template_files(self) -> None:
        """Check the lists. Airflow calls this when it has parsed the DAG."""
        super().resolve_template_files()
        check_lists(self, "leases", "objects")

    def _check_arguments(self) -> None:
        """Refuse invalid arguments that are not templates, when the DAG is parsed."""
        for name, value in (("leases", self.leases), ("objects", self.objects)):
            if value is not None and not is_rendered(value) and not isinstance(value, list | tuple):
                raise InvalidRequest(f"{self.task_id}: {name}={value!r} must be a list of names, as in [{value!r}]")
        check_callbacks(vars(self))
        check_connection(vars(self))
        check_objects(self, self.objects or ())
        self._check_ids(as_written(self.leases or ()))
        check_switch(vars(self), "stale")
        if not is_rendered(self.min_age):
            check_span({"task_id": self.task_id, "min_age": self.min_age}, "min_age")
        if not is_rendered(self.only_report):
            check_switch({"task_id": self.task_id, "dry_run": self.only_report}, "dry_run")
        if not is_rendered(self.reason):
            self._check_reason()

    def _check_ids(self, ids: Sequence[str]) -> None:
        for lease_id in ids:
            if not str(lease_id).strip():
                raise InvalidRequest(
                    f"{self.task_id}: leases has an empty id, {lease_id!r}. SHOW LEASE * lists the ids of the leases"
                )

    def _check_reason(self) -> None:
        # A native template can turn a text such as "42" into a number.
        if self.reason is None or not str(self.reason).strip():
            raise InvalidRequest(f"{self.task_id}: the reason is empty. The audit trail needs one")

    def execute(self, context: Any) -> dict[str, list[dict[str, str]]]:
        """Free the leases. Return the freed leases (with ``dry_run``, those that would be) and the others, each as
        lease, owner and reason."""
        self._check_reason()
        for name, value, kind in (("dry_run", self.only_report, bool), ("min_age", self.min_age, timedelta)):
            if not isinstance(value, kind):
                raise InvalidRequest(
                    f"{self.task_id}: {name} is {value!r}, not a {kind.__name__}. If it is a template, set "
                    "render_template_as_native_obj=True in the DAG"
                )
        for name, names in (("leases", self.leases), ("objects", self.objects)):
            # A string is a collection, too: '12' would free the leases '1' and '2'.
            if names is not None and (isinstance(names, str | Mapping) or not all(isinstance(n, str) for n in names)):
                raise InvalidRequest(
                    f"{self.task_id}: {name} is {names!r:.200}, not a list of names. If it is a template, put it in a list, as in "
                    f"['{{{{ … }}}}'], or set render_template_as_native_obj=True in the DAG"
                )
        self._check_ids(self.leases or ())
        report: dict[str, list[dict[str, str]]] = {"freed": [], "left": []}
        if names_nothing(self, self._given):
            return report
        hook = HiveLockHook(self.hivelock_conn_id)
        manager = hook.manager()
        manager.sweep()
        user = by_whom(hook, context)
        chosen = self._chosen(manager)
        for lease_id in sorted({*(self.leases or ())} - {str(holder.lease_id) for holder in chosen}):
            other = manager.find(lease_id)
            self.log.warning(
                "no lease %s is held. SHOW LEASE * lists the leases"
                if other is None
                else "lease %s is held, but locks nothing in objects, so it is not checked. SHOW LEASE * lists its objects",
                printable(lease_id),
            )
        if not chosen:
            self.log.info("there is no lease to check")
        for holder in chosen:
            lease = manager.find(str(holder.lease_id))
            verdict = self._judge(hook, manager, holder, lease)
            if verdict.stale and not self.only_report:
                verdict = self._free(manager, holder, lease if self.stale else None, verdict, user)
            what = "freed" if verdict.stale else "left"
            report[what].append({"lease": str(holder.lease_id), "owner": holder.owner, "reason": verdict.reason})
            action = "would free" if verdict.stale and self.only_report else what
            self.log.info(
                "%s lease %s of %s: %s", action, holder.lease_id, printable(holder.owner), printable(verdict.reason)
            )
        return report

    def _chosen(self, manager: LockManager) -> list[Holder]:
        """The leases to check, each as one holder."""
        targets = [None] if self.objects is None else rules.objects("objects", self.objects)
        holders = (holder for target in targets for holder in manager.show(target) if holder.lease_id is not None)
        chosen = {holder.lease_id: holder for holder in holders}
        wanted = chosen.keys() if self.leases is None else self.leases
        return [chosen[lease_id] for lease_id in wanted if lease_id in chosen]

    def _judge(self, hook: HiveLockHook, manager: LockManager, holder: Holder, lease: Lease | None) -> Verdict:
        if not self.stale:
            return Verdict(True, str(self.reason))
        if lease is None:
            return _RELEASED
        assert isinstance(self.min_age, timedelta)
        return judge(holder, lease, hook.installation, self.min_age, manager.now())

    def _free(self, manager: LockManager, holder: Holder, seen: Lease | None, verdict: Verdict, user: str) -> Verdict:
        """Release the lease. Return *verdict*, or another one if another client was quicker."""
        # The reason alone may be as long as the audit trail allows, and a lease must not stay because of its text.
        reason = f"{self.reason}: {verdict.reason}"[:MAX_REASON_LENGTH] if self.stale else verdict.reason
        if not manager.force_release(str(holder.lease_id), reason=reason, user=user, seen=seen):
            return _RELEASED
        metrics.force_released()
        return verdict


def by_whom(hook: HiveLockHook, context: Any) -> str:
    """The user for the audit trail: the task, with the user who triggered the run."""
    task = str(Owner.of(hook.installation, context["ti"]))
    person = getattr(context.get("dag_run"), "triggering_user_name", None)
    return f"{person} by {task}" if person else task
