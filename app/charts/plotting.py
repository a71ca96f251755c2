"""Import pyqtgraph without its copy of all names in Qt, and without modules that no chart needs.

On import pyqtgraph copies each name of QtCore, QtGui and QtWidgets into modules of its own, for
which PySide makes thousands of classes: half of the time of the import. Modules that fetch a name
on demand do as well. It also imports image views, parameter trees and a server of remote plots,
which takes most of the other half.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from PySide6 import QtCore, QtGui, QtWidgets

_LEFT_OUT = {
    "": "colormap colors.palette imageview SignalProxy SRTTransform SRTTransform3D "
    "ThreadsafeTimer Transform3D util.cprint Vector WidgetGroup",
    "graphicsItems.": "ArrowItem BarGraphItem BoxplotItem ButtonItem ColorBarItem CurvePoint "
    "DateAxisItem ErrorBarItem FillBetweenItem GradientEditorItem GradientLegend GraphicsLayout "
    "GraphicsWidgetAnchor GraphItem GridItem HistogramLUTItem ImageItem InfiniteLine "
    "IsocurveItem LabelItem LegendItem LinearRegionItem PColorMeshItem PlotCurveItem "
    "PlotDataItem PlotItem ROI ScaleBar ScatterPlotItem TargetItem TextItem "
    "UIGraphicsItem ViewBox.ViewBoxMenu VTickGroup",
    "widgets.": "BusyCursor CheckTable ColorButton ColorMapMenu ColorMapWidget ComboBox "
    "DataFilterWidget DataTreeWidget DiffTreeWidget FeedbackButton FileDialog "
    "GradientWidget GraphicsLayoutWidget GroupBox HistogramLUTWidget JoystickButton "
    "LayoutWidget PathButton PlotWidget ProgressDialog RawImageWidget RemoteGraphicsView "
    "ScatterPlotWidget SpinBox TableWidget TreeWidget ValueLabel VerticalLabel",
}
"""Modules of pyqtgraph 0.14 that are not imported, so `pg` lacks their names."""
_ABSENT = ("PySide6.QtSvg", "PySide6.QtTest")
"""Optional modules of Qt."""


class _Mirror(ModuleType):
    """A module of pyqtgraph that fetches names from one of Qt."""

    def __init__(self, source: ModuleType) -> None:
        super().__init__(f"pyqtgraph.Qt.{source.__name__.rpartition('.')[2]}")
        self._source = source

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._source, name)
        setattr(self, name, found)
        return found


class _Nothing(ModuleType):
    """A module that was left out: it lists no names, and every name that is requested is None."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


@contextmanager
def _mirrored(*sources: ModuleType) -> Iterator[None]:
    """Let Qt's modules list no names to copy for a while."""
    for source in sources:
        mirror = _Mirror(source)
        sys.modules[mirror.__name__] = mirror
        source.__dict__["__dir__"] = list
    try:
        yield
    finally:
        for source in sources:
            del source.__dict__["__dir__"]


@contextmanager
def _replaced(modules: Mapping[str, ModuleType | None]) -> Iterator[None]:
    """Replace modules for a while; None means that a module does not exist."""
    before = {name: sys.modules[name] for name in modules if name in sys.modules}
    sys.modules.update(modules)  # type: ignore[arg-type]  # None means "not there" to Python
    try:
        yield
    finally:
        for name in modules:
            del sys.modules[name]
        sys.modules.update(before)


_names = [
    f"pyqtgraph.{package}{name}" for package, names in _LEFT_OUT.items() for name in names.split()
]
with (
    _mirrored(QtCore, QtGui, QtWidgets),
    _replaced({name: _Nothing(name) for name in _names} | dict.fromkeys(_ABSENT)),
):
    import pyqtgraph as pg

__all__ = ["pg"]
