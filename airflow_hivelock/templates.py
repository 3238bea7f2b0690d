"""Rendering of lock names. A missing value is an error."""

from __future__ import annotations

from typing import Any

import jinja2

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.spec import RENDERED

FILES = (".sql", ".hql")


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
            raise InvalidRequest(
                f"{content!r} cannot be rendered, because a value is missing in this run: {error}"
            ) from error
        if content is not self.lock_sql and "{{" in str(rendered):
            raise InvalidRequest(
                f"{content!r} renders to {rendered!r}, which still contains a template. Airflow does not render the result again. "
                "Write the value instead"
            )
        return rendered


def _finalize(value: Any) -> Any:
    if value is None:
        raise jinja2.UndefinedError("an expression is None")
    return value
