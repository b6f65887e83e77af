#!/usr/bin/env python3
"""A file server with byte ranges, latency and bandwidth limits: a distant storage on this machine.

  range_server.py FOLDER --latency-ms 30 --mbit 200

Prints the address as its first line, then serves until it is stopped. /stats tells, as JSON, what was served so far;
/stats?reset also starts the counting anew.

The latency comes before the first byte of every answer, and once more for every new connection. The bandwidth holds for
each connection on its own. One thread a connection, blocking sends: the kernel does the work, so that a client on the
same two cores keeps most of them.
"""

import argparse
import email.utils
import http.server
import json
import os
import pathlib
import re
import socket
import sys
import threading
import time
import urllib.parse

# A limited connection sends pieces of this many seconds of its bandwidth.
PIECE_SECONDS = 0.005
RANGE = re.compile(r"bytes=(\d+)-(\d*)$")


class Counters:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        with self._lock:
            self._values = {"connections": 0, "requests": 0, "heads": 0, "ranges": 0, "missing": 0, "body_bytes": 0, "paths": {}}

    def add(self, name: str, amount: int = 1, path: str | None = None) -> None:
        with self._lock:
            self._values[name] += amount
            if path is not None:
                self._values["paths"][path] = self._values["paths"].get(path, 0) + amount

    def text(self) -> bytes:
        with self._lock:
            return json.dumps(self._values).encode()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "Server"

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.server.counters.add("connections")
        time.sleep(self.server.latency)  # the handshake

    def log_message(self, *_) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        url = urllib.parse.urlsplit(self.path)
        if url.path == "/stats":
            text = self.server.counters.text()
            if url.query == "reset":
                self.server.counters.reset()
            self._head(200, {"Content-Type": "application/json"}, len(text))
            self.wfile.write(text)
            return
        self.server.counters.add("requests" if with_body else "heads")
        time.sleep(self.server.latency)
        file = self._open(urllib.parse.unquote(url.path))
        if file is None:
            self.server.counters.add("missing")
            self._head(404, {}, 0)
            return
        with file:
            self._send(file, url.path, with_body)

    def _open(self, path: str):
        target = (self.server.folder / path.lstrip("/")).resolve()
        if not target.is_relative_to(self.server.folder) or not target.is_file():
            return None
        return target.open("rb")

    def _send(self, file, path: str, with_body: bool) -> None:
        status = os.fstat(file.fileno())
        headers = {
            "Accept-Ranges": "bytes",
            "ETag": f'"{status.st_mtime_ns:x}-{status.st_size:x}"',
            "Last-Modified": email.utils.formatdate(status.st_mtime, usegmt=True),
        }
        if self.headers.get("If-None-Match") == headers["ETag"]:
            self._head(304, headers, None)
            return
        begin, end, code = 0, status.st_size, 200
        asked = RANGE.match(self.headers.get("Range", ""))
        if asked:
            begin = int(asked[1])
            end = min(int(asked[2]) + 1, end) if asked[2] else end
            if begin >= end:
                self._head(416, {"Content-Range": f"bytes */{status.st_size}"}, 0)
                return
            code = 206
            headers["Content-Range"] = f"bytes {begin}-{end - 1}/{status.st_size}"
            self.server.counters.add("ranges")
        self._head(code, headers, end - begin)
        if with_body:
            self._send_bytes(file, path, begin, end)

    def _head(self, code: int, headers: dict[str, str], length: int | None) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def _send_bytes(self, file, path: str, begin: int, end: int) -> None:
        self.wfile.flush()
        rate = self.server.bytes_per_second
        piece = max(1, int(rate * PIECE_SECONDS)) if rate else 1 << 22
        due = time.monotonic()
        at = begin
        while at < end:
            sent = os.sendfile(self.connection.fileno(), file.fileno(), at, min(piece, end - at))
            if sent == 0:
                self.close_connection = True  # the file has become shorter
                return
            at += sent
            self.server.counters.add("body_bytes", sent, path)
            if rate:
                # Against a plan, not piece by piece: sleeping too long once doesn't lower the bandwidth.
                due = max(due + sent / rate, time.monotonic() - PIECE_SECONDS)
                time.sleep(max(0.0, due - time.monotonic()))


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, folder: pathlib.Path, port: int, latency: float, bytes_per_second: float) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.folder = folder.resolve()
        self.latency = latency
        self.bytes_per_second = bytes_per_second
        self.counters = Counters()

    def handle_error(self, request, client_address) -> None:
        # A client that goes away in mid-body is no fault of the server.
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="the folder to serve, a dataset's root for instance")
    parser.add_argument("--port", type=int, default=0, help="default: any free one")
    parser.add_argument("--latency-ms", type=float, default=0.0, help="before the first byte of an answer (default: 0)")
    parser.add_argument("--mbit", type=float, default=0.0, help="Mbit/s a connection (default: no limit)")
    arguments = parser.parse_args()
    if not arguments.folder.is_dir():
        parser.error(f"{arguments.folder}: is not a folder")
    if arguments.latency_ms < 0 or arguments.mbit < 0:
        parser.error("latency and bandwidth can't be negative")
    server = Server(arguments.folder, arguments.port, arguments.latency_ms / 1000, arguments.mbit * 1e6 / 8)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
