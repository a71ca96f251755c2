"""Show the groups with their limits and the clusters with their health, and change them."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QSpinBox, QWidget

from gpudeck.app.jobs.groups_model import (
    GroupRow,
    ReachCluster,
    cluster_rows,
    group_rows,
    make_cluster,
    removal_problem,
)
from gpudeck.app.language.texts import tr, tr_noop, tr_text
from gpudeck.app.link.link import Link
from gpudeck.app.widgets import theme
from gpudeck.app.widgets.controls import (
    Stretch,
    add_shortcuts,
    button,
    card,
    column,
    empty_label,
    label,
    line_box,
    row,
    set_text,
)
from gpudeck.app.widgets.fold_row import FoldRow
from gpudeck.app.widgets.list_table import RowTable, TableColumn, chosen_row, list_card, list_table
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import GroupState
from gpudeck.scheduler.protocol.settings import ClusterSettings
from gpudeck.scheduler.protocol.snapshot import Snapshot
from gpudeck.scheduler.verbs.control import Configure
from gpudeck.scheduler.verbs.groups import GetGroups, SetGroup

GROUP_COLUMNS = (
    TableColumn(tr_noop("Group"), 0),
    TableColumn(tr_noop("Running"), 72, right=True),
    TableColumn(tr_noop("Waiting"), 72, right=True),
    TableColumn(
        tr_noop("Limit"), 64, right=True, help=tr_noop("The most of its jobs that run at once")
    ),
    TableColumn(tr_noop("State"), 80),
)
CLUSTER_COLUMNS = (
    TableColumn(tr_noop("Cluster"), 110),
    TableColumn(tr_noop("Address"), 150),
    TableColumn(tr_noop("Jobs"), 52, right=True),
    TableColumn(tr_noop("Health"), 0),
)
NO_GROUPS = tr_noop("No groups yet. Name one below, or submit jobs with --group NAME.")
NO_CLUSTERS = tr_noop("No clusters yet. Name one below, such as ray:lab or slurm:hpc.")
_EVERY_S = 2.0
MOST = 1000
_LEAST_WIDTH = 330
"""Pixels of the groups, and of the clusters, that are below each other where both lack room."""


class GroupTable(RowTable[GroupRow]):
    """List groups or clusters; the last column has the colour of their state."""

    def color(self, row: GroupRow, column: int) -> str | None:
        if row.meaning and column == len(self.columns) - 1:
            return theme.meaning_color(row.meaning)
        return None


class GroupsPanel(QWidget):
    """Make, limit, pause and remove groups; add, test and remove clusters. Esc closes it."""

    closed = Signal()

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link
        self._snapshot: Snapshot | None = None
        self._groups: tuple[GroupState, ...] = ()
        self._asked_at = 0.0
        self.groups: GroupTable = GroupTable(GROUP_COLUMNS)
        self.clusters: GroupTable = GroupTable(CLUSTER_COLUMNS)
        self.group_list = list_table(
            self.groups, [c.width for c in GROUP_COLUMNS], tr_noop("Groups")
        )
        self.cluster_list = list_table(
            self.clusters, [c.width for c in CLUSTER_COLUMNS], tr_noop("Clusters")
        )
        self.group_list.selectionModel().currentRowChanged.connect(self._choose_group)
        self.cluster_list.selectionModel().currentRowChanged.connect(self._choose_cluster)
        self.name = line_box(tr("Group"), tr("Name of a group"))
        self.limit = QSpinBox()
        self.limit.setRange(0, MOST)
        self.limit.setSpecialValueText(tr("no limit"))
        self.limit.setAccessibleName(tr("Limit of the group"))
        self.set_limit = button(tr("Set limit"), self._set_limit)
        self.pause = button(tr("Pause"), self._pause, tooltip=tr("Start no more jobs of the group"))
        self.remove_group = button(
            tr("Remove"),
            self._remove_group,
            tooltip=tr("Remove the limit of the group, and resume it"),
        )
        self.cluster = line_box(tr("Cluster"), tr("ray:lab or slurm:hpc"))
        self.address = line_box(tr("Address"), "http://head:8265")
        self.token = line_box(tr("Token file"), tr("Token file, if it needs one"))
        self.test = button(
            tr("Test"), self._test, tooltip=tr("Test the connection; nothing is changed")
        )
        self.add = button(tr("Add"), self._add)
        self.remove_cluster = button(tr("Remove"), self._remove_cluster)
        self.said = label(meaning="muted", wrap=True)
        self.said.setAccessibleName(tr("Outcome"))
        self.close_button = button(tr("Close"), self.closed, tooltip="Esc")
        add_shortcuts(self, {"Esc": self.closed.emit})
        self.setFocusProxy(self.name)
        self._lay_out()

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Show the clusters, and read the groups from time to time."""
        self._snapshot = snapshot
        self.clusters.show_rows(tuple(cluster_rows(snapshot)))
        self._cluster_stack.setCurrentIndex(0 if self.clusters.rows else 1)
        if not 0 <= snapshot.time - self._asked_at < _EVERY_S:
            self._asked_at = snapshot.time
            self._link.send(
                self, GetGroups(), self._show_groups, self._show_problem, background=True
            )

    def _show_groups(self, groups: tuple[GroupState, ...]) -> None:
        self._groups = groups
        self.groups.show_rows(group_rows(groups))
        self._group_stack.setCurrentIndex(0 if self.groups.rows else 1)
        self._show_pause()

    def _take_groups(self, groups: tuple[GroupState, ...]) -> None:
        self._show_groups(groups)
        set_text(self.said, "")

    def _group(self) -> GroupState | None:
        """Return the group that is named in the box."""
        name = self.name.text().strip()
        return next((state for state in self._groups if state.group.name == name), None)

    def _show_pause(self) -> None:
        state = self._group()
        paused = state is not None and state.group.paused
        self.pause.setText(tr("Resume") if paused else tr("Pause"))
        self.remove_group.setEnabled(state is not None)

    def _choose_group(self) -> None:
        if (chosen := chosen_row(self.group_list, self.groups)) is not None:
            self.name.setText(chosen.key)
            state = self._group()
            self.limit.setValue(state.group.limit if state else 0)
            self._show_pause()

    def _choose_cluster(self) -> None:
        chosen = chosen_row(self.cluster_list, self.clusters)
        if chosen is not None and self._snapshot is not None:
            cluster = self._snapshot.settings.clusters[chosen.key]
            self.cluster.setText(chosen.key)
            self.address.setText(cluster.address)
            self.token.setText(cluster.token_file)

    def _set_limit(self) -> None:
        self._change(SetGroup(self.name.text().strip(), limit=self.limit.value()))

    def _pause(self) -> None:
        state = self._group()
        paused = not (state is not None and state.group.paused)
        self._change(SetGroup(self.name.text().strip(), paused=paused))

    def _remove_group(self) -> None:
        self._change(SetGroup(self.name.text().strip(), limit=0, paused=False))

    def _change(self, request: SetGroup) -> None:
        if not request.name:
            self._show_problem(tr("Name the group first."))
            return
        self._link.send(self, request, self._take_groups, self._show_problem)

    def _typed(self) -> ReachCluster | None:
        """Return the cluster of the boxes; show what is wrong with it."""
        name = self.cluster.text().strip()
        try:
            made = make_cluster(name, self.address.text().strip(), self.token.text().strip())
        except UserError as e:
            self._show_problem(tr_text(e.message))
            return None
        return ReachCluster(name, made)

    def _test(self) -> None:
        if (wanted := self._typed()) is not None:
            self._show_text(tr("Reaching {cluster}…", cluster=wanted.name))
            self._link.send(self, wanted, self._show_text, self._show_problem)

    def _add(self) -> None:
        wanted = self._typed()
        if wanted is not None and self._snapshot is not None:
            known = dict(self._snapshot.settings.clusters)
            done = tr("{cluster} was added", cluster=wanted.name)
            self._configure({**known, wanted.name: wanted.cluster}, done)

    def _remove_cluster(self) -> None:
        name, snapshot = self.cluster.text().strip(), self._snapshot
        if snapshot is None or name not in snapshot.settings.clusters:
            self._show_problem(tr("Choose the cluster to remove."))
        elif problem := removal_problem(name, snapshot):
            self._show_problem(problem)
        else:
            left = {n: c for n, c in snapshot.settings.clusters.items() if n != name}
            self._configure(left, tr("{cluster} was removed", cluster=name))

    def _configure(self, clusters: dict[str, ClusterSettings], done: str) -> None:
        request = Configure({"clusters": clusters})
        self._link.send(self, request, lambda _: self._show_text(done), self._show_problem)

    def _show_text(self, text: str) -> None:
        set_text(self.said, text)
        theme.mark(self.said, "meaning", "muted")

    def _show_problem(self, text: str) -> None:
        set_text(self.said, text)
        theme.mark(self.said, "meaning", "failed")

    def _lay_out(self) -> None:
        groups, self._group_stack = list_card(self.group_list, empty_label(tr(NO_GROUPS)))
        clusters, self._cluster_stack = list_card(self.cluster_list, empty_label(tr(NO_CLUSTERS)))
        left = column(
            label(tr("Groups"), strong=True),
            Stretch(groups),
            row(Stretch(self.name), self.limit, self.set_limit),
            row(Stretch(), self.pause, self.remove_group),
        )
        right = column(
            label(tr("Clusters"), strong=True),
            Stretch(clusters),
            row(Stretch(self.cluster), Stretch(self.address), Stretch(self.token)),
            row(Stretch(), self.test, self.add, self.remove_cluster),
        )
        parts = QWidget(), QWidget()
        for part, layout in zip(parts, (left, right), strict=True):
            part.setLayout(layout)
            part.setMinimumWidth(theme.px(_LEAST_WIDTH))
        inner = column(
            Stretch(FoldRow(*parts, (1, 1))),
            row(Stretch(self.said), self.close_button),
            spacing=theme.M,
        )
        self.setLayout(column(card(inner)))
