"""pyqtgraph, without a copy of everything there is in Qt, and without those of its modules that no chart of ours needs.

As it is imported it copies each name of QtCore, QtGui and QtWidgets into modules of its own, so that what it changes there stays its own;
thereby PySide makes thousands of classes that nobody asked for: half of the time of the import. The same modules, which fetch a name once
it is asked for, do as well. And it imports all it has, image views, parameter trees and a server of remote plots among them: most of the
other half.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from PySide6 import QtCore, QtGui, QtWidgets

_LEFT_OUT = {
    "": "colormap colors.palette imageview SignalProxy SRTTransform SRTTransform3D ThreadsafeTimer Transform3D util.cprint Vector "
    "WidgetGroup",
    "graphicsItems.": "ArrowItem BarGraphItem BoxplotItem ButtonItem ColorBarItem CurvePoint DateAxisItem ErrorBarItem FillBetweenItem "
    "GradientEditorItem GradientLegend GraphicsLayout GraphicsWidgetAnchor GraphItem GridItem HistogramLUTItem ImageItem InfiniteLine "
    "IsocurveItem LabelItem LegendItem LinearRegionItem PColorMeshItem PlotCurveItem PlotDataItem PlotItem ROI ScaleBar ScatterPlotItem "
    "TargetItem TextItem UIGraphicsItem ViewBox.ViewBoxMenu VTickGroup",
    "widgets.": "BusyCursor CheckTable ColorButton ColorMapMenu ColorMapWidget ComboBox DataFilterWidget DataTreeWidget DiffTreeWidget "
    "FeedbackButton FileDialog GradientWidget GraphicsLayoutWidget GroupBox HistogramLUTWidget JoystickButton LayoutWidget PathButton "
    "PlotWidget ProgressDialog RawImageWidget RemoteGraphicsView ScatterPlotWidget SpinBox TableWidget TreeWidget ValueLabel VerticalLabel",
}
"""Modules of pyqtgraph 0.14 that are not imported with it: `pg` lacks their names. Take out of here what is to be used."""
_ABSENT = ("PySide6.QtSvg", "PySide6.QtTest")
"""Modules without which it does."""


class _Mirror(ModuleType):
    """A module of pyqtgraph's that has what one of Qt's has."""

    def __init__(self, source: ModuleType) -> None:
        super().__init__(f"pyqtgraph.Qt.{source.__name__.rpartition('.')[2]}")
        self._source = source

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._source, name)
        setattr(self, name, found)
        return found


class _Nothing(ModuleType):
    """Stands where a module is left out: no name of it is there to be copied, and one that is asked for is None."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


@contextmanager
def _mirrored(*sources: ModuleType) -> Iterator[None]:
    """Meanwhile Qt's modules list no names to copy."""
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
    """Meanwhile these stand for what is under their names, None for nothing at all; whoever imports one later gets it as it is."""
    before = {name: sys.modules[name] for name in modules if name in sys.modules}
    sys.modules.update(modules)  # type: ignore[arg-type]  # None is what Python's import system takes for "not there"
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
