"""A real JupyterLab for tests in a browser, with folders of its own, and a page in a real Chromium.

The one idea: nothing of the machine's user is read or written, and nothing outside the machine is asked. The server
listens on the loopback address at a port that the system chose, behind its own token; every address that the page asks
for elsewhere is kept in `Page.elsewhere`. Import the fixtures `lab`, `browser` and `open_notebook` from here.

What a test waits for may take a minute (`LIMIT_S`): beside other tests, a page that is drawn in two seconds on a quiet
machine has taken more than five.
"""

import json
import secrets
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from course_lib.commands.lab import jupyter_command, jupyter_environment

if TYPE_CHECKING:  # it is imported where it is used: without it the other tests still run
    from playwright.sync_api import Browser, BrowserContext, Page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
CHROMIUM_FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
]  # fmt: skip
LIMIT_S = 60
NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")


@dataclass
class Lab:
    """A running server: its address, its token, and the folder whose notebooks it shows."""

    url: str
    token: str
    folder: Path

    def address(self, notebook: str) -> str:
        return f"{self.url}/lab/tree/{notebook}?token={self.token}&reset"


def start_lab(folder: Path, private: Path) -> tuple[subprocess.Popen[bytes], Lab]:
    """JupyterLab on `folder`, as `course lab` starts it; it writes under `private` only. The caller ends it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = secrets.token_hex(16)
    places = {
        name: str(private / name.lower())
        for name in (
            "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR",
            "JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR",
        )
    }  # fmt: skip
    leave_nbgrader_out(Path(places["JUPYTER_CONFIG_DIR"]))
    extra = [f"--IdentityProvider.token={token}"]
    command = jupyter_command(folder, Path("no.ipynb"), browser=False, port=port, extra=extra)
    with (private / "lab.log").open("wb") as log:
        server = subprocess.Popen(command, env=jupyter_environment() | places, stdout=log, stderr=subprocess.STDOUT)
    return server, Lab(f"http://127.0.0.1:{port}", token, folder)


def leave_nbgrader_out(config: Path) -> None:
    """Learners do not have its menu, panels and toolbar; the tests' environment has."""
    parts = ("formgrader", "validate_assignment", "assignment_list", "course_list")
    off = {f"nbgrader.server_extensions.{part}": False for part in parts}
    (config / "labconfig").mkdir(parents=True)
    (config / "labconfig" / "page_config.json").write_text('{"disabledExtensions": {"@jupyter/nbgrader": true}}')
    (config / "jupyter_server_config.json").write_text(json.dumps({"ServerApp": {"jpserver_extensions": off}}))


def wait_until_it_answers(server: subprocess.Popen[bytes], lab: Lab, log: Path, limit_s: float = 90) -> None:
    started = time.monotonic()
    while True:
        try:
            with urllib.request.urlopen(f"{lab.url}/api?token={lab.token}", timeout=5):
                return
        except OSError:
            if server.poll() is not None or time.monotonic() - started > limit_s:
                raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()[-3000:]}") from None
        time.sleep(0.2)


@contextmanager
def running_lab(folder: Path, private: Path, data: Path | None = None) -> Iterator[Lab]:
    """JupyterLab on `folder` until the block ends; what a learner does there is kept in `data`."""
    with pytest.MonkeyPatch.context() as patch:
        if data is not None:
            patch.setenv("COURSE_DATA", str(data))
        server, running = start_lab(folder, private)
    try:
        wait_until_it_answers(server, running, private / "lab.log")
        yield running
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """JupyterLab on copies of the notebooks."""
    private, folder = tmp_path_factory.mktemp("private"), tmp_path_factory.mktemp("course") / "notebooks"
    folder.mkdir()
    for notebook in NOTEBOOKS.glob("*.ipynb"):
        shutil.copy(notebook, folder)
    with running_lab(folder, private, private / "data") as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=1000 * LIMIT_S)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_FLAGS, headless=True)
        yield launched
        launched.close()


def new_window(browser: "Browser", width: int = 1280, height: int = 1600) -> "BrowserContext":
    window = browser.new_context(viewport={"width": width, "height": height})
    window.set_default_timeout(1000 * LIMIT_S)
    return window


def wait_until_connected(page: "Page", lab: Lab, notebook: str) -> None:
    """Until the page talks to an idle kernel: what is run earlier is lost without a word."""
    started = time.monotonic()
    while time.monotonic() - started < LIMIT_S:
        sessions = page.request.get(f"{lab.url}/api/sessions?token={lab.token}").json()
        kernels = [session["kernel"] for session in sessions if session["path"] == notebook]
        if any(kernel["connections"] and kernel["execution_state"] == "idle" for kernel in kernels):
            page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").first.wait_for(state="attached")
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"no kernel for {notebook}")


NOTE_THAT_A_CELL_WAITS = """() => {
    window.aCellWaited = false;
    const prompts = () => [...document.querySelectorAll(".jp-InputPrompt")];
    const look = () => { window.aCellWaited ||= prompts().some((prompt) => prompt.textContent.includes("[*]")); };
    new MutationObserver(look).observe(document.body, {subtree: true, childList: true, characterData: true});
}"""


@dataclass
class Opened:
    """A notebook in a browser: the page, and every address beyond this machine that it asked for."""

    page: "Page"
    elsewhere: list[str] = field(default_factory=list)

    def note(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("data", "blob", "about") and parts.hostname != "127.0.0.1":
            self.elsewhere.append(url)

    def run_all_cells(self, limit_s: float) -> None:
        """Run every cell from the menu and wait until the last has ended."""
        from playwright.sync_api import expect

        waiting = self.page.locator(".jp-InputPrompt", has_text="[*]")
        self.page.evaluate(NOTE_THAT_A_CELL_WAITS)  # who looked twice a second would miss a notebook that is quicker
        self.page.get_by_role("menuitem", name="Run", exact=True).click()
        self.page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        self.page.wait_for_function("window.aCellWaited")
        expect(waiting).to_have_count(0, timeout=1000 * limit_s)
        self.wait_until_idle()

    def wait_until_idle(self) -> None:
        """The status bar is the one place that says "idle" only once a kernel is connected."""
        self.page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()


@pytest.fixture
def open_notebook(lab: Lab, browser: "Browser") -> Iterator[Callable[..., Opened]]:
    """A function that opens a notebook by its file name, in a window of a given size."""
    windows = []

    def open_it(notebook: str, width: int = 1280, height: int = 1600) -> Opened:
        windows.append(new_window(browser, width, height))
        opened = Opened(windows[-1].new_page())
        opened.page.on("request", lambda request: opened.note(request.url))
        opened.page.on("websocket", lambda socket: opened.note(socket.url))
        opened.page.goto(lab.address(notebook))
        opened.page.locator(".jp-Notebook").wait_for()
        opened.wait_until_idle()
        return opened

    yield open_it
    for window in windows:
        window.close()
