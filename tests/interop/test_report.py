"""What a report says about the use of a run works with the real LeRobot."""

import html
import re
import subprocess

import numpy
import torch

import trainer


def snippets(page: str) -> list[str]:
    return [html.unescape(text) for text in re.findall(r'<div class="snippet"><pre>(.*?)</pre>', page, re.S)]


def test_the_python_of_a_report_loads_the_policy(programs, tmp_path):
    run = trainer.train(programs, tmp_path / "a run", {**trainer.TINY_ACT, **trainer.RUN, **trainer.dataset("toy_state"), "steps": 2})
    code = next(text for text in snippets((run.output / "report.html").read_text()) if "from_pretrained" in text)
    names: dict = {}
    exec(code, names)  # noqa: S102
    assert type(names["policy"]).__name__ == "ACTPolicy"
    assert str(run.model(2)) in code
    observation = {
        name: torch.zeros(feature.shape) for name, feature in names["policy"].config.input_features.items()
    }
    with torch.no_grad():
        action = names["postprocess"](names["policy"].select_action(names["preprocess"](observation)))
    assert numpy.isfinite(action.numpy()).all()


def test_the_resume_command_of_a_report_goes_on(programs, tmp_path):
    run = trainer.train(programs, tmp_path / "it's a run", {**trainer.TINY_ACT, **trainer.RUN, **trainer.dataset("toy_state"), "steps": 2})
    command = next(text for text in snippets((run.output / "report.html").read_text()) if "--resume=true" in text)
    done = subprocess.run(
        ["bash", "-c", command.replace("lerobot-train", f"'{programs / 'lerobot-train'}'", 1) + " --steps=3"],
        text=True,
        capture_output=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert (run.checkpoint(3) / "pretrained_model").is_dir()


def test_the_python_of_an_adapters_report_puts_it_onto_its_policy(programs, tmp_path):
    base = trainer.train(programs, tmp_path / "base", {**trainer.TINY_ACT, **trainer.RUN, **trainer.dataset("toy_state"), "steps": 1})
    flags = {"policy.path": base.model(1), "policy.push_to_hub": "false", "peft.target_modules": "[linear1, linear2]", "peft.r": 4}
    run = trainer.train(programs, tmp_path / "adapter", {**flags, **trainer.RUN, **trainer.dataset("toy_state"), "steps": 2})
    page = (run.output / "report.html").read_text()
    assert re.search(r"of [\d,]+ parameters train", page)
    names: dict = {}
    exec(next(text for text in snippets(page) if "PeftModel" in text), names)  # noqa: S102
    assert type(names["policy"]).__name__ == "PeftModel"
    observation = {name: torch.zeros(feature.shape) for name, feature in names["policy"].config.input_features.items()}
    with torch.no_grad():
        action = names["postprocess"](names["policy"].select_action(names["preprocess"](observation)))
    assert numpy.isfinite(action.numpy()).all()
