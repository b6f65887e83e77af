// The image encoder's first weights by torchvision's names: looked up in torch's cache on disk,
// downloaded when they are not there.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "lerobot/nn/resnet.h"

namespace lerobot::policy {

/// One entry of torchvision's weight enumerations.
struct BackboneWeights {
  std::string_view backbone;  // "resnet18"
  std::string_view name;      // "IMAGENET1K_V1"
  std::string_view file;      // "resnet18-f37072fd.pth"; the eight digits begin its SHA-256
};

/// "ResNet18_Weights.IMAGENET1K_V1" or "IMAGENET1K_V1" (also DEFAULT) for resnet18, and so on; null
/// for a name that torchvision does not have.
const BackboneWeights* find_backbone_weights(std::string_view backbone, std::string_view name);

/// Why `name` names no weights of `backbone`, with the names that do; unset when it does.
std::optional<std::string> backbone_weights_problem(std::string_view backbone,
                                                    std::string_view name);

/// $TORCH_HOME/hub/checkpoints; TORCH_HOME defaults to $XDG_CACHE_HOME/torch, that to
/// ~/.cache/torch.
std::filesystem::path torch_checkpoint_directory();

/// Replaces convolution weights and what the normalisation has (not for ResNetNorm::kGroup). Looks
/// in torch_checkpoint_directory() for the .pth file (whose SHA-256 must begin as its name says),
/// then for a .safetensors file of the same stem, then downloads the .pth there. Throws Error
/// naming the file, where it was looked for, and
/// --policy.pretrained_backbone_weights=null.
void load_backbone_weights(nn::ResNet& backbone, std::string_view backbone_name,
                           std::string_view weights_name);

}  // namespace lerobot::policy
