import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gpudeck.app.widgets import qt_check


@pytest.mark.parametrize(
    ("message", "packages"),
    [
        (
            "libEGL.so.1: cannot open shared object file: No such file or directory",
            ("libegl1", "libglvnd-egl"),
        ),
        (
            "ImportError: libxkbcommon.so.0: cannot open shared object file",
            ("libxkbcommon0", "libxkbcommon"),
        ),
        ("libxcb-icccm.so.4: cannot open shared object file", ("libxcb-icccm4", "xcb-util-wm")),
        (
            (
                "qt.qpa.plugin: From 6.5.0, xcb-cursor0 or libxcb-cursor0 is needed to load the Qt"
                " xcb platform plugin."
            ),
            ("libxcb-cursor0", "xcb-util-cursor"),
        ),
        ("libglib-2.0.so.0: cannot open shared object file", ("libglib2.0-0", "glib2")),
    ],
)
def test_the_package_is_named_for_debian_and_fedora(message, packages):
    line = qt_check.explain(message)
    debian, fedora = packages
    assert f"apt install {debian}." in line
    assert line.endswith(f"dnf install {fedora}")
    assert "\n" not in line


def test_an_unknown_library_says_how_to_find_its_package():
    assert "apt-file search libfoo-2.so.7" in qt_check.explain(
        "libfoo-2.so.7: cannot open shared object file"
    )


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_all_missing_libraries_are_named_at_once(tmp_path):
    source = tmp_path / "plugin.c"
    source.write_text("int x;\n")
    names = ("libxcb-cursor.so.0", "libEGL.so.1", "libnobody.so.3")
    (tmp_path / "needed").mkdir()
    for name in names:
        one = tmp_path / "needed" / name
        build = ["cc", "-shared", "-o", str(one), f"-Wl,-soname,{name}", str(source)]
        subprocess.run(build, check=True)
    plugin, needed = tmp_path / "plugin.so", [str(tmp_path / "needed" / name) for name in names]
    subprocess.run(
        ["cc", "-shared", "-Wl,--no-as-needed", "-o", str(plugin), str(source), *needed], check=True
    )
    for name in names:
        (tmp_path / "needed" / name).unlink()
    missing = qt_check.missing_libraries([plugin])
    assert names[2] in missing and set(missing) <= {*names}
    line = qt_check.explain(f"{missing[0]}: cannot open shared object file", names)
    assert all(name in line for name in names) and "which are missing." in line
    assert "sudo apt install" in line and "libxcb-cursor0 libegl1" in line
    assert "apt-file search libnobody.so.3" in line and "\n" not in line


@pytest.mark.parametrize(
    "message", ["No module named 'PySide6'", "", "Traceback\nImportError: DLL load failed"]
)
def test_other_reasons_stay_one_line(message):
    line = qt_check.explain(message)
    assert "\n" not in line
    assert "pip install" in line


@pytest.mark.parametrize(
    ("environ", "x11"),
    [
        ({"DISPLAY": ":0"}, True),
        ({"DISPLAY": ":0", "WAYLAND_DISPLAY": "wayland-0"}, False),
        ({"WAYLAND_DISPLAY": "wayland-0", "QT_QPA_PLATFORM": "xcb"}, True),
        ({"DISPLAY": ":0", "QT_QPA_PLATFORM": "offscreen"}, False),
    ],
)
def test_which_plugin_qt_will_take(environ, x11):
    assert qt_check.uses_x11(environ) is x11


def test_offscreen_there_is_no_problem():
    assert qt_check.problem({"QT_QPA_PLATFORM": "offscreen"}) is None


def test_a_display_that_does_not_answer_is_one_line_not_an_abort():
    line = qt_check.problem({"DISPLAY": ":4711"})
    assert line is not None
    assert "\n" not in line
    # the plugin's own libraries are looked at first, of which several may be missing
    assert any(said in line for said in ("does not answer", "is missing", "are missing"))


def test_a_compositor_that_does_not_answer_is_one_line_not_an_abort(tmp_path):
    line = qt_check.problem({"WAYLAND_DISPLAY": "wayland-9", "XDG_RUNTIME_DIR": str(tmp_path)})
    assert line is not None and "\n" not in line
    assert str(tmp_path / "wayland-9") in line and "does not answer" in line


def test_the_models_are_free_of_qt():
    pyproject = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    contracts = pyproject["tool"]["importlinter"]["contracts"]
    contract = next(each for each in contracts if each["name"] == "models are free of Qt")
    models = [*contract["source_modules"], "gpudeck.app.widgets.qt_check"]
    assert len(models) > 40
    code = f"import sys, {', '.join(models)}\n"
    code += (
        "print([n for n in sys.modules if n.split('.')[0] in ('PySide6', 'pyqtgraph', 'torch',"
        " 'triton', 'pynvml')])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )
