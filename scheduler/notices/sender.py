"""The small process that sends one notice, so that a hang of the network stops nothing else.

It reads an Envelope from standard input, as an address may hold a secret: no command line, log or
error contains it. It prints why it failed.

    python -P -m gpudeck.scheduler.notices.sender SECONDS < envelope.json
"""

from __future__ import annotations

import encodings.idna  # noqa: F401 - names of servers are encoded by it
import http.client
import os
import pwd
import resource
import smtplib
import ssl
import sys
import urllib.error
import urllib.request
from email.message import EmailMessage
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from gpudeck.extras import missing_by
from gpudeck.language.rendering import render
from gpudeck.scheduler.background.user import identity_of
from gpudeck.scheduler.notices.bodies import Post, Wording, post_of
from gpudeck.scheduler.notices.envelope import Envelope
from gpudeck.scheduler.protocol.progress import printable

_USER_AGENT = "gpudeck"
_SUBMISSION, _SUBMISSION_TLS = 587, 465
"""The usual ports of mail servers, with STARTTLS and with TLS from the beginning."""
_MOST_SAID = 200
"""Characters of what a server says in a refusal."""
MOST_MEMORY = 2**28
"""Bytes of this process's memory: a mail server may answer with lines without end."""
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class NotSent(Exception):
    """Report why a notice was not sent, without the address."""


def send(envelope: Envelope, timeout: float) -> None:
    """Send the notice. Raises NotSent."""
    notice = envelope.notice
    try:
        title, text = (render(part, envelope.language) for part in (notice.title, notice.text))
        clean = "\n".join(map(printable, text.split("\n")))  # a folder may have any name
        wording = Wording(printable(title), clean, notice.fields, notice.urgent)
        if envelope.kind == "desktop":
            from gpudeck.scheduler.notices.desktop import show
        if envelope.user is not None:
            _become(envelope.user)
        if envelope.kind == "desktop":
            labels = (render(action.label, envelope.language) for action in notice.actions)
            show(wording, list(zip(labels, notice.actions, strict=True)))
        elif envelope.kind == "mail":
            _mail(envelope.address, wording, timeout)
        else:
            _post(post_of(envelope.kind, envelope.address, wording), timeout)
    except (smtplib.SMTPException, http.client.HTTPException, OSError, ValueError) as e:
        raise NotSent(_explain(e)) from e
    except MemoryError as e:
        raise NotSent("it sends an answer without end") from e
    except ModuleNotFoundError as e:
        raise NotSent(str(missing_by(e) or e)) from e


def _become(user: int) -> None:
    """Become a user for good, once all modules are imported: root's may be hidden. Raises OSError.

    The kernel hides the memory and the environment of such a process from the user.
    """
    identity_of(user).assume("/")
    os.environ["HOME"] = pwd.getpwuid(user).pw_dir
    os.environ["DBUS_SESSION_BUS_ADDRESS"] = f"unix:path=/run/user/{user}/bus"


def _explain(error: Exception) -> str:
    match error:
        case smtplib.SMTPAuthenticationError():
            return "the mail server refused the user or the password"
        case smtplib.SMTPNotSupportedError():
            return "the mail server offers no encryption, or no login"
        case smtplib.SMTPRecipientsRefused():
            return "the mail server refused the recipient"
        case smtplib.SMTPResponseException():
            return f"the mail server answered {error.smtp_code}"
        case ssl.SSLError():
            return f"its encryption fails ({error.reason or type(error).__name__})"
        case OSError(strerror=str(why)):
            return f"it cannot be reached ({why})"
    return f"it cannot be used ({type(error).__name__})"


def _post(post: Post, timeout: float) -> None:
    """Send a request. Raises NotSent, OSError.

    No redirect is followed: it would lead to a server that the user did not name, and most
    redirects turn the message into a request without a body.
    """

    class NoRedirect(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            return None

    headers = {"Content-Type": "application/json", "User-Agent": _USER_AGENT, **post.headers}
    body = msgspec.json.encode(post.body)
    # the addresses of destinations begin with http or https
    request = urllib.request.Request(post.url, body, headers, method="POST")  # noqa: S310
    try:
        with urllib.request.build_opener(NoRedirect).open(request, timeout=timeout):
            return
    except urllib.error.HTTPError as e:
        more = ". Name the address it redirects to" if 300 <= e.code < 400 else ""
        e.close()
        said = printable(str(e.reason))[:_MOST_SAID]
        raise NotSent(f"it answered {e.code} {said}{more}") from e
    except urllib.error.URLError as e:
        raise NotSent(f"it cannot be reached ({e.reason})") from e


def _mail(address: str, wording: Wording, timeout: float) -> None:
    """Hand a mail to a server. Raises smtplib.SMTPException, OSError, ValueError.

    A password is sent over an encrypted connection only, or to this machine.
    """
    parts = urlsplit(address)
    host, query = parts.hostname or "", parse_qs(parts.query)
    message = EmailMessage()
    message["From"], message["To"] = query["from"][0], ", ".join(query["to"])
    message["Subject"] = wording.title
    message.set_content(wording.text)
    context = ssl.create_default_context()
    if parts.scheme == "smtps":
        port = parts.port or _SUBMISSION_TLS
        server: smtplib.SMTP = smtplib.SMTP_SSL(host, port, timeout=timeout, context=context)
    else:
        server = smtplib.SMTP(host, parts.port or _SUBMISSION, timeout=timeout)
    with server:
        if parts.scheme == "smtp" and host not in _LOOPBACK:
            server.starttls(context=context)
        if parts.username:
            server.login(unquote(parts.username), unquote(parts.password or ""))
        server.send_message(message)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    try:
        send(msgspec.json.decode(sys.stdin.buffer.read(), type=Envelope), float(sys.argv[1]))
    except NotSent as e:
        print(e)
        sys.exit(1)
