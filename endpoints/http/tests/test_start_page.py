"""The start page in a real browser; /plugins and /load, from which it takes what it shows."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import shutil
import subprocess
import time

import httpx
import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",  # which a user "root" cannot have
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--remote-debugging-pipe",
)
SECONDS = 120
"""Much more than anything here takes."""


class Browser:
    """A headless browser with one page, over two pipes: JSON with NUL behind it, as the DevTools
    protocol has it."""

    def __init__(self, program, folder):
        (far_in, self._out), (self._in, far_out) = os.pipe(), os.pipe()
        # Out of the way of 3 and 4, where the browser looks for its ends.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (far_in, far_out)]
        # A shell that knows descriptors of two digits.
        command = ("bash", "-c", f'exec "$@" 3<&{ends[0]} 4>&{ends[1]}', "bash")
        self._process = subprocess.Popen(
            [*command, program, *FLAGS, f"--user-data-dir={folder}", "about:blank"],
            pass_fds=ends,
            stderr=subprocess.DEVNULL,
        )
        for end in (*ends, far_in, far_out):
            os.close(end)
        self._numbers = itertools.count(1)
        self._rest = b""
        self._session = None
        self.requested = []
        self.wrong = []
        (page,) = (t for t in self._targets() if t["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def _targets(self):
        end = time.monotonic() + SECONDS
        while True:
            found = self.call("Target.getTargets")["targetInfos"]
            if any(target["type"] == "page" for target in found):
                return found
            assert time.monotonic() < end, "the browser opened no page"
            time.sleep(0.05)

    def call(self, method, **parameters):
        """What a method of the protocol answers; events before it are noted."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]
            self._note(answer)

    def _read(self):
        while b"\0" not in self._rest:
            data = os.read(self._in, 1 << 16)
            assert data, f"the browser ended with {self._process.wait(SECONDS)}"
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def _note(self, event):
        match event["method"]:
            case "Network.requestWillBeSent":
                self.requested.append(event["params"]["request"]["url"])
            case "Runtime.exceptionThrown":
                self.wrong.append(event["params"]["exceptionDetails"])
            case "Log.entryAdded" if event["params"]["entry"]["source"] == "security":
                self.wrong.append(event["params"]["entry"])

    def run(self, script):
        """The value of a script in the page."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, script):
        """The value of a script, once it is true."""
        end = time.monotonic() + SECONDS
        while not (found := self.run(script)):
            assert time.monotonic() < end, (script, self.run("document.body.innerText"))
            time.sleep(0.02)
        return found

    def open(self, url):
        """Go to a page, and wait until its scripts ran."""
        self.requested.clear()
        self.call("Page.navigate", url=url)
        self.wait(f"location.href === {json.dumps(url)} && document.readyState === 'complete'")

    def wait_text(self, name, text):
        """Wait until an element has a text."""
        self.wait(f"document.getElementById({json.dumps(name)}).textContent === {json.dumps(text)}")

    def say(self, text):
        """Type a message and send it."""
        self.run(f"document.getElementById('message').value = {json.dumps(text)}")
        self.run("document.getElementById('send').click()")

    def turns(self):
        """(kind, text) of all that the chat shows."""
        script = "[...document.querySelectorAll('.turn')].map(t => [t.className, t.textContent])"
        return [tuple(pair) for pair in self.run(script)]

    def close(self):
        """End it."""
        with contextlib.suppress(OSError, AssertionError):
            self._session = None
            self.call("Browser.close")
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        os.close(self._out)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        reason = f"there is no browser: none of {', '.join(NAMES)} is on the path"
        if os.environ.get("TEST_BROWSER") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    made = Browser(program, tmp_path_factory.mktemp("browser"))
    yield made
    made.close()


IDLE = "!document.getElementById('send').disabled"


def test_the_page_tells_of_the_engine_and_of_plugins(browser, server):
    browser.open(f"{server.url}/")
    browser.wait_text("health", "ok")
    browser.wait_text("models", "echo, other")
    browser.wait_text("context", "256 tokens")
    browser.wait_text("load", "0 running, 0 waiting")
    browser.wait("document.querySelectorAll('#plugins tr').length > 5")
    browser.wait("document.getElementById('plugins').textContent.includes('start_page')")
    assert all(url.startswith((server.url, "data:")) for url in browser.requested)
    assert browser.wrong == []


def test_the_chat_streams_and_remembers_and_shows_markup_as_text(browser, server):
    """The echo model says the whole conversation back."""
    browser.open(f"{server.url}/")
    browser.wait_text("models", "echo, other")
    browser.run(
        "window.seen = new Set(); new MutationObserver(() => {"
        "const said = document.querySelector('.turn.assistant');"
        "if (said) window.seen.add(said.textContent); })"
        ".observe(document.getElementById('turns'), {subtree: true, childList: true})"
    )
    evil = "<b id=evil>x</b>"
    browser.say(evil)
    browser.wait(f"document.querySelectorAll('.turn.assistant').length === 1 && {IDLE}")
    said = f"user: {evil}assistant: "
    assert browser.turns() == [("turn user", evil), ("turn assistant", said)]
    assert browser.run("window.seen.size") > 1, "it came in one piece"
    assert browser.run("document.getElementById('evil') === null")
    browser.say("b")
    browser.wait(f"document.querySelectorAll('.turn.assistant').length === 2 && {IDLE}")
    assert browser.turns()[-1][1] == f"user: {evil}assistant: {said}user: bassistant: "
    browser.run("document.getElementById('clear').click()")
    browser.say("c")
    browser.wait(f"document.querySelectorAll('.turn.assistant').length === 1 && {IDLE}")
    assert browser.turns() == [("turn user", "c"), ("turn assistant", "user: cassistant: ")]
    assert browser.wrong == []


def test_an_error_is_shown_and_the_question_forgotten(browser, server):
    browser.open(f"{server.url}/")
    browser.wait_text("models", "echo, other")
    browser.say("x" * 5000)
    browser.wait(f"document.querySelectorAll('.turn.error').length === 1 && {IDLE}")
    assert "too long" in browser.turns()[-1][1]
    browser.say("y")
    browser.wait(f"document.querySelectorAll('.turn.assistant').length === 1 && {IDLE}")
    assert browser.turns()[-1][1] == "user: yassistant: "


def test_a_key_that_is_typed_in_opens_the_page(browser, guarded_server):
    browser.open(f"{guarded_server.url}/")
    browser.wait_text("models", "a valid API key is needed")
    browser.wait_text("health", "ok")
    browser.run("document.getElementById('key').value = 's3cret'")
    browser.run("document.querySelector('#keys button').click()")
    browser.wait_text("models", "echo://")
    # In one go, or the answer may be whole before the click.
    browser.run(
        "new MutationObserver((_, observer) => {"
        "if (!document.querySelector('.turn.assistant')) return;"
        "observer.disconnect(); document.getElementById('stop').click(); })"
        ".observe(document.getElementById('turns'), {subtree: true, childList: true})"
    )
    browser.say("a long answer, of which the rest is not wanted. " * 3)
    browser.wait("!!document.querySelector('.turn.assistant')")
    browser.wait(IDLE)
    assert not browser.turns()[-1][1].endswith("assistant: ")
    browser.wait_text("load", "0 running, 0 waiting")


def test_the_files_of_the_page_may_do_nothing_but_ask_the_server(http):
    for path, media in (
        ("/", "html"),
        ("/start_page.js", "javascript"),
        ("/start_page.css", "css"),
    ):
        response = http.get(path)
        assert media in response.headers["content-type"]
        assert "default-src 'none'" in response.headers["content-security-policy"]
        assert "//" not in response.text.replace("// ", ""), "an address of another server"


def test_plugins_are_listed_without_options_or_places(http):
    found = http.get("/plugins").json()["data"]
    (one,) = (p for p in found if (p["kind"], p["name"]) == ("endpoint", "plugins"))
    assert (one["distribution"], one["state"]) == ("framework-plugin-http", "used")
    assert one["version"]
    assert (one["origin"], one["first_party"]) == ("entry point", True)
    denied = [p for p in found if p["state"] == "denied"]
    assert all(p["reason"] for p in denied)
    assert not {"location", "facts", "options", "entry_point"} & one.keys()


@pytest.fixture(scope="module")
def guarded(guarded_server):
    headers = {"authorization": "Bearer s3cret"}
    with httpx.Client(base_url=guarded_server.url, headers=headers, timeout=SECONDS) as client:
        yield client


def wait_for_load(http, condition):
    """The answer of /load once it fulfils a condition; it always adds up."""
    end = time.monotonic() + SECONDS
    while True:
        found = http.get("/load").json()
        assert found["server_load"] == found["running"] + found["waiting"]
        if condition(found):
            return found
        assert time.monotonic() < end, found
        time.sleep(0.02)


def test_load_counts_requests(guarded):
    """One runs at a time; those that are left end with the connection."""
    body = {"prompt": ["a" * 100] * 6, "stream": True}
    with guarded.stream("POST", "/v1/completions", json=body) as response:
        lines = response.iter_lines()  # kept: at its end the stream would be closed
        next(lines)
        found = wait_for_load(guarded, lambda load: load["running"] and load["waiting"])
        assert (found["running"], 0 < found["waiting"] < 6) == (1, True)
    wait_for_load(guarded, lambda load: load["server_load"] == 0)


PATHS = {"/": 200, "/start_page.js": 200, "/start_page.css": 200, "/plugins": 401, "/load": 401}


def test_plugins_and_load_ask_for_a_key_and_the_page_does_not(guarded_server, guarded):
    url = guarded_server.url
    assert {path: httpx.get(url + path, timeout=60).status_code for path in PATHS} == PATHS
    assert guarded.get("/plugins").status_code == guarded.get("/load").status_code == 200
