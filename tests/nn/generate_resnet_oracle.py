"""Writes tests/data/oracles/resnet.json: torchvision's ResNets with frozen batch normalisation, built
from seed 1000 (weights, as one SHA-256 in parameter order) and what they make of one image.

    python tests/nn/generate_resnet_oracle.py
"""

import hashlib
import json
import pathlib

import torch
import torchvision
from torchvision.models._utils import IntermediateLayerGetter
from torchvision.ops.misc import FrozenBatchNorm2d

CASES = {
    "resnet18": ("resnet18", False),
    "resnet34": ("resnet34", False),
    "resnet50": ("resnet50", False),
    "resnet50_dilated": ("resnet50", True),
}


def describe(name: str, dilate: bool) -> dict:
    torch.manual_seed(1000)
    model = getattr(torchvision.models, name)(
        weights=None,
        norm_layer=FrozenBatchNorm2d,
        replace_stride_with_dilation=[False, False, dilate],
    )
    backbone = IntermediateLayerGetter(model, return_layers={"layer4": "map"})
    weights = hashlib.sha256()
    for parameter in backbone.parameters():
        weights.update(parameter.detach().numpy().tobytes())
    image = torch.linspace(-1, 1, 3 * 64 * 96).reshape(1, 3, 64, 96)
    output = backbone(image)["map"]
    output.square().mean().backward()
    first = backbone.conv1.weight.grad
    return {
        "names": [key for key, _ in backbone.named_parameters()][:12],
        "state_entries": len(backbone.state_dict()),
        "weights_sha256": weights.hexdigest(),
        "output_shape": list(output.shape),
        "output_norm": output.norm().item(),
        "output_first": output.flatten()[:8].tolist(),
        "first_gradient_norm": first.norm().item(),
        "next_random": torch.rand(1).item(),
    }


if __name__ == "__main__":
    target = pathlib.Path(__file__).parents[1] / "data" / "oracles" / "resnet.json"
    oracle = {case: describe(*arguments) for case, arguments in CASES.items()}
    target.write_text(json.dumps(oracle, indent=1))
