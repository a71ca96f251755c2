"""Change the settings: each change applies at once, and errors are shown beside the field."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QGuiApplication, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QWidget

from gpudeck.app.language.texts import tr, tr_count, tr_noop
from gpudeck.app.link.link import Link
from gpudeck.app.settings.destinations import DestinationsPanel
from gpudeck.app.settings.diagnostics import about, diagnostics
from gpudeck.app.settings.form import GROUPS, SETTINGS, offered, text_of
from gpudeck.app.settings.setting_row import SettingRow
from gpudeck.app.state import State
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.actions import bind_actions
from gpudeck.app.widgets.controls import (
    REACHES_EDGE,
    EdgeScrollArea,
    Stretch,
    button,
    card,
    clear_panel,
    column,
    empty_label,
    filter_box,
    label,
    row,
    set_text,
)
from gpudeck.app.widgets.safe_text import SafeText
from gpudeck.scheduler.protocol import settings as stored

_WIDEST, _COLUMN, _SIDE = 820, 700, 150
"""Pixels of the cards at most, of each of several columns at least, and of the list of groups."""
_MOST_COLUMNS = 3
_LEAST_BOTH = 400
"""Pixels of width below which the list of groups is left out."""
_ABOUT, _NOTIFY = tr_noop("About"), tr_noop("Notifications")


def titled(title: str, *parts: QWidget) -> QWidget:
    """Return a title above a card that holds `parts`; the title is translated."""
    inner = column(*parts, spacing=0)
    body = card(inner)
    inner.setContentsMargins(theme.L, theme.XS, theme.L, theme.XS)
    return clear_panel(column(label(tr(title), size="large", strong=True), body))


class SettingsPage(QWidget):
    """Show and change the settings."""

    configured = Signal(object)
    """Carries the new settings."""
    cleaning = Signal()
    """Emitted when the user opens the clean-up page."""

    def __init__(self, state: State, link: Link) -> None:
        super().__init__()
        self._state, self._link = state, link
        self.rows = {setting.name: SettingRow(setting) for setting in SETTINGS}
        for name, made in self.rows.items():
            made.entered.connect(lambda text, n=name: self._enter(n, text))
        self.destinations = DestinationsPanel(link)
        self.about = SafeText()
        self.about.setAccessibleName(tr(_ABOUT))
        self._about: tuple[tuple[str, str], ...] = ()
        self.copy = button(
            tr("Copy diagnostics"),
            self._copy,
            tooltip=tr("Copy a text for a bug report, without names, paths and secrets"),
        )
        self.clean = button(
            tr("Clean up…"),
            self.cleaning,
            tooltip=tr("Search for unneeded files and move them to the trash"),
        )
        self.copied = label(size="small", meaning="muted")
        self.search = filter_box(tr("Search settings"))
        self.search.setFixedWidth(theme.px(_SIDE))
        self.search.textChanged.connect(self._filter)
        self.nothing = empty_label(tr("No setting matches the search."))
        self.nothing.hide()
        self._lay_out()

    def refresh(self) -> None:
        """Show the current settings and what runs."""
        snapshot = self._state.snapshot
        if snapshot is not None:
            for name, names in offered(snapshot).items():
                self.rows[name].offer(names)
            for made in self.rows.values():
                made.show_text(text_of(snapshot.settings, made.setting))
        shown = (*about(self._state), (tr("Style"), theme.tokens().scheme))
        if shown != self._about:
            self._about = shown
            self.about.show_table(shown)

    def _take(self, settings: stored.Settings) -> None:
        for made in self.rows.values():
            made.clear_error()
        self.configured.emit(settings)

    def _enter(self, name: str, text: str) -> None:
        self.rows[name].submit(text, self._state, self, self._link, self._take)

    def _copy(self) -> None:
        snapshot = self._state.snapshot
        text = diagnostics(snapshot, snapshot.alerts if snapshot else ())
        QGuiApplication.clipboard().setText(text)
        lines = len(text.splitlines())
        set_text(self.copied, tr_count("Copied {n} line", "Copied {n} lines", lines))

    def _lay_out(self) -> None:
        self.cards = {group: self._group_card(group) for group in GROUPS}
        self.cards[_NOTIFY] = titled(_NOTIFY, self.destinations)
        self.about.setFixedHeight(theme.px(112))
        copy = row(self.copy, self.copied, Stretch())
        self.cards[_ABOUT] = titled(_ABOUT, self.about, clear_panel(copy))
        self._columns = [column(Stretch(), spacing=theme.L) for _ in range(_MOST_COLUMNS)]
        self._panels = [clear_panel(each) for each in self._columns]
        across = row(*(Stretch(panel, 1000) for panel in self._panels), Stretch(), spacing=theme.L)
        for panel in self._panels:
            panel.setMaximumWidth(theme.px(_WIDEST))
            across.setAlignment(panel, Qt.AlignmentFlag.AlignTop)
        self._columns[0].insertWidget(0, self.nothing)
        self._across = 0  # the first resize event puts the cards into columns
        self.area = EdgeScrollArea(clear_panel(across), tr("All settings"))
        self.setProperty(REACHES_EDGE, True)
        self.area.verticalScrollBar().valueChanged.connect(self._mark_group)
        self.groups = {
            group: button(
                tr(group),
                lambda _=False, group=group: self.show_group(group),
                kind="nav",
                checkable=True,
            )
            for group in self.cards
        }
        side = column(self.search, *self.groups.values(), Stretch(), spacing=2)
        side.insertSpacing(1, theme.S)
        self._beside = clear_panel(side)
        self.setLayout(row(self._beside, Stretch(self.area), spacing=theme.M))
        bind_actions(self, {"settings.search": self.search.setFocus})
        self._mark_group()

    def minimumSizeHint(self) -> QSize:
        """Need no room for the list beside, which is left out where there is little."""
        return QSize(theme.px(_LEAST_BOTH) // 2, super().minimumSizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Put the cards into as many columns as have room."""
        super().resizeEvent(event)
        room = self.width() - theme.px(_SIDE) - 2 * theme.M
        self._beside.setVisible(self.width() >= theme.px(_LEAST_BOTH))
        self._fill_columns(min(max(room // theme.px(_COLUMN), 1), _MOST_COLUMNS))

    def _fill_columns(self, count: int) -> None:
        """Put the cards into columns of about the same number of settings."""
        if count == self._across:
            return
        self._across = count
        heights = {group: 2 + sum(s.group == group for s in SETTINGS) for group in self.cards}
        whole, filled = sum(heights.values()), 0
        for group, made in self.cards.items():
            at = min((filled + heights[group] // 2) * count // whole, count - 1)
            for each in self._columns:  # else its old place would shift the new one
                each.removeWidget(made)
            self._columns[at].insertWidget(self._columns[at].count() - 1, made)
            filled += heights[group]
        for at, panel in enumerate(self._panels):
            panel.setVisible(at < count)

    def show_group(self, group: str) -> None:
        """Scroll to a group of settings, and forget what was searched."""
        self.search.clear()
        for each in self._columns:
            each.activate()  # the search may have hidden cards above this one
        self.area.verticalScrollBar().setValue(self.cards[group].y())
        for name, made in self.groups.items():
            made.setChecked(name == group)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._mark_group()

    def _mark_group(self) -> None:
        """Mark the group at the upper end of what is shown."""
        top = self.area.verticalScrollBar().value() + theme.XL
        first = self._panels[0]  # the groups of other columns begin beside those of the first
        begun = [n for n, c in self.cards.items() if c.isVisibleTo(first) and c.parent() is first]
        passed = [name for name in begun if self.cards[name].y() <= top and self._placed]
        current = passed[-1] if passed else next(iter(begun), "")
        for name, made in self.groups.items():
            made.setChecked(name == current)

    @property
    def _placed(self) -> bool:
        """Report if the cards have their places."""
        return any(made.y() > 0 for made in self.cards.values())

    def _filter(self, text: str) -> None:
        """Show the settings whose texts contain every word of `text`."""
        words = text.lower().split()
        shown = set()
        for made in self.rows.values():
            fits = made.matches(words)
            made.setVisible(fits)
            if fits:
                shown.add(made.setting.group)
        for group, made_card in self.cards.items():
            made_card.setVisible(group in shown or (group in (_ABOUT, _NOTIFY) and not words))
        self.nothing.setVisible(not shown)

    def _group_card(self, group: str) -> QWidget:
        """Return the title of a group above a card with its settings, between lines."""
        mine = [self.rows[setting.name] for setting in SETTINGS if setting.group == group]
        return titled(group, *mine, *([self.clean] if group == "Clean-up" else []))
