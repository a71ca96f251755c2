"""Find the user behind a TCP connection, and limit how many connections each user has open.

Any user of a machine can connect to a port on its loopback address. Without a limit per user, the
idle connections of one would lock out the owner of an endpoint.
"""

from __future__ import annotations

import ipaddress
import math
import os
import pwd
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable

PER_STRANGER = 4
"""Connections of one other user, or of one other machine."""
STRANGERS = 16
"""Connections of all others together."""
LOG_S = 60.0
"""The shortest time between two lines in the log about the same party."""

Party = int | str
"""A user id on this machine, the address of another machine, or UNKNOWN."""
UNKNOWN = "unknown"
"""A process of this machine that has closed its end."""

_NETLINK_SOCK_DIAG, _DIAG_BY_FAMILY, _ERROR = 4, 20, 2
_ESTABLISHED = 1
_NO_COOKIE = b"\xff" * 8


def user_of(sock: socket.socket) -> int | None:
    """Return the user id of the process at the other end of a connection within this machine.

    None where the connection is from elsewhere, or where that process has closed its end.

    Source:
        sock_diag(7)
    """
    here, there = sock.getsockname(), sock.getpeername()
    source, target = _address(there[0]), _address(here[0])
    family = socket.AF_INET if source.version == 4 else socket.AF_INET6
    # the other process's end of the connection: its source is what we see as the peer
    connection = struct.pack("!HH16s16sI", there[1], here[1], source.packed, target.packed, 0)
    request = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, 1 << _ESTABLISHED)
    body = request + connection + _NO_COOKIE
    head = struct.pack("=IHHII", 16 + len(body), _DIAG_BY_FAMILY, 1, 1, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
            kernel.settimeout(1.0)
            kernel.send(head + body)
            reply = kernel.recv(4096)
    except OSError:
        return None
    _, kind = struct.unpack_from("=IH", reply)
    if kind == _ERROR or reply[17] != _ESTABLISHED:
        return None
    (uid,) = struct.unpack_from("=I", reply, 16 + 64)
    return int(uid)


class ConnectionLimits:
    """Count the open connections of each party; may be used by several threads."""

    def __init__(self, own: int, log: Callable[[str], None]) -> None:
        """Start without connections.

        Args:
            own: The most connections of this user.
            log: Takes a line about refused connections, at most one per party and LOG_S.
        """
        self._own, self._log = own, log
        self._lock = threading.Lock()
        self._open: Counter[Party] = Counter()
        self._refused: Counter[Party] = Counter()
        self._logged: dict[Party, float] = {}

    def admit(self, sock: socket.socket) -> Party | None:
        """Return the party behind a new connection, to be released; None where it has too many."""
        party = party_of(sock)
        own = party == os.getuid()
        with self._lock:
            others = self._open.total() - self._open[os.getuid()]
            limit = self._own if own else PER_STRANGER
            if self._open[party] < limit and (own or others < STRANGERS):
                self._open[party] += 1
                return party
            line = self._refuse(party)
        if line:
            self._log(line)
        return None

    def release(self, party: Party) -> None:
        """Count a connection of the party as closed."""
        with self._lock:
            self._open[party] -= 1
            if not self._open[party]:
                del self._open[party]

    def _refuse(self, party: Party) -> str:
        """Return the line to log about a refused connection; empty where one was just logged."""
        self._refused[party] += 1
        now = time.monotonic()
        if now - self._logged.get(party, -math.inf) < LOG_S:
            return ""
        self._logged = {p: at for p, at in self._logged.items() if now - at < LOG_S}
        self._logged[party] = now
        count = self._refused.pop(party)
        many = "a connection" if count == 1 else f"{count} connections"
        return f"refused {many} of {name_of(party)}: too many are open"


def party_of(sock: socket.socket) -> Party:
    """Return who is at the other end of a connection."""
    try:
        address = _address(sock.getpeername()[0])
        user = user_of(sock)
    except OSError:  # it has been reset
        return UNKNOWN
    if user is not None:
        return user
    return UNKNOWN if address.is_loopback else str(address)


def name_of(party: Party) -> str:
    """Return what a party is called in the log."""
    if isinstance(party, str):
        return "an unknown user" if party == UNKNOWN else party
    try:
        return f"user {pwd.getpwuid(party).pw_name}"
    except KeyError:
        return f"user {party}"


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
