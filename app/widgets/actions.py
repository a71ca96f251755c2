"""Connect the actions of the table to a page: one QAction serves menus, keys and palette."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from PySide6.QtCore import QPoint
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QMenu, QWidget

from gpudeck.app.language.texts import tr
from gpudeck.app.widgets.action_table import action_info


def bind_actions(owner: QWidget, slots: Mapping[str, Callable[[], object]]) -> dict[str, QAction]:
    """Return an action for each name, which works by its keys while `owner` is visible.

    Args:
        owner: The page, or the window.
        slots: What the actions do, by their names in the table.
    """
    made = {}
    for name, slot in slots.items():
        info = action_info(name)
        action = QAction(tr(info.title), owner)
        action.setObjectName(name)
        action.setShortcuts([QKeySequence(keys) for keys in info.keys])
        action.setShortcutVisibleInContextMenu(True)
        action.triggered.connect(lambda _=False, slot=slot: slot())
        owner.addAction(action)
        made[name] = action
    return made


def find_action(owner: QWidget, name: str) -> QAction | None:
    """Return the action of this name that `owner` carries out itself."""
    return next((action for action in owner.actions() if action.objectName() == name), None)


def menu_of(owner: QWidget, actions: list[QAction | None]) -> QMenu:
    """Return a menu of these actions; None is a separator."""
    menu = QMenu(owner)
    for action in actions:
        if action is None:
            menu.addSeparator()
        else:
            menu.addAction(action)
    return menu


def show_menu(
    owner: QWidget, actions: Mapping[str, QAction], names: Sequence[str], at: QPoint
) -> None:
    """Show a menu of those of the named actions that apply; an empty name is a separator."""
    shown = [actions[name] if name else None for name in names]
    menu = menu_of(owner, [action for action in shown if action is None or action.isEnabled()])
    menu.setSeparatorsCollapsible(True)
    menu.aboutToHide.connect(menu.deleteLater)
    menu.popup(at)
