"""What we publish is what the real huggingface_hub client and the real hf_xet find, and we ask for it as they do."""

import json
import os
import pathlib
import random
import subprocess

import pytest
from huggingface_hub import HfApi, HfFileSystem, snapshot_download

from hub_server import Client, HubServer, contents, make_folder

DATASET = "org/data"
MODEL = "org/policy"
BUCKET = "org/bucket"

SMALL = {"config.json": b'{"a": 1}', "empty.txt": b"", "meta/info.json": b'{"fps": 30}', "meta/a b#1%.txt": b"blank", "meta/ö.txt": "ö".encode()}
LARGE = {"model.safetensors": random.Random(1).randbytes(300_000), "videos/cam a/file#1.mp4": random.Random(2).randbytes(70_001)}
FILES = {**SMALL, **LARGE}


class Ours:
    """hub_put with a home of its own."""

    def __init__(self, programs: pathlib.Path, home: pathlib.Path):
        self._program = programs / "hub_put"
        self._home = home

    def start(self, server: HubServer, *arguments) -> subprocess.CompletedProcess:
        environment = {
            "PATH": os.environ["PATH"],
            "HF_ENDPOINT": server.endpoint,
            "HF_HOME": str(self._home),
            "HF_TOKEN": "hf_any",
            "no_proxy": "127.0.0.1,localhost",
        }
        return subprocess.run([self._program, *arguments], env=environment, capture_output=True, text=True, timeout=120)

    def put(self, server: HubServer, *arguments) -> str:
        done = self.start(server, *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture
def ours(programs, tmp_path) -> Ours:
    return Ours(programs, tmp_path / "our home")


@pytest.fixture
def start(programs, tmp_path):
    """start(*arguments of hub_server) -> the server; client(server, ...) -> a client of it."""
    started = []

    def start(*arguments: str) -> HubServer:
        started.append(HubServer(programs, *arguments))
        return started[-1]

    def client(server: HubServer, name: str = "home", **options) -> Client:
        started.append(Client(server.endpoint, tmp_path / name, token="hf_any", **options))
        return started[-1]

    start.client = client
    yield start
    for one in reversed(started):
        one.close()


# What runs in the client's process.


def api(method: str, *arguments, **named):
    result = getattr(HfApi(), method)(*arguments, **named)
    return list(result) if hasattr(result, "__next__") else result


def upload(repo: str, folder: pathlib.Path, kind: str) -> str:
    HfApi().create_repo(repo, repo_type=kind, exist_ok=True)
    return HfApi().upload_folder(repo_id=repo, repo_type=kind, folder_path=folder).oid


def add_to_bucket(bucket: str, files: list[tuple[str, str]]) -> None:
    HfApi().batch_bucket_files(bucket, add=files)


def get_from_bucket(bucket: str, names: list[str], folder: pathlib.Path) -> None:
    HfApi().download_bucket_files(bucket, [(name, str(folder / name)) for name in names], raise_on_missing_files=True)


def file_text(path: str) -> bytes:
    with HfFileSystem().open(path, "rb") as file:
        return file.read()


# Repositories.


@pytest.mark.parametrize("multipart", [0, 50_000])
@pytest.mark.parametrize("kind, repo", [("dataset", DATASET), ("model", MODEL)])
def test_what_we_publish_is_what_the_client_downloads(start, ours, tmp_path, kind, repo, multipart):
    server = start(f"--multipart={multipart}")
    client = start.client(server)
    commit = ours.put(server, kind, repo, "main", make_folder(tmp_path / "source", FILES), "Upload policy\n\nand more")
    got = contents(client(snapshot_download, repo, repo_type=kind, ignore_patterns=".gitattributes"))
    assert got == FILES
    commits = client(api, "list_repo_commits", repo, repo_type=kind)
    assert (commits[0].commit_id, commits[0].title) == (commit, "Upload policy")
    sizes = {entry.path: entry.size for entry in client(api, "list_repo_tree", repo, repo_type=kind, recursive=True) if hasattr(entry, "size")}
    assert {path: sizes[path] for path in FILES} == {path: len(content) for path, content in FILES.items()}


def test_a_branch_of_ours_is_the_clients(start, ours, tmp_path):
    server = start()
    client = start.client(server)
    ours.put(server, "dataset", DATASET, "lerobot-sidecars", make_folder(tmp_path / "source", FILES))
    refs = client(api, "list_repo_refs", DATASET, repo_type="dataset")
    assert sorted(branch.name for branch in refs.branches) == ["lerobot-sidecars", "main"]
    folder = client(snapshot_download, DATASET, repo_type="dataset", revision="lerobot-sidecars", ignore_patterns=".gitattributes")
    assert contents(folder) == FILES
    assert client(api, "list_repo_files", DATASET, repo_type="dataset") == [".gitattributes"]


def test_either_side_finds_nothing_new_in_what_the_other_published(start, ours, tmp_path):
    server = start()
    client = start.client(server)
    folder = make_folder(tmp_path / "source", FILES)
    commit = client(upload, DATASET, folder, "dataset")
    assert ours.put(server, "dataset", DATASET, "main", folder) == f"unchanged {commit}"
    commit = ours.put(server, "model", MODEL, "main", folder)
    assert client(upload, MODEL, folder, "model") == commit


def test_after_a_broken_upload_only_the_rest_is_sent(start, ours, tmp_path):
    server = start()
    client = start.client(server)
    files = {f"{number}.bin": random.Random(number).randbytes(200_000) for number in range(6)}
    folder = make_folder(tmp_path / "source", files)
    server.set_faults({"server": "storage", "method": "PUT", "skip": 3, "count": -1, "status": 400})
    failed = ours.start(server, "dataset", DATASET, "main", folder)
    assert failed.returncode == 1 and "400" in failed.stderr and DATASET in failed.stderr
    server.set_faults()
    server.forget_requests()
    ours.put(server, "dataset", DATASET, "main", folder)
    assert len(server.requests("PUT", server="storage")) == 3
    assert contents(client(snapshot_download, DATASET, repo_type="dataset", ignore_patterns=".gitattributes")) == files


def test_a_lost_answer_makes_no_second_commit(start, ours, tmp_path):
    server = start()
    client = start.client(server)
    server.set_faults({"method": "POST", "path": "/commit/", "lose_answer": True})
    commit = ours.put(server, "dataset", DATASET, "main", make_folder(tmp_path / "source", FILES))
    commits = client(api, "list_repo_commits", DATASET, repo_type="dataset")
    assert [commits[0].commit_id, len(commits)] == [commit, 2]


def sent_for(server: HubServer, repo: str) -> dict:
    """What one side asked of the Hub for an upload to `repo`, with the order of the files taken away."""
    sent = {}
    for request in server.requests("POST", repo):
        route = next((name for name in ("preupload", "objects/batch", "objects/verify", "commit") if name in request["path"]), None)
        if route is None:
            continue
        body = request["body"]
        if route == "commit":
            lines = [json.loads(line) for line in body.splitlines()]
            lines[0]["value"].pop("parentCommit", None)
            body = {"header": lines[0], "files": sorted(map(json.dumps, lines[1:]))}
        else:
            body = json.loads(body)
            for name, key in (("files", "path"), ("objects", "oid")):
                if name in body:
                    body[name] = sorted(body[name], key=lambda entry: entry[key])
        media = request["headers"]["content-type"]
        sent.setdefault(route, []).append((media if route in ("objects/batch", "commit") else None, body))
    return {route: sorted(asked, key=str) for route, asked in sent.items()}


def test_we_ask_for_an_upload_as_the_client_does(start, ours, tmp_path):
    their_hub, our_hub = start(), start()
    folder = make_folder(tmp_path / "source", {**FILES, ".gitignore": b"*.log\n", "train.log": b"ignored"})
    start.client(their_hub)(upload, DATASET, folder, "dataset")
    ours.put(our_hub, "dataset", DATASET, "main", folder)
    theirs = sent_for(their_hub, DATASET)
    assert theirs.keys() == {"preupload", "objects/batch", "objects/verify", "commit"}
    assert sent_for(our_hub, DATASET) == theirs
    creations = [json.loads(hub.requests("POST", "/api/repos/create")[0]["body"]) for hub in (their_hub, our_hub)]
    assert creations[0] == creations[1]


# Buckets.

OBJECTS = {
    "empty": b"",
    "one": b"a",
    "8191": random.Random(3).randbytes(8_191),
    "64k": random.Random(4).randbytes(65_536),
    "128k": random.Random(5).randbytes(131_072),
    "1m": random.Random(6).randbytes(1_048_576),
    "zeros": bytes(3_000_000),
    "deep/er/repetitive": random.Random(7).randbytes(70_000) * 40,
    "deep/large": random.Random(8).randbytes(100_000_000),
}


def hashes(client: Client, bucket: str) -> dict[str, tuple[int, str]]:
    entries = client(api, "list_bucket_tree", bucket, recursive=True)
    return {entry.path: (entry.size, entry.xet_hash) for entry in entries if entry.path in OBJECTS}


def test_hf_xet_downloads_from_a_bucket_what_we_put_there(start, ours, tmp_path):
    server = start()
    client = start.client(server, xet=True)
    client(api, "create_bucket", BUCKET)
    ours.put(server, "bucket", BUCKET, "-", make_folder(tmp_path / "source", OBJECTS))
    server.forget_requests()
    client(get_from_bucket, BUCKET, list(OBJECTS), tmp_path / "got")
    assert contents(tmp_path / "got") == OBJECTS
    assert server.requests("GET", "/reconstructions/")  # through Xet
    assert client(file_text, f"hf://buckets/{BUCKET}/8191") == OBJECTS["8191"]


def test_our_hashes_and_chunks_are_those_of_hf_xet(start, ours, tmp_path):
    server = start()
    client = start.client(server, xet=True)
    client(api, "create_bucket", "org/theirs")
    client(api, "create_bucket", "org/ours")
    folder = make_folder(tmp_path / "source", OBJECTS)
    client(add_to_bucket, "org/theirs", [(str(folder / name), name) for name in OBJECTS])
    ours.put(server, "bucket", "org/ours", "-", folder)
    theirs = hashes(client, "org/theirs")
    assert len(theirs) == len(OBJECTS) and hashes(client, "org/ours") == theirs


def test_a_file_gives_the_xorb_that_hf_xet_makes_of_it(start, ours, tmp_path):
    folder = make_folder(tmp_path / "source", {"file": random.Random(9).randbytes(20_000_000)})
    xorbs = []
    for side in ("theirs", "ours"):
        server = start()
        client = start.client(server, side, xet=True)
        client(api, "create_bucket", BUCKET)
        if side == "theirs":
            client(add_to_bucket, BUCKET, [(str(folder / "file"), "file")])
        else:
            ours.put(server, "bucket", BUCKET, "-", folder)
        xorbs.append([request["path"] for request in server.requests("POST", "/v1/xorbs/")])
    assert len(xorbs[0]) == 1 and xorbs[0] == xorbs[1]


def test_what_hf_xet_put_into_a_bucket_is_not_sent_again(start, ours, tmp_path):
    server = start()
    client = start.client(server, xet=True)
    client(api, "create_bucket", BUCKET)
    folder = make_folder(tmp_path / "source", OBJECTS)
    client(add_to_bucket, BUCKET, [(str(folder / name), name) for name in OBJECTS])
    server.forget_requests()
    ours.put(server, "bucket", BUCKET, "-", folder)
    assert not server.requests("POST", "/v1/xorbs/") and not server.requests("POST", "/batch")
