"""Strict rendering of lock names."""

from __future__ import annotations

from typing import Any

import jinja2

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.spec import RENDERED

FILES = (".sql", ".hql")


def is_file(sql: Any) -> bool:
    """Whether *sql* names a file of SQL, by the rule of Airflow's ``template_ext``."""
    return isinstance(sql, str) and sql.endswith(FILES)


def sql_source(jinja_env: Any, name: str) -> str:
    """The text of the file *name*, from the directory of the DAG's templates.

    :raises InvalidRequest: it is not there.
    """
    try:
        return str((jinja_env.loader or jinja2.DictLoader({})).get_source(jinja_env, name)[0])
    except jinja2.TemplateNotFound as error:
        raise InvalidRequest(f"the file {name!r} is not in the folders of this DAG's templates") from error


class StrictNames:
    """Mixin for classes that Airflow renders: fields that name locks must not contain an undefined value or None.

    By default both render to a name all the same (``dt=``, ``dt=None``): the wrong lock, and success.
    """

    lock_sql: Any = ""

    def render_template(self, content: Any, context: Any, jinja_env: Any = None, seen_oids: Any = None) -> Any:
        """Airflow's method, called for each field and, within it, for each value."""
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
            raise InvalidRequest(f"{content!r} cannot be rendered, because this run lacks a value: {error}") from error
        if content is not self.lock_sql and "{{" in str(rendered):
            raise InvalidRequest(
                f"{content!r} renders to {rendered!r}, which still has templates. They are not rendered again: write their values"
            )
        return rendered


def _finalize(value: Any) -> Any:
    if value is None:
        raise jinja2.UndefinedError("an expression is None")
    return value
