"""Rendering of lock names. A missing value is an error."""

from __future__ import annotations

from typing import Any

import jinja2
from jinja2 import meta, nodes

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.spec import RENDERED

FILES = (".sql", ".hql")

_IN_TRIGGERER = """
conn data_interval_end data_interval_start ds ds_nodash inlets logical_date macros outlets params partition_date
partition_key run_id task_instance_key_str ts ts_nodash ts_nodash_with_tz var
dag.dag_id dag.end_date dag.start_date dag.tags dag.timezone
dag_run.conf dag_run.dag_id dag_run.data_interval_end dag_run.data_interval_start dag_run.logical_date
dag_run.partition_date dag_run.partition_key dag_run.run_after dag_run.run_id dag_run.start_date
task_instance.dag_id task_instance.map_index task_instance.run_id task_instance.task_id task_instance.try_number
ti.dag_id ti.map_index ti.run_id ti.task_id ti.try_number
"""

IN_TRIGGERER = frozenset(_IN_TRIGGERER.split())
"""The names that Airflow's triggerer renders to the same text as a worker.

It builds them from the run and the serialized DAG. For ``conn`` and ``var`` it asks its supervisor, which answers. The
supervisor never answers the questions of other names, such as ``prev_start_date_success``, ``inlet_events`` and
``ti.xcom_pull``, so the task would hang. Some names have other values there: ``task`` is not rendered,
``triggering_asset_events`` is empty, and ``dag_run`` lacks the user.
"""

_ONLY_ON_WORKERS = (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends, nodes.ExprStmt)
"""Statements that need the DAG's folder, or the extension ``do``. The triggerer has neither."""

_DATELESS = ". The run has no logical date. Trigger it with one (airflow dags trigger --logical-date), or use a value that it has"
"""Airflow gives no date to a run that an asset or a person starts without one."""


def is_file(sql: Any) -> bool:
    """Whether *sql* is the name of a file. The rule is that of Airflow's ``template_ext``."""
    return isinstance(sql, str) and sql.endswith(FILES)


def sql_source(jinja_env: Any, name: str) -> str:
    """Return the text of the file *name* in the folders of the DAG's templates.

    :raises InvalidRequest: the file does not exist.
    """
    try:
        return str((jinja_env.loader or jinja2.DictLoader({})).get_source(jinja_env, name)[0])
    except jinja2.TemplateNotFound as error:
        raise InvalidRequest(
            f"the file {name!r} is not in the folders of this DAG's templates. Correct the name, or add its folder to "
            "template_searchpath of the DAG"
        ) from error


def renders_in_triggerer(jinja_env: Any, template: str) -> bool:
    """Whether Airflow's triggerer can render *template*. If not, the task has to start on a worker.

    :param jinja_env: the environment of the task.
    """
    if "{" not in template:
        return True
    try:
        tree = jinja_env.parse(template)
        for part in tree.find_all(nodes.Getattr):
            # So that Jinja reports "ti.run_id" instead of "ti", unless the template itself assigns ti.
            if isinstance(part.node, nodes.Name) and (name := f"{part.node.name}.{part.attr}") in IN_TRIGGERER:
                part.node.name = name
        names = meta.find_undeclared_variables(tree)
    except jinja2.TemplateError:
        return False
    return names <= IN_TRIGGERER and tree.find(_ONLY_ON_WORKERS) is None


class StrictNames:
    """A mixin for classes whose fields Airflow renders. It refuses undefined values and None in the names of locks.

    Airflow would render them to ``dt=`` or ``dt=None``. The task would then succeed with the wrong lock.
    """

    lock_sql: Any = ""

    def render_template(self, content: Any, context: Any, jinja_env: Any = None, seen_oids: Any = None) -> Any:
        """Airflow calls this for each field, and then for each value in the field."""
        render = super().render_template  # type: ignore[misc]
        if not any(content is getattr(self, field) for field in RENDERED):
            return render(content, context, jinja_env, seen_oids)
        jinja_env = jinja_env or self.get_template_env()  # type: ignore[attr-defined]
        strict = jinja_env.overlay(undefined=jinja2.StrictUndefined, finalize=_finalize)
        try:
            if content is self.lock_sql and is_file(content):
                return render(sql_source(strict, content), context, strict, seen_oids)
            rendered = render(content, context, strict, seen_oids)
        except jinja2.UndefinedError as error:
            dateless = "" if context.get("logical_date") else _DATELESS
            raise InvalidRequest(
                f"{content!r} cannot be rendered, because a value is missing in this run: {error}{dateless}"
            ) from error
        except jinja2.TemplateSyntaxError as error:
            why = str(error).rstrip(".")  # Jinja ends only some of its messages with a full stop
            raise InvalidRequest(f"{content!r} is not a valid template: {why}. Correct it") from error
        if content is not self.lock_sql and "{{" in str(rendered):
            raise InvalidRequest(
                f"{content!r} renders to {rendered!r}, which still contains a template. Airflow does not render the result again. "
                "Write the value instead"
            )
        names = zip(content, rendered, strict=True) if isinstance(content, list | tuple) else [(content, rendered)]
        for template, name in names if content is not self.lock_sql else ():
            if name == "":
                raise InvalidRequest(
                    f"{template!r} renders to no name in this run. Remove it, or let it name an object"
                )
        return rendered


def _finalize(value: Any) -> Any:
    if value is None:
        raise jinja2.UndefinedError("an expression is None")
    return value
