"""Draw the icons of pages and actions as strokes in a box of 24 x 24."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPainterPath, QPen


def draw(painter: QPainter, name: str, box: QRectF, color: str) -> None:
    """Draw the icon of a page or an action, one of `NAMES`, into `box`."""
    painter.save()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.translate(box.topLeft())
    painter.scale(box.width() / 24, box.height() / 24)
    painter.setPen(
        QPen(
            QColor(color),
            1.7,
            Qt.PenStyle.SolidLine,
            Qt.PenCapStyle.RoundCap,
            Qt.PenJoinStyle.RoundJoin,
        )
    )
    painter.drawPath(_SHAPES[name]())
    painter.restore()


def _line(path: QPainterPath, *points: tuple[float, float]) -> None:
    path.moveTo(QPointF(*points[0]))
    for point in points[1:]:
        path.lineTo(QPointF(*point))


def _dashboard() -> QPainterPath:
    path = QPainterPath()
    _line(path, (2.5, 13), (7, 13), (10, 5), (14, 19), (17, 11), (21.5, 11))
    return path


def _jobs() -> QPainterPath:
    path = QPainterPath()
    for y in (6, 12, 18):
        path.addEllipse(QPointF(4.5, y), 1.2, 1.2)
        _line(path, (9, y), (21, y))
    return path


def _workloads() -> QPainterPath:
    path = QPainterPath()
    path.addRoundedRect(QRectF(6, 6, 12, 12), 2, 2)
    path.addRect(QRectF(10, 10, 4, 4))
    for at in (9, 15):
        _line(path, (at, 2.5), (at, 6))
        _line(path, (at, 18), (at, 21.5))
        _line(path, (2.5, at), (6, at))
        _line(path, (18, at), (21.5, at))
    return path


def _assistant() -> QPainterPath:
    path = QPainterPath()
    _line(path, (4, 5), (20, 5), (20, 16), (11, 16), (7, 20), (7, 16), (4, 16), (4, 5))
    _line(path, (8, 9), (16, 9))
    _line(path, (8, 12.2), (13, 12.2))
    return path


def _enlarge() -> QPainterPath:
    path = QPainterPath()
    _line(path, (14, 4), (20, 4), (20, 10))
    _line(path, (10, 20), (4, 20), (4, 14))
    _line(path, (20, 4), (13.5, 10.5))
    _line(path, (4, 20), (10.5, 13.5))
    return path


def _alerts() -> QPainterPath:
    path = QPainterPath()
    path.moveTo(QPointF(5, 17))
    path.cubicTo(QPointF(7, 14), QPointF(6.5, 12), QPointF(6.5, 10))
    path.cubicTo(QPointF(6.5, 2.5), QPointF(17.5, 2.5), QPointF(17.5, 10))
    path.cubicTo(QPointF(17.5, 12), QPointF(17, 14), QPointF(19, 17))
    path.closeSubpath()
    path.moveTo(QPointF(9.8, 20))
    path.cubicTo(QPointF(10.5, 21.6), QPointF(13.5, 21.6), QPointF(14.2, 20))
    return path


def _processes() -> QPainterPath:
    path = QPainterPath()
    path.addRoundedRect(QRectF(3, 4.5, 18, 15), 2, 2)
    _line(path, (6.5, 9), (9.5, 12), (6.5, 15))
    _line(path, (12, 15), (17, 15))
    return path


def _hosts() -> QPainterPath:
    path = QPainterPath()
    for top in (3.5, 13.5):
        path.addRoundedRect(QRectF(3, top, 18, 7), 2, 2)
        path.addEllipse(QPointF(7, top + 3.5), 0.8, 0.8)
        _line(path, (11, top + 3.5), (17, top + 3.5))
    return path


def _settings() -> QPainterPath:
    path = QPainterPath()
    for y, knob in ((6, 15), (12, 8), (18, 16)):
        _line(path, (3, y), (knob - 2.2, y))
        path.addEllipse(QPointF(knob, y), 2.2, 2.2)
        _line(path, (knob + 2.2, y), (21, y))
    return path


def _models() -> QPainterPath:
    path = QPainterPath()
    _line(path, (12, 3), (20, 7.5), (20, 16.5), (12, 21), (4, 16.5), (4, 7.5), (12, 3))
    _line(path, (4, 7.5), (12, 12), (20, 7.5))
    _line(path, (12, 12), (12, 21))
    return path


def _cleanup() -> QPainterPath:
    path = QPainterPath()
    _line(path, (4, 6.5), (20, 6.5))
    _line(path, (9, 6.5), (9.6, 3.5), (14.4, 3.5), (15, 6.5))
    _line(path, (6, 6.5), (7, 20.5), (17, 20.5), (18, 6.5))
    _line(path, (10.2, 10.5), (10.6, 16.8))
    _line(path, (13.8, 10.5), (13.4, 16.8))
    return path


def _close() -> QPainterPath:
    path = QPainterPath()
    _line(path, (5.5, 5.5), (18.5, 18.5))
    _line(path, (18.5, 5.5), (5.5, 18.5))
    return path


def _info() -> QPainterPath:
    path = QPainterPath()
    path.addEllipse(QRectF(3.5, 3.5, 17, 17))
    _line(path, (12, 11), (12, 16.5))
    path.addEllipse(QPointF(12, 7.8), 0.6, 0.6)
    return path


def _copy() -> QPainterPath:
    path = QPainterPath()
    path.addRoundedRect(QRectF(8.5, 8.5, 12, 12), 2, 2)
    _line(path, (15.5, 5), (15.5, 3.5), (3.5, 3.5), (3.5, 15.5), (5, 15.5))
    return path


def _code() -> QPainterPath:
    path = QPainterPath()
    _line(path, (8, 6), (2.5, 12), (8, 18))
    _line(path, (16, 6), (21.5, 12), (16, 18))
    _line(path, (13.5, 4.5), (10.5, 19.5))
    return path


def _again() -> QPainterPath:
    path = QPainterPath()
    path.arcMoveTo(QRectF(4, 4, 16, 16), 20)
    path.arcTo(QRectF(4, 4, 16, 16), 20, 290)
    _line(path, (20.5, 4), (19.6, 9.4), (14.4, 8.4))
    return path


def _edit() -> QPainterPath:
    path = QPainterPath()
    _line(path, (4, 20), (5, 15.5), (16.5, 4), (20, 7.5), (8.5, 19), (4, 20))
    _line(path, (14, 6.5), (17.5, 10))
    return path


def _more() -> QPainterPath:
    path = QPainterPath()
    for x in (5, 12, 19):
        path.addEllipse(QPointF(x, 12), 1.2, 1.2)
    return path


_SHAPES: dict[str, Callable[[], QPainterPath]] = {
    "dashboard": _dashboard,
    "jobs": _jobs,
    "workloads": _workloads,
    "assistant": _assistant,
    "models": _models,
    "alerts": _alerts,
    "processes": _processes,
    "hosts": _hosts,
    "cleanup": _cleanup,
    "settings": _settings,
    "enlarge": _enlarge,
    "close": _close,
    "info": _info,
    "copy": _copy,
    "code": _code,
    "again": _again,
    "edit": _edit,
    "delete": _cleanup,
    "more": _more,
}
NAMES = tuple(_SHAPES)
