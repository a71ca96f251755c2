"""List where the user is told about jobs, alerts and bookings, and change that."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QLineEdit, QWidget

from gpudeck.app.language.texts import tr, tr_noop, tr_text
from gpudeck.app.link.link import Link
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import (
    Stretch,
    button,
    choice_box,
    clear_panel,
    column,
    label,
    line_box,
    row,
    set_text,
    show_if_any,
)
from gpudeck.scheduler.protocol.destinations import (
    EXAMPLES,
    Destination,
    DestinationState,
    Kind,
)
from gpudeck.scheduler.verbs.notify import GetDestinations, SetDestination, TryDestination

KINDS: dict[Kind, str] = {
    "ntfy": tr_noop("ntfy"),
    "slack": tr_noop("Slack"),
    "discord": tr_noop("Discord"),
    "telegram": tr_noop("Telegram"),
    "mail": tr_noop("Mail"),
    "webhook": tr_noop("Webhook"),
    "desktop": tr_noop("Desktop"),
}
"""The kinds of destinations, as people read them."""
EVENTS = {
    "end": tr_noop("every end of a job"),
    "fail": tr_noop("failures"),
    "alert": tr_noop("alerts"),
    "booking": tr_noop("bookings"),
}
"""What a destination is told, as people read it."""


class DestinationsPanel(QWidget):
    """Show the destinations, each with a button to test it, and a line to add one."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link
        self.lines: dict[str, QWidget] = {}
        """The line of each destination, by its name."""
        self._list = column(spacing=theme.XS)
        self.name = line_box(tr("Name"), tr("e.g. phone"))
        self.kind = choice_box(tr("Kind"), KINDS.values())
        self.kind.currentIndexChanged.connect(self._show_example)
        self.address = line_box(tr("Address"), "")
        self.address.setEchoMode(QLineEdit.EchoMode.Password)
        self.add = button(tr("Add"), self._add)
        self.said = label(size="small", wrap=True)
        self.said.setAccessibleName(tr("Outcome"))
        self.said.hide()
        help_ = label(
            tr("You are told here of failed jobs, alerts and bookings, even while no window is "
               "open, and of the end of each job that names the destination under Notify. The "
               "address may hold a password; it is stored by the daemon and never shown again."),
            size="small", meaning="muted", wrap=True,
        )  # fmt: skip
        form = row(self.name, self.kind, Stretch(self.address), self.add)
        self.setLayout(
            column(
                help_,
                clear_panel(self._list),
                clear_panel(form),
                self.said,
                margins=(0, theme.S, 0, theme.S),
            )
        )
        self._show_example(0)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._load()

    def _load(self) -> None:
        ignore = lambda _: None  # noqa: E731 - the window says itself that no daemon answers
        self._link.send(self, GetDestinations(), self.show_states, ignore, background=True)

    def show_states(self, states: Sequence[DestinationState]) -> None:
        """Show these destinations in place of the earlier ones."""
        for line in self.lines.values():
            self._list.removeWidget(line)
            line.hide()
            line.deleteLater()
        self.lines = {state.name: self._line(state) for state in states}
        for line in self.lines.values():
            self._list.addWidget(line)

    def _line(self, state: DestinationState) -> QWidget:
        told = ", ".join(tr(EVENTS[event]) for event in state.events)
        about = " · ".join(filter(None, (tr(KINDS[state.kind]), state.host, told)))
        test = button(tr("Test"), lambda: self._test(state.name), kind="quiet")
        remove = button(tr("Remove"), lambda: self._remove(state.name), kind="quiet")
        test.setAccessibleName(f"{tr('Test')} {state.name}")
        remove.setAccessibleName(f"{tr('Remove')} {state.name}")
        what = label(about, size="small", meaning="muted", wrap=True)
        problem = label(size="small", meaning="failed", wrap=True)
        show_if_any(problem, tr_text(state.problem) if state.problem else "")
        words = column(label(state.name, strong=True), what, problem, spacing=0)
        return clear_panel(row(Stretch(words), test, remove))

    @property
    def _kind(self) -> Kind:
        return tuple(KINDS)[self.kind.currentIndex()]

    def _show_example(self, _: int) -> None:
        example = EXAMPLES[self._kind]
        self.address.setPlaceholderText(example)
        self.address.setToolTip(example)
        self.address.setEnabled(bool(example))

    def _add(self) -> None:
        kind = self._kind
        destination = Destination(kind, self.address.text().strip() if EXAMPLES[kind] else "")
        self._send(SetDestination(self.name.text().strip(), destination), self._added)

    def _added(self, _: None) -> None:
        self.name.clear()
        self.address.clear()
        self._load()

    def _remove(self, name: str) -> None:
        self._send(SetDestination(name, None), lambda _: self._load())

    def _test(self, name: str) -> None:
        done = tr("A test was sent to {name}.", name=name)
        self._send(TryDestination(name), lambda _: self._say(done))

    def _send(
        self, request: SetDestination | TryDestination, then: Callable[[None], object]
    ) -> None:
        self._say("")
        self._link.send(self, request, then, self._fail)

    def _say(self, text: str) -> None:
        theme.mark(self.said, "meaning", "muted")
        show_if_any(self.said, text)

    def _fail(self, problem: str) -> None:
        theme.mark(self.said, "meaning", "failed")
        set_text(self.said, problem)
        self.said.show()
        self._load()
