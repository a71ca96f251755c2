"""How everything looks: two palettes, one scale of spaces, one stylesheet made from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

from PySide6.QtCore import QEvent, Qt
from PySide6.QtGui import QColor, QFont, QPalette
from PySide6.QtWidgets import QApplication, QWidget

from scheduler.protocol import paths

Scheme = Literal["light", "dark"]

XS, S, M, L, XL = 4, 8, 12, 16, 24
"""The spaces between things, in pixels."""
SMALL, BASE, LARGE, HUGE = 11, 13, 17, 28
"""Font sizes in pixels."""


@dataclass(frozen=True)
class Tokens:
    """The colours of a scheme. One accent; the other strong colours stand for warm, hot, throttled and failed only."""

    scheme: Scheme
    window: str
    surface: str
    sunken: str
    line: str
    grid: str
    text: str
    muted: str
    accent: str
    on_accent: str
    accent_soft: str
    warm: str
    hot: str
    throttled: str
    failed: str
    series: tuple[str, ...]
    """Curves of several devices, the accent first: told apart also by who sees no red, green or blue (a test simulates it)."""


LIGHT = Tokens(
    scheme="light",
    window="#f4f5f7",
    surface="#ffffff",
    sunken="#f4f5f7",
    line="#dce0e5",
    grid="#eceef1",
    text="#1b1f24",
    muted="#5b6572",
    accent="#1f5fbf",
    on_accent="#ffffff",
    accent_soft="#e4edf9",
    warm="#8a5a00",
    hot="#b54a08",
    throttled="#7438b4",
    failed="#b3261e",
    series=("#1f5fbf", "#d55e00", "#00856f", "#b5489a", "#3aa0d8", "#9e9f65", "#6e0075", "#4b535d"),
)
DARK = Tokens(
    scheme="dark",
    window="#121519",
    surface="#1a1e23",
    sunken="#121519",
    line="#2c323a",
    grid="#262b32",
    text="#e7eaee",
    muted="#9aa4b0",
    accent="#6ea8fe",
    on_accent="#0c1626",
    accent_soft="#1f2c40",
    warm="#e3b341",
    hot="#f2904d",
    throttled="#bb96f7",
    failed="#ff7b72",
    series=("#6ea8fe", "#f0894a", "#2fc6a0", "#e58fc9", "#9bdcff", "#e6d30a", "#87499a", "#c6ccd4"),
)


def application() -> QApplication:
    """The one there is, or a new one, in the style that the stylesheet is made for."""
    app = QApplication.instance() or QApplication(
        ["gpudeck", "-style", "fusion"]
    )  # `setStyle` would have PySide make QStyle: 20 ms
    assert isinstance(app, QApplication)
    return app


def apply(app: QApplication, scheme: Scheme) -> None:
    """Give the whole application this scheme. Widgets that paint themselves hear of it through `QEvent.PaletteChange`."""
    if app.property("scheme") == scheme:
        return  # styling anew takes as long as building the window
    t = LIGHT if scheme == "light" else DARK
    app.setProperty("scheme", scheme)
    app.setFont(font())
    app.setPalette(_palette(t))
    app.setStyleSheet(_stylesheet(t))


def tokens() -> Tokens:
    """The colours in force."""
    app = QApplication.instance()
    return DARK if app is not None and app.property("scheme") == "dark" else LIGHT


def system_scheme(app: QApplication) -> Scheme:
    """What the desktop asks for; light where it does not say."""
    return "dark" if app.styleHints().colorScheme() == Qt.ColorScheme.Dark else "light"


def mark(widget: QWidget, name: str, value: str) -> None:
    """Set a property that the stylesheet looks at, and restyle the widget where it changed."""
    if widget.property(name) != value:
        widget.setProperty(name, value)
        QApplication.sendEvent(
            widget, QEvent(QEvent.Type.Polish)
        )  # not by `style()`: see `application`


def meaning_color(meaning: str) -> str:
    """The colour of a meaning (warm, hot, throttled, failed); the text colour for none."""
    return cast("str", getattr(tokens(), meaning or "text"))


def font(size: int = BASE, *, strong: bool = False) -> QFont:
    """The application's font for what is painted by hand; `size` in pixels."""
    made = QFont(QApplication.font())
    made.setPixelSize(size)
    made.setFeature(QFont.Tag("tnum"), 1)  # digits of one width, so that live numbers do not dance
    if strong:
        made.setWeight(QFont.Weight.DemiBold)
    return made


def _palette(t: Tokens) -> QPalette:
    role = QPalette.ColorRole
    palette = QPalette()
    for which, color in (
        (role.Window, t.window),
        (role.WindowText, t.text),
        (role.Base, t.surface),
        (role.AlternateBase, t.sunken),
        (role.Text, t.text),
        (role.PlaceholderText, t.muted),
        (role.Button, t.surface),
        (role.ButtonText, t.text),
        (role.Highlight, t.accent),
        (role.HighlightedText, t.on_accent),
        (role.ToolTipBase, t.surface),
        (role.ToolTipText, t.text),
        (role.Link, t.accent),
        (role.Light, t.line),
        (role.Mid, t.line),
        (role.Dark, t.line),
    ):
        palette.setColor(which, QColor(color))
    for which in (role.WindowText, role.Text, role.ButtonText):
        palette.setColor(QPalette.ColorGroup.Disabled, which, QColor(t.muted))
    return palette


def _icon(name: str, t: Tokens) -> str:
    """A picture for the stylesheet, in the colour that is seen on what it stands on there."""
    file = paths.assets() / "icons" / f"{name}-{t.scheme}.svg"
    return f'url("{file.as_posix()}")'


def _stylesheet(t: Tokens) -> str:
    meanings = "".join(
        f'QLabel[meaning="{name}"] {{ color: {getattr(t, name)}; }}\n'
        for name in ("warm", "hot", "throttled", "failed", "muted")
    )
    return (
        meanings
        + f"""
QWidget {{ color: {t.text}; font-size: {BASE}px; }}
QLabel {{ background: transparent; }}
QLabel[scale="small"] {{ font-size: {SMALL}px; }}
QLabel[scale="large"] {{ font-size: {LARGE}px; font-weight: 600; }}
QLabel[scale="huge"] {{ font-size: {HUGE}px; font-weight: 600; }}
QLabel[strong="true"] {{ font-weight: 600; }}
QFrame[card="true"] {{ background: {t.surface}; border: 1px solid {t.line}; border-radius: 8px; }}
QFrame[bubble="you"] {{ background: {t.accent_soft}; border-radius: 8px; }}
QFrame[bubble="assistant"] {{ background: {t.surface}; border: 1px solid {t.line}; border-radius: 8px; }}
QFrame[rule="true"] {{ background: {t.line}; border: none; }}
QToolTip {{ background: {t.surface}; color: {t.text}; border: 1px solid {t.line}; padding: 4px; }}
QScrollArea, QScrollArea > QWidget > QWidget[clear="true"] {{ background: transparent; border: none; }}
QPushButton {{ background: {t.surface}; border: 1px solid {t.line}; border-radius: 6px; padding: 5px 12px; }}
QPushButton:hover {{ background: {t.sunken}; }}
QPushButton:pressed, QPushButton:checked {{ background: {t.accent_soft}; border-color: {t.accent}; }}
QPushButton:focus {{ border-color: {t.accent}; }}
QPushButton:disabled {{ color: {t.muted}; background: transparent; }}
QPushButton[kind="primary"] {{ background: {t.accent}; color: {t.on_accent}; border-color: {t.accent}; font-weight: 600; }}
QPushButton[kind="primary"]:focus {{ border: 1px solid {t.text}; }}
QPushButton[kind="primary"]:disabled {{ background: {t.line}; color: {t.muted}; border-color: {t.line}; }}
QPushButton[kind="quiet"] {{ background: transparent; border: 1px solid transparent; padding: 2px 8px;
  color: {t.muted}; font-size: {SMALL}px; }}
QPushButton[kind="quiet"]:hover {{ color: {t.text}; border-color: {t.line}; }}
QPushButton[kind="quiet"]:checked {{ color: {t.text}; background: {t.accent_soft}; }}
QPushButton[kind="quiet"]:focus {{ border-color: {t.accent}; }}
QLineEdit, QComboBox {{ background: {t.surface}; border: 1px solid {t.line}; border-radius: 6px; padding: 4px 8px;
  selection-background-color: {t.accent}; selection-color: {t.on_accent}; }}
QLineEdit:focus, QComboBox:focus {{ border-color: {t.accent}; }}
QLineEdit[wrong="true"] {{ border-color: {t.failed}; }}
QComboBox {{ padding: 2px 8px; min-height: 21px; }}
QComboBox QLineEdit {{ border: none; padding: 0; background: transparent; }}
QComboBox::drop-down {{ border: none; width: 20px; }}
QComboBox::down-arrow {{ image: none; border-left: 4px solid {t.surface}; border-right: 4px solid {t.surface};
  border-top: 5px solid {t.muted}; width: 0; height: 0; margin-right: 8px; }}
QComboBox QAbstractItemView {{ background: {t.surface}; border: 1px solid {t.line}; selection-background-color: {t.accent_soft};
  selection-color: {t.text}; outline: none; }}
QCheckBox {{ spacing: 8px; }}
QCheckBox::indicator {{ width: 14px; height: 14px; border: 1px solid {t.muted}; border-radius: 3px; background: {t.surface}; }}
QCheckBox::indicator:checked {{ background: {t.accent}; border-color: {t.accent}; image: {_icon("tick", t)}; }}
QCheckBox:focus {{ color: {t.accent}; }}
QTableView, QTreeView {{ background: {t.surface}; border: none; gridline-color: transparent; selection-background-color: {t.accent_soft};
  selection-color: {t.text}; outline: none; }}
QTableView::item {{ padding: 0 7px; border: none; }}
QTreeView::item {{ padding: 5px 4px; border: none; }}
QTreeView::item:selected {{ background: {t.accent_soft}; }}
QTreeView::indicator {{ width: 13px; height: 13px; border: 1px solid {t.muted}; border-radius: 3px; background: {t.surface}; }}
QTreeView::indicator:checked {{ background: {t.accent}; border-color: {t.accent}; image: {_icon("tick", t)}; }}
QTreeView::indicator:indeterminate {{ background: {t.accent_soft}; border-color: {t.accent}; image: {_icon("dash", t)}; }}
QHeaderView {{ background: {t.surface}; border: none; }}
QHeaderView::section {{ background: {t.surface}; color: {t.muted}; border: none; border-bottom: 1px solid {t.line}; padding: 6px 10px;
  font-size: {SMALL}px; text-align: left; }}
QPlainTextEdit, QTextBrowser {{ background: transparent; border: none;
  selection-background-color: {t.accent}; selection-color: {t.on_accent}; }}
QPlainTextEdit[prompt="true"] {{ background: {t.surface}; border: 1px solid {t.line}; border-radius: 6px; padding: 4px 8px; }}
QPlainTextEdit[prompt="true"]:focus {{ border-color: {t.accent}; }}
QAbstractScrollArea[clear="true"] {{ background: transparent; border: none; }}
QListWidget {{ background: {t.surface}; border: 1px solid {t.line}; border-radius: 8px; outline: none; }}
QListWidget:focus {{ border-color: {t.accent}; }}
QMenu {{ background: {t.surface}; border: 1px solid {t.line}; padding: 4px; }}
QMenu::item {{ padding: 5px 16px; }}
QMenu::item:selected {{ background: {t.accent_soft}; }}
QPushButton::menu-indicator {{ width: 0; }}
QPlainTextEdit[log="true"] {{ background: {t.sunken}; border-radius: 6px; padding: 6px; font-size: {SMALL + 1}px; }}
QSplitter::handle {{ background: transparent; }}
QScrollBar:vertical {{ background: transparent; width: 10px; margin: 0; }}
QScrollBar:horizontal {{ background: transparent; height: 10px; margin: 0; }}
QScrollBar::handle {{ background: {t.line}; border-radius: 4px; min-height: 24px; min-width: 24px; margin: 1px; }}
QScrollBar::handle:hover {{ background: {t.muted}; }}
QScrollBar::add-line, QScrollBar::sub-line {{ width: 0; height: 0; }}
QScrollBar::add-page, QScrollBar::sub-page {{ background: transparent; }}
"""
    )
