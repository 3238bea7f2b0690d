"""An SMTP server that keeps what it gets."""

from __future__ import annotations

import email
import socketserver
import threading
from email.policy import default
from typing import TYPE_CHECKING, Self, cast

if TYPE_CHECKING:
    from email.message import EmailMessage


class Mailbox(socketserver.ThreadingTCPServer):
    """Accepts every mail, without TLS and login."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Session)
        self.mails: list[EmailMessage] = []

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def with_subject(self, text: str) -> list[str]:
        """The texts of the mails with *text* in their subject."""
        found = [mail for mail in list(self.mails) if text in mail["subject"]]
        return [part.get_content() for mail in found for part in mail.walk() if part.get_content_type() == "text/html"]


class _Session(socketserver.StreamRequestHandler):
    timeout = 60

    def handle(self) -> None:
        self._say("220 here")
        for line in self.rfile:
            verb = line[:4].strip().upper()
            if verb == b"DATA":
                self._say("354 go on")
                self._keep()
            self._say("221 bye" if verb == b"QUIT" else "250 done")
            if verb == b"QUIT":
                return

    def _keep(self) -> None:
        lines = iter(self.rfile.readline, b".\r\n")
        mail = email.message_from_bytes(b"".join(line.removeprefix(b".") for line in lines), policy=default)
        cast("Mailbox", self.server).mails.append(mail)

    def _say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())
