"""The test Hub behaves like the Hub: the real huggingface_hub client, and the real hf_xet, work with it.

What our own client is tested against is worth what these tests show.
"""

import hashlib
import pathlib
import random
import subprocess
import time
import urllib.request

import pytest
from huggingface_hub import CommitOperationAdd, HfApi, HfFileSystem, hf_hub_download, snapshot_download

from hub_server import make_folder, start  # noqa: F401 (a fixture)

DATASET = "org/data"
MODEL = "org/policy"
BUCKET = "org/bucket"

SMALL = {"config.json": b'{"a": 1}', "empty.txt": b"", "meta/info.json": b'{"fps": 30}', "meta/a b.txt": b"blank"}
LARGE = {"model.safetensors": random.Random(1).randbytes(300_000), "videos/cam a/file#1.mp4": random.Random(2).randbytes(70_001)}
FILES = {**SMALL, **LARGE}


def contents(folder) -> dict[str, bytes]:
    folder = pathlib.Path(folder)
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and ".cache" not in path.relative_to(folder).parts
    }


def git_blob_id(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@pytest.fixture
def served(start, tmp_path):
    """A Hub with FILES in a dataset and in a model, a tag on the dataset's main, and its client."""
    folder = make_folder(tmp_path / "source", FILES)
    server = start(f"--dataset={DATASET}={folder}", f"--tag={DATASET}=v3.0", f"--model={MODEL}={folder}")
    return server, start.client(server)


# What runs in the client's process.


def api(method: str, *arguments, **named):
    result = getattr(HfApi(), method)(*arguments, **named)
    return list(result) if hasattr(result, "__next__") else result


def upload(repo: str, folder: pathlib.Path, **named) -> str:
    return HfApi().upload_folder(repo_id=repo, repo_type="dataset", folder_path=folder, **named).oid


def commit_file(repo: str, path: str, content: bytes, parent: str | None) -> str:
    operations = [CommitOperationAdd(path, content)]
    return HfApi().create_commit(repo, operations, commit_message="add", repo_type="dataset", parent_commit=parent).oid


def file_text(path: str) -> bytes:
    with HfFileSystem().open(path, "rb") as file:
        return file.read()


def file_part(path: str, begin: int, size: int) -> bytes:
    with HfFileSystem().open(path, "rb") as file:
        file.seek(begin)
        return file.read(size)


def file_listing(path: str) -> list[str]:
    return sorted(HfFileSystem().ls(path, detail=False))


def file_tree(path: str) -> list[str]:
    return sorted(HfFileSystem().find(path))


# Repositories and uploads.


def test_a_repository_is_created_once_and_knows_its_owner(start):
    server = start("--token=hf_a:org:rw")
    client = start.client(server, token="hf_a")
    assert client(api, "whoami")["name"] == "org"
    assert not client(api, "repo_exists", DATASET, repo_type="dataset")
    url = client(api, "create_repo", DATASET, repo_type="dataset", private=True)
    assert url == f"{server.endpoint}/datasets/{DATASET}"
    assert client(api, "create_repo", DATASET, repo_type="dataset", exist_ok=True) == url
    kind, text = client.failure(api, "create_repo", DATASET, repo_type="dataset")
    assert kind == "HfHubHTTPError" and "409" in text and f"You already created this dataset repo: {DATASET}" in text
    assert client(api, "repo_exists", DATASET, repo_type="dataset")
    assert client(api, "dataset_info", DATASET).private
    assert client(api, "list_repo_files", DATASET, repo_type="dataset") == [".gitattributes"]
    assert not client(api, "repo_exists", DATASET)  # no model


def test_a_folder_is_uploaded_through_large_file_storage(start, tmp_path):
    server = start()
    client = start.client(server, token="hf_any")
    client(api, "create_repo", DATASET, repo_type="dataset")
    folder = make_folder(tmp_path / "source", FILES)
    commit = client(upload, DATASET, folder, path_in_repo="sub")
    expected = {f"sub/{path}": content for path, content in FILES.items()}
    got = contents(client(snapshot_download, DATASET, repo_type="dataset", ignore_patterns=".gitattributes"))
    assert got == expected
    puts = server.requests("PUT", server="storage")
    assert len(puts) == len(LARGE) and not any("authorization" in put["headers"] for put in puts)
    assert all("authorization" in one["headers"] for one in server.requests("POST", "/lfs/objects/"))
    info = client(api, "dataset_info", DATASET, files_metadata=True)
    assert info.sha == commit
    for sibling in info.siblings:
        if sibling.rfilename == ".gitattributes":
            continue
        content = expected[sibling.rfilename]
        assert sibling.size == len(content)
        if sibling.rfilename.removeprefix("sub/") in LARGE:
            assert sibling.lfs.sha256 == hashlib.sha256(content).hexdigest() and sibling.lfs.size == len(content)
        else:
            assert sibling.lfs is None and sibling.blob_id == git_blob_id(content)


def test_an_unchanged_folder_makes_no_commit_and_sends_nothing(served, tmp_path):
    server, client = served
    head = client(api, "dataset_info", DATASET).sha
    assert client(upload, DATASET, tmp_path / "source") == head
    assert not server.requests("POST", "/commit/") and not server.requests("PUT")


def test_large_uploads_come_in_parts(start, tmp_path):
    server = start("--multipart=100000")
    client = start.client(server, token="hf_any")
    client(api, "create_repo", DATASET, repo_type="dataset")
    client(upload, DATASET, make_folder(tmp_path / "source", LARGE))
    assert len(server.requests("PUT", "/uploads/")) == 3 + 1  # 300,000 bytes in parts, 70,001 as a whole
    assert len(server.requests("POST", "/complete", server="storage")) == 1
    got = contents(client(snapshot_download, DATASET, repo_type="dataset", allow_patterns=["*.safetensors", "*.mp4"]))
    assert got == LARGE


def test_a_part_that_is_not_stored_fails_the_upload(start, tmp_path):
    server = start("--multipart=100000")
    client = start.client(server, token="hf_any")
    client(api, "create_repo", DATASET, repo_type="dataset")
    server.set_faults({"method": "PUT", "path": "/2$", "without": ["etag"]})
    kind, text = client.failure(upload, DATASET, make_folder(tmp_path / "source", LARGE))
    assert kind == "RuntimeError" and "model.safetensors" in text
    assert client(api, "list_repo_files", DATASET, repo_type="dataset") == [".gitattributes"]


def test_an_upload_through_xet_can_be_read_through_both_protocols(start, tmp_path):
    server = start()
    client = start.client(server, "writer", xet=True, token="hf_any")
    client(api, "create_repo", DATASET, repo_type="dataset")
    zeros = bytes(1_000_000)  # compressible and repetitive
    files = {**FILES, "zeros.bin": zeros, "floats.npy": b"".join((i // 7).to_bytes(4, "little") for i in range(50_000))}
    client(upload, DATASET, make_folder(tmp_path / "source", files))
    assert server.requests("POST", "/v1/xorbs/", server="xet") and server.requests("POST", "/v1/shards", server="xet")
    assert not server.requests("PUT")
    plain = start.client(server, "plain", token="hf_any")
    assert contents(plain(snapshot_download, DATASET, repo_type="dataset", ignore_patterns=".gitattributes")) == files
    assert not server.requests("GET", "reconstructions")
    xet = start.client(server, "xet", xet=True, token="hf_any")
    assert contents(xet(snapshot_download, DATASET, repo_type="dataset", ignore_patterns=".gitattributes")) == files
    assert server.requests("GET", "reconstructions", server="xet") and server.requests("GET", "/xorbs/", server="storage")


def test_files_that_were_put_there_can_be_read_through_xet(start, tmp_path):
    files = {"big.bin": random.Random(3).randbytes(3_000_000), "one.bin": b"1", "small.txt": b"small"}
    server = start("--xet=true", f"--dataset={DATASET}={make_folder(tmp_path / 'source', files)}")
    client = start.client(server, xet=True)
    assert contents(client(snapshot_download, DATASET, repo_type="dataset")) == files
    assert server.requests("GET", "reconstructions", server="xet")


def test_a_branch_gets_a_file_and_main_does_not(served, tmp_path):
    server, client = served
    client(api, "create_branch", DATASET, repo_type="dataset", branch="feat/x y", revision="v3.0")
    client(
        api, "upload_file", repo_id=DATASET, repo_type="dataset", revision="feat/x y", path_in_repo="new.txt", path_or_fileobj=b"new"
    )
    path = client(hf_hub_download, DATASET, "new.txt", repo_type="dataset", revision="feat/x y")
    assert pathlib.Path(path).read_bytes() == b"new"
    assert not client(api, "file_exists", DATASET, "new.txt", repo_type="dataset")
    assert client(api, "file_exists", DATASET, "config.json", repo_type="dataset", revision="feat/x y")


def test_branches_and_tags_are_made_listed_and_removed(served):
    server, client = served
    head = client(api, "dataset_info", DATASET).sha
    client(api, "create_branch", DATASET, repo_type="dataset", branch="side")
    client(api, "create_tag", DATASET, repo_type="dataset", tag="v3.1", revision="side", tag_message="a message")
    refs = client(api, "list_repo_refs", DATASET, repo_type="dataset")
    assert {(ref.name, ref.ref, ref.target_commit) for ref in refs.branches} == {
        (name, f"refs/heads/{name}", head) for name in ("main", "side")
    }
    assert {(ref.name, ref.ref, ref.target_commit) for ref in refs.tags} == {
        (name, f"refs/tags/{name}", head) for name in ("v3.0", "v3.1")
    }
    for method, name in (("create_branch", {"branch": "side"}), ("create_tag", {"tag": "v3.0"})):
        kind, text = client.failure(api, method, DATASET, repo_type="dataset", **name)
        assert kind == "HfHubHTTPError" and "409" in text and "Reference already exists" in text
        client(api, method, DATASET, repo_type="dataset", exist_ok=True, **name)
    assert client.failure(api, "create_tag", DATASET, repo_type="dataset", tag="t", revision="no")[0] == "RevisionNotFoundError"
    client(api, "delete_branch", DATASET, repo_type="dataset", branch="side")
    client(api, "delete_tag", DATASET, repo_type="dataset", tag="v3.1")
    assert client.failure(api, "delete_tag", DATASET, repo_type="dataset", tag="v3.1")[0] == "RevisionNotFoundError"
    refs = client(api, "list_repo_refs", DATASET, repo_type="dataset")
    assert [ref.name for ref in refs.branches] == ["main"] and [ref.name for ref in refs.tags] == ["v3.0"]


def test_a_commit_on_a_stale_parent_is_refused(served):
    server, client = served
    before = client(api, "dataset_info", DATASET).sha
    after = client(commit_file, DATASET, "one.txt", b"1", before)
    kind, text = client.failure(commit_file, DATASET, "two.txt", b"2", before)
    assert kind == "HfHubHTTPError" and "412" in text and "A commit has happened since" in text
    assert client(api, "dataset_info", DATASET).sha == after
    commits = client(api, "list_repo_commits", DATASET, repo_type="dataset")
    assert [commit.commit_id for commit in commits][:2] == [after, before] and commits[0].title == "add"


def test_a_lost_answer_has_taken_effect(served):
    server, client = served
    server.set_faults({"method": "POST", "path": "/commit/", "lose_answer": True})
    client.failure(commit_file, DATASET, "one.txt", b"1", None)
    assert client(api, "file_exists", DATASET, "one.txt", repo_type="dataset")


def test_files_and_folders_are_deleted(served):
    server, client = served
    client(api, "delete_file", "config.json", DATASET, repo_type="dataset")
    client(api, "delete_folder", "meta", DATASET, repo_type="dataset")
    left = set(FILES) - {"config.json", "meta/info.json", "meta/a b.txt"}
    assert set(client(api, "list_repo_files", DATASET, repo_type="dataset")) == left
    assert client.failure(api, "delete_file", "config.json", DATASET, repo_type="dataset")[0] == "RemoteEntryNotFoundError"
    # A tag keeps what it named.
    assert client(api, "file_exists", DATASET, "config.json", repo_type="dataset", revision="v3.0")


def test_a_commit_of_a_large_file_that_was_not_uploaded_is_refused(served, tmp_path):
    server, client = served
    server.set_faults({"method": "PUT", "status": 200}, {"path": "/verify$", "status": 200})
    kind, text = client.failure(commit_file, DATASET, "lost.safetensors", b"x" * 5000, None)
    assert kind == "BadRequestError" and "lost.safetensors" in text


# Reading.


@pytest.mark.parametrize("page", ["1000", "2"])
def test_a_tree_is_listed_over_pages(start, tmp_path, page):
    folder = make_folder(tmp_path / "source", FILES)
    server = start(f"--page_size={page}", f"--dataset={DATASET}={folder}")
    client = start.client(server)
    tree = client(api, "list_repo_tree", DATASET, repo_type="dataset", recursive=True, expand=True)
    files = {entry.path: entry for entry in tree if hasattr(entry, "size")}
    assert {path: entry.size for path, entry in files.items()} == {path: len(content) for path, content in FILES.items()}
    assert {path for path, entry in files.items() if entry.lfs} == set(LARGE)
    assert all(entry.last_commit.title for entry in tree)
    assert {entry.path for entry in tree} - set(files) == {"meta", "videos", "videos/cam a"}
    top = client(api, "list_repo_tree", DATASET, repo_type="dataset")
    assert {entry.path for entry in top} == {"config.json", "empty.txt", "meta", "model.safetensors", "videos"}
    below = client(api, "list_repo_tree", DATASET, "videos/cam a", repo_type="dataset")
    assert [entry.path for entry in below] == ["videos/cam a/file#1.mp4"]
    assert client.failure(api, "list_repo_tree", DATASET, "no", repo_type="dataset")[0] == "RemoteEntryNotFoundError"
    pages = len(server.requests("GET", "/tree/"))
    assert pages == {"1000": 4, "2": 5 + 3 + 1 + 1}[page]


def test_ids_of_trees_are_those_of_git(start, tmp_path):
    folder = make_folder(tmp_path / "source", {"b/x": b"1", "b.txt": b"2", "b/c/y": b"3", "b-/z": b"4", "a": b"5"})
    client = start.client(start(f"--dataset={DATASET}={folder}"))
    tree = client(api, "list_repo_tree", DATASET, repo_type="dataset", recursive=True)
    git = ["git", "-c", "safe.directory=*", "-C", folder]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "-A"], check=True)
    for entry in tree:
        if not hasattr(entry, "size"):
            expected = subprocess.run([*git, "write-tree", f"--prefix={entry.path}/"], check=True, capture_output=True, text=True)
            assert entry.tree_id == expected.stdout.strip()
        else:
            assert entry.blob_id == git_blob_id((folder / entry.path).read_bytes())


def test_paths_are_described_and_unknown_ones_left_out(served):
    server, client = served
    wanted = ["config.json", "videos/cam a/file#1.mp4", "meta", "no.txt"]
    entries = client(api, "get_paths_info", DATASET, wanted, repo_type="dataset", revision="v3.0")
    assert [entry.path for entry in entries] == wanted[:3]
    assert entries[0].blob_id == git_blob_id(SMALL["config.json"])
    assert entries[1].lfs.sha256 == hashlib.sha256(LARGE[wanted[1]]).hexdigest()


def test_information_of_models_and_datasets(served):
    server, client = served
    info = client(api, "model_info", MODEL)
    assert info.id == MODEL and info.author == "org" and len(info.sha) == 40 and info.private is False and info.gated is False
    assert {sibling.rfilename for sibling in info.siblings} == set(FILES)
    assert client(api, "model_info", MODEL, expand=["sha"]).siblings is None
    assert client(api, "dataset_info", DATASET, revision="v3.0").sha == client(api, "dataset_info", DATASET).sha
    assert client(api, "revision_exists", DATASET, "v3.0", repo_type="dataset")
    assert not client(api, "revision_exists", DATASET, "v9", repo_type="dataset")


@pytest.mark.parametrize("revision", ["v3.0", None])
def test_a_snapshot_has_the_files(served, revision):
    server, client = served
    folder = client(snapshot_download, DATASET, repo_type="dataset", revision=revision)
    assert contents(folder) == FILES
    assert pathlib.Path(folder).name == client(api, "dataset_info", DATASET).sha
    cdn = server.requests("GET", server="storage")
    assert len(cdn) == len(LARGE) and not any("authorization" in one["headers"] for one in cdn)
    server.forget_requests()
    client(snapshot_download, DATASET, repo_type="dataset", revision=revision)
    assert len(server.requests(path="/api/datasets/")) == 1  # which commit it is


def test_a_snapshot_of_patterns_has_only_those(served):
    server, client = served
    folder = client(snapshot_download, DATASET, repo_type="dataset", revision="v3.0", allow_patterns=["meta/*", "*.mp4"])
    assert set(contents(folder)) == {"meta/info.json", "meta/a b.txt", "videos/cam a/file#1.mp4"}


def test_a_cut_download_goes_on_where_it_was(start, tmp_path):
    files = {"big.bin": random.Random(4).randbytes(25 << 20)}
    server = start(f"--dataset={DATASET}={make_folder(tmp_path / 'source', files)}")
    client = start.client(server)
    server.set_faults({"server": "storage", "method": "GET", "cut_after": 12 << 20})
    path = client(hf_hub_download, DATASET, "big.bin", repo_type="dataset")
    assert pathlib.Path(path).read_bytes() == files["big.bin"]
    ranges = [one["headers"].get("range") for one in server.requests("GET", server="storage")]
    assert ranges == [None, f"bytes={10 << 20}-"]


def test_an_address_of_the_storage_expires(start, tmp_path):
    server = start("--link_lifetime_ms=0", f"--dataset={DATASET}={make_folder(tmp_path / 'source', LARGE)}")
    client = start.client(server)
    server.set_faults({"server": "storage", "delay_ms": 20})
    kind, text = client.failure(hf_hub_download, DATASET, "model.safetensors", repo_type="dataset")
    assert kind == "HfHubHTTPError" and "403" in text


def test_the_file_system_layer_reads_parts(served):
    server, client = served
    path = f"datasets/{DATASET}@v3.0/model.safetensors"
    assert client(file_part, path, 100_000, 50) == LARGE["model.safetensors"][100_000:100_050]
    assert client(file_text, f"datasets/{DATASET}/meta/info.json") == SMALL["meta/info.json"]


def test_missing_things_have_their_own_errors(served):
    server, client = served
    missing = [
        (("org/no", "config.json", None), "RepositoryNotFoundError"),
        ((DATASET, "config.json", "v9"), "RevisionNotFoundError"),
        ((DATASET, "no.json", None), "RemoteEntryNotFoundError"),
    ]
    for (repo, path, revision), expected in missing:
        assert client.failure(hf_hub_download, repo, path, repo_type="dataset", revision=revision)[0] == expected
    marker = next((client.home / "hub" / "datasets--org--data" / ".no_exist").rglob("no.json"))
    assert marker.parent.name == client(api, "dataset_info", DATASET).sha


def test_a_renamed_repository_is_found_under_its_old_name_and_any_case(served):
    server, client = served
    client(api, "move_repo", DATASET, "org/renamed", repo_type="dataset")
    folder = client(snapshot_download, DATASET, repo_type="dataset")
    assert contents(folder) == FILES and "datasets--org--data" in folder
    path = client(hf_hub_download, "ORG/Renamed", "model.safetensors", repo_type="dataset")
    assert pathlib.Path(path).read_bytes() == LARGE["model.safetensors"]
    assert client(api, "dataset_info", DATASET).id == "org/renamed"


# Who may do what.


@pytest.fixture
def guarded(start, tmp_path):
    folder = make_folder(tmp_path / "source", SMALL)
    server = start(
        f"--private=dataset:{DATASET}",
        f"--dataset={DATASET}={folder}",
        f"--model={MODEL}={folder}",
        "--token=hf_owner:org:rw",
        "--token=hf_reader:org:ro",
        "--token=hf_other:other:rw",
    )
    return server, {name: start.client(server, name, token=f"hf_{name}" if name else None) for name in ("owner", "reader", "other", "")}


def test_a_private_repository_is_seen_by_its_owner_only(guarded):
    server, clients = guarded
    assert clients["owner"](api, "dataset_info", DATASET).private
    assert contents(clients["reader"](snapshot_download, DATASET, repo_type="dataset")) == SMALL
    kind, text = clients["other"].failure(api, "dataset_info", DATASET)
    assert kind == "RepositoryNotFoundError" and "404" in text
    # Over https this would be a RepositoryNotFoundError; the client's rule for a bare 401 is about https alone.
    kind, text = clients[""].failure(api, "dataset_info", DATASET)
    assert kind == "HfHubHTTPError" and "401" in text and "Invalid username or password." in text
    kind, text = clients[""].failure(api, "dataset_info", "org/no")
    assert kind == "HfHubHTTPError" and "401" in text


def test_an_unknown_token_is_refused(guarded, start):
    server, _ = guarded
    kind, text = start.client(server, "wrong", token="hf_wrong").failure(api, "model_info", MODEL)
    assert "401" in text and "Invalid credentials in Authorization header" in text
    assert start.client(server, "wrong2", token="hf_wrong").failure(api, "whoami")[0] == "HfHubHTTPError"


def test_writing_needs_the_right_to_write(guarded):
    server, clients = guarded
    commit = {"path_or_fileobj": b"x", "path_in_repo": "x.txt", "repo_id": MODEL}
    for name, status in (("reader", "403"), ("other", "403"), ("", "401")):
        kind, text = clients[name].failure(api, "upload_file", **commit)
        assert kind == "HfHubHTTPError" and status in text
    kind, text = clients["reader"].failure(api, "create_repo", "org/new")
    assert kind == "HfHubHTTPError" and "403" in text
    # One that is there is good enough for exist_ok.
    assert clients["reader"](api, "create_repo", MODEL, exist_ok=True).endswith(MODEL)
    clients["owner"](api, "upload_file", **commit)
    assert clients[""](api, "file_exists", MODEL, "x.txt")


def test_files_of_a_gated_repository_are_refused_to_others(guarded):
    server, clients = guarded
    clients["owner"](api, "update_repo_settings", MODEL, gated="auto")
    assert clients[""](api, "model_info", MODEL).gated == "auto"
    for name, status in (("", "401"), ("other", "403")):
        kind, text = clients[name].failure(hf_hub_download, MODEL, "config.json")
        assert kind == "GatedRepoError" and status in text
    assert pathlib.Path(clients["owner"](hf_hub_download, MODEL, "config.json")).read_bytes() == SMALL["config.json"]


# Faults.


def raw(url: str, **named) -> tuple[int, bytes]:
    import httpx

    answer = httpx.request(url=url, **named)
    return answer.status_code, answer.content


def test_a_client_that_goes_away_in_mid_answer_leaves_the_server_there(start, tmp_path):
    files = {"big.bin": random.Random(6).randbytes(30 << 20)}
    server = start(f"--dataset={DATASET}={make_folder(tmp_path / 'source', files)}")
    client = start.client(server)
    with urllib.request.urlopen(f"{server.endpoint}/datasets/{DATASET}/resolve/main/big.bin") as answer:
        assert answer.read(1000) == files["big.bin"][:1000]
    assert client(api, "file_exists", DATASET, "big.bin", repo_type="dataset")


def test_faults_are_what_was_ordered(served):
    server, client = served
    url = f"{server.endpoint}/datasets/{DATASET}/resolve/main/model.safetensors"
    content = LARGE["model.safetensors"]
    part = {"url": url, "method": "GET", "headers": {"range": "bytes=5-9"}, "follow_redirects": True}
    assert client(raw, **part) == (206, content[5:10])
    server.set_faults({"server": "storage", "ignore_range": True})
    assert client(raw, **part) == (200, content)
    server.set_faults({"server": "storage", "skip": 1, "count": 2, "status": 503, "body": "busy"})
    assert [client(raw, **part)[0] for _ in range(4)] == [206, 503, 503, 206]
    server.set_faults({"server": "storage", "delay_ms": 300})
    before = time.monotonic()
    client(raw, **part)
    assert time.monotonic() - before >= 0.3
    for fault in ({"reset": True}, {"lose_answer": True}, {"cut_after": 2}, {"without": ["content-length"], "cut_after": 0}):
        server.set_faults({"server": "storage", **fault})
        if "without" in fault:
            assert client(raw, **part) == (206, b"")  # its end is that of the connection
        else:
            assert client.failure(raw, **part)[0] in ("RemoteProtocolError", "ReadError")
    assert client(raw, **part) == (206, content[5:10])


def test_an_upload_is_cut_in_its_body(start, tmp_path):
    server = start()
    client = start.client(server, token="hf_any")
    client(api, "create_repo", DATASET, repo_type="dataset")
    # A long body, which is not read to its end, and one that is short; the client tries again.
    files = {"long.bin": random.Random(7).randbytes(5 << 20), "short.bin": random.Random(8).randbytes(5000)}
    server.set_faults(*({"method": "PUT", "cut_upload_after": 1000} for _ in files))
    client(upload, DATASET, make_folder(tmp_path / "source", files))
    assert len(server.requests("PUT")) == 4
    assert contents(client(snapshot_download, DATASET, repo_type="dataset", allow_patterns="*.bin")) == files


def test_a_regular_file_that_should_be_a_large_one_is_refused(served):
    server, client = served
    server.set_faults({"path": "/preupload/", "status": 200, "body": REGULAR})
    kind, text = client.failure(commit_file, DATASET, "x.bin", b"x" * 5000, None)
    assert kind == "BadRequestError" and "x.bin" in text


REGULAR = '{"files": [{"path": "x.bin", "uploadMode": "regular", "shouldIgnore": false}]}'


# Rate limits.


def test_a_refusal_for_the_rate_is_reported_and_waited_for(served):
    server, client = served
    refused = {"status": 429, "headers": {"RateLimit": '"api";r=0;t=1', "RateLimit-Policy": '"fixed window";"api";q=500;w=300'}}
    server.set_faults({"path": "/api/datasets/org/data$", **refused})
    kind, text = client.failure(api, "dataset_info", DATASET)
    assert kind == "HfHubHTTPError" and "429" in text and "'api'" in text and "1 seconds" in text
    server.set_faults({"path": "/preupload/", **refused}, {"path": "/preupload/", "status": 429, "headers": {"Retry-After": "1"}})
    client(commit_file, DATASET, "one.txt", b"1", None)
    assert len(server.requests("POST", "/preupload/")) == 3
    assert client(api, "file_exists", DATASET, "one.txt", repo_type="dataset")


# Buckets.


def bucket_paths(bucket: str, **named) -> dict[str, int]:
    return {entry.path: getattr(entry, "size", -1) for entry in HfApi().list_bucket_tree(bucket, **named)}


def fill_bucket(bucket: str, files: dict[str, bytes]) -> None:
    HfApi().batch_bucket_files(bucket, add=[(content, path) for path, content in files.items()])


def download_bucket(bucket: str, paths: list[str], folder: pathlib.Path) -> None:
    HfApi().download_bucket_files(bucket, [(path, folder / path) for path in paths])


def hash_of_object(bucket: str, path: str) -> str:
    return next(iter(HfApi().get_bucket_paths_info(bucket, [path]))).xet_hash


@pytest.mark.parametrize("page", ["1000", "2"])
def test_a_bucket_takes_lists_and_gives_objects(start, tmp_path, page):
    server = start(f"--page_size={page}")
    client = start.client(server, xet=True, token="hf_any")
    url = client(api, "create_bucket", BUCKET)
    assert url.bucket_id == BUCKET
    assert client.failure(api, "create_bucket", BUCKET)[0] == "HfHubHTTPError"
    client(api, "create_bucket", BUCKET, exist_ok=True)
    files = {**FILES, "meta_old/info.json": b"old", "zeros.bin": bytes(500_000)}
    client(fill_bucket, BUCKET, files)
    info = client(api, "bucket_info", BUCKET)
    assert info.total_files == len(files) and info.size == sum(map(len, files.values()))
    assert client(bucket_paths, BUCKET, recursive=True) == {path: len(content) for path, content in files.items()}
    top = client(bucket_paths, BUCKET, recursive=False)
    assert {path for path, size in top.items() if size < 0} == {"meta", "meta_old", "videos"}
    # The prefix is a text.
    below = {"meta/info.json", "meta/a b.txt", "meta_old/info.json"}
    assert set(client(bucket_paths, BUCKET, prefix="meta", recursive=True)) == below
    client(download_bucket, BUCKET, list(files), tmp_path / "got")
    assert contents(tmp_path / "got") == files
    assert client(file_tree, f"buckets/{BUCKET}/meta") == [f"buckets/{BUCKET}/meta/a b.txt", f"buckets/{BUCKET}/meta/info.json"]
    assert client(file_listing, f"buckets/{BUCKET}/videos") == [f"buckets/{BUCKET}/videos/cam a"]
    assert client(file_text, f"buckets/{BUCKET}/videos/cam a/file#1.mp4") == LARGE["videos/cam a/file#1.mp4"]
    assert client(file_part, f"buckets/{BUCKET}/model.safetensors", 250_000, 99) == LARGE["model.safetensors"][250_000:250_099]
    assert any("range" in one["headers"] for one in server.requests("GET", "/xet/", server="storage"))


def test_objects_are_replaced_copied_and_removed(start, tmp_path):
    server = start()
    client = start.client(server, xet=True, token="hf_any")
    client(api, "create_bucket", BUCKET, private=True)
    client(fill_bucket, BUCKET, {"a": b"first", "b": b"other"})
    before = client(hash_of_object, BUCKET, "a")
    client(fill_bucket, BUCKET, {"a": b"again"})  # of the same size
    assert client(hash_of_object, BUCKET, "a") != before
    client(api, "batch_bucket_files", BUCKET, copy=[("bucket", BUCKET, before, "copy")], delete=["b"])
    client(download_bucket, BUCKET, ["a", "copy"], tmp_path / "got")
    assert contents(tmp_path / "got") == {"a": b"again", "copy": b"first"}
    kind, text = client.failure(api, "batch_bucket_files", BUCKET, delete=["a", "b"])
    assert kind == "BucketBatchError" and "1 out of 2" in text and "b" in text
    assert set(client(bucket_paths, BUCKET, recursive=True)) == {"copy"}
    client(api, "delete_bucket", BUCKET)
    assert client.failure(api, "bucket_info", BUCKET)[0] == "BucketNotFoundError"


def test_what_was_put_into_a_bucket_has_the_hash_that_an_upload_gives(start, tmp_path):
    files = {"data/big.bin": random.Random(5).randbytes(2_000_000), "data/small.txt": b"small", "data/empty": b""}
    server = start(f"--bucket={BUCKET}={make_folder(tmp_path / 'source', files)}")
    client = start.client(server, xet=True, token="hf_any")
    client(download_bucket, BUCKET, list(files), tmp_path / "got")
    assert contents(tmp_path / "got") == files
    client(api, "create_bucket", "org/second")
    client(fill_bucket, "org/second", files)
    for path in files:
        assert client(hash_of_object, BUCKET, path) == client(hash_of_object, "org/second", path)


def test_a_private_bucket_is_seen_by_its_owner_only(start):
    server = start(f"--private=bucket:{BUCKET}", "--token=hf_a:org:rw", "--token=hf_b:other:rw")
    assert start.client(server, "a", token="hf_a")(api, "bucket_info", BUCKET).private
    assert start.client(server, "b", token="hf_b").failure(api, "bucket_info", BUCKET)[0] == "BucketNotFoundError"
    kind, text = start.client(server, "c").failure(api, "bucket_info", BUCKET)
    assert "401" in text


def test_a_damaged_xorb_is_refused(start):
    server = start()
    client = start.client(server, xet=True, token="hf_any")
    client(api, "create_bucket", BUCKET)
    status, text = client(post_damaged_xorb, BUCKET)
    assert status == 400 and "hash" in text


def post_damaged_xorb(bucket: str) -> tuple[int, str]:
    import httpx

    from huggingface_hub import constants

    token = httpx.get(f"{constants.ENDPOINT}/api/buckets/{bucket}/xet-write-token").json()
    chunk = b"\0" + (5).to_bytes(3, "little") + b"\0" + (5).to_bytes(3, "little") + b"hello"
    headers = {"authorization": f"Bearer {token['accessToken']}"}
    answer = httpx.post(f"{token['casUrl']}/v1/xorbs/default/{'0' * 63}1", content=chunk, headers=headers)
    return answer.status_code, answer.text
