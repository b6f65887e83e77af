"""The test Hub (tests/support/hub_server_program.cpp) as a child process, and the real huggingface_hub client as another; the fixture
`start` makes them.

The client reads its environment once, when it is imported; so every client of these tests is a process of its own, which runs
functions of the test's module.
"""

import concurrent.futures
import json
import multiprocessing
import os
import pathlib
import subprocess
import urllib.request

import pytest


def make_folder(folder: pathlib.Path, files: dict[str, bytes]) -> pathlib.Path:
    """The folder with these files in it."""
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


def contents(folder) -> dict[str, bytes]:
    """Every file below a folder by its path there."""
    folder = pathlib.Path(folder)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class HubServer:
    """hub_server with these arguments. Its faults and its log of requests are those of hub_faults.h."""

    def __init__(self, programs: pathlib.Path, *arguments: str):
        self._process = subprocess.Popen(
            [programs / "hub_server", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.endpoint = self._process.stdout.readline().strip()
        if not self.endpoint:
            raise RuntimeError(f"hub_server {' '.join(arguments)} ended with {self._process.wait()}")

    def set_faults(self, *faults: dict) -> None:
        self._control("POST", "faults", json.dumps(faults).encode())

    def requests(self, method: str = "", path: str = "", server: str = "") -> list[dict]:
        """Those of one method and server, whose path contains `path`."""
        return [
            request
            for request in json.loads(self._control("GET", "requests"))
            if method in ("", request["method"]) and server in ("", request["server"]) and path in request["path"]
        ]

    def forget_requests(self) -> None:
        self._control("DELETE", "requests")

    def close(self) -> None:
        self._process.stdin.close()
        code = self._process.wait(timeout=30)
        self._process.stdout.close()
        if code != 0:
            raise RuntimeError(f"hub_server ended with {code}")

    def _control(self, method: str, name: str, body: bytes | None = None) -> bytes:
        request = urllib.request.Request(f"{self.endpoint}/_test/{name}", data=body, method=method)
        with urllib.request.urlopen(request) as answer:
            return answer.read()


class Client:
    """A process that talks to `endpoint` with a home of its own and, unless it is told otherwise, without Xet."""

    def __init__(self, endpoint: str, home: pathlib.Path, *, xet: bool = False, token: str | None = None, **environment: str):
        self.home = home
        self._environment = {
            "HF_ENDPOINT": endpoint,
            "HF_HOME": str(home),
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_XET": "0" if xet else "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_TOKEN": token or "",
            **environment,
        }
        self._pool: concurrent.futures.ProcessPoolExecutor | None = None

    def __call__(self, function, *arguments, **named):
        """What `function` of an importable module returns there."""
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = concurrent.futures.ProcessPoolExecutor(1, mp_context=context)
            with _environment(self._environment):
                self._pool.submit(os.getpid).result()
        return self._pool.submit(function, *arguments, **named).result(timeout=120)

    def failure(self, function, *arguments, **named) -> tuple[str, str]:
        """The class and the text of what `function` raises there."""
        return self(_failure, function, arguments, named)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()


class Start:
    """start(*arguments of hub_server) gives a server, start.client(server, name of its home, ...) a client of it."""

    def __init__(self, programs: pathlib.Path, folder: pathlib.Path):
        self._programs = programs
        self._folder = folder
        self._started: list[HubServer | Client] = []

    def __call__(self, *arguments: str) -> HubServer:
        self._started.append(HubServer(self._programs, *arguments))
        return self._started[-1]

    def client(self, server: HubServer, name: str = "home", **options) -> Client:
        self._started.append(Client(server.endpoint, self._folder / name, **options))
        return self._started[-1]

    def close(self) -> None:
        for one in reversed(self._started):
            one.close()


@pytest.fixture
def start(programs, tmp_path):
    start = Start(programs, tmp_path)
    yield start
    start.close()


def _failure(function, arguments, named) -> tuple[str, str]:
    # The client's exceptions don't travel between processes.
    try:
        result = function(*arguments, **named)
    except Exception as error:
        return type(error).__name__, str(error)
    raise AssertionError(f"{function.__name__} did not fail, but gave {result!r}")


class _environment:
    """Variables that hold inside a with statement."""

    def __init__(self, variables: dict[str, str]):
        self._variables = variables

    def __enter__(self):
        self._before = dict(os.environ)
        os.environ.update(self._variables)

    def __exit__(self, *_):
        os.environ.clear()
        os.environ.update(self._before)
