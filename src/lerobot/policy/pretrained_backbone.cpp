#include "lerobot/policy/pretrained_backbone.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <map>

#include <c10/core/GradMode.h>
#include <fmt/ranges.h>

#include "lerobot/base/digest.h"
#include "lerobot/base/error.h"
#include "lerobot/base/log.h"
#include "lerobot/hub/download.h"
#include "lerobot/serialization/torch_archive.h"

namespace lerobot::policy {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRemedy =
    "--policy.pretrained_backbone_weights=null starts from random weights";

// torchvision/models/resnet.py (0.26). The last entry of a backbone is its DEFAULT.
constexpr std::array<BackboneWeights, 8> kWeights{{
    {"resnet18", "IMAGENET1K_V1", "resnet18-f37072fd.pth"},
    {"resnet34", "IMAGENET1K_V1", "resnet34-b627a593.pth"},
    {"resnet50", "IMAGENET1K_V1", "resnet50-0676ba61.pth"},
    {"resnet50", "IMAGENET1K_V2", "resnet50-11ad3fa6.pth"},
    {"resnet101", "IMAGENET1K_V1", "resnet101-63fe2227.pth"},
    {"resnet101", "IMAGENET1K_V2", "resnet101-cd907fc2.pth"},
    {"resnet152", "IMAGENET1K_V1", "resnet152-394f9c45.pth"},
    {"resnet152", "IMAGENET1K_V2", "resnet152-f82ba261.pth"},
}};

/// "resnet18" -> "ResNet18_Weights."
std::string enumeration_prefix(std::string_view backbone) {
  return "ResNet" + std::string(backbone.substr(std::string_view("resnet").size())) + "_Weights.";
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

void verify_hash(const fs::path& file, std::string_view file_name) {
  const std::size_t dash = file_name.rfind('-');
  const std::string_view expected = file_name.substr(dash + 1, file_name.rfind('.') - dash - 1);
  const std::string found = sha256_hex_of_file(file);
  if (!found.starts_with(expected))
    fail(
        "{}: damaged: its SHA-256 should begin with {}, found {}. Delete the file to have it "
        "downloaded again",
        file.string(), expected, found);
}

void download(const BackboneWeights& weights, const fs::path& destination) {
  const std::string url = fmt::format("https://download.pytorch.org/models/{}", weights.file);
  log::info("Downloading {} to {}", url, destination.string());
  fs::path partial = destination;
  partial += ".download";
  try {
    hub::download_file(url, partial);
    verify_hash(partial, weights.file);
  } catch (const Error& error) {
    std::error_code ignored;
    fs::remove(partial, ignored);
    fail(
        "{} ({} {}) is not in {} (looked for the .pth and a .safetensors of the same name) and "
        "cannot be downloaded: {}. Put the file there, or {}",
        weights.file, weights.backbone, weights.name, destination.parent_path().string(),
        error.what(), kRemedy);
  }
  std::error_code error;
  fs::rename(partial, destination, error);
  if (error) fail("{}: cannot be created: {}", destination.string(), error.message());
}

/// The file to read, downloaded if it has to be.
fs::path locate(const BackboneWeights& weights) {
  const fs::path archive = torch_checkpoint_directory() / weights.file;
  fs::path safetensors = archive;
  safetensors.replace_extension(".safetensors");
  if (fs::exists(archive)) {
    verify_hash(archive, weights.file);
    return archive;
  }
  if (fs::exists(safetensors)) return safetensors;
  download(weights, archive);
  return archive;
}

}  // namespace

const BackboneWeights* find_backbone_weights(std::string_view backbone, std::string_view name) {
  const std::string prefix = enumeration_prefix(backbone);
  if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  const BackboneWeights* found = nullptr;
  for (const BackboneWeights& weights : kWeights)
    if (weights.backbone == backbone && (weights.name == name || name == "DEFAULT"))
      found = &weights;
  return found;
}

std::optional<std::string> backbone_weights_problem(std::string_view backbone,
                                                    std::string_view name) {
  if (find_backbone_weights(backbone, name)) return std::nullopt;
  std::string known;
  for (const BackboneWeights& weights : kWeights) {
    if (weights.backbone != backbone) continue;
    known += fmt::format("{}{}, ", enumeration_prefix(backbone), weights.name);
  }
  return fmt::format("{} has no weights called {}; expected {}or null", backbone, name, known);
}

fs::path torch_checkpoint_directory() {
  const fs::path home = environment("HOME");
  fs::path torch_home = environment("TORCH_HOME");
  if (torch_home.empty()) {
    const std::string cache = environment("XDG_CACHE_HOME");
    torch_home = (cache.empty() ? home / ".cache" : fs::path(cache)) / "torch";
  }
  const std::string text = torch_home.string();
  if (text == "~" || text.starts_with("~/"))
    torch_home = home / fs::path(text.substr(1)).relative_path();
  return torch_home / "hub" / "checkpoints";
}

void load_backbone_weights(nn::ResNet& backbone, std::string_view backbone_name,
                           std::string_view weights_name) {
  const BackboneWeights* weights = find_backbone_weights(backbone_name, weights_name);
  if (!weights) fail("{}", *backbone_weights_problem(backbone_name, weights_name));
  const fs::path file = locate(*weights);

  std::map<std::string, at::Tensor, std::less<>> saved;
  for (auto& [name, tensor] : serialization::read_state_dict(file))
    saved.emplace(std::move(name), std::move(tensor));
  // The file has more (the classifier); everything of ours must be in it but the counters of
  // batches, which older files lack.
  c10::AutoGradMode no_grad(false);
  nn::NamedTensors wanted = backbone.torchvision_state();
  std::erase_if(wanted, [&](const auto& entry) {
    return entry.first.ends_with(".num_batches_tracked") && !saved.contains(entry.first);
  });
  for (const auto& [name, tensor] : wanted) {
    const auto found = saved.find(name);
    if (found == saved.end()) fail("{}: has no tensor {}; {}", file.string(), name, kRemedy);
    if (found->second.sizes() != tensor.sizes())
      fail("{}: tensor {} should have shape [{}], found [{}]", file.string(), name,
           fmt::join(tensor.sizes(), ", "), fmt::join(found->second.sizes(), ", "));
  }
  for (auto [name, tensor] : wanted) tensor.copy_(saved.find(name)->second);
}

}  // namespace lerobot::policy
