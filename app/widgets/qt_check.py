"""Name the system package that Qt lacks. This module imports no Qt, so it works without it."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gpudeck.extras import missing_of

_PACKAGES = {
    "libEGL.so.1": ("libegl1", "libglvnd-egl"),
    "libGL.so.1": ("libgl1", "libglvnd-glx"),
    "libOpenGL.so.0": ("libopengl0", "libglvnd-opengl"),
    "libxkbcommon.so.0": ("libxkbcommon0", "libxkbcommon"),
    "libxkbcommon-x11.so.0": ("libxkbcommon-x11-0", "libxkbcommon-x11"),
    "libdbus-1.so.3": ("libdbus-1-3", "dbus-libs"),
    "libfontconfig.so.1": ("libfontconfig1", "fontconfig"),
    "libfreetype.so.6": ("libfreetype6", "freetype"),
    "libglib-2.0.so.0": ("libglib2.0-0", "glib2"),
    "libgthread-2.0.so.0": ("libglib2.0-0", "glib2"),
    "libX11.so.6": ("libx11-6", "libX11"),
    "libX11-xcb.so.1": ("libx11-xcb1", "libX11-xcb"),
    "libxcb.so.1": ("libxcb1", "libxcb"),
    "libxcb-cursor.so.0": ("libxcb-cursor0", "xcb-util-cursor"),
    "libxcb-icccm.so.4": ("libxcb-icccm4", "xcb-util-wm"),
    "libxcb-image.so.0": ("libxcb-image0", "xcb-util-image"),
    "libxcb-keysyms.so.1": ("libxcb-keysyms1", "xcb-util-keysyms"),
    "libxcb-randr.so.0": ("libxcb-randr0", "libxcb"),
    "libxcb-render-util.so.0": ("libxcb-render-util0", "xcb-util-renderutil"),
    "libxcb-shape.so.0": ("libxcb-shape0", "libxcb"),
    "libxcb-xinerama.so.0": ("libxcb-xinerama0", "libxcb"),
    "libxcb-xkb.so.1": ("libxcb-xkb1", "libxcb"),
    "libSM.so.6": ("libsm6", "libSM"),
    "libICE.so.6": ("libice6", "libICE"),
}
"""The packages of each library on Debian and Ubuntu, and on Fedora."""

_LIBRARY = re.compile(r"lib[\w+.-]+?\.so(?:\.\d+)*")


def explain(message: str, others: Sequence[str] = ()) -> str:
    """Return one line that says what to install.

    Args:
        message: The message of an ImportError, of the dynamic linker, or of Qt.
        others: Further libraries that are missing.
    """
    found = _LIBRARY.search(message)
    library = found.group() if found else "libxcb-cursor.so.0" if "xcb-cursor" in message else ""
    if not library:
        reason = message.strip().splitlines()[-1] if message.strip() else "no reason was given"
        again = "pip install --force-reinstall PySide6-Essentials pyqtgraph"
        return f"the window cannot open: {reason}. Install the packages again: {again}"
    libraries = list(dict.fromkeys([library, *others]))
    are = "is" if len(libraries) == 1 else "are"
    advice = []
    if known := [_PACKAGES[name] for name in libraries if name in _PACKAGES]:
        debian, fedora = (" ".join(dict.fromkeys(names)) for names in zip(*known, strict=True))
        advice += [f"Debian, Ubuntu: sudo apt install {debian}. Fedora: sudo dnf install {fedora}"]
    for name in libraries:
        if name not in _PACKAGES:
            search = f"apt-file search {name}, or: dnf provides '*/{name}'"
            advice.insert(0, f"Find its package with: {search}")
    return f"the window needs {', '.join(libraries)}, which {are} missing. {' '.join(advice)}"


def missing_libraries(files: Iterable[Path]) -> list[str]:
    """Return all libraries that these files need and the system does not have.

    The dynamic linker itself reports only the first one.
    """
    lister = shutil.which("ldd")
    if lister is None:
        return []
    found = subprocess.run([lister, *map(str, files)], capture_output=True, text=True, check=False)
    lines = (line.split() for line in found.stdout.splitlines() if "not found" in line)
    return list(dict.fromkeys(words[0] for words in lines if words))


def _explain_all(message: str) -> str:
    """Explain what is missing, with all that else is."""
    return explain(message, missing_libraries(_needed()))


def _needed() -> list[Path]:
    """Return the files of Qt that a window loads."""
    spec = importlib.util.find_spec("PySide6")
    folders = spec.submodule_search_locations if spec is not None else None
    names = (
        "Qt/plugins/platforms/libqxcb.so",
        "Qt/lib/libQt6XcbQpa.so.6",
        "Qt/lib/libQt6Gui.so.6",
        "Qt/lib/libQt6Widgets.so.6",
    )
    files = (Path(folder) / name for folder in folders or () for name in names)
    return [file for file in files if file.exists()]


def problem(environ: Mapping[str, str] = os.environ) -> str | None:
    """Explain in one line why a window cannot open here; return None if it can.

    Qt ends the process if it cannot load a platform plugin, so this tries what the plugin needs.
    """
    if missing := missing_of("window"):
        return str(missing)
    try:
        importlib.import_module("PySide6.QtWidgets")
    except ImportError as e:
        return _explain_all(str(e))
    if not uses_x11(environ):
        return _wayland_problem(environ)
    return _plugin_problem() or _display_problem(environ.get("DISPLAY", ""))


def uses_x11(environ: Mapping[str, str]) -> bool:
    """Report if Qt will use its xcb plugin."""
    chosen = environ.get("QT_QPA_PLATFORM", "").split(":")[0].split(";")[0]
    return chosen == "xcb" or (not chosen and not environ.get("WAYLAND_DISPLAY"))


def _wayland_problem(environ: Mapping[str, str]) -> str | None:
    """Try to connect to the compositor, as Qt will, unless another platform is chosen."""
    name = environ.get("WAYLAND_DISPLAY", "")
    if not name or environ.get("QT_QPA_PLATFORM", "").split(":")[0].split(";")[0] not in (
        "",
        "wayland",
        "wayland-egl",
    ):
        return None
    path = Path(environ.get("XDG_RUNTIME_DIR", "")) / name
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(str(path))
        except OSError:
            return (
                f"the Wayland display {str(path)!r} does not answer. "
                "Correct WAYLAND_DISPLAY, or unset it to use DISPLAY, or none"
            )
    return None


def _plugin_problem() -> str | None:
    spec = importlib.util.find_spec("PySide6")
    folders = spec.submodule_search_locations if spec is not None else None
    plugins = [Path(folder) / "Qt/plugins/platforms/libqxcb.so" for folder in folders or ()]
    for plugin in filter(Path.exists, plugins):
        try:
            ctypes.CDLL(str(plugin))
        except OSError as e:
            return _explain_all(str(e))
    return None


def _display_problem(display: str) -> str | None:
    """Try to connect to the X server, as Qt will."""
    try:
        xcb = ctypes.CDLL("libxcb.so.1")
    except OSError as e:
        return _explain_all(str(e))
    xcb.xcb_connect.restype = ctypes.c_void_p
    connection = ctypes.c_void_p(xcb.xcb_connect(None, None))
    refused = xcb.xcb_connection_has_error(connection)
    xcb.xcb_disconnect(connection)
    if refused:
        return (
            f"the display {display!r} does not answer. "
            "Correct DISPLAY, or unset it to run without a window (gpudeck tour)"
        )
    return None
