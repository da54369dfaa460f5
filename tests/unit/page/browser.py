"""A real Chromium, driven by its DevTools protocol over aiohttp: no package of ours for it."""

import asyncio
import base64
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--hide-scrollbars", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-extensions", "--disable-dev-shm-usage", "--remote-debugging-port=0",
    "--remote-allow-origins=*", "about:blank",
)  # fmt: skip
START_S = 60.0
CALL_S = 60.0
DISPOSE_S = 5.0
KEYS = {
    "Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, ""), " ": (32, " "), "Home": (36, ""),
    "End": (35, ""), "ArrowLeft": (37, ""), "ArrowUp": (38, ""), "ArrowRight": (39, ""),
    "ArrowDown": (40, ""),
}  # fmt: skip


def program() -> str:
    """The browser of this machine; tests are skipped without one."""
    found = os.environ.get("VC_EGPU_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if not found:
        pytest.skip("no Chromium here (Debian: apt-get install chromium; or name one in VC_EGPU_CHROMIUM)")
    return found


def npm_file(name: str) -> Path:
    """A file of an npm package that only tests need; they are skipped without it."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = home / "vc-egpu" / "npm" / "node_modules" / name
    if not path.is_file():
        pytest.skip(f"no {name} here: `make page-tools` fetches it (needs npm)")
    return path


def axe() -> str:
    """axe-core as text."""
    return npm_file("axe-core/axe.min.js").read_text()


class BrowserError(Exception):
    """The browser refused a call, or an expression failed."""


class Browser:
    """One process with one connection; calls may come from any thread."""

    def __init__(self, address: str, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._numbers = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self.events: list[tuple[str, str, Any]] = []
        """(session, method, parameters) of what the browser told."""
        self._session: aiohttp.ClientSession | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._reader: asyncio.Task[None] | None = None
        self.run(self._connect(address))

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_S + 10)

    async def _connect(self, address: str) -> None:
        self._session = aiohttp.ClientSession()
        self._socket = await self._session.ws_connect(address, max_msg_size=0, heartbeat=None)
        self._reader = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        assert self._socket is not None
        async for message in self._socket:
            told = json.loads(message.data)
            if (waiting := self._waiting.pop(told.get("id", 0), None)) is not None:
                if not waiting.done():
                    waiting.set_result(told)
            else:
                self.events.append((told.get("sessionId", ""), told["method"], told.get("params")))

    def call(self, method: str, session: str = "", /, **parameters: Any) -> Any:
        return self.run(self._call(method, session, parameters))

    async def _call(
        self, method: str, session: str, parameters: dict[str, Any], timeout_s: float = CALL_S
    ) -> Any:
        assert self._socket is not None
        self._numbers += 1
        number = self._numbers
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        where = {"sessionId": session} if session else {}
        await self._socket.send_json({"id": number, "method": method, "params": parameters, **where})
        told = await asyncio.wait_for(future, timeout_s)
        if "error" in told:
            raise BrowserError(f"{method}: {told['error']['message']}")
        return told["result"]

    def close(self) -> None:
        self.run(self._close())

    async def _close(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
        if self._socket is not None:
            await self._socket.close()
        if self._session is not None:
            await self._session.close()

    @contextmanager
    def page(
        self, *, locale: str = "en-US", dark: bool = False, size: tuple[int, int] = (1280, 800)
    ) -> Iterator["Page"]:
        """A tab with cookies of its own."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        try:
            page.call("Page.enable")
            page.call("Runtime.enable")
            page.call("Log.enable")
            page.call("Emulation.setLocaleOverride", locale=locale)
            page.call("Network.enable")
            page.call("Network.setUserAgentOverride", userAgent="Chromium for tests", acceptLanguage=locale)
            page.colours(dark=dark)
            wide, tall = size
            page.call(
                "Emulation.setDeviceMetricsOverride",
                width=wide,
                height=tall,
                deviceScaleFactor=1,
                mobile=False,
            )
            yield page
        finally:
            # Disposal while the tab loads may never be answered: the context then ends with the browser.
            with suppress(BrowserError, TimeoutError):
                self.run(
                    self._call("Target.disposeBrowserContext", "", {"browserContextId": context}, DISPOSE_S)
                )


class Page:
    """One tab."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session

    def call(self, method: str, /, **parameters: Any) -> Any:
        return self._browser.call(method, self._session, **parameters)

    def open(self, url: str) -> None:
        failed = self.call("Page.navigate", url=url).get("errorText")
        if failed:
            raise BrowserError(failed)

    def reload(self) -> None:
        """Until the old document is gone."""
        self.run("window.isOld = true")
        self.call("Page.reload")
        self.until("window.isOld === undefined")

    def run(self, expression: str) -> Any:
        """The value of an expression; a promise is waited for."""
        told = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in told:
            details = told["exceptionDetails"]
            raise BrowserError(str(details.get("exception", {}).get("description") or details["text"]))
        return told["result"].get("value")

    def until(self, expression: str, timeout_s: float = 20.0) -> Any:
        """Until an expression is true; returns its value."""
        end, pause = time.monotonic() + timeout_s, threading.Event()
        while True:
            with suppress(BrowserError):  # a page that is on its way to another one
                if value := self.run(expression):
                    return value
            if time.monotonic() > end:
                seen = self.run("document.body.innerText")
                raise AssertionError(f"never true: {expression}; the page says: {seen[:1500]}")
            pause.wait(0.03)

    def until_text(self, text: str, selector: str = "body") -> None:
        self.until(
            f"(document.querySelector({json.dumps(selector)})?.innerText ?? '').includes({json.dumps(text)})"
        )

    def text(self, selector: str = "body") -> str:
        return str(self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def click(self, selector: str) -> None:
        self.until(f"document.querySelector({json.dumps(selector)}) !== null")
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def choose(self, selector: str, value: str) -> None:
        self.run(
            f"(() => {{ const one = document.querySelector({json.dumps(selector)});"
            f" one.value = {json.dumps(value)};"
            " one.dispatchEvent(new Event('input', {bubbles: true}));"
            " one.dispatchEvent(new Event('change', {bubbles: true})); })()"
        )

    def press(self, *keys: str) -> None:
        for key in keys:
            code, text = KEYS[key]
            shared = {"key": key, "windowsVirtualKeyCode": code, "code": "Space" if key == " " else key}
            self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **shared)
            self.call("Input.dispatchKeyEvent", type="keyUp", **shared)

    def colours(self, *, dark: bool) -> None:
        value = "dark" if dark else "light"
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": value}])

    def offline(self, *, on: bool) -> None:
        self.call(
            "Network.emulateNetworkConditions",
            offline=on,
            latency=0,
            downloadThroughput=-1,
            uploadThroughput=-1,
        )

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def complaints(self) -> list[str]:
        """Errors of scripts and of the policy, as the console shows them."""
        found = []
        for session, method, told in list(self._browser.events):
            if session != self._session:
                continue
            if method == "Runtime.exceptionThrown":
                details = told["exceptionDetails"]
                found.append(str(details.get("exception", {}).get("description") or details["text"]))
            elif method == "Log.entryAdded" and told["entry"]["level"] == "error":
                if told["entry"]["source"] == "network":
                    continue  # a refusal, which the page shows
                found.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")
            elif method == "Runtime.consoleAPICalled" and told["type"] == "error":
                found.append(str(told["args"]))
        return found

    def requests(self) -> list[str]:
        """Addresses that the page asked for."""
        return [
            told["request"]["url"]
            for session, method, told in list(self._browser.events)
            if session == self._session and method == "Network.requestWillBeSent"
        ]


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start one, and end it."""
    with tempfile.TemporaryDirectory(prefix="egpu-chromium-", ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(
            [program(), f"--user-data-dir={folder}", *FLAGS],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        try:
            browser = Browser(_address(Path(folder), process), loop)
            try:
                yield browser
            finally:
                browser.close()
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(10)
            loop.close()


def _address(folder: Path, process: "subprocess.Popen[bytes]") -> str:
    """Where it listens: it writes that into a file."""
    end, pause = time.monotonic() + START_S, threading.Event()
    while time.monotonic() < end and process.poll() is None:
        with suppress(OSError, ValueError):
            port, path = (folder / "DevToolsActivePort").read_text().split("\n")[:2]
            return f"ws://127.0.0.1:{int(port)}{path}"
        pause.wait(0.02)
    raise BrowserError("Chromium did not start")
