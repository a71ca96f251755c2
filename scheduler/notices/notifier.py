"""Decide who is told what, and hand it to the courier of each destination."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from gpudeck.language.text import phrase
from gpudeck.scheduler.notices.book import DestinationBook
from gpudeck.scheduler.notices.courier import Courier
from gpudeck.scheduler.notices.notice import (
    Notice,
    alert_notice,
    booking_notice,
    job_notice,
    trial_notice,
)
from gpudeck.scheduler.protocol.bookings import Booking
from gpudeck.scheduler.protocol.destinations import (
    Destination,
    DestinationState,
    check_destination,
    host_of,
)
from gpudeck.scheduler.protocol.errors import NotFound, UserError
from gpudeck.scheduler.protocol.jobs import Job
from gpudeck.scheduler.protocol.settings import Settings
from gpudeck.scheduler.protocol.snapshot import Alert

_WEBHOOK = "webhook"
"""The name under which problems of the setting `webhook` are shown."""


class Roles(NamedTuple):
    """Know the users of a shared daemon."""

    shared: bool
    is_admin: Callable[[int], bool]
    is_member: Callable[[int, str], bool]
    """Whether a user is in a group of the machine."""


class Notifier:
    """Tell people of jobs, alerts and bookings.

    Args:
        book: The destinations.
        settings: Returns the present settings.
        show: Takes a topic and a problem for the daemon's user; None where it is solved.
        roles: Knows the users of a shared daemon.
        couriers: Makes the courier of a destination.
    """

    def __init__(
        self,
        book: DestinationBook,
        settings: Callable[[], Settings],
        show: Callable[[str, str | None], None],
        roles: Roles,
        couriers: Callable[..., Courier] = Courier,
    ) -> None:
        self._book, self._settings, self._show, self._roles = book, settings, show, roles
        self._make, self._checked = couriers, time.time()
        self._couriers: dict[tuple[int | None, str], Courier] = {}
        self._stopping: set[asyncio.Task[None]] = set()
        self._testing: set[int | None] = set()
        """Users for whom a test is being sent: each test is a process."""

    # What happened

    def job_ended(self, job: Job) -> None:
        """Tell those whom the job names, and those of its user who want to know of every end."""
        user, notice = job.spec.user, job_notice(job)
        for name, destination in self._book.of(user).items():
            wanted = {"end", notice.event} & set(destination.events)
            if wanted or name in job.spec.notify:
                self._send(user, name, destination, notice)

    def alert_changed(self, alert: Alert, owner: int | None) -> None:
        """Tell of an alert that was raised or cleared.

        Args:
            alert: The alert.
            owner: The user of the job that it is about; None for no job.
        """
        notice, url = alert_notice(alert), self._settings().webhook
        if url:
            self._send(None, _WEBHOOK, Destination("webhook", url), notice)
        users = self._book.users()
        self._tell_of(notice, (u for u in users if u == owner or self._is_admin(u)))

    def check_bookings(self, bookings: Mapping[str, Booking], names: Mapping[str, str]) -> None:
        """Tell of bookings that began since the last check; `names` are those of the GPUs."""
        since, self._checked = self._checked, time.time()
        for number, booking in bookings.items():
            if since < booking.begin <= self._checked:
                gpus = [names.get(gpu, gpu) for gpu in booking.gpus]
                users = (u for u in self._book.users() if self._concerns(booking, u))
                self._tell_of(booking_notice(number, booking, gpus), users)

    # What users ask for

    def check_names(self, user: int | None, names: Iterable[str]) -> None:
        """Raise UserError where a job names a destination that its user does not have."""
        known = self._book.of(user)
        if missing := sorted(set(names) - known.keys()):
            raise UserError(
                phrase(
                    "there is no destination {names}. Add one with: gpudeck notify add {name} KIND",
                    names=", ".join(missing),
                    name=missing[0],
                )
            )

    def set(self, user: int | None, name: str, destination: Destination | None) -> None:
        """Add, replace or remove (None) a destination. Raises NotFound, UserError."""
        if destination is not None:
            check_destination(name, destination)
            if user is None and name == _WEBHOOK and self._settings().webhook:
                raise UserError(
                    phrase("{name} is the setting of this name: choose another name", name=name)
                )
        self._book.set(user, name, destination)
        self._retire(user, name)

    def states(self, user: int | None) -> Sequence[DestinationState]:
        """Return the destinations of a user, without their addresses."""
        found = []
        for name, d in self._book.of(user).items():
            courier = self._couriers.get((user, name))
            waiting, problem = (0, "") if courier is None else (len(courier), courier.problem)
            host = host_of(d.address)
            found.append(DestinationState(name, d.kind, host, d.events, waiting, problem))
        return found

    async def attempt(self, user: int | None, name: str) -> None:
        """Send a test to a destination, once. Raises NotFound, UserError."""
        destination = self._book.of(user).get(name)
        if destination is None:
            raise NotFound(phrase("there is no destination {name}. See: gpudeck notify", name=name))
        if user in self._testing:
            raise UserError(phrase("another test of yours is being sent; wait for its end"))
        courier = self._courier(user, name, destination)
        self._testing.add(user)
        try:
            problem = await courier.attempt(trial_notice(), self._settings().report_language)
        finally:
            self._testing.discard(user)
        courier.problem = problem
        if problem:
            raise UserError(
                phrase("nothing was sent to {name}: {problem}", name=name, problem=problem)
            )

    async def stop(self) -> None:
        """Stop sending; what waits is dropped."""
        couriers, self._couriers = self._couriers, {}
        await asyncio.gather(*(c.stop() for c in couriers.values()), *self._stopping)

    # The couriers

    def _tell_of(self, notice: Notice, users: Iterable[int | None]) -> None:
        for user in users:
            for name, destination in self._book.of(user).items():
                if notice.event in destination.events:
                    self._send(user, name, destination, notice)

    def _send(self, user: int | None, name: str, destination: Destination, notice: Notice) -> None:
        courier = self._courier(user, name, destination)
        courier.send(notice, self._settings().report_language)

    def _courier(self, user: int | None, name: str, destination: Destination) -> Courier:
        courier = self._couriers.get((user, name))
        if courier is None or courier.destination != destination:
            self._retire(user, name)
            sender = user if self._roles.shared else None
            courier = self._make(destination, sender, lambda text: self._problem(user, name, text))
            self._couriers[user, name] = courier
        return courier

    def _problem(self, user: int | None, name: str, problem: str | None) -> None:
        """Show a problem to who runs the daemon; other users see theirs in their lists."""
        if user is None:
            text = None if problem is None else f"{name} could not be told: {problem}"
            self._show(f"notices {name}", text)

    def _retire(self, user: int | None, name: str) -> None:
        """Stop the courier of a destination that was changed or removed."""
        if (old := self._couriers.pop((user, name), None)) is not None:
            self._problem(user, name, None)
            task = asyncio.create_task(old.stop())
            self._stopping.add(task)
            task.add_done_callback(self._stopping.discard)

    def _is_admin(self, user: int | None) -> bool:
        return user is None or self._roles.is_admin(user)

    def _concerns(self, booking: Booking, user: int | None) -> bool:
        """Return whether a user is told that a booking begins."""
        if user is None or booking.user is not None:
            return user == booking.user or user is None
        if booking.group:
            return self._roles.is_member(user, booking.group)
        return self._roles.is_admin(user)
