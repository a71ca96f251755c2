"""Show everything that is known of one device."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QWidget

from gpudeck.app.charts.spark_row import SparkRow
from gpudeck.app.devices.device_facts import FactGroup, device_facts
from gpudeck.app.devices.fact_table import FactTable
from gpudeck.app.devices.freeing import free_gpus
from gpudeck.app.devices.group_card import GroupCard
from gpudeck.app.format.freeing import can_be_freed, free_question
from gpudeck.app.format.values import device_label
from gpudeck.app.language.texts import tr
from gpudeck.app.link.details_poller import DetailsPoller
from gpudeck.app.link.link import Link
from gpudeck.app.state import State
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.actions import bind_actions
from gpudeck.app.widgets.controls import (
    REACHES_EDGE,
    EdgeScrollArea,
    QuestionCard,
    Stretch,
    add_shortcuts,
    button,
    clear_panel,
    column,
    elided,
    label,
    row,
    set_text,
)
from gpudeck.app.widgets.fold_row import FoldRow
from gpudeck.scheduler.protocol.calibration_job import calibration_jobs, has_counters
from gpudeck.scheduler.protocol.devices import Detail
from gpudeck.scheduler.protocol.snapshot import Snapshot
from gpudeck.scheduler.verbs.submit import Submit

_WIDE, _ACROSS = 1000, 3
"""Pixels of width from which on the curves are beside the facts; how many are side by side else."""
_HIGHEST, _LOW = 320, 128
"""The most pixels of height of a curve, and those above the facts."""
_NARROWEST, _COLUMNS = 280, 2
"""Pixels that a column of groups needs, and the most columns."""
_ROOMY = (1500, 880)
"""Pixels of width and height of a page that has room for all facts."""


def balanced(heights: Sequence[int], columns: int) -> list[int]:
    """Return how many items each column has so that the highest column is low; the order stays."""

    def filled(most: int) -> list[int]:
        lengths, height = [0], 0
        for each in heights:
            if lengths[-1] and height + each > most:
                lengths.append(0)
                height = 0
            lengths[-1] += 1
            height += each
        return lengths

    least, most = max(heights, default=0), sum(heights)
    while least < most:
        middle = (least + most) // 2
        least, most = (least, middle) if len(filled(middle)) <= columns else (middle + 1, most)
    return filled(most)


class DevicePage(QWidget):
    """Show groups of values in columns. Emits `left` when the user goes back."""

    left = Signal()
    titled = Signal(str)
    """Carries the name of the device, as the title of the page."""
    stepped = Signal(str)
    """Carries the device to which the user went from its neighbour."""

    def __init__(self, state: State, link: Link) -> None:
        super().__init__()
        self._state, self._link = state, link
        self._device = ""
        self.back = button(tr("Back"), self.left, tooltip=tr("Back to the dashboard (Esc)"))
        self.before = button(
            "",
            lambda: self._step(-1),
            tooltip=tr("Previous device (Alt+Left)"),
        )
        self.after = button("", lambda: self._step(1), tooltip=tr("Next device (Alt+Right)"))
        self.calibrate = button(
            tr("Calibrate"),
            self._calibrate,
            tooltip=tr(
                "Measure the true clock of all GPUs, so that TFLOP/s from hardware counters "
                "are right: a job that holds them for about a minute each"
            ),
        )
        self.free = button(
            tr("Free this GPU…"),
            self._ask_to_free,
            tooltip=tr("Suspend its jobs for two hours, and keep it free of others"),
        )
        self.asking = QuestionCard(
            tr("Free it"), tr("Leave it"), self._free, self._leave, primary="no"
        )
        add_shortcuts(self.asking, {"Esc": self.asking.no.click})
        self.name = elided(meaning="muted")
        self.read = label(size="small", meaning="muted")
        self.cards: dict[str, GroupCard] = {}
        self.groups: dict[str, FactTable] = {}
        """The facts of each group, by its title."""
        self._unfolded: frozenset[str] = frozenset()
        self._placed: list[int] = []
        """The number of groups in each column."""
        self.poller = DetailsPoller(self, link)
        self.poller.read.connect(self._show_details)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        slots = {
            "device.leave": self.back.click,
            "device.before": self.before.click,
            "device.after": self.after.click,
            "device.free": self.free.click,
        }
        bind_actions(self, slots)
        about, actions = QWidget(), QWidget()
        about.setLayout(row(self.back, Stretch(self.name), self.read, spacing=theme.M))
        buttons = (self.free, self.calibrate, self.before, self.after)
        actions.setLayout(row(Stretch(), *buttons, spacing=theme.M))
        self.sparks = SparkRow(_HIGHEST)
        self._facts = row(spacing=theme.S)
        self._body = row(column(self.sparks, Stretch()), column(self._facts, Stretch()))
        self._inner = clear_panel(self._body)
        self._area = EdgeScrollArea(self._inner)
        self.setProperty(REACHES_EDGE, True)
        bar = row(FoldRow(about, actions, (1, 0)), margins=(0, 0, theme.M, 0))
        self.setLayout(column(bar, self.asking, Stretch(self._area)))

    def show_device(self, device: str) -> None:
        """Show the device with this id."""
        self._device = device
        self.asking.hide()
        self.refresh()

    def refresh(self) -> None:
        """Show what is known of the device now."""
        snapshot = self._state.snapshot
        detail = next((d for d in self._state.details or () if d.device == self._device), None)
        facts = device_facts(snapshot, self._device, detail) if snapshot else None
        if facts is None or snapshot is None:
            set_text(self.read, tr("This device is no longer available"))
            return
        tile = facts.tile
        self.titled.emit(tile.title)
        recorded = tile.replay and tile.usage == "recorded"  # the badge says so
        parts = (tile.name, "" if tile.replay else tile.note, "" if recorded else tile.holder)
        set_text(self.name, " · ".join(filter(None, parts)))
        set_text(self.read, facts.read)
        self._name_neighbours(snapshot)
        self._show_groups(facts.groups)
        state = next(s for s in snapshot.devices if s.device.id == self._device)
        self.calibrate.setVisible(has_counters(state))
        self.free.setVisible(can_be_freed(state.device))
        self.sparks.show_device(state, self._state.history)

    def _name_neighbours(self, snapshot: Snapshot) -> None:
        """Say which devices are before and after this one."""
        devices = [state.device for state in snapshot.devices]
        at = [device.id for device in devices].index(self._device)
        for made, step, form in ((self.before, -1, "‹ {name}"), (self.after, 1, "{name} ›")):
            made.setVisible(len(devices) > 1)
            text = form.format(name=device_label(devices[(at + step) % len(devices)]))
            if made.text() != text:
                made.setText(text)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange()

    @property
    def _roomy(self) -> bool:
        width, height = _ROOMY
        return self.width() >= theme.px(width) and self.height() >= theme.px(height)

    def _arrange(self) -> None:
        """Place the curves on the left of the facts, or above them in a narrow page."""
        beside = self.width() >= theme.px(_WIDE)
        directions = QBoxLayout.Direction
        self._body.setDirection(directions.LeftToRight if beside else directions.TopToBottom)
        self._body.setStretch(0, 0 if not beside else 3 if self._roomy else 2)
        self._body.setStretch(1, 2 if self._roomy else 3)
        self.sparks.limit(1 if beside else _ACROSS)
        if beside:
            self.sparks.fit(self._area.height() - theme.S)
        else:
            self.sparks.fit(self.sparks.lines * (theme.px(_LOW) + theme.S) - theme.S)

    def _show_details(self, details: tuple[Detail, ...]) -> None:
        self._state.details = details
        if self.isVisible():
            self.refresh()

    def _show_groups(self, groups: tuple[FactGroup, ...]) -> None:
        columns = max(min(self.width() // theme.px(_NARROWEST), _COLUMNS), 1)
        titles = tuple(group.title for group in groups)
        if tuple(self.cards) != titles:
            self._rebuild(titles)
        for group in groups:
            card = self.cards[group.title]
            card.more.setEnabled(not self._roomy)
            card.show_group(group, group.title in self._unfolded or self._roomy)
        self._place(columns)
        self._arrange()

    def _rebuild(self, titles: tuple[str, ...]) -> None:
        for made in self.cards.values():
            made.hide()  # now, since it is deleted later
            made.deleteLater()
        self.cards = {title: GroupCard(title) for title in titles}
        self.groups = {title: made.table for title, made in self.cards.items()}
        self._placed = []
        for title, made in self.cards.items():
            made.unfolded.connect(lambda wanted, t=title: self._unfold(t, wanted))

    def _place(self, columns: int) -> None:
        """Put the groups into columns of about the same height, in the same order everywhere."""
        made = list(self.cards.values())
        lengths = balanced([card.sizeHint().height() for card in made], columns)
        if lengths == self._placed:
            return
        self._placed = lengths
        while (item := self._facts.takeAt(0)) is not None:
            item.layout().deleteLater()  # type: ignore[union-attr]
        for length in lengths:
            part, made = made[:length], made[length:]
            self._facts.addLayout(column(*part, Stretch()), 1)
            for card in part:
                card.show()

    def _unfold(self, title: str, wanted: bool) -> None:
        self._unfolded = self._unfolded | {title} if wanted else self._unfolded - {title}
        self.refresh()

    def _calibrate(self) -> None:
        if self._state.snapshot is not None:
            for job in calibration_jobs(self._state.snapshot.devices):
                self._link.send(self, Submit(job.spec))

    def _ask_to_free(self) -> None:
        """Say what will happen, and ask."""
        snapshot = self._state.snapshot
        for state in snapshot.devices if snapshot is not None else ():
            if snapshot is not None and state.device.id == self._device:
                self.asking.ask(free_question(state, snapshot))

    def _free(self) -> None:
        """Free the GPU that the question was about."""
        if (snapshot := self._state.snapshot) is not None:
            free_gpus(self, self._link, (self._device,), snapshot)
        self._leave()

    def _leave(self) -> None:
        self.asking.hide()
        self.setFocus()

    def _step(self, by: int) -> None:
        snapshot = self._state.snapshot
        devices = [s.device.id for s in snapshot.devices] if snapshot else []
        if self._device in devices:
            self.show_device(devices[(devices.index(self._device) + by) % len(devices)])
            self.stepped.emit(self._device)
