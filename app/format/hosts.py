"""Describe other machines that are read over ssh, and check how they are to be reached."""

from __future__ import annotations

import re
from collections import Counter

import msgspec

from gpudeck.app.language.texts import tr, tr_count, tr_text
from gpudeck.language.numbers import clock
from gpudeck.scheduler.hosts.decoder import Moment
from gpudeck.scheduler.protocol.devices import card_name
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.settings import HOST, HostSettings
from gpudeck.scheduler.protocol.snapshot import HostState


def make_host(name: str, address: str, config: str = "", home: str = "") -> HostSettings:
    """Return how to reach a machine.

    Args:
        name: The user's name for it, which is checked as well.
        address: What is given to ssh.
        config: A configuration file of ssh.
        home: The state folder of the GPU Deck there.

    Raises:
        UserError: A text is not valid.
    """
    if not re.match(HOST, name):
        raise UserError(
            tr(
                "a machine is named with up to 32 letters, digits, dots, dashes and underscores; "
                "got {name}",
                name=repr(name),
            )
        )
    try:
        return msgspec.convert({"address": address, "config": config, "home": home}, HostSettings)
    except msgspec.ValidationError as e:
        raise UserError(
            tr(
                "an address is what ssh connects to, as in user@lab1; got {address}",
                address=repr(address),
            )
        ) from e


def found(moment: Moment) -> str:
    """Describe what a machine has, in a line or two."""
    names = ", ".join(dict.fromkeys(device.name for device in moment.devices))
    gpus = sum(device.kind != "cpu" for device in moment.devices)
    text = (
        tr_count(
            "It has {n} GPU: {names} (read with {tool}).",
            "It has {n} GPUs: {names} (read with {tool}).",
            gpus,
            names=names,
            tool=moment.how,
        )
        if gpus
        else tr(
            "It has no GPU; its CPU is shown: {names} (read with {tool}).",
            names=names,
            tool=moment.how,
        )
    )
    notes = "; ".join(
        dict.fromkeys(tr_text(device.note) for device in moment.devices if device.note)
    )
    if notes:
        text += f" {notes}."
    if not moment.deck:
        return text
    queue = tr(
        "GPU Deck runs there, too; use its queue with: {command}",
        command="gpudeck --host NAME submit -- ...",
    )
    return f"{text} {queue}"


def host_devices(host: HostState) -> str:
    """Return the devices of a machine, those of one name together."""
    counts = Counter(card_name(state.device.name) for state in host.devices)
    texts = (f"{count} × {name}" if count > 1 else name for name, count in counts.items())
    return ", ".join(texts) or tr("unknown")


def host_state(host: HostState, now: float) -> str:
    """Return whether a machine can be reached, since when, and how it is read."""
    since = clock(host.since, now)
    if host.problem is not None:
        return f"unreachable since {since}: {host.problem}"
    deck = "; GPU Deck runs there" if host.deck else ""
    return f"reachable since {since}, read with {host.how}{deck}"
