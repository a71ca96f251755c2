"""Run a small mail server that keeps what it receives."""

from __future__ import annotations

import base64
import socketserver
import threading
from email import message_from_bytes, policy
from email.message import EmailMessage


class MailServer:
    """Speak as much SMTP as a client needs that logs in and hands over a mail."""

    def __init__(self, password: str = "") -> None:
        """Listen on this machine; with a password, accept no mail without it."""
        self.got: list[EmailMessage] = []
        self.recipients: list[str] = []
        server = self

        class Session(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                logged_in = not password
                self.say("220 ready")
                while line := self.rfile.readline().decode().strip():
                    verb = line.split()[0].upper()
                    if verb == "EHLO":
                        self.say("250-here\r\n250 AUTH PLAIN")
                    elif verb == "AUTH":
                        given = base64.b64decode(line.split()[2]).decode().split("\0")
                        logged_in = given[1:] == ["me", password]
                        self.say("235 welcome" if logged_in else "535 wrong")
                    elif not logged_in and verb == "MAIL":
                        self.say("530 log in first")
                    elif verb == "RCPT":
                        server.recipients.append(line)
                        self.say("250 fine")
                    elif verb == "DATA":
                        self.say("354 go on")
                        body = b""
                        while not body.endswith(b"\r\n.\r\n"):
                            body += self.rfile.readline()
                        mail = message_from_bytes(body[:-3], policy=policy.default)
                        assert isinstance(mail, EmailMessage)
                        server.got.append(mail)
                        self.say("250 taken")
                    elif verb == "QUIT":
                        self.say("221 bye")
                        return
                    else:
                        self.say("250 fine")

            def say(self, line: str) -> None:
                self.wfile.write(line.encode() + b"\r\n")

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Session)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
