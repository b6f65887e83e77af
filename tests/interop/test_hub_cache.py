"""One cache for both: what hub_get (our downloader) brings is what the real huggingface_hub client finds, and the reverse."""

import concurrent.futures
import hashlib
import http.client
import http.server
import os
import pathlib
import random
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time

import pytest
from huggingface_hub import hf_hub_download, scan_cache_dir, snapshot_download

from hub_server import HubServer, contents, make_folder, start  # noqa: F401 (start is a fixture)

DATASET = "org/data"
SMALL = {"README.md": b"# data", "empty.txt": b"", "meta/info.json": b'{"fps": 30}', "meta/ö a#1%.txt": b"blank"}
LARGE = {"data/0.parquet": random.Random(1).randbytes(300_000), "videos/cam a/0.mp4": random.Random(2).randbytes(6_000_000)}
FILES = {**SMALL, **LARGE}
BIG = random.Random(3).randbytes(80 << 20)


class Ours:
    """hub_get with a home and a cache of its own."""

    def __init__(self, programs: pathlib.Path, folder: pathlib.Path):
        self._program = programs / "hub_get"
        self._home = folder / "our home"
        self.cache = folder / "cache"

    def command(self, revision: str = "main", *patterns: str) -> list:
        return [self._program, "dataset", DATASET, revision, self.cache, *patterns]

    def environment(self, server: HubServer | str, **more: str) -> dict[str, str]:
        endpoint = server if isinstance(server, str) else server.endpoint
        common = {"PATH": os.environ["PATH"], "HF_ENDPOINT": endpoint, "HF_HOME": str(self._home), "no_proxy": "127.0.0.1,localhost"}
        return {**common, **more}

    def run(self, server, revision: str = "main", *patterns: str, **environment: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            self.command(revision, *patterns), env=self.environment(server, **environment), capture_output=True, text=True, timeout=120
        )

    def get(self, server, revision: str = "main", *patterns: str, **environment: str) -> pathlib.Path:
        done = self.run(server, revision, *patterns, **environment)
        assert done.returncode == 0, done.stderr
        return pathlib.Path(done.stdout.strip())

    def start(self, server, **environment: str) -> subprocess.Popen:
        return subprocess.Popen(
            self.command(), env=self.environment(server, **environment), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def incomplete(self) -> list[pathlib.Path]:
        return list(self.cache.glob("datasets--*/blobs/*.incomplete"))


@pytest.fixture
def ours(programs, tmp_path) -> Ours:
    return Ours(programs, tmp_path)


@pytest.fixture
def server(start, tmp_path) -> HubServer:
    folder = make_folder(tmp_path / "source", FILES)
    return start(f"--dataset={DATASET}={folder}", f"--tag={DATASET}=v3.0")


@pytest.fixture
def big_server(start, tmp_path) -> HubServer:
    folder = make_folder(tmp_path / "source", {"big.bin": BIG, "small.txt": b"small"})
    return start(f"--dataset={DATASET}={folder}")


# What runs in their client's process.


def snapshot(cache, revision="main", **named) -> str:
    return snapshot_download(DATASET, repo_type="dataset", revision=revision, cache_dir=cache, **named)


def one_file(cache, path, revision="main", **named) -> str:
    return hf_hub_download(DATASET, path, repo_type="dataset", revision=revision, cache_dir=cache, **named)


def scan(cache) -> dict:
    found = scan_cache_dir(cache)
    (repo,) = found.repos
    return {
        "warnings": [str(warning) for warning in found.warnings],
        "id": repo.repo_id,
        "type": repo.repo_type,
        "refs": sorted(repo.refs),
        "files": sorted(file.file_path.relative_to(revision.snapshot_path).as_posix() for revision in repo.revisions for file in revision.files),
        "size": found.size_on_disk,
    }


# One writes, the other reads.


def test_the_real_client_reads_offline_what_ours_brought(start, server, ours):
    folder = ours.get(server)
    ours.get(server, "v3.0")
    assert contents(folder) == FILES
    server.forget_requests()
    client = start.client(server, HF_HUB_OFFLINE="1")
    assert client(snapshot, ours.cache) == str(folder)
    assert client(snapshot, ours.cache, "v3.0") == str(folder)
    assert client(snapshot, ours.cache, folder.name) == str(folder)
    for path in FILES:
        assert client(one_file, ours.cache, path) == str(folder / path)
    found = client(scan, ours.cache)
    assert found == {
        "warnings": [],
        "id": DATASET,
        "type": "dataset",
        "refs": ["main", "v3.0"],
        "files": sorted(FILES),
        "size": sum(map(len, FILES.values())),
    }
    assert server.requests(path=DATASET) == []


def test_the_real_client_asks_only_for_the_commit_of_what_ours_brought(start, server, ours):
    folder = ours.get(server)
    server.forget_requests()
    assert start.client(server)(snapshot, ours.cache) == str(folder)
    assert [request["path"] for request in server.requests(path=DATASET)] == [f"/api/datasets/{DATASET}/revision/main"]


@pytest.mark.parametrize("xet", [False, True])
def test_ours_reads_what_the_real_client_brought(start, tmp_path, ours, xet):
    source = make_folder(tmp_path / "source", FILES)
    server = start(*(["--xet=true"] if xet else []), f"--dataset={DATASET}={source}", f"--tag={DATASET}=v3.0")
    client = start.client(server, xet=xet)
    folder = client(snapshot, ours.cache, "v3.0")
    assert (ours.cache / "blobs").exists() == xet, "Xet downloads lie in a store of all repositories"
    server.forget_requests()
    assert ours.get(server, "v3.0", HF_HUB_OFFLINE="1") == pathlib.Path(folder)
    assert ours.get(server, pathlib.Path(folder).name) == pathlib.Path(folder)
    assert server.requests(path=DATASET) == []
    assert ours.get(server, "main") == pathlib.Path(folder)
    assert [request["path"] for request in server.requests(path=DATASET)] == [f"/api/datasets/{DATASET}/revision/main"]
    assert contents(folder) == FILES


def test_both_leave_the_same_cache(start, server, ours, tmp_path):
    folder = ours.get(server)
    other = tmp_path / "other cache"
    start.client(server)(snapshot, other)

    def described(cache: pathlib.Path) -> dict:
        return {
            path.relative_to(cache).as_posix(): os.readlink(path) if path.is_symlink() else path.read_bytes()
            for path in cache.rglob("*")
            if (path.is_symlink() or path.is_file()) and path.name != "CACHEDIR.TAG"
        }

    mine, theirs = described(ours.cache), described(other)
    assert mine.keys() == theirs.keys()
    assert mine == theirs, "refs, blobs, links, locks and the listing are equal to the byte"
    assert (ours.cache / "CACHEDIR.TAG").read_bytes().splitlines()[0] == (other / "CACHEDIR.TAG").read_bytes().splitlines()[0]
    blob = (folder / "README.md").resolve()
    assert blob.stat().st_mode == (other / blob.relative_to(ours.cache)).stat().st_mode


def test_the_other_needs_only_what_is_new_in_a_commit(start, server, ours, tmp_path):
    client = start.client(server, token="hf_any")
    ours.get(server)
    (tmp_path / "new.json").write_bytes(b'{"new": 1}')
    client(upload, tmp_path / "new.json")
    server.forget_requests()
    folder = pathlib.Path(client(snapshot, ours.cache))
    assert contents(folder) == {**FILES, "meta/new.json": b'{"new": 1}'}
    assert {request["path"].rsplit("/", 1)[1] for request in server.requests("GET", "resolve")} == {"new.json"}
    # And ours after another change by them.
    (tmp_path / "new.json").write_bytes(b'{"new": 2}')
    client(upload, tmp_path / "new.json")
    server.forget_requests()
    assert contents(ours.get(server))["meta/new.json"] == b'{"new": 2}'
    assert {request["path"].rsplit("/", 1)[1] for request in server.requests("GET", "/resolve/")} == {"new.json"}


def upload(path) -> None:
    from huggingface_hub import HfApi

    HfApi().upload_file(path_or_fileobj=path, path_in_repo="meta/new.json", repo_id=DATASET, repo_type="dataset")


def test_files_in_place_of_links_serve_the_real_client(start, server, ours):
    folder = ours.get(server, HF_HUB_DISABLE_SYMLINKS="1")
    assert not any(path.is_symlink() for path in folder.rglob("*"))
    client = start.client(server, HF_HUB_OFFLINE="1")
    assert client(snapshot, ours.cache) == str(folder)
    assert contents(folder) == FILES


def test_patterns_choose_the_files_that_the_real_client_chooses(start, server, ours, tmp_path):
    client = start.client(server)
    for number, patterns in enumerate([["meta/"], ["*.json", "*.md"], ["videos/*/0.m[pq]4"], ["?EADME.md"], ["meta/*[!n]"]]):
        ours.cache = tmp_path / f"cache {number}"
        folder = ours.get(server, "main", *patterns)
        assert contents(folder) == contents(client(snapshot, tmp_path / f"their cache {number}", allow_patterns=patterns)), patterns


# Both at once.


def wait_until(condition, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it didn't happen in time"
        time.sleep(0.01)


SLOW = {"server": "storage", "path": "", "bytes_per_second": 40e6, "count": -1}


def test_both_at_once_fetch_a_file_once(start, big_server, ours):
    big_server.set_faults(SLOW)
    client = start.client(big_server)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        theirs = pool.submit(client, snapshot, ours.cache)
        wait_until(lambda: big_server.requests("GET", server="storage"))
        mine = pool.submit(ours.get, big_server)
        assert pathlib.Path(theirs.result()) == mine.result()
    assert len(big_server.requests("GET", server="storage")) == 1, "ours waited for theirs"

    shutil.rmtree(ours.cache)
    big_server.forget_requests()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        mine = pool.submit(ours.get, big_server)
        wait_until(lambda: big_server.requests("GET", server="storage"))
        theirs = pool.submit(client, snapshot, ours.cache)
        assert pathlib.Path(theirs.result()) == mine.result()
    agents = {request["headers"]["user-agent"].split("/")[0] for request in big_server.requests("GET", server="storage")}
    assert agents == {"lerobot.cpp; libcurl"}, "theirs waited for ours"


def test_several_of_ours_share_the_work(server, ours):
    with concurrent.futures.ThreadPoolExecutor() as pool:
        folders = {future.result() for future in [pool.submit(ours.get, server) for _ in range(4)]}
    assert len(folders) == 1
    assert contents(folders.pop()) == FILES
    paths = [request["path"] for request in server.requests("GET", "/resolve/")]
    assert len(paths) == len(set(paths)), "each file once"


# Ends of every kind.


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_what_a_killed_download_brought_is_continued(big_server, ours, how):
    big_server.set_faults(SLOW)
    process = ours.start(big_server)
    wait_until(lambda: sum(path.stat().st_blocks * 512 for path in ours.incomplete()) > 20 << 20)
    process.send_signal(how)
    process.communicate(timeout=30)
    assert process.returncode == (-how if how == signal.SIGKILL else 128 + how)
    assert not list(ours.cache.glob("datasets--*/snapshots/*/big.bin")), "nothing half"
    big_server.set_faults()
    big_server.forget_requests()
    folder = ours.get(big_server)
    assert (folder / "big.bin").read_bytes() == BIG
    assert ours.incomplete() == []
    asked = [ranged(request) for request in big_server.requests("GET", server="storage")]
    assert sum(asked) <= len(BIG) - (15 << 20), "what was there is not fetched again"


def ranged(request: dict) -> int:
    first, last = request["headers"]["range"].removeprefix("bytes=").split("-")
    return int(last) - int(first) + 1


def test_what_a_killed_python_client_brought_is_continued(big_server, ours):
    big_server.set_faults(SLOW)
    code = f"from huggingface_hub import snapshot_download; snapshot_download({DATASET!r}, repo_type='dataset', cache_dir={str(ours.cache)!r})"
    environment = ours.environment(big_server, HF_HUB_DISABLE_XET="1", HF_HUB_OFFLINE="0")
    process = subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.DEVNULL)
    wait_until(lambda: sum(path.stat().st_size for path in ours.incomplete()) > 25 << 20)
    process.kill()
    process.wait()
    there = sum(path.stat().st_size for path in ours.incomplete())
    big_server.set_faults()
    big_server.forget_requests()
    folder = ours.get(big_server)
    assert (folder / "big.bin").read_bytes() == BIG
    asked = [ranged(request) for request in big_server.requests("GET", server="storage")]
    assert sum(asked) <= len(BIG) - there + (1 << 20)
    assert ours.incomplete() == []


def in_own_mounts(script: str, ours: Ours, server: HubServer) -> subprocess.CompletedProcess:
    """Runs a shell script that may mount what it likes; $GET is our command."""
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode != 0:
        pytest.skip("this system lets nobody mount a file system of his own")
    environment = ours.environment(server, CACHE=str(ours.cache))
    return subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, "sh", *map(str, ours.command())], env=environment, capture_output=True, text=True, timeout=120
    )


def test_a_full_disk_is_named_and_what_fitted_is_continued(big_server, ours):
    script = """
      mkdir -p "$CACHE" && mount -t tmpfs -o size=40m none "$CACHE" || exit 77
      "$@" && exit 1
      mount -o remount,size=200m "$CACHE" && "$@" && cat "$CACHE"/datasets--*/snapshots/*/big.bin | sha256sum
    """
    done = in_own_mounts(script, ours, big_server)
    assert "No space left on device; free some space, or choose another disk with HF_HOME" in done.stderr
    assert done.returncode == 0, done.stderr
    assert "continuing big.bin" in done.stderr
    assert hashlib.sha256(BIG).hexdigest() in done.stdout


def test_a_cache_that_cannot_be_written_serves_what_it_holds(server, ours):
    ours.get(server, "main", "meta/*")
    script = """
      mount --bind "$CACHE" "$CACHE" && mount -o remount,bind,ro "$CACHE" || exit 77
      "$@" "meta/*" || exit 1
      "$@" && exit 2
      exit 0
    """
    done = in_own_mounts(script, ours, server)
    assert done.returncode == 0, done.stderr
    assert "Read-only file system; choose a cache that can be written with HF_HOME" in done.stderr


# Tokens and TLS.


def test_tokens_are_found_where_the_real_client_keeps_them(start, tmp_path, ours):
    folder = make_folder(tmp_path / "source", SMALL)
    server = start("--token=hf_reader:org:ro", f"--private=dataset:{DATASET}", f"--dataset={DATASET}={folder}")
    anonymous = ours.run(server)
    assert anonymous.returncode == 1
    assert f"dataset {DATASET}" in anonymous.stderr and "no token was sent" in anonymous.stderr and "hf auth login" in anonymous.stderr
    invalid = ours.run(server, HF_TOKEN="hf_wrong")
    assert "the token from HF_TOKEN was sent and isn't valid" in invalid.stderr and "hf_wrong" not in invalid.stderr
    (tmp_path / "our home").mkdir(exist_ok=True)
    (tmp_path / "our home" / "token").write_text("hf_reader")
    both = ours.run(server, HF_TOKEN="hf_wrong")
    assert "HF_TOKEN (which goes before the login in" in both.stderr
    assert contents(ours.get(server)) == SMALL


class TlsProxy:
    """HTTPS on localhost, by a certificate of its own, in front of a server."""

    def __init__(self, server: HubServer, folder: pathlib.Path):
        self.certificate = folder / "certificate.pem"
        key = folder / "key.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-keyout", key, "-out", self.certificate]
            + ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
            check=True,
            capture_output=True,
        )
        host = server.endpoint.removeprefix("http://")

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                upstream = http.client.HTTPConnection(host)
                upstream.request("GET", self.path, headers={name: value for name, value in self.headers.items() if name != "Host"})
                answer = upstream.getresponse()
                body = answer.read()
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.endpoint = f"https://localhost:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
def test_certificates_are_checked_and_private_ones_can_be_named(server, ours, tmp_path):
    proxy = TlsProxy(server, tmp_path)
    try:
        unknown = ours.run(proxy.endpoint, "main", "README.md")
        assert unknown.returncode == 1
        assert "certificate" in unknown.stderr and "SSL_CERT_FILE" in unknown.stderr
        for variable in ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"]:
            shutil.rmtree(ours.cache, ignore_errors=True)
            folder = ours.get(proxy.endpoint, "main", "README.md", **{variable: str(proxy.certificate)})
            assert (folder / "README.md").read_bytes() == FILES["README.md"]
    finally:
        proxy.close()
