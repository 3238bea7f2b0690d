"""Finds the JVM's threads that run the calls of Python's threads.

After Ctrl-C in Python, the call continues in the JVM. Spark lists a running statement only after it has planned it. So a
call that is not in the list can still begin its statement.
"""

from __future__ import annotations

import threading
from typing import Any

_AT_WORK = "py4j.commands."
"""The stack of a thread contains it while the thread runs a call."""


class JvmThreads:
    """Remembers, for each Python thread, the JVM's thread that runs its calls.

    :param gateway: PySpark's gateway to the JVM.
    """

    def __init__(self, gateway: Any) -> None:
        self._gateway = gateway
        self._here = threading.local()

    def note(self) -> None:
        """Remember the JVM's thread that runs the next call of this Python thread.

        PySpark pins threads by default: all calls over one connection run in one thread of the JVM. So one question for
        each connection is enough.
        """
        connection = self._connection()
        if connection is None or connection is not getattr(self._here, "connection", None):
            self._here.thread = self._gateway.jvm.java.lang.Thread.currentThread()
            self._here.connection = self._connection()

    def noted(self) -> Any:
        """The JVM's thread of the latest statement of this Python thread. None if there was no statement."""
        return getattr(self._here, "thread", None)

    def runs_call(self, thread: Any) -> bool:
        """Whether *thread* runs a call from Python now.

        :param thread: a thread of the JVM, from :meth:`noted`.
        """
        # py4j finds no method of Java that takes this array.
        return _AT_WORK in str(self._gateway.jvm.scala.runtime.ScalaRunTime.stringOf(thread.getStackTrace()))

    def _connection(self) -> Any:
        """The connection of this Python thread. None if PySpark does not pin threads: they share connections then."""
        of_thread = getattr(self._gateway._gateway_client, "get_thread_connection", None)
        return of_thread and of_thread()
