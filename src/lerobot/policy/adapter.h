// Adapters of a policy as peft has them: which modules get one, the adapter_config.json that says
// so, and the names of their tensors.
//
// An adapted policy's tensors have the names of peft's live model, those of its file are shorter:
//
//   base_model.model.model.encoder.layers.0.linear1.lora_A.default.weight   parameter
//   base_model.model.model.encoder.layers.0.linear1.lora_A.weight adapter_model.safetensors
//   base_model.model.model.action_head.modules_to_save.default.weight       parameter
//   base_model.model.model.action_head.weight adapter_model.safetensors
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lerobot/base/json.h"
#include "lerobot/config/train_config.h"
#include "lerobot/nn/lora.h"
#include "lerobot/policy/policy.h"

namespace lerobot::policy {

/// What peft calls LoraConfig, as far as LeRobot can set it.
struct AdapterConfig {
  /// What --policy.path was when the adapter was made: the policy under it.
  std::string base;
  std::optional<std::string> base_revision;  ///< a commit, for a base on the Hub
  /// Names or endings of names ("linear1", "encoder.layers.0.linear1"), or a regular expression
  /// for whole names, or "all-linear".
  std::variant<std::vector<std::string>, std::string> target_modules;
  /// Endings of names of modules that are trained as they are, and saved with the adapter.
  std::vector<std::string> full_training_modules;
  nn::LoraOptions lora;
  /// The file, with what is not ours to understand.
  Json document;
  /// Asked for by --peft.*, not read from a file.
  bool is_new = false;
};

/// The adapter that --peft.* asks for on a policy whose configuration names its pretrained_path.
/// Throws Error naming the option when it asks for something that is not to be had.
AdapterConfig new_adapter(const config::PeftConfig& options, Policy& policy);

/// Reads the file in an adapter's folder. Throws Error naming it, and the setting when it is one
/// that is not supported (another method than LoRA, dropout, ...).
AdapterConfig read_adapter_config(const std::filesystem::path& folder);

/// Freezes the policy, gives its modules their adapters and frees those that are trained as they
/// are. Random numbers fall as in peft. Throws Error when no module is to get an adapter, when one
/// cannot have one, and when modules are named that do not exist: those of a file are logged only.
/// "all-linear", and a new adapter's expression, become the names that they stand for.
void adapt(Policy& policy, AdapterConfig& config);

/// The name that an adapted policy's tensor has in adapter_model.safetensors; nothing for one of
/// the frozen base.
std::optional<std::string> adapter_tensor_name(std::string_view name);

}  // namespace lerobot::policy
