"""Groups with their limits, clusters with their health, a job's log alone, and Notify me."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator

import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from gpudeck.app.jobs.groups_model import ReachCluster
from gpudeck.app.link.link import Link
from gpudeck.app.shell.notifications import Notifier
from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol.errors import UserError
from gpudeck.scheduler.protocol.jobs import Done, Group, GroupState
from gpudeck.scheduler.protocol.settings import ClusterSettings
from gpudeck.scheduler.protocol.wait_reasons import ClusterUnavailable
from gpudeck.scheduler.verbs.control import Configure
from gpudeck.scheduler.verbs.groups import GetGroups, SetGroup
from tests.gui import snapshots
from tests.gui.conftest import Fed, exchange
from tests.gui.snapshots import NOW
from tests.support import state_folder

CTRL_SHIFT = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier
LAB, HPC = ClusterSettings("http://head:8265"), ClusterSettings()
STATES = (GroupState(Group("night", 2), 5, 2), GroupState(Group("sweep", 0, True), 1, 0))


def with_clusters(later: float = 0.0) -> snapshots.Snapshot:
    made = snapshots.cpu_snapshot(NOW + later)
    settings = msgspec.structs.replace(made.settings, clusters={"ray:lab": LAB, "slurm:hpc": HPC})
    why = {"ray:lab": ClusterUnavailable("ray:lab", NOW - 60, "Connection refused")}
    return msgspec.structs.replace(made, settings=settings, unavailable=why)


@pytest.fixture
def panel(fed: Fed):
    fed.window.show_page("jobs")
    fed.feed(with_clusters())
    fed.window.jobs.table.setFocus()
    QTest.keyClick(fed.window.jobs, Qt.Key.Key_G, CTRL_SHIFT)
    made = fed.window.jobs.groups
    assert made.isVisible() and not fed.window.jobs.details.isVisible()
    fed.reply(GetGroups, STATES)
    return made


def test_groups_are_listed_limited_paused_and_removed(fed: Fed, panel) -> None:
    assert [row.cells for row in panel.groups.rows] == [
        ("night", "2", "5", "2", "Active"),
        ("sweep", "0", "1", "none", "Paused"),
    ]
    panel.group_list.selectRow(0)
    assert (panel.name.text(), panel.limit.value(), panel.pause.text()) == ("night", 2, "Pause")
    panel.limit.setValue(4)
    panel.set_limit.click()
    panel.pause.click()
    panel.remove_group.click()
    panel.group_list.selectRow(1)
    assert panel.pause.text() == "Resume"
    panel.pause.click()
    panel.name.setText("new")
    panel.limit.setValue(1)
    panel.set_limit.click()
    assert [request for request in fed.asked if isinstance(request, SetGroup)] == [
        SetGroup("night", limit=4),
        SetGroup("night", paused=True),
        SetGroup("night", limit=0, paused=False),
        SetGroup("sweep", paused=False),
        SetGroup("new", limit=1),
    ]
    fed.fail(SetGroup, "the disk is full")
    assert (panel.said.text(), panel.said.property("meaning")) == ("the disk is full", "failed")


def test_clusters_show_their_health_and_are_added_tested_and_removed(fed: Fed, panel) -> None:
    lab, hpc = (row.cells for row in panel.clusters.rows)
    assert lab[:2] == ("ray:lab", "http://head:8265") and "Connection refused" in lab[3]
    assert hpc == ("slurm:hpc", "local commands", "0", "Reachable")
    for name, address, said in (
        ("lab", "", "a cluster is named ray:NAME"),
        ("ray:new", "", "enter the address of Ray's dashboard"),
        ("ray:new", "head:8265", "an address begins with http://"),
    ):
        panel.cluster.setText(name)
        panel.address.setText(address)
        panel.add.click()
        assert panel.said.text().startswith(said)
    panel.address.setText("http://new:8265")
    new = ClusterSettings("http://new:8265")
    panel.test.click()
    assert fed.asked[-1] == ReachCluster("ray:new", new)
    fed.reply(ReachCluster, "ray:new answers (session s1)")
    assert panel.said.text() == "ray:new answers (session s1)"
    panel.add.click()
    assert fed.asked[-1] == Configure(
        {"clusters": {"ray:lab": LAB, "slurm:hpc": HPC, "ray:new": new}}
    )
    panel.cluster_list.selectRow(0)
    panel.remove_cluster.click()
    assert fed.asked[-1] == Configure({"clusters": {"slurm:hpc": HPC}})


def test_a_cluster_with_jobs_is_not_removed(fed: Fed, panel) -> None:
    made = with_clusters(3)
    spec = msgspec.structs.replace(made.jobs[1].spec, where="ray:lab")
    jobs = (made.jobs[0], msgspec.structs.replace(made.jobs[1], spec=spec), *made.jobs[2:])
    fed.feed(msgspec.structs.replace(made, jobs=jobs))
    panel.cluster.setText("ray:lab")
    panel.remove_cluster.click()
    assert "jobs run there (8)" in panel.said.text()
    assert not any(isinstance(request, Configure) for request in fed.asked)


def test_esc_leaves_the_groups(fed: Fed, panel) -> None:
    QTest.keyClick(panel.name, Qt.Key.Key_Escape)
    assert not panel.isVisible() and fed.window.jobs.details.isVisible()


@pytest.fixture
def ray_head() -> Iterator[str]:
    """Answer as the dashboard of Ray does to the question for its version."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"session_name": "session_7"}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_cluster_is_reached_once_and_groups_go_with_their_limits(
    clean_qt, qtbot, tmp_path, ray_head
) -> None:
    with state_folder(tmp_path / "home"), Client():
        link = Link()
        answer = exchange(qtbot, link, ReachCluster("ray:lab", ClusterSettings(ray_head)))
        assert answer == "ray:lab answers (session session_7)"
        gone = ReachCluster("ray:lab", ClusterSettings("http://127.0.0.1:9"))
        with pytest.raises(UserError, match="ray:lab does not answer: "):
            exchange(qtbot, link, gone)
        (made,) = exchange(qtbot, link, SetGroup("night", limit=2))
        assert made.group == Group("night", 2)
        assert exchange(qtbot, link, SetGroup("night", limit=0)) == (), "it has no jobs"
        link.stop()


def test_the_log_takes_the_whole_page_and_gives_it_back(fed: Fed) -> None:
    page = fed.window.jobs
    fed.window.show_page("jobs")
    fed.feed(snapshots.cpu_snapshot())
    page.choose(8)
    height = page.details.log.height()
    QTest.keyClick(page, Qt.Key.Key_F11)
    fed.settle()
    assert not page.table.isVisible() and not page.chooser.isVisible()
    assert page.details.log.height() > height and page.details.log.hasFocus()
    assert fed.window.windowState() & Qt.WindowState.WindowFullScreen
    fed.feed(snapshots.cpu_snapshot(NOW + 1))
    assert not page.table.isVisible()
    QTest.keyClick(page.details.log, Qt.Key.Key_Escape)
    fed.settle()
    assert page.table.isVisible() and page.details.facts.isVisible()
    assert not fed.window.windowState() & Qt.WindowState.WindowFullScreen


def test_notify_me_tells_the_end_of_a_short_job_even_in_quiet_hours(fed: Fed) -> None:
    page = fed.window.jobs
    fed.window.show_page("jobs")
    fed.feed(snapshots.cpu_snapshot())
    page.choose(8)
    page.details.notify.click()
    page.choose(7)
    assert not page.details.notify.isChecked()
    told: list[str] = []
    notifier = Notifier(lambda notice: told.append(str(notice.title)))
    made = snapshots.cpu_snapshot(NOW + 1)
    settings = msgspec.structs.replace(
        made.settings, notify_minutes="off", quiet_hours="00:00-23:59"
    )
    made = msgspec.structs.replace(made, settings=settings)
    notifier.update(made, fed.window.state.notify)
    assert told == []
    over = snapshots.job(8, Done(NOW, NOW + 1))
    made = msgspec.structs.replace(made, jobs=(over, *made.jobs[2:]))
    notifier.update(made, fed.window.state.notify)
    notifier.update(made, fed.window.state.notify)
    assert told == ["GPU Deck: job 8 done"]
    assert fed.window.state.notify == set()
