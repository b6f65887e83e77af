"""Writes tests/data/oracles/image_transforms.{safetensors,json}: frames that torchvision and LeRobot
made of others.

    PYTHON tests/interop/generate_image_transforms.py [OUTPUT_FOLDER]

Needs lerobot 0.6, torchvision 0.26 and safetensors.
"""

import json
import sys
from pathlib import Path

import torch
from lerobot.transforms import ImageTransformConfig, ImageTransforms, ImageTransformsConfig
from safetensors.torch import save_file
from torchvision.transforms.v2 import functional as F

torch.set_num_threads(1)


def make_images():
    generator = torch.Generator().manual_seed(7)
    noise = torch.randint(0, 256, (2, 3, 23, 29), generator=generator, dtype=torch.uint8)
    y, x = torch.meshgrid(torch.arange(36), torch.arange(40), indexing="ij")
    smooth = torch.stack([x * 7, y * 8, 255 - (x * 3 + y * 3)]).clamp(0, 255).to(torch.uint8)
    smooth[:, 10:14, 10:14] = 0
    smooth[:, 20:24, 20:24] = 255
    smooth[0, 28:32, 28:32], smooth[1, 28:32, 28:32], smooth[2, 28:32, 28:32] = 200, 200, 10
    gray = torch.randint(0, 256, (1, 20, 21), generator=generator, dtype=torch.uint8)
    # Every seventeenth level of each channel: the whole colour cube, for hue and saturation.
    level = torch.arange(0, 256, 17, dtype=torch.uint8)
    cube = torch.stack(torch.meshgrid(level, level, level, indexing="ij")).reshape(3, 64, 64)
    return {"noise": noise, "smooth": smooth, "gray": gray, "cube": cube, "tiny": noise[0, :, :2, :9].contiguous()}


OPERATIONS = {
    "brightness": [0.0, 0.8, 1.0, 1.1903, 7.5],
    "contrast": [0.0, 0.83, 1.0, 1.2],
    "saturation": [0.0, 0.5, 1.0, 1.4871],
    "hue": [-0.5, -0.05, 0.0, 0.0137, 0.05, 0.31, 0.5],
    "sharpness": [0.0, 0.5, 1.0, 1.5, 3.25],
}
AFFINE = [
    dict(angle=0.0, translate=[0, 0], scale=1.0, shear=[0.0, 0.0]),
    dict(angle=0.0, translate=[3, -2], scale=1.0, shear=[0.0, 0.0]),
    dict(angle=3.217, translate=[-1, 2], scale=1.0, shear=[0.0, 0.0]),
    dict(angle=-4.9, translate=[2, 0], scale=1.0, shear=[0.0, 0.0]),
    dict(angle=90.0, translate=[0, 0], scale=1.0, shear=[0.0, 0.0]),
    dict(angle=45.0, translate=[0, 1], scale=0.5, shear=[10.0, -5.0]),
    dict(angle=-130.0, translate=[5, 5], scale=2.3, shear=[0.0, 25.0], fill=[17.0, 200.0, 90.4]),
    dict(angle=12.0, translate=[0, 0], scale=1.0, shear=[0.0, 0.0], center=[3.0, 8.5], fill=128),
]


def color(name, low, high, weight=1.0):
    return ImageTransformConfig(weight=weight, type="ColorJitter", kwargs={name: [low, high]})


PIPELINES = {
    "default": ImageTransformsConfig(enable=True),
    "random_order_all": ImageTransformsConfig(enable=True, max_num_transforms=10, random_order=True),
    "weights": ImageTransformsConfig(
        enable=True,
        max_num_transforms=2,
        tfs={
            "never": color("brightness", 0.0, 0.1, weight=0.0),
            "rare": color("contrast", 0.5, 2.0, weight=0.05),
            "often": color("saturation", 0.0, 3.0, weight=5.0),
            "usual": ImageTransformConfig(type="Identity"),
        },
    ),
    "one_jitter": ImageTransformsConfig(
        enable=True,
        max_num_transforms=1,
        tfs={
            "jitter": ImageTransformConfig(
                type="ColorJitter", kwargs={"brightness": 0.3, "contrast": [0.5, 1.5], "saturation": 1.2, "hue": 0.4}
            )
        },
    ),
    "affine": ImageTransformsConfig(
        enable=True,
        max_num_transforms=2,
        random_order=True,
        tfs={
            "affine": ImageTransformConfig(
                type="RandomAffine",
                kwargs={
                    "degrees": 30,
                    "translate": [0.3, 0.1],
                    "scale": [0.5, 1.5],
                    "shear": [-10, 10, -5, 5],
                    "fill": [10, 20, 30],
                    "center": [4, 5],
                },
            ),
            "sharp": ImageTransformConfig(type="SharpnessJitter", kwargs={"sharpness": 0.7}),
        },
    ),
}


def main(folder):
    images = make_images()
    tensors = {f"image/{name}": image for name, image in images.items()}
    for name, factors in OPERATIONS.items():
        for factor in factors:
            for label, image in images.items():
                if label == "cube" and name not in ("hue", "saturation"):
                    continue
                tensors[f"{name}/{factor}/{label}"] = getattr(F, f"adjust_{name}")(image, factor).clone()
    for number, parameters in enumerate(AFFINE):
        for label, image in images.items():
            if label == "cube" or (label == "gray" and isinstance(parameters.get("fill"), list)):
                continue
            arguments = {"fill": 0, **parameters}
            tensors[f"affine/{number}/{label}"] = F.affine(image, **arguments).clone()
    pipelines = {}
    for name, config in PIPELINES.items():
        transforms = ImageTransforms(config)
        torch.manual_seed(11)
        for call in range(4):
            for label in ("noise", "smooth"):
                tensors[f"pipeline/{name}/{call}/{label}"] = transforms(images[label]).clone()
        pipelines[name] = {
            "max_num_transforms": config.max_num_transforms,
            "random_order": config.random_order,
            "tfs": {key: {"weight": t.weight, "type": t.type, "kwargs": t.kwargs} for key, t in config.tfs.items()},
        }
    save_file(tensors, folder / "image_transforms.safetensors")
    description = {"operations": OPERATIONS, "affine": AFFINE, "pipelines": pipelines}
    (folder / "image_transforms.json").write_text(json.dumps(description, indent=1))


if __name__ == "__main__":
    output = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1] / "data" / "oracles")
    output.mkdir(parents=True, exist_ok=True)
    main(output)
