"""Kerberos tickets: a check before a connection, because the libraries' own errors hide the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_hivelock.locks.errors import AccessDenied

if TYPE_CHECKING:
    from collections.abc import Iterable


def context(service: str, host: str) -> Any:
    """Return a new security context for *service* on *host*, from the ticket of this process."""
    import gssapi

    return gssapi.SecurityContext(
        name=gssapi.Name(f"{service}@{host}", gssapi.NameType.hostbased_service),
        mech=gssapi.MechType.kerberos,
        usage="initiate",
        flags=[
            gssapi.RequirementFlag.mutual_authentication,
            gssapi.RequirementFlag.out_of_sequence_detection,
            gssapi.RequirementFlag.integrity,
            gssapi.RequirementFlag.confidentiality,
        ],
    )


def check(service: str, hosts: Iterable[str]) -> None:
    """Check that this process has a ticket for *service* on one of *hosts*.

    :raises AccessDenied: it has none. The message has Kerberos's reason.
    """
    from gssapi.exceptions import GSSError

    faults = []
    for host in hosts:
        try:
            context(service, host).step(None)
        except GSSError as error:
            faults.append(f"{service}@{host}: {reason_of(error)}")
        else:
            return
    raise AccessDenied(
        f"no Kerberos ticket for {'; '.join(faults)}. Run kinit, or airflow kerberos, and set KRB5CCNAME to its cache. Set "
        "kerberos_service_name to the first part of the server's principal"
    )


def reason_of(error: BaseException) -> str:
    """Return the text of *error*. An error of GSSAPI may contain a text of Kerberos, which explains more."""
    statuses = getattr(error, "get_all_statuses", None)
    if statuses is None:
        return str(error) or type(error).__name__
    minor = getattr(error, "min_code", 0)
    texts = statuses(minor, False) if minor else statuses(getattr(error, "maj_code", 0), True)
    return str(texts[-1]) if texts else str(error)
