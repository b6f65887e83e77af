"""Runs that lerobot-train tracks, as the real trackio's commands, package and dashboard show them."""

import contextlib
import json
import math
import os
import pathlib
import queue
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request

import pytest
from lerobot.configs.train import TrainPipelineConfig
from lerobot.policies.act.modeling_act import ACTPolicy

import trainer
from trainer import RUN, TINY_ACT, dataset

TRACKIO = pathlib.Path(sys.executable).with_name("trackio")
FLAGS = {**dataset("toy_state"), **TINY_ACT, **RUN, "trackio.enable": "true"}
HELD_OUT = {"dataset.eval_split": 0.3, "eval_steps": 4}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> pathlib.Path:
    """A trackio folder of the test's own."""
    for name in ("TRACKIO_STORAGE_MODE", "TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    return tmp_path / "trackio"


def trackio(*arguments: str) -> dict:
    done = subprocess.run([TRACKIO, *arguments, "--json"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def python(code: str, *arguments: str) -> str:
    """Runs code that uses the package, which reads its environment when it is imported."""
    done = subprocess.run([sys.executable, "-B", "-c", code, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def real_run(name: str, resume: str, steps: range, project: str = "lerobot") -> None:
    """The calls that LeRobot's logger makes."""
    python(
        "import sys, trackio\n"
        "project, name, resume, first, last = sys.argv[1:]\n"
        "trackio.init(project=project, name=name, resume=resume, group='real', config={'from': 'trackio'})\n"
        "for step in range(int(first), int(last)):\n"
        "    trackio.log({'train/loss': 100.0 + step}, step=step)\n"
        "trackio.finish()\n",
        project,
        name,
        resume,
        str(steps.start),
        str(steps.stop),
    )


def rows(folder: pathlib.Path, query: str, project: str = "lerobot") -> list[tuple]:
    with contextlib.closing(sqlite3.connect(folder / f"{project}.db")) as connection:
        return connection.execute(query).fetchall()


def logged(run: trainer.Run, key: str) -> dict[int, float]:
    """Step -> value of metrics.jsonl."""
    lines = [json.loads(line) for line in (run.output / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line[key] for line in lines if key in line}


def shown(run: str, metric: str, project: str = "lerobot") -> dict[int, float]:
    answer = trackio("get", "metric", "--project", project, "--run", run, "--metric", metric)
    return {entry["step"]: entry["value"] for entry in answer["values"]}


class Dashboard:
    """`trackio show` as a user starts it."""

    def __init__(self, project: str = "lerobot"):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        # The first free port from this one on.
        environment = {**os.environ, "BROWSER": "true", "GRADIO_SERVER_PORT": str(port), "PYTHONUNBUFFERED": "1"}
        self._process = subprocess.Popen(
            [TRACKIO, "show", "--project", project], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        lines: queue.Queue = queue.Queue()
        threading.Thread(target=lambda: [lines.put(line) for line in self._process.stdout], daemon=True).start()
        seen = ""
        end = time.monotonic() + 60
        while "launched at: " not in seen:
            try:
                seen += lines.get(timeout=max(0.1, end - time.monotonic()))
            except queue.Empty:
                self.close()
                raise AssertionError(f"trackio show said: {seen}") from None
        self.url = "http://" + seen.split("launched at: http://")[1].split("/")[0]

    def ask(self, name: str, **arguments):
        request = urllib.request.Request(
            f"{self.url}/api/{name}", json.dumps(arguments).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            content = json.load(answer)
        assert "error" not in content, content
        return content["data"]

    def close(self):
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def test_every_command_shows_the_run_with_the_numbers_of_metrics_jsonl(programs, tmp_path):
    run = trainer.train(programs, tmp_path / "15-30-14_act", {**FLAGS, **HELD_OUT, "steps": 8})
    assert trackio("list", "projects")["projects"] == ["lerobot"]
    assert trackio("list", "runs", "--project", "lerobot")["runs"] == ["15-30-14_act"]
    names = trackio("list", "metrics", "--project", "lerobot", "--run", "15-30-14_act")["metrics"]
    # What LeRobot logs under these names.
    assert {f"train/{name}" for name in ("steps", "samples", "episodes", "epochs", "loss", "grad_norm", "lr", "dataloading_s")} <= set(names)
    assert {f"train/{name}" for name in ("preprocessing_s", "update_s", "step_s", "samples_per_s", "l1_loss", "kld_loss")} <= set(names)
    assert "eval/eval_loss" in names
    for metric, key in (("train/loss", "loss"), ("train/grad_norm", "grdn"), ("train/lr", "lr"), ("eval/eval_loss", "eval_loss")):
        assert shown("15-30-14_act", metric) == logged(run, key)

    of_run = trackio("get", "run", "--project", "lerobot", "--run", "15-30-14_act")
    assert of_run["num_logs"] == 10
    config = of_run["config"]
    assert config["_Group"] == "policy:act-seed:1000-dataset:facts/toy_state"
    recorded = json.loads((run.model(8) / "train_config.json").read_text())
    # A checkpoint's file knows later what the first step has shown: nothing of that is an option.
    for key in ("dataset", "seed", "batch_size", "steps", "optimizer", "scheduler", "trackio"):
        assert config[key] == recorded[key], key
    assert config["policy"]["dim_model"] == 32

    project = trackio("get", "project", "--project", "lerobot")
    assert project["num_runs"] == 1 and project["last_activity"] == 8
    snapshot = trackio("get", "snapshot", "--project", "lerobot", "--run", "15-30-14_act", "--step", "4")["metrics"]
    assert snapshot["train/loss"][0]["value"] == logged(run, "loss")[4]
    assert snapshot["eval/eval_loss"][0]["value"] == logged(run, "eval_loss")[4]


def test_the_dashboard_shows_a_run_while_it_is_written(programs, tmp_path, folder):
    first = trainer.train(programs, tmp_path / "first", {**FLAGS, **HELD_OUT, "steps": 8})
    arguments = trainer.as_arguments({**FLAGS, "steps": 1_000_000, "save_checkpoint": "false", "output_dir": tmp_path / "live", "seed": 7})
    with Dashboard() as dashboard:
        live = subprocess.Popen([programs / "lerobot-train", *arguments], cwd=trainer.PROJECT, stderr=subprocess.DEVNULL)
        seen = []
        try:
            end = time.monotonic() + 60
            while len(set(seen)) < 4 and time.monotonic() < end:
                runs = {run["name"]: run["id"] for run in dashboard.ask("get_runs_for_project", project="lerobot")}
                if "live" in runs:
                    logs = dashboard.ask(
                        "get_logs_batch", project="lerobot", runs=[{"run": "live", "run_id": runs["live"]}], scalar_only=True
                    )
                    seen.append(logs[0]["logs"][-1]["step"])
                time.sleep(0.1)
        finally:
            live.send_signal(signal.SIGINT)
            assert live.wait(60) == 130
        assert len(set(seen)) >= 4 and seen == sorted(seen)

        runs = {run["name"]: run["id"] for run in dashboard.ask("get_runs_for_project", project="lerobot")}
        assert set(runs) == {"first", "live"}
        assert dashboard.ask("get_all_projects") == ["lerobot"]
        assert dashboard.ask("get_tab_availability", project="lerobot")["metrics"] is True
        logs = dashboard.ask("get_logs", project="lerobot", run="first", run_id=runs["first"])
        assert {row["step"]: row["train/loss"] for row in logs if "train/loss" in row} == logged(first, "loss")
        configs = dashboard.ask("get_run_configs", project="lerobot")
        assert configs[runs["live"]]["_Group"] == "policy:act-seed:7-dataset:facts/toy_state"
        values = dashboard.ask("get_metric_values", project="lerobot", run="first", run_id=runs["first"], metric_name="eval/eval_loss")
        assert [value["value"] for value in values] == list(logged(first, "eval_loss").values())
    # Every line of the run that was watched.
    lines = (tmp_path / "live" / "metrics.jsonl").read_text().splitlines()
    assert rows(folder, "SELECT count(*) FROM metrics WHERE run_name = 'live'") == [(len(lines),)]


def resume(programs, output: pathlib.Path, steps: int) -> trainer.Run:
    return trainer.train(programs, output, {"resume": "true", "config_path": output, "steps": steps})


def test_a_resumed_run_is_one_run_also_beside_another_of_its_name(programs, tmp_path, folder):
    outputs = tmp_path / "a" / "run", tmp_path / "b" / "run"
    for output in outputs:
        trainer.train(programs, output, {**FLAGS, "steps": 2})
    for output in outputs:
        resume(programs, output, 4)
    assert trackio("list", "runs", "--project", "lerobot")["runs"] == ["run", "run"]
    assert rows(folder, "SELECT group_concat(step, ' ') FROM (SELECT * FROM metrics ORDER BY timestamp, id) GROUP BY run_id") == [
        ("1 2 3 4",)
    ] * 2
    configs = rows(folder, "SELECT CAST(config AS TEXT) FROM configs")
    assert sorted(json.loads(config)["output_dir"] for (config,) in configs) == sorted(map(str, outputs))
    assert all(json.loads(config)["resume"] is True for (config,) in configs)


def test_a_run_of_the_real_trackio_goes_on_here_and_there_again(programs, tmp_path, folder):
    output = tmp_path / "run"
    trainer.train(programs, output, {**FLAGS, "steps": 4, "trackio.enable": "false"})
    real_run("run", "never", range(1, 5))
    # LeRobot's folder: it remembers no run.
    trainer.train(
        programs, output, {"resume": "true", "config_path": output, "steps": 6, "trackio.enable": "true"}
    )
    real_run("run", "allow", range(7, 9))
    assert trackio("list", "runs", "--project", "lerobot")["runs"] == ["run"]
    assert rows(folder, "SELECT count(DISTINCT run_id) FROM metrics") == [(1,)]
    assert list(shown("run", "train/loss")) == list(range(1, 9))
    real_run("run", "never", range(1, 2))
    assert trackio("list", "runs", "--project", "lerobot")["runs"] == ["run", "run"]


def test_a_new_run_joins_no_old_one(programs, tmp_path):
    real_run("run", "never", range(1, 3))
    trainer.train(programs, tmp_path / "run", {**FLAGS, "steps": 1})
    assert trackio("list", "runs", "--project", "lerobot")["runs"] == ["run", "run"]


def test_a_run_that_was_renamed_in_the_dashboard_stays_one_run(programs, tmp_path):
    trainer.train(programs, tmp_path / "run", {**FLAGS, "steps": 2})
    python("from trackio.sqlite_storage import SQLiteStorage\nSQLiteStorage.rename_run('lerobot', 'run', 'better')")
    resume(programs, tmp_path / "run", 4)
    assert trackio("list", "runs", "--project", "lerobot")["runs"] == ["better"]
    assert list(shown("better", "train/loss")) == [1, 2, 3, 4]


def test_two_trainers_and_the_real_trackio_write_into_one_project_at_once(programs, tmp_path, folder):
    def arguments(name):
        return [programs / "lerobot-train", *trainer.as_arguments({**FLAGS, "steps": 200, "save_checkpoint": "false", "output_dir": tmp_path / name})]

    ours = [subprocess.Popen(arguments(name), cwd=trainer.PROJECT, stderr=subprocess.PIPE, text=True) for name in ("one", "two")]
    real_run("three", "never", range(200))
    for process in ours:
        log = process.communicate(timeout=120)[1]
        assert process.returncode == 0 and "WARNING" not in log, log
    assert rows(folder, "SELECT run_name, count(*), count(DISTINCT step) FROM metrics GROUP BY run_id ORDER BY run_name") == [
        ("one", 200, 200),
        ("three", 200, 200),
        ("two", 200, 200),
    ]
    assert rows(folder, "PRAGMA integrity_check") == [("ok",)]
    assert rows(folder, "SELECT count(*) FROM configs") == [(3,)]


def test_numbers_that_are_not_finite_are_read_by_everyone(programs, tmp_path, folder):
    flags = {**FLAGS, "steps": 6, "optimizer.lr": 1e30, "save_checkpoint": "false"}
    run = trainer.train(programs, tmp_path / "run", flags)
    assert not all(map(math.isfinite, logged(run, "loss").values()))
    losses = shown("run", "train/loss")
    assert [repr(value) for value in losses.values()] == [repr(value) for value in logged(run, "loss").values()]
    assert trackio("get", "run", "--project", "lerobot", "--run", "run")["num_logs"] == 6
    with Dashboard() as dashboard:
        (found,) = dashboard.ask("get_runs_for_project", project="lerobot")
        logs = dashboard.ask("get_logs", project="lerobot", run="run", run_id=found["id"])
        assert [row["step"] for row in logs] == [1, 2, 3, 4, 5, 6]


def test_a_dashboard_brings_in_what_was_written_for_a_network_file_system(programs, tmp_path, folder, monkeypatch):
    monkeypatch.setenv("TRACKIO_STORAGE_MODE", "jsonl")
    output = tmp_path / "run"
    run = trainer.train(programs, output, {**FLAGS, **HELD_OUT, "steps": 4, "trackio.project": "le.robot"})
    resume(programs, output, 6)
    assert not (folder / "lerobot.db").exists()
    with Dashboard() as dashboard:
        end = time.monotonic() + 30
        while not dashboard.ask("get_all_projects") and time.monotonic() < end:
            time.sleep(0.2)
        (found,) = dashboard.ask("get_runs_for_project", project="lerobot")
        logs = dashboard.ask("get_logs", project="lerobot", run="run", run_id=found["id"])
    assert [row["step"] for row in logs if "train/loss" in row] == [1, 2, 3, 4, 5, 6]
    assert {row["step"]: row["train/loss"] for row in logs if row.get("train/loss") and row["step"] <= 4} == {
        step: loss for step, loss in logged(run, "loss").items() if step <= 4
    }
    assert not list(folder.glob("inbox/*/*.jsonl"))


def test_the_fixture_of_the_real_trackio_goes_on_under_its_id(programs, tmp_path, folder):
    folder.mkdir()
    shutil.copy(trainer.PROJECT / "tests" / "data" / "trackio" / "demo.db", folder / "demo.db")
    output = tmp_path / "15-30-14_act"
    trainer.train(programs, output, {**FLAGS, "steps": 2, "trackio.enable": "false"})
    trainer.train(
        programs, output, {"resume": "true", "config_path": output, "steps": 3, "trackio.enable": "true", "trackio.project": "demo"}
    )
    assert sorted(trackio("list", "runs", "--project", "demo")["runs"]) == ["15-30-14_act", "15-45-02_act"]
    assert trackio("get", "run", "--project", "demo", "--run", "15-30-14_act")["num_logs"] == 9


def test_lerobot_loads_the_policy_of_a_tracked_run_but_not_its_training_configuration(programs, tmp_path):
    run = trainer.train(programs, tmp_path / "run", {**FLAGS, "steps": 1})
    ACTPolicy.from_pretrained(run.model(1))
    with pytest.raises(Exception, match="trackio"):
        TrainPipelineConfig.from_pretrained(run.model(1))
    file = run.model(1) / "train_config.json"
    config = json.loads(file.read_text())
    del config["trackio"]
    file.write_text(json.dumps(config))
    TrainPipelineConfig.from_pretrained(run.model(1))


def test_a_fresh_database_that_trackio_opens_becomes_like_its_own(programs, tmp_path, folder):
    trainer.train(programs, tmp_path / "run", {**FLAGS, "steps": 1})
    with Dashboard():
        pass
    shutil.copy(trainer.PROJECT / "tests" / "data" / "trackio" / "demo.db", folder / "demo.db")
    names = "SELECT type, name, tbl_name FROM sqlite_schema ORDER BY type, name"
    assert rows(folder, names) == rows(folder, names, "demo")
    columns = "SELECT m.name, c.name, c.type, c.\"notnull\", c.pk FROM sqlite_schema m, pragma_table_info(m.name) c ORDER BY 1, 2"
    assert rows(folder, columns) == rows(folder, columns, "demo")
