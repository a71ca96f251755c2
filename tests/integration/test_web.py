"""`gpudeck web` with a real daemon: who may read it, and what a real browser shows."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from gpudeck.scheduler.client import Client
from gpudeck.scheduler.protocol import settings
from gpudeck.scheduler.protocol.settings import TEMPLATE, Settings
from tests.integration.browser import Browser, need_chromium
from tests.integration.deck import python, ready, running
from tests.integration.web_page import Page
from tests.support import eventually, state_folder

pytestmark = pytest.mark.xdist_group("web")
NO_JOB = ("CPU is free", "CPU has no job, and is ")
"""The headline, as other programs load the CPU."""
HOSTILE = (
    "import json, sys, time, pathlib\n"
    "print('\\x1b[31m<script>document.title=1</script>\\x1b]0;stolen\\x07 &amp; <b>bold</b>')\n"
    "for step in range(40): print(json.dumps({'step': step, 'loss': 4 / (step + 1)}))\n"
    "while not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.05)\n"
    "print('the last line')\n"
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with state_folder(tmp_path_factory.mktemp("web") / "home"):
        settings.save(Settings(source="cpu", model_folder=TEMPLATE, language="en"))
        process, made = start_web()
        with Client() as deck:
            ready(deck)
        yield made
        with closing(HTTPConnection("127.0.0.1", made.port, timeout=60)) as watching:
            watching.request("GET", "/api/live", headers={"Authorization": f"Bearer {made.token}"})
            assert watching.getresponse().read(1) == b"e"
            process.send_signal(signal.SIGTERM)
            assert process.communicate(timeout=60)[1] == "", "it ends quietly while one watches"


def start_web() -> tuple[subprocess.Popen[str], Page]:
    process = subprocess.Popen(
        [sys.executable, "-m", "gpudeck", "web", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, Page(process.stdout.readline().split()[-1])


@pytest.fixture
def deck(page: Page) -> Iterator[Client]:
    with Client() as client:
        yield client


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    need_chromium()
    with Browser(tmp_path_factory.mktemp("profile")) as made:
        yield made


def test_the_token_of_one_start_opens_no_other(page: Page) -> None:
    process, other = start_web()
    try:
        assert other.ask("/api/captions", token=other.token)[0] == 200
        assert other.ask("/api/captions", token=page.token)[0] == 401
    finally:
        process.terminate()
        process.communicate(timeout=60)


DATA = ("/api/captions", "/api/live", "/api/jobs/1", "/api/history?device=cpu")


@pytest.mark.parametrize("path", DATA)
def test_data_needs_the_token(page: Page, path: str) -> None:
    for token in (None, "", "wrong", page.token[:-1], page.token + "x", "é"):
        status, headers, body = page.ask(path, token=token)
        assert status == 401
        assert page.token.encode() not in body
        assert "set-cookie" not in headers


@pytest.mark.parametrize("path", ["/", "/static/deck.js", *DATA])
@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example"])
def test_a_page_of_another_name_reads_nothing(page: Page, path: str, host: str) -> None:
    status, headers, _ = page.ask(path, token=page.token, host=host)
    assert status == 403
    assert not [name for name in headers if name.startswith("access-control-")]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"])
def test_nothing_can_be_changed(page: Page, method: str) -> None:
    for path in ("/", *DATA):
        assert page.ask(path, method, page.token)[0] == 403


@pytest.mark.parametrize(
    "path",
    [
        "/x",
        "/static/",
        "/static/../server.py",
        "/static/%2e%2e%2fserver.py",
        "/api/jobs/x",
        "/api/jobs/" + "9" * 5000,
    ],
)
def test_there_are_no_other_paths(page: Page, path: str) -> None:
    assert page.ask(path, token=page.token)[0] == 403


def test_the_empty_page_holds_no_data_and_allows_no_foreign_script(page: Page) -> None:
    status, headers, body = page.ask("/")
    assert status == 200
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert re.findall(rb"<script(?! src=\"/static/)", body) == []
    assert re.findall(rb"(?:src|href)=\"(?!/static/|#)", body) == [], "nothing from elsewhere"
    assert b"MIT" in page.ask("/static/uPlot.LICENSE.txt")[2]


def test_the_history_of_a_device_is_checked(page: Page) -> None:
    def ask(query: str) -> int:
        return page.ask(f"/api/history?{query}", token=page.token)[0]

    assert ask("device=cpu&since=0&until=9e9&points=100") == 200
    assert ask("device=none&since=0&until=9e9&points=100") in (200, 404)
    for wrong in ("", "since=0&until=1&points=x", "since=nan&until=1&points=9",
                  "since=0&until=1&points=100000", "since=0&until=inf&points=9"):  # fmt: skip
        assert ask(f"device=cpu&{wrong}") == 400


def test_the_stream_tells_of_jobs_as_they_come(page: Page, deck: Client, tmp_path: Path) -> None:
    job = deck.submit(python(HOSTILE, tmp_path / "go"), gpus=1, name="streamed")
    running(deck, job)
    ((name, shown),) = page.events("/api/live", 1)
    assert name == "page"
    assert [one["row"]["name"] for one in shown["running"]] == ["streamed"]
    assert shown["headline"] == "CPU is in use"
    assert shown["devices"][0]["job"]["id"] == job.id
    bars = shown["timeline"]["rows"][0]["bars"]
    assert [(bar["kind"], bar["key"]) for bar in bars] == [("running", job.id)]
    (tmp_path / "go").touch()
    deck.wait(job.id, 60)
    events = page.events(f"/api/jobs/{job.id}", 99)
    assert events[-1] == ("end", {})
    kinds = {name for name, _ in events}
    assert kinds == {"job", "log", "curves", "verdicts", "end"}
    log = "".join(value for name, value in events if name == "log")
    assert log.startswith("<script>document.title=1</script> &amp; <b>bold</b>\n")
    assert "\x1b" not in log
    assert log.endswith("the last line\n")
    curves = [value for name, value in events if name == "curves"][-1]
    assert curves["loss"]["steps"] == [float(step) for step in range(40)]
    assert curves["loss"]["values"] == [4 / (step + 1) for step in range(40)]
    assert page.events("/api/jobs/999999", 9)[-1][0] == "problem"


def test_idle_devices_may_sleep_once_nobody_looks(page: Page) -> None:
    for _ in range(3):  # each viewer begins the subscription anew
        assert page.events("/api/live", 2)[1][0] == "page"


def test_a_browser_shows_the_deck_live_and_safely(
    page: Page, deck: Client, browser: Browser, tmp_path: Path
) -> None:
    browser.emulate(1440, 900, "dark")
    browser.open(page.link)
    eventually(lambda: browser.text(".hero h1").startswith(NO_JOB))
    assert page.token not in browser.run("return location.href")
    assert browser.text(".tile .title b") == "CPU"
    job = deck.submit(python(HOSTILE, tmp_path / "go"), gpus=1, name="<img src=x onerror=alert(1)>")
    eventually(lambda: "<img src=x" in browser.text(".jobs .group"))
    eventually(lambda: browser.text(".hero h1") == "CPU is in use")
    eventually(lambda: browser.text(".timeline .span.running").startswith(f"{job.id} · <img"))
    browser.run("document.querySelector('.jobs .job').click()")
    eventually(lambda: "<script>document.title=1</script>" in browser.text(".log"))
    eventually(lambda: browser.run("return document.querySelectorAll('.chart canvas').length") > 1)
    (tmp_path / "go").touch()
    eventually(lambda: browser.text(".log").endswith("the last line\n"))
    eventually(lambda: browser.text(".hero .pill") == "done")
    assert browser.run("return document.querySelectorAll('main script, main img').length") == 0
    assert browser.run("return document.title").endswith("· GPU Deck")
    browser.run("location.hash = '#/'")
    eventually(lambda: browser.text(".hero h1").startswith(NO_JOB))
    browser.run("document.querySelector('.tile').click()")
    eventually(lambda: browser.run("return document.querySelectorAll('.chart canvas').length") > 1)
    assert browser.messages() == [], "no error, and nothing that the policy refused"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1440])
def test_the_page_fits_every_screen(page: Page, browser: Browser, width: int, scheme: str) -> None:
    browser.emulate(width, 800, scheme)
    browser.open("about:blank")
    browser.open(page.link)
    eventually(lambda: browser.text(".hero h1"))
    wide = browser.run("return document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0
    ground = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(244, 245, 247)", "dark": "rgb(18, 21, 25)"}[scheme]


def test_a_browser_without_the_token_is_asked_for_it(page: Page, browser: Browser) -> None:
    with browser.new_tab():
        browser.open(page.link.partition("#")[0] + "#wrong")
        eventually(lambda: "gpudeck web" in browser.text("form.token"))
        assert browser.run("return sessionStorage.length") == 0
        browser.run("document.querySelector('form.token input').value = arguments[0]", page.link)
        # later, as the page is loaded again before the driver would have its answer
        browser.run("setTimeout(() => document.querySelector('form.token button').click())")
        eventually(lambda: browser.text(".hero h1"))
        browser.messages()  # the refusal, which browsers log
