"""Make the palette and the stylesheet of a scheme."""

from __future__ import annotations

from PySide6.QtGui import QColor, QFontMetrics, QPalette

from gpudeck.app.widgets import theme
from gpudeck.scheduler.protocol import paths


def palette(t: theme.Tokens) -> QPalette:
    """Return the palette of a scheme."""
    role = QPalette.ColorRole
    made = QPalette()
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
        made.setColor(which, QColor(color))
    for which in (role.WindowText, role.Text, role.ButtonText):
        made.setColor(QPalette.ColorGroup.Disabled, which, QColor(t.muted))
    return made


PILL_SHARE = 0.13
"""The share of a state's colour in the ground of its pill."""
_PILL_PADDING = 1
"""Pixels between the text of a pill and its border, above and below."""


def pill_colors(t: theme.Tokens) -> dict[str, str]:
    """Return the colours of pills by what they mean."""
    names = ("accent", "succeeded", "failed", "muted", "warm", "hot", "throttled")
    return {name: getattr(t, name) for name in names}


def _pale(color: str, t: theme.Tokens, share: float) -> str:
    return theme.blend(QColor(color), QColor(t.surface), share).name()


def _pill_radius() -> int:
    """Return half of a pill's height: with a larger radius Qt draws no round corners at all."""
    metrics = QFontMetrics(theme.font(theme.SMALL, strong=True))
    return (metrics.height() + 2 * _PILL_PADDING) // 2


def _icon(name: str, t: theme.Tokens) -> str:
    """Return the reference of an icon in the colours of the scheme."""
    file = paths.assets() / "icons" / f"{name}-{t.scheme}.svg"
    return f'url("{file.as_posix()}")'


def stylesheet(t: theme.Tokens) -> str:
    """Return the stylesheet of a scheme."""
    meanings = "".join(
        f'QLabel[meaning="{name}"] {{ color: {getattr(t, name)}; }}\n'
        for name in ("warm", "hot", "throttled", "failed", "muted")
    )
    radius = _pill_radius()
    pills = "".join(
        f'QLabel[pill="{name}"] {{ background: {_pale(color, t, PILL_SHARE)}; color: {color};'
        f" border: 1px solid {_pale(color, t, 3 * PILL_SHARE)}; border-radius: {radius}px;"
        f" padding: {_PILL_PADDING}px 8px; font-weight: 600;"
        f" font-size: {theme.px(theme.SMALL)}px; }}\n"
        for name, color in pill_colors(t).items()
    )
    return (
        meanings
        + pills
        + f"""
QWidget {{ color: {t.text}; font-size: {theme.px(theme.BASE)}px; }}
QLabel {{ background: transparent; }}
QLabel[scale="small"] {{ font-size: {theme.px(theme.SMALL)}px; }}
QLabel[scale="large"] {{ font-size: {theme.px(theme.LARGE)}px; font-weight: 600; }}
QLabel[scale="huge"] {{ font-size: {theme.px(theme.HUGE)}px; font-weight: 600; }}
QLabel[badge="true"] {{ background: {t.text}; color: {t.surface}; border-radius: 3px;
  padding: 1px 6px; }}
QLabel[strong="true"] {{ font-weight: 600; }}
QFrame[card="true"] {{ background: {t.surface}; border: 1px solid {t.line}; border-radius: 8px; }}
QFrame[failure="true"] {{ background: {_pale(t.failed, t, PILL_SHARE / 2)}; border-radius: 8px;
  border: 1px solid {_pale(t.failed, t, 3 * PILL_SHARE)}; }}
QFrame[bubble="you"] {{ background: {t.accent_soft}; border-radius: 12px; }}
QFrame[bubble="assistant"] {{ background: {t.surface}; border: 1px solid {t.line};
  border-radius: 12px; }}
QFrame[rule="true"] {{ background: {t.line}; border: none; }}
QToolTip {{ background: {t.surface}; color: {t.text}; border: 1px solid {t.line}; padding: 4px; }}
QScrollArea, QScrollArea > QWidget > QWidget[clear="true"] {{ background: transparent;
  border: none; }}
QPushButton {{ background: {t.surface}; border: 1px solid {t.line}; border-radius: 6px;
  padding: 5px 12px; }}
QPushButton:hover {{ background: {t.sunken}; }}
QPushButton:pressed, QPushButton:checked {{ background: {t.accent_soft}; border-color: {t.accent};
  }}
QPushButton:focus {{ border-color: {t.accent}; }}
QPushButton:disabled {{ color: {t.muted}; background: transparent; }}
QPushButton[kind="primary"] {{ background: {t.accent}; color: {t.on_accent};
  border-color: {t.accent}; font-weight: 600; }}
QPushButton[kind="primary"]:focus {{ border: 1px solid {t.text}; }}
QPushButton[kind="primary"]:disabled {{ background: {t.line}; color: {t.muted};
  border-color: {t.line}; }}
QPushButton[kind="link"] {{ background: transparent; border: 1px solid transparent;
  padding: 3px 6px; color: {t.accent}; font-weight: 600; }}
QPushButton[flush="true"] {{ padding-left: 0; }}
QPushButton[kind="link"]:hover {{ border-color: {t.line}; }}
QPushButton[kind="link"]:focus {{ border-color: {t.accent}; }}
QFrame[toast="true"] {{ background: {t.surface}; border: 1px solid {t.line};
  border-radius: 8px; }}
QLineEdit[bare="true"], QLineEdit[bare="true"]:focus {{ border: none; padding: 8px 10px;
  background: transparent; }}
QListWidget[bare="true"] {{ border: none; background: transparent; }}
QLabel[key="true"] {{ background: {t.sunken}; border: 1px solid {t.line}; border-radius: 4px;
  padding: 1px 6px; }}
QPushButton[kind="quiet"] {{ background: transparent; border: 1px solid transparent;
  padding: 2px 8px;
  color: {t.muted}; font-size: {theme.px(theme.SMALL)}px; }}
TimeBar QPushButton[kind="quiet"], QPushButton[chip="true"] {{ border-color: {t.line}; }}
QPushButton[chip="true"] {{ border-radius: 10px; }}
QPushButton[kind="quiet"]:hover {{ color: {t.text}; border-color: {t.line}; }}
QPushButton[kind="quiet"]:checked {{ color: {t.text}; background: {t.accent_soft}; }}
QPushButton[kind="quiet"]:focus, TimeBar QPushButton[kind="quiet"]:focus {{
  border-color: {t.accent}; }}
QFrame[segments="true"] {{ background: {_pale(t.text, t, 0.06)}; border: 1px solid {t.line};
  border-radius: 7px; }}
QPushButton[kind="segment"] {{ background: transparent; border: 1px solid transparent;
  border-radius: 5px; padding: 2px 10px; color: {t.muted}; }}
QPushButton[kind="segment"]:hover {{ color: {t.text}; }}
QPushButton[kind="segment"]:checked {{ background: {t.surface}; border-color: {t.line};
  color: {t.text}; }}
QPushButton[kind="segment"]:focus {{ border-color: {t.accent}; }}
QPushButton[kind="card"] {{ border-radius: 8px; }}
QPushButton[kind="nav"] {{ background: transparent; border: 1px solid transparent;
  border-radius: 6px; padding: 5px 9px; text-align: left; color: {t.muted}; }}
QPushButton[kind="nav"]:hover {{ color: {t.text}; }}
QPushButton[kind="nav"]:checked {{ background: {t.accent_soft}; color: {t.text}; }}
QPushButton[kind="nav"]:focus {{ border-color: {t.accent}; }}
QLineEdit, QComboBox {{ background: {t.surface}; border: 1px solid {t.line}; border-radius: 6px;
  padding: 4px 8px;
  selection-background-color: {t.accent}; selection-color: {t.on_accent}; }}
QLineEdit, QPlainTextEdit {{ placeholder-text-color: {t.muted}; }}
QLineEdit:focus, QComboBox:focus {{ border-color: {t.accent}; }}
QLineEdit[wrong="true"] {{ border-color: {t.failed}; }}
QSpinBox {{ background: {t.surface}; border: 1px solid {t.line}; border-radius: 6px;
  padding: 4px 8px; }}
QSpinBox:focus {{ border-color: {t.accent}; }}
QComboBox {{ padding: 2px 8px; min-height: {theme.px(21)}px; }}
QComboBox QLineEdit {{ border: none; padding: 0; background: transparent; }}
QComboBox::drop-down {{ border: none; width: 20px; }}
QComboBox::down-arrow {{ image: none; border-left: 4px solid {t.surface};
  border-right: 4px solid {t.surface};
  border-top: 5px solid {t.muted}; width: 0; height: 0; margin-right: 8px; }}
QComboBox QAbstractItemView {{ background: {t.surface}; border: 1px solid {t.line};
  selection-background-color: {t.accent_soft};
  selection-color: {t.text}; outline: none; }}
QCheckBox {{ spacing: 8px; }}
QCheckBox::indicator {{ width: 14px; height: 14px; border: 1px solid {t.muted};
  border-radius: 3px; background: {t.surface}; }}
QCheckBox::indicator:checked {{ background: {t.accent}; border-color: {t.accent};
  image: {_icon("tick", t)}; }}
QSlider:horizontal {{ min-height: 18px; }}
QSlider::groove:horizontal {{ height: 4px; border-radius: 2px; background: {t.line}; }}
QSlider::sub-page:horizontal {{ border-radius: 2px; background: {t.accent}; }}
QSlider::sub-page:horizontal:disabled {{ background: {t.line}; }}
QSlider::handle:horizontal {{ width: 14px; margin: -6px 0; border: 1px solid {t.accent};
  border-radius: 7px; background: {t.surface}; }}
QSlider::handle:horizontal:disabled {{ border-color: {t.line}; }}
QCheckBox:focus {{ color: {t.accent}; }}
QTableView, QTreeView {{ background: {t.surface}; border: none; gridline-color: transparent;
  selection-background-color: {t.accent_soft};
  selection-color: {t.text}; outline: none; }}
QTableView[aside="true"] {{ selection-background-color: {t.surface}; }}
QTableView::item {{ padding: 0 7px; border: none; }}
QTreeView::item {{ padding: 5px 7px; border: none; }}
QTreeView::item:selected {{ background: {t.accent_soft}; }}
QTreeView::indicator {{ width: 13px; height: 13px; border: 1px solid {t.muted};
  border-radius: 3px; background: {t.surface}; }}
QTreeView::indicator:checked {{ background: {t.accent}; border-color: {t.accent};
  image: {_icon("tick", t)}; }}
QTreeView::indicator:indeterminate {{ background: {t.accent_soft}; border-color: {t.accent};
  image: {_icon("dash", t)}; }}
QHeaderView {{ background: {t.surface}; border: none; }}
QHeaderView::section {{ background: {t.surface}; color: {t.muted}; border: none;
  border-bottom: 1px solid {t.line}; padding: 6px 10px;
  font-size: {theme.px(theme.SMALL)}px; text-align: left; }}
QPlainTextEdit, QTextBrowser {{ background: transparent; border: none;
  selection-background-color: {t.accent}; selection-color: {t.on_accent}; }}
QPlainTextEdit[prompt="true"] {{ padding: 4px 8px; }}
QFrame[composer="true"], QFrame[composer="focused"] {{ border-radius: 12px; }}
QFrame[composer="focused"] {{ border-color: {t.accent}; }}
QAbstractScrollArea[clear="true"] {{ background: transparent; border: none; }}
QListWidget {{ background: {t.surface}; border: 1px solid {t.line}; border-radius: 8px;
  outline: none; }}
QListWidget:focus {{ border-color: {t.accent}; }}
QMenu {{ background: {t.surface}; border: 1px solid {t.line}; padding: 4px; }}
QMenu::item {{ padding: 5px 16px; }}
QMenu::item:selected {{ background: {t.accent_soft}; }}
QPushButton::menu-indicator {{ width: 0; }}
QPlainTextEdit[log="true"] {{ background: {t.sunken}; border-radius: 6px; padding: 6px;
  font-size: {theme.px(theme.SMALL + 1)}px; }}
QSplitter::handle {{ background: transparent; }}
QAbstractScrollArea::corner {{ background: transparent; border: none; }}
QScrollBar:vertical {{ background: transparent; width: 10px; margin: 0; }}
QScrollBar:horizontal {{ background: transparent; height: 10px; margin: 0; }}
QScrollBar::handle {{ background: {t.line}; border-radius: 4px; min-height: 24px; min-width: 24px;
  margin: 1px; }}
QScrollBar::handle:hover {{ background: {t.muted}; }}
QScrollBar::add-line, QScrollBar::sub-line {{ width: 0; height: 0; }}
QScrollBar::add-page, QScrollBar::sub-page {{ background: transparent; }}
"""
    )
