"""Kerberos: whether this process has a ticket for a service, told before a library hides why not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hivelock.locks.errors import AccessDenied

if TYPE_CHECKING:
    from collections.abc import Iterable


def check(service: str, hosts: Iterable[str]) -> None:
    """:raises AccessDenied: there is none for *service* on any of *hosts*, and Kerberos says why."""
    import kerberos

    faults = []
    for host in hosts:
        name = f"{service}@{host}"
        try:
            _, context = kerberos.authGSSClientInit(name)
            kerberos.authGSSClientStep(context, "")
        except kerberos.GSSError as error:
            faults.append(f"{name}: {said(error)}")
        else:
            return
    raise AccessDenied(
        f"no Kerberos ticket for {'; '.join(faults)}. Run kinit, or airflow kerberos, and have KRB5CCNAME name its cache; "
        "kerberos_service_name is what the server's principal begins with"
    )


def said(error: BaseException) -> str:
    """What an error says; of Kerberos's, ``((major, code), (minor, code))``, the minor status, if it tells anything."""
    texts = [str(part[0]) for part in error.args if isinstance(part, tuple) and part and part[0] != "Success"]
    return texts[-1] if texts else str(error) or type(error).__name__
