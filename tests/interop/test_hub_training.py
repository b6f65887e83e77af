"""The programs with a Hub: train from it, stream from it, publish to it, resume from it.

The Hub is tests/support/hub_server_program.cpp, which the real huggingface_hub client is content with (test_hub_server.py). What is
published is read back with the real client and the real LeRobot.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest
from huggingface_hub import HfApi, snapshot_download
from safetensors.numpy import load_file

import trainer
from hub_server import Client, HubServer

READ, WRITE = "hf_read", "hf_write"
ACCOUNTS = [f"--token={READ}:lab:ro", f"--token={WRITE}:lab:rw"]


class Hub:
    """A server, and our programs as a user of it with a home of their own."""

    def __init__(self, programs: pathlib.Path, home: pathlib.Path, *arguments: str):
        self.server = HubServer(programs, *arguments)
        self.programs = programs
        self.home = home

    def environment(self, **variables) -> dict[str, str]:
        return {
            **os.environ,
            "HF_ENDPOINT": self.server.endpoint,
            "HF_HOME": str(self.home),
            "HF_HUB_OFFLINE": "0",
            "HF_TOKEN": "",
            **variables,
        }

    def run(self, program: str, flags: dict, *words: str, expect: int = 0, **variables) -> subprocess.CompletedProcess:
        command = [self.programs / program, *trainer.as_arguments(flags), *words]
        done = subprocess.run(
            command, cwd=self.home, env=self.environment(**variables), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=180
        )
        assert done.returncode == expect, f"{command}\n{done.stdout}{done.stderr}"
        return done

    def train(self, output: pathlib.Path, flags: dict, **options) -> tuple[list[dict], str]:
        """What each step saw, and the log."""
        done = self.run("lerobot-train", {**trainer.TINY_ACT, **trainer.RUN, "steps": 4, "log_samples": "true", **flags, "output_dir": output}, **options)
        return samples(output), done.stderr

    def interrupt_training(self, flags: dict, asked: str) -> str:
        """The log of a run that gets Ctrl-C once the server has been asked for `asked`."""
        process = subprocess.Popen(
            [self.programs / "lerobot-train", *trainer.as_arguments(flags)], env=self.environment(), stderr=subprocess.PIPE, text=True
        )
        while not self.server.requests("GET", asked):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, log = process.communicate(timeout=20)
        assert process.returncode == 130, log
        return log

    def paths(self, method: str = "", part: str = "") -> list[str]:
        return [request["path"] for request in self.server.requests(method, part)]


def samples(output: pathlib.Path) -> list[dict]:
    file = output / "samples.rank0.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.fixture
def hub(programs, tmp_path):
    """hub(*arguments of hub_server) -> a Hub."""
    started = []

    def start(*arguments: str) -> Hub:
        home = tmp_path / f"home {len(started)}"
        home.mkdir()
        started.append(Hub(programs, home, *arguments))
        return started[-1]

    yield start
    for one in started:
        one.server.close()


@pytest.fixture
def client():
    clients = []

    def start(hub: Hub, home: pathlib.Path, **options) -> Client:
        clients.append(Client(hub.server.endpoint, home, **options))
        return clients[-1]

    yield start
    for one in clients:
        one.close()


def serve(kind: str, name: str) -> str:
    return f"--{kind}=lab/{name}={trainer.DATASETS / name}"


def tag(name: str, value: str = "v3.0") -> str:
    return f"--tag=lab/{name}={value}"


def local(name: str) -> dict:
    return {"dataset.repo_id": f"lab/{name}", "dataset.root": trainer.DATASETS / name}


def of_hub(name: str) -> dict:
    return {"dataset.repo_id": f"lab/{name}"}


STREAMED = {"dataset.streaming": "true", "num_workers": 2}


# Datasets.


def test_a_dataset_is_downloaded_once_and_trains_as_the_folder_does(hub, tmp_path):
    one = hub(serve("dataset", "toy_h264"), tag("toy_h264"))
    expected, _ = one.train(tmp_path / "local", local("toy_h264"))
    first, _ = one.train(tmp_path / "first", of_hub("toy_h264"))
    assert first == expected
    one.server.forget_requests()
    again, _ = one.train(tmp_path / "again", of_hub("toy_h264"))
    assert again == expected
    assert not one.paths("GET", "/resolve/")
    offline, _ = one.train(tmp_path / "offline", of_hub("toy_h264"), HF_HUB_OFFLINE="1")
    assert offline == expected


def test_only_the_files_of_the_chosen_episodes_are_downloaded(hub, tmp_path):
    one = hub(serve("dataset", "toy_split"), tag("toy_split"))
    chosen = {"dataset.episodes": "[1]"}
    expected, _ = one.train(tmp_path / "local", {**local("toy_split"), **chosen})
    got, _ = one.train(tmp_path / "hub", {**of_hub("toy_split"), **chosen})
    assert got == expected
    videos = {path for path in one.paths("GET", "/resolve/") if path.endswith(".mp4")}
    assert len(videos) == 1, videos


def test_a_dataset_that_the_real_client_has_downloaded_is_found(hub, client, tmp_path):
    one = hub(serve("dataset", "toy_state"), tag("toy_state"))
    cache = one.home / "lerobot" / "hub"
    real = client(one, tmp_path / "theirs")
    real(snapshot_download, "lab/toy_state", repo_type="dataset", revision="v3.0", cache_dir=str(cache))
    one.server.forget_requests()
    got, _ = one.train(tmp_path / "offline", of_hub("toy_state"), HF_HUB_OFFLINE="1")
    expected, _ = one.train(tmp_path / "local", local("toy_state"))
    assert got == expected
    assert not one.server.requests()


def test_a_version_that_is_not_there_is_refused_with_the_remedy(hub, tmp_path):
    one = hub(serve("dataset", "toy_state"), tag("toy_state", "v2.1"))
    flags = {**trainer.TINY_ACT, **of_hub("toy_state"), "output_dir": tmp_path / "out"}
    assert "its newest version is v2.1" in one.run("lerobot-train", flags, expect=1).stderr
    assert not (tmp_path / "out").exists()
    one.train(tmp_path / "main", {**of_hub("toy_state"), "dataset.revision": "main"})


def test_what_is_refused_names_repository_token_and_remedy(hub, tmp_path):
    one = hub(serve("dataset", "toy_state"), tag("toy_state"), "--private=dataset:lab/toy_state", *ACCOUNTS)
    flags = {**trainer.TINY_ACT, "output_dir": tmp_path / "out"}

    def refusal(name: str, **variables) -> str:
        return one.run("lerobot-train", {**flags, **of_hub(name)}, expect=1, **variables).stderr

    assert "dataset lab/toy_state" in refusal("toy_state")
    assert "none in HF_TOKEN" in refusal("toy_state")
    assert "the token from HF_TOKEN" in refusal("toy_stat", HF_TOKEN=READ)
    assert "check the spelling" in refusal("toy_stat", HF_TOKEN=READ)
    assert "offline" in refusal("toy_state", HF_HUB_OFFLINE="1")
    one.train(tmp_path / "in", of_hub("toy_state"), HF_TOKEN=READ)


def test_ranks_share_one_download_and_one_commit(hub, tmp_path):
    one = hub(serve("dataset", "toy_h264"), tag("toy_h264"))
    flags = {**trainer.TINY_ACT, **trainer.RUN, **of_hub("toy_h264"), "steps": 2, "output_dir": tmp_path / "out"}
    launcher = [str(one.programs / "lerobot-launch"), "--standalone", "--nproc-per-node=2", str(one.programs / "lerobot-train")]
    done = subprocess.run(
        [*launcher, *trainer.as_arguments(flags)],
        env=one.environment(),
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    gets = [path for path in one.paths("GET", "/resolve/") if path.endswith(".mp4")]
    assert len(gets) == len(set(gets))


# Streaming.


@pytest.mark.parametrize("form", ["name", "address", "bucket", "bucket address"])
def test_a_stream_from_the_hub_is_the_stream_from_the_folder(hub, tmp_path, form):
    kind = "bucket" if "bucket" in form else "dataset"
    one = hub(serve(kind, "toy_h264"), *([] if kind == "bucket" else [tag("toy_h264")]), *ACCOUNTS, "--private=%s:lab/toy_h264" % kind)
    flags = {
        "name": of_hub("toy_h264"),
        "address": {**of_hub("toy_h264"), "dataset.root": "hf://datasets/lab/toy_h264@v3.0"},
        "bucket": {**of_hub("toy_h264"), "dataset.repo_type": "bucket"},
        "bucket address": {"dataset.root": "hf://buckets/lab/toy_h264"},
    }[form]
    expected, _ = one.train(tmp_path / "local", {**local("toy_h264"), **STREAMED})
    got, log = one.train(tmp_path / "hub", {**flags, **STREAMED}, HF_TOKEN=READ)
    assert got == expected
    assert "Building the MP4 sidecar" in log
    # The index stays; nothing of the data does.
    assert not list(one.home.rglob("*.mp4"))
    one.server.forget_requests()
    again, log = one.train(tmp_path / "again", {**flags, **STREAMED}, HF_TOKEN=READ)
    assert again == expected
    assert "Building" not in log
    assert not [request for request in one.server.requests() if request["method"] not in ("GET", "HEAD")]


def test_a_video_of_a_bucket_that_is_replaced_at_its_size_makes_the_index_anew(hub, client, tmp_path):
    source = tmp_path / "source"
    shutil.copytree(trainer.DATASETS / "toy_h264", source)
    one = hub(f"--bucket=lab/data={source}")
    flags = {"dataset.repo_id": "lab/data", "dataset.repo_type": "bucket", **STREAMED}
    one.train(tmp_path / "first", flags)
    video = next(source.rglob("*.mp4"))
    content = bytearray(video.read_bytes())
    content[-1] ^= 1
    video.write_bytes(content)
    real = client(one, tmp_path / "theirs", xet=True)
    real(upload_to_bucket, "lab/data", str(video), video.relative_to(source).as_posix())
    _, log = one.train(tmp_path / "second", flags)
    assert "Building the MP4 sidecar" in log


def upload_to_bucket(bucket: str, file: str, path: str) -> None:
    HfApi().batch_bucket_files(bucket, add=[(file, path)])


# Sidecars.


def build_sidecar(one: Hub, output: pathlib.Path, root: str, *words: str, **options) -> subprocess.CompletedProcess:
    flags = {"repo-id": "lab/toy_h264", "data-root": root, "output": output}
    return one.run("lerobot-build-mp4-sidecar", flags, *words, **options)


def test_a_published_sidecar_is_used_and_the_source_branch_stays(hub, client, tmp_path):
    one = hub(serve("dataset", "toy_h264"), tag("toy_h264"), *ACCOUNTS)
    real = client(one, tmp_path / "theirs", token=WRITE)
    before = real(commits, "lab/toy_h264", "main")
    done = build_sidecar(one, tmp_path / "index.npz", "hf://datasets/lab/toy_h264@v3.0", "--push", HF_TOKEN=WRITE)
    assert "Pushed to hf://datasets/lab/toy_h264@lerobot-sidecars/meta/mp4-sidecars/mp4-v3-" in done.stdout
    assert real(commits, "lab/toy_h264", "main") == before
    expected, _ = one.train(tmp_path / "local", {**local("toy_h264"), **STREAMED})
    for number, flags in enumerate([of_hub("toy_h264"), {**of_hub("toy_h264"), "dataset.revision": before[0]}]):
        shutil.rmtree(one.home / "lerobot" / "streaming-sidecars", ignore_errors=True)
        got, log = one.train(tmp_path / f"{number}", {**flags, **STREAMED}, HF_TOKEN=READ)
        assert got == expected
        assert "Looking for a published MP4 sidecar" in log and "Building" not in log
    published = real(snapshot_download, "lab/toy_h264", repo_type="dataset", revision="lerobot-sidecars")
    file = next(pathlib.Path(published).rglob("*.npz"))
    assert file.read_bytes() == (tmp_path / "index.npz").read_bytes()


def commits(repo: str, branch: str) -> list[str]:
    return [commit.commit_id for commit in HfApi().list_repo_commits(repo, repo_type="dataset", revision=branch)]


def test_a_published_sidecar_of_a_bucket_is_used(hub, tmp_path):
    one = hub(serve("bucket", "toy_h264"), *ACCOUNTS)
    done = build_sidecar(one, tmp_path / "index.npz", "hf://buckets/lab/toy_h264", "--push", "--repo-type=bucket", HF_TOKEN=WRITE)
    assert "Pushed to hf://buckets/lab/toy_h264/meta/mp4-sidecars/mp4-v3-" in done.stdout
    flags = {"dataset.root": "hf://buckets/lab/toy_h264", **STREAMED}
    expected, _ = one.train(tmp_path / "local", {**local("toy_h264"), **STREAMED})
    got, log = one.train(tmp_path / "hub", flags)
    assert got == expected
    assert "Building" not in log


def test_what_must_not_be_published_is_refused_before_any_work(hub, tmp_path):
    one = hub(serve("dataset", "toy_h264"), tag("toy_h264"), *ACCOUNTS)
    output = tmp_path / "index.npz"
    root = "hf://datasets/lab/toy_h264@v3.0"
    assert "Only a complete dataset sidecar" in build_sidecar(one, output, root, "--push", "--episodes=1", expect=2).stderr
    assert "only hf:// data roots" in build_sidecar(one, output, str(trainer.DATASETS / "toy_h264"), "--push", expect=2).stderr
    assert "may only read" in build_sidecar(one, output, root, "--push", expect=1, HF_TOKEN=READ).stderr
    assert "no token was sent" in build_sidecar(one, output, root, "--push", expect=1).stderr
    assert not output.exists()
    one.server.set_faults({"method": "POST", "path": "/commit/", "count": 1000, "status": 403})
    done = build_sidecar(one, output, root, "--push", expect=1, HF_TOKEN=WRITE)
    assert f"the sidecar is complete in {output}" in done.stderr
    assert output.exists()


def test_a_published_sidecar_that_is_damaged_is_built_anew(hub, client, tmp_path):
    one = hub(serve("dataset", "toy_h264"), tag("toy_h264"), *ACCOUNTS)
    build_sidecar(one, tmp_path / "index.npz", "hf://datasets/lab/toy_h264@v3.0", "--push", HF_TOKEN=WRITE)
    real = client(one, tmp_path / "theirs", token=WRITE)
    real(damage_published_sidecar, "lab/toy_h264")
    _, log = one.train(tmp_path / "run", {**of_hub("toy_h264"), **STREAMED})
    assert "The published MP4 sidecar can't be used" in log and "Building the MP4 sidecar" in log


def damage_published_sidecar(repo: str) -> None:
    files = HfApi().list_repo_files(repo, repo_type="dataset", revision="lerobot-sidecars")
    path = next(file for file in files if file.endswith(".npz"))
    HfApi().upload_file(path_or_fileobj=b"no archive", path_in_repo=path, repo_id=repo, repo_type="dataset", revision="lerobot-sidecars")


# Policies and checkpoints.

PUBLISHED = {"policy.repo_id": "lab/policy", "policy.push_to_hub": "true"}


def test_a_trained_policy_is_published_and_lerobot_loads_it(hub, client, tmp_path):
    one = hub(*ACCOUNTS)
    flags = {**local("toy_state"), **PUBLISHED, "policy.tags": "[mine]", "policy.private": "true"}
    _, log = one.train(tmp_path / "run", flags, HF_TOKEN=WRITE)
    assert f"Model pushed to {one.server.endpoint}/lab/policy" in log
    real = client(one, tmp_path / "theirs", token=WRITE)
    folder = pathlib.Path(real(snapshot_download, "lab/policy"))
    saved = tmp_path / "run" / "checkpoints" / "000004" / "pretrained_model"
    for file in saved.iterdir():
        assert (folder / file.name).read_bytes() == file.read_bytes(), file.name
    card = (folder / "README.md").read_text()
    assert real(card_data, "lab/policy")["tags"] == ["act", "lerobot", "mine", "robotics"]
    assert "datasets: lab/toy_state" in card and "`observation.state`" in card
    assert real(weights_of_the_policy, "lab/policy") == pytest.approx(sum_of(saved / "model.safetensors"))
    # One commit, and none for what is there already.
    assert len(real(model_commits, "lab/policy")) == 2
    one.run("lerobot-train", {"config_path": saved / "train_config.json", "resume": "true"}, HF_TOKEN=WRITE)
    assert len(real(model_commits, "lab/policy")) == 2


def card_data(repo: str) -> dict:
    from huggingface_hub import ModelCard

    data = ModelCard.load(repo).data.to_dict()
    assert data["library_name"] == "lerobot" and data["model_name"] == "act"
    return {"tags": sorted(data["tags"])}


def weights_of_the_policy(repo: str) -> float:
    from lerobot.policies.act.modeling_act import ACTPolicy

    return float(sum(tensor.double().sum() for tensor in ACTPolicy.from_pretrained(repo).state_dict().values()))


def sum_of(file: pathlib.Path) -> float:
    return float(sum(tensor.astype(np.float64).sum() for tensor in load_file(file).values()))


def model_commits(repo: str) -> list[str]:
    return [commit.title for commit in HfApi().list_repo_commits(repo)]


def test_an_upload_that_fails_loses_nothing_and_names_the_command(hub, client, tmp_path):
    one = hub(*ACCOUNTS)
    one.server.set_faults({"method": "POST", "path": "/commit/", "count": 1000, "status": 403})
    flags = {**trainer.TINY_ACT, **trainer.RUN, **local("toy_state"), **PUBLISHED, "steps": 2, "output_dir": tmp_path / "run"}
    log = one.run("lerobot-train", flags, expect=1, HF_TOKEN=WRITE).stderr
    saved = tmp_path / "run" / "checkpoints" / "000002" / "pretrained_model"
    assert "could not be published" in log and f"complete in {saved}" in log
    command = f"--resume=true --config_path='{saved}/train_config.json'"
    assert command in log
    one.server.set_faults()
    one.run("lerobot-train", {}, "--resume=true", f"--config_path={saved}/train_config.json", HF_TOKEN=WRITE)
    real = client(one, tmp_path / "theirs", token=WRITE)
    folder = pathlib.Path(real(snapshot_download, "lab/policy"))
    assert (folder / "model.safetensors").read_bytes() == (saved / "model.safetensors").read_bytes()


def test_a_token_that_cannot_publish_ends_the_run_before_it_trains(hub, tmp_path):
    one = hub(*ACCOUNTS)
    flags = {**trainer.TINY_ACT, **trainer.RUN, **local("toy_state"), **PUBLISHED, "steps": 2, "output_dir": tmp_path / "run"}
    assert "no token was sent" in one.run("lerobot-train", flags, expect=1).stderr
    assert "the token from HF_TOKEN" in one.run("lerobot-train", flags, expect=1, HF_TOKEN="hf_wrong").stderr
    assert "may only read" in one.run("lerobot-train", flags, expect=1, HF_TOKEN=READ).stderr
    assert not (tmp_path / "run").exists()


def test_published_checkpoints_resume_elsewhere_as_if_nothing_had_happened(hub, client, tmp_path):
    one = hub(*ACCOUNTS)
    flags = {**local("toy_state"), "policy.repo_id": "lab/run", "policy.push_to_hub": "false", "save_checkpoint_to_hub": "true"}
    whole, _ = one.train(tmp_path / "whole", {**local("toy_state"), "steps": 6})
    one.train(tmp_path / "first", {**flags, "steps": 4, "save_freq": 2}, HF_TOKEN=WRITE)
    real = client(one, tmp_path / "theirs", token=WRITE)
    assert sorted(real(tags_of, "lab/run")) == ["000002", "000004"]
    files = real(files_of, "lab/run", "000002")
    assert "checkpoints/000002/training_state/training_step.json" in files
    assert not [file for file in files if "000004" in file]

    elsewhere = hub(*ACCOUNTS)
    elsewhere.server.close()
    elsewhere.server = one.server
    done = elsewhere.run(
        "lerobot-train",
        {"config_path": "lab/run", "resume": "true", "output_dir": tmp_path / "second", "steps": 6, "save_checkpoint_to_hub": "false"},
        "--log_samples=true",
        HF_TOKEN=READ,
    )
    assert "checkpoints/000004" in done.stderr
    assert samples(tmp_path / "second") == whole[4:]
    assert (tmp_path / "second" / "checkpoints" / "last").resolve().name == "000006"


def tags_of(repo: str) -> list[str]:
    return [tag.name for tag in HfApi().list_repo_refs(repo).tags]


def files_of(repo: str, revision: str) -> list[str]:
    return HfApi().list_repo_files(repo, revision=revision)


def test_a_policy_of_the_hub_is_fine_tuned(hub, client, tmp_path):
    one = hub(f"--model=lab/base={trainer.PROJECT / 'tests/data/checkpoints/state_single/000040/pretrained_model'}")
    folder = {"policy.path": trainer.PROJECT / "tests/data/checkpoints/state_single/000040/pretrained_model"}
    common = {**local("toy_state"), **trainer.RUN, "steps": 3, "log_samples": "true", "policy.push_to_hub": "false"}
    one.run("lerobot-train", {**common, **folder, "output_dir": tmp_path / "folder"})
    one.run("lerobot-train", {**common, "policy.path": "lab/base", "output_dir": tmp_path / "hub"})
    assert samples(tmp_path / "hub") == samples(tmp_path / "folder")
    recorded = json.loads((tmp_path / "hub/checkpoints/000003/pretrained_model/train_config.json").read_text())["policy"]
    assert recorded["pretrained_path"] == "lab/base"
    assert len(recorded["pretrained_revision"]) == 40
    # The real client's cache is the same.
    one.run("lerobot-train", {**common, "policy.path": "lab/base", "output_dir": tmp_path / "offline"}, HF_HUB_OFFLINE="1")
    real = client(one, one.home, HF_HUB_OFFLINE="1")
    assert pathlib.Path(real(snapshot_download, "lab/base", allow_patterns=["config.json"])).name == recorded["pretrained_revision"]


def test_an_adapter_of_a_policy_on_the_hub_is_published_and_goes_on(hub, client, tmp_path):
    base = trainer.PROJECT / "tests/data/checkpoints/state_single/000040/pretrained_model"
    one = hub(*ACCOUNTS, f"--model=lab/base={base}")
    common = {**local("toy_state"), **trainer.RUN, "steps": 4, "save_freq": 2, "log_samples": "true"}
    adapter = {"peft.r": 4, "peft.target_modules": "[linear1]", "policy.repo_id": "lab/adapter", "policy.push_to_hub": "true"}
    run = tmp_path / "run"
    one.run("lerobot-train", {**common, **adapter, "policy.path": "lab/base", "output_dir": run}, HF_TOKEN=WRITE)
    saved = run / "checkpoints/000004/pretrained_model"
    config = json.loads((saved / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "lab/base"
    assert len(config["revision"]) == 40
    real = client(one, tmp_path / "theirs", token=WRITE)
    published = pathlib.Path(real(snapshot_download, "lab/adapter"))
    for name in ("adapter_model.safetensors", "adapter_config.json", "config.json"):
        assert (published / name).read_bytes() == (saved / name).read_bytes(), name
    assert not (published / "model.safetensors").exists()
    # A revision of the base is none of this repository.
    assert json.loads((published / "config.json").read_text())["pretrained_revision"] is None
    # Resume, and a new run that goes on from the published adapter: both find the base on the Hub, or in the cache.
    resumed = tmp_path / "resumed"
    shutil.copytree(run / "checkpoints/000002", resumed / "checkpoints/000002")
    again = {"resume": "true", "config_path": resumed / "checkpoints/000002", "output_dir": resumed, "log_samples": "true"}
    one.run("lerobot-train", {**again, "policy.push_to_hub": "false"}, HF_HUB_OFFLINE="1")
    assert samples(resumed) == samples(run)[2:]
    on = {**common, "policy.path": "lab/adapter", "policy.push_to_hub": "false", "output_dir": tmp_path / "on"}
    one.run("lerobot-train", on, HF_TOKEN=READ)
    assert (tmp_path / "on/checkpoints/000004/pretrained_model/adapter_model.safetensors").exists()


def test_merged_shards_are_published(hub, client, tmp_path):
    one = hub(*ACCOUNTS)
    run = tmp_path / "run"
    shutil.copytree(trainer.PROJECT / "tests/data/checkpoints/state_fsdp2", run, symlinks=True)
    checkpoint = next(path for path in sorted(run.rglob("pretrained_model")) if (path / "pytorch_model_fsdp_0").exists())
    (checkpoint / "model.safetensors").unlink(missing_ok=True)
    done = one.run("lerobot-convert-dcp", {"checkpoint_dir": checkpoint, "push_to_hub": "lab/merged"}, HF_TOKEN=WRITE)
    assert f"Pushed to {one.server.endpoint}/lab/merged" in done.stdout
    real = client(one, tmp_path / "theirs", token=WRITE)
    published = pathlib.Path(real(snapshot_download, "lab/merged"))
    assert (published / "model.safetensors").read_bytes() == (checkpoint / "model.safetensors").read_bytes()
    assert not list(published.rglob("*.distcp"))


def test_ctrl_c_ends_a_download_from_a_hub_that_hangs(hub, tmp_path):
    one = hub(serve("dataset", "toy_state"), tag("toy_state"))
    one.server.set_faults({"method": "GET", "path": "/refs", "count": -1, "delay_ms": 60000})
    log = one.interrupt_training({**trainer.TINY_ACT, **of_hub("toy_state"), "output_dir": tmp_path / "out"}, "/refs")
    assert "stopped by SIGINT" in log


def test_offline_a_stream_is_refused_and_a_download_by_address_goes_on(hub, tmp_path):
    one = hub(serve("dataset", "toy_h264"), tag("toy_h264"))
    address = {**of_hub("toy_h264"), "dataset.root": "hf://datasets/lab/toy_h264@v3.0"}
    expected, _ = one.train(tmp_path / "local", local("toy_h264"))
    got, _ = one.train(tmp_path / "address", address)
    assert got == expected
    one.server.forget_requests()
    got, _ = one.train(tmp_path / "offline", address, HF_HUB_OFFLINE="1")
    assert got == expected
    flags = {**trainer.TINY_ACT, **of_hub("toy_h264"), **STREAMED, "output_dir": tmp_path / "streamed"}
    assert "offline mode is on" in one.run("lerobot-train", flags, expect=1, HF_HUB_OFFLINE="1").stderr
    assert not one.server.requests()


def test_a_checkpoint_of_another_run_is_never_taken_for_the_one_on_the_hub(hub, tmp_path):
    one = hub(*ACCOUNTS)
    flags = {**local("toy_state"), "policy.repo_id": "lab/run", "policy.push_to_hub": "false", "save_checkpoint_to_hub": "true"}
    one.train(tmp_path / "published", {**flags, "steps": 2}, HF_TOKEN=WRITE)
    resume = {"config_path": "lab/run", "resume": "true", "steps": 6, "save_checkpoint_to_hub": "false"}
    for name, steps in [("same step", 2), ("later step", 4)]:
        one.train(tmp_path / name, {**local("toy_state"), "seed": 7, "steps": steps})
        log = one.run("lerobot-train", {**resume, "output_dir": tmp_path / name}, expect=1, HF_TOKEN=READ).stderr
        assert "choose another --output_dir" in log
    # The same one is taken again.
    for _ in range(2):
        one.run("lerobot-train", {**resume, "steps": 2, "output_dir": tmp_path / "fresh"}, HF_TOKEN=READ)


def test_checkpoints_of_another_run_are_not_mixed(hub, tmp_path):
    one = hub(*ACCOUNTS)
    flags = {**local("toy_state"), "policy.repo_id": "lab/run", "policy.push_to_hub": "false", "save_checkpoint_to_hub": "true"}
    one.train(tmp_path / "first", {**flags, "steps": 2}, HF_TOKEN=WRITE)
    done = one.run(
        "lerobot-train", {**trainer.TINY_ACT, **trainer.RUN, **flags, "steps": 2, "output_dir": tmp_path / "second"}, expect=1, HF_TOKEN=WRITE
    )
    assert "holds checkpoints of another run already (the last is 000002)" in done.stderr
    assert not (tmp_path / "second").exists()


def test_what_a_run_could_not_publish_its_resume_publishes(hub, client, tmp_path):
    one = hub(*ACCOUNTS)
    one.server.set_faults({"method": "POST", "path": "/commit/", "count": 1000, "status": 403})
    flags = {**trainer.TINY_ACT, **trainer.RUN, **local("toy_state"), **PUBLISHED, "save_checkpoint_to_hub": "true", "steps": 4, "save_freq": 2}
    log = one.run("lerobot-train", {**flags, "output_dir": tmp_path / "run"}, expect=1, HF_TOKEN=WRITE).stderr
    assert "2 checkpoint(s) could not be published" in log
    assert "the trained policy could not be published" in log
    one.server.set_faults()
    one.run("lerobot-train", {"config_path": tmp_path / "run", "resume": "true"}, HF_TOKEN=WRITE)
    real = client(one, tmp_path / "theirs", token=WRITE)
    assert sorted(real(tags_of, "lab/policy")) == ["000002", "000004"]
    assert "model.safetensors" in real(files_of, "lab/policy", "main")


def test_what_cannot_be_published_is_refused_before_the_first_step(hub, client, tmp_path):
    one = hub(*ACCOUNTS)
    real = client(one, tmp_path / "theirs", token=WRITE)
    real(create_model, "lab/public")
    common = {**trainer.TINY_ACT, **trainer.RUN, **local("toy_state"), "policy.push_to_hub": "true", "steps": 2, "output_dir": tmp_path / "run"}
    log = one.run("lerobot-train", {**common, "policy.repo_id": "other/policy"}, expect=1, HF_TOKEN=WRITE).stderr
    assert "there is no such repository" in log and "for lab only" in log
    log = one.run("lerobot-train", {**common, "policy.repo_id": "lab/public", "policy.private": "true"}, expect=1, HF_TOKEN=WRITE).stderr
    assert "it is there and public" in log
    one.run("lerobot-train", {**common, "policy.repo_id": "policy"}, expect=2, HF_TOKEN=WRITE)
    assert not (tmp_path / "run").exists()


def create_model(repo: str) -> None:
    HfApi().create_repo(repo, private=False)


def test_ctrl_c_while_a_policy_is_fetched_is_no_wrong_command_line(hub, tmp_path):
    one = hub(f"--model=lab/base={trainer.PROJECT / 'tests/data/checkpoints/state_single/000040/pretrained_model'}")
    one.server.set_faults({"method": "GET", "path": "/api/models/lab/base", "count": -1, "delay_ms": 60000})
    one.interrupt_training({"policy.path": "lab/base", **local("toy_state"), "output_dir": tmp_path / "out"}, "/api/models/")


def test_a_damaged_file_of_the_cache_is_fetched_again(hub, tmp_path):
    one = hub(serve("dataset", "toy_h264"), tag("toy_h264"))
    expected, _ = one.train(tmp_path / "first", of_hub("toy_h264"))
    video = next((one.home / "lerobot" / "hub").rglob("*.mp4"))
    os.truncate(video.resolve(), 10)
    got, _ = one.train(tmp_path / "second", of_hub("toy_h264"))
    assert got == expected
