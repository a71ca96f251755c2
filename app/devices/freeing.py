"""Free GPUs for a time, and announce what became of their jobs."""

from __future__ import annotations

from PySide6.QtCore import QObject

from gpudeck.app.format.bookings import freed_text
from gpudeck.app.format.freeing import FREE_S
from gpudeck.app.language.texts import tr
from gpudeck.app.link.link import Link
from gpudeck.app.link.notice import Notice, NoticeAction
from gpudeck.scheduler.protocol.bookings import Booking
from gpudeck.scheduler.protocol.snapshot import Snapshot
from gpudeck.scheduler.verbs.bookings import Booked, CancelBooking, Reserve


def free_gpus(owner: QObject, link: Link, gpus: tuple[str, ...], snapshot: Snapshot) -> None:
    """Suspend the jobs on GPUs, keep these free for FREE_S, and announce it with a way back."""
    booking = Booking(gpus, snapshot.time, snapshot.time + FREE_S, frees=True)

    def announce(made: Booked) -> None:
        back = NoticeAction(tr("End it now"), lambda: link.send(owner, CancelBooking(made.number)))
        text = ". ".join(freed_text(made, booking, snapshot)[:-1])
        link.announced.emit(Notice(text, (back,)))

    link.send(owner, Reserve(booking), announce)
