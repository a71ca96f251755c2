"""Show the utilisation of the busiest GPU in the desktop's tray, with a menu."""

from __future__ import annotations

from PySide6.QtCore import QObject, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QIcon, QPainter, QPixmap
from PySide6.QtWidgets import QMenu, QSystemTrayIcon

from gpudeck.app.language.texts import tr, tr_text
from gpudeck.app.strip.summary import StripSummary
from gpudeck.app.widgets import theme
from gpudeck.scheduler.notices.notice import Notice

_SIZE = 64


class Tray(QObject):
    """Show the icon. Nothing is visible if the desktop has no tray."""

    opened = Signal()
    compacted = Signal()
    freed = Signal()
    suspended = Signal()
    resumed = Signal()
    quitted = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.icon = QSystemTrayIcon()
        self.menu = QMenu()
        self.menu.addAction(tr("Show GPU Deck"), self.opened.emit)
        self.menu.addAction(tr("Compact strip"), self.compacted.emit)
        self.free = self.menu.addAction(tr("Free the GPUs for two hours"), self.freed.emit)
        self.suspend = self.menu.addAction(tr("Suspend my jobs"), self.suspended.emit)
        self.resume = self.menu.addAction(tr("Resume my jobs"), self.resumed.emit)
        self.menu.addAction(tr("Quit"), self.quitted.emit)
        self.icon.setContextMenu(self.menu)
        self.icon.activated.connect(self._activated)
        self._painted: tuple[str, bool, str] | None = None

    def start(self) -> None:
        """Show the icon if the desktop has a tray."""
        if QSystemTrayIcon.isSystemTrayAvailable():
            self._paint("–", alarm=False)
            self.icon.show()

    def stop(self) -> None:
        """Remove the icon."""
        self.icon.hide()

    def show_summary(self, summary: StripSummary) -> None:
        """Show the newest figure; the icon is painted only if it has changed."""
        text = f"GPU Deck\n{summary.text}"
        if self.icon.toolTip() != text:
            self.icon.setToolTip(text)
        self._paint(summary.figure, summary.alarm)

    def show_jobs(self, gpus: bool, on_gpus: bool, suspended: bool) -> None:
        """Offer what can be done: whether there are GPUs to free, whether jobs of the user hold
        some, and whether any is off."""
        self.free.setEnabled(gpus)
        self.suspend.setEnabled(on_gpus)
        self.resume.setEnabled(suspended)

    def notify(self, notice: Notice) -> None:
        """Show a notification, without its actions, where the desktop took none over D-Bus."""
        if self.icon.isVisible():
            self.icon.showMessage(tr_text(notice.title), tr_text(notice.text))

    def _paint(self, figure: str, alarm: bool) -> None:
        wanted = (figure, alarm, theme.tokens().scheme)
        if wanted != self._painted:
            self._painted = wanted
            self.icon.setIcon(QIcon(picture(figure, alarm)))

    def _activated(self, reason: QSystemTrayIcon.ActivationReason) -> None:
        if reason == QSystemTrayIcon.ActivationReason.Trigger:
            self.opened.emit()


def picture(figure: str, alarm: bool) -> QPixmap:
    """Return the icon: a figure on the accent colour, or on the alarm colour for new alerts."""
    t = theme.tokens()
    made = QPixmap(_SIZE, _SIZE)
    made.fill(Qt.GlobalColor.transparent)
    painter = QPainter(made)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(QColor(t.hot if alarm else t.accent))
    painter.drawRoundedRect(QRectF(0, 0, _SIZE, _SIZE), 12, 12)
    painter.setPen(QColor(t.on_accent))
    painter.setFont(theme.font(42 if len(figure) < 3 else 30, strong=True))
    painter.drawText(QRectF(0, 0, _SIZE, _SIZE), int(Qt.AlignmentFlag.AlignCenter), figure)
    painter.end()
    return made
