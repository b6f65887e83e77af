// adapter_config.json, as peft 0.21 writes and reads it.
#include <algorithm>
#include <array>

#include <fmt/ranges.h>

#include "lerobot/base/error.h"
#include "lerobot/base/log.h"
#include "lerobot/config/reader.h"
#include "lerobot/config/run_folder.h"
#include "lerobot/policy/adapter.h"

namespace lerobot::policy {
namespace {

using config::short_json;

/// In the order of config::kAdapterInits.
constexpr std::array<nn::LoraInit, config::kAdapterInits.size()> kInits = {
    nn::LoraInit::kGaussian, nn::LoraInit::kOrthogonal, nn::LoraInit::kOlora, nn::LoraInit::kPissa};

std::optional<nn::LoraInit> find_init(std::string_view name) {
  for (std::size_t i = 0; i < kInits.size(); ++i)
    if (config::kAdapterInits[i] == name) return kInits[i];
  return std::nullopt;
}

/// LoraConfig's fields that LeRobot leaves alone, in the values that it leaves them in.
Json untouched_settings() {
  return {{"alora_invocation_tokens", nullptr},
          {"alpha_pattern", Json::object()},
          {"arrow_config", nullptr},
          {"bias", "none"},
          {"corda_config", nullptr},
          {"ensure_weight_tying", false},
          {"eva_config", nullptr},
          {"exclude_modules", nullptr},
          {"fan_in_fan_out", false},
          {"inference_mode", true},
          {"kasa_config", nullptr},
          {"layer_replication", nullptr},
          {"layers_pattern", nullptr},
          {"layers_to_transform", nullptr},
          {"loftq_config", Json::object()},
          {"lora_bias", false},
          {"lora_dropout", 0.0},
          {"lora_ga_config", nullptr},
          {"megatron_config", nullptr},
          {"megatron_core", "megatron.core"},
          {"monteclora_config", nullptr},
          {"peft_type", "LORA"},
          {"peft_version", "0.21.2"},
          {"qalora_group_size", 16},
          {"rank_pattern", Json::object()},
          {"target_parameters", nullptr},
          {"task_type", nullptr},
          {"trainable_token_indices", nullptr},
          {"use_bdlora", nullptr},
          {"use_dora", false},
          {"use_qalora", false},
          {"use_rslora", false},
          {"velora_config", nullptr}};
}

Json to_document(const AdapterConfig& config, const std::optional<std::string>& init,
                 Policy& policy) {
  Json document = untouched_settings();
  const std::string type = policy.config().type();
  document["auto_mapping"] = {
      {"base_model_class", policy.module().class_name()},
      {"parent_library", fmt::format("lerobot.policies.{}.modeling_{}", type, type)}};
  document["base_model_name_or_path"] = config.base;
  document["revision"] = config.base_revision ? Json(*config.base_revision) : Json(nullptr);
  document["init_lora_weights"] = init ? Json(*init) : Json(true);
  document["lora_alpha"] = static_cast<std::int64_t>(config.lora.alpha);
  document["r"] = config.lora.r;
  std::visit([&](const auto& targets) { document["target_modules"] = targets; },
             config.target_modules);
  document["modules_to_save"] =
      config.full_training_modules.empty() ? Json(nullptr) : Json(config.full_training_modules);
  return nlohmann::json(document);  // peft sorts the keys
}

// --- Reading -------------------------------------------------------------------------------------

/// One adapter_config.json.
class AdapterFile {
 public:
  explicit AdapterFile(const std::filesystem::path& path)
      : path_(path.string()), content_(read_json_file(path)) {
    if (!content_.is_object()) fail("{}: expected an object", path_);
  }

  AdapterConfig read() const {
    check_method();
    warn_about_unknown_settings();
    AdapterConfig config;
    config.base = text("base_model_name_or_path", "the path of the policy that it was trained on");
    if (is_set("revision")) config.base_revision = text("revision", "a revision");
    read_targets(config);
    config.full_training_modules = names("modules_to_save");
    config.lora.r = positive("r");
    config.lora.alpha = static_cast<double>(positive("lora_alpha"));
    read_init(config);
    config.document = content_;
    return config;
  }

 private:
  bool is_set(const char* key) const {
    const auto found = content_.find(key);
    return found != content_.end() && !found->is_null();
  }

  void check_method() const {
    const Json method = content_.value("peft_type", Json());
    if (method != "LORA")
      fail("{}: peft_type is {}, and only LORA is supported", path_, short_json(method));
    // Every other setting of peft's would change what the adapter computes.
    const Json usual = untouched_settings();
    for (const auto& [key, value] : usual.items()) {
      if (does_not_matter(key) || !is_set(key.c_str())) continue;
      if (is_equal_or_empty(content_[key], value)) continue;
      fail("{}: {} is {}, which is not supported; expected {}", path_, key,
           short_json(content_[key]), short_json(value));
    }
  }

  void warn_about_unknown_settings() const {
    static const std::array<std::string_view, 8> kRead = {
        "auto_mapping", "base_model_name_or_path", "init_lora_weights",
        "lora_alpha",   "modules_to_save",         "r",
        "revision",     "target_modules"};
    const Json usual = untouched_settings();
    for (const auto& [key, value] : content_.items())
      if (!usual.contains(key) && !value.is_null() &&
          std::find(kRead.begin(), kRead.end(), key) == kRead.end())
        log::warning("{}: the setting {} is not known here and has no effect", path_, key);
  }

  static bool does_not_matter(const std::string& key) {
    static const std::array<std::string_view, 7> kFree = {
        "peft_version",   "task_type",         "inference_mode",     "megatron_core",
        "fan_in_fan_out", "qalora_group_size", "ensure_weight_tying"};
    return std::find(kFree.begin(), kFree.end(), key) != kFree.end();
  }

  static bool is_equal_or_empty(const Json& found, const Json& usual) {
    return found == usual || (found.is_structured() && found.empty());
  }

  std::string text(const char* key, const char* what) const {
    if (!is_set(key)) fail("{}: {} is missing: {}", path_, key, what);
    if (!content_[key].is_string()) wrong(key, what);
    return content_[key].get<std::string>();
  }

  std::vector<std::string> names(const char* key) const {
    std::vector<std::string> names;
    if (!is_set(key)) return names;
    if (!content_[key].is_array()) wrong(key, "a list of names");
    for (const Json& item : content_[key]) {
      if (!item.is_string() || item.get_ref<const std::string&>().empty())
        wrong(key, "a list of names");
      names.push_back(item.get<std::string>());
    }
    return names;
  }

  std::int64_t positive(const char* key) const {
    const Json value = content_.value(key, Json());
    if (!value.is_number_integer() || value.get<std::int64_t>() < 1) wrong(key, "a number above 0");
    return value.get<std::int64_t>();
  }

  void read_targets(AdapterConfig& config) const {
    if (is_set("target_modules") && content_["target_modules"].is_string())
      config.target_modules = content_["target_modules"].get<std::string>();
    else
      config.target_modules = names("target_modules");
  }

  void read_init(AdapterConfig& config) const {
    const Json init = content_.value("init_lora_weights", Json(true));
    if (init.is_boolean() || init.is_null()) return;
    const auto found = init.is_string() ? find_init(init.get<std::string>()) : std::nullopt;
    if (!found)
      wrong("init_lora_weights",
            fmt::format("true or one of {}", fmt::join(config::kAdapterInits, ", ")).c_str());
    config.lora.init = *found;
  }

  [[noreturn]] void wrong(const char* key, const char* expected) const {
    fail("{}: {} is {}, expected {}", path_, key, short_json(content_.value(key, Json())),
         expected);
  }

  std::string path_;
  Json content_;
};

}  // namespace

AdapterConfig new_adapter(const config::PeftConfig& options, Policy& policy) {
  const config::PolicyConfig& of = policy.config();
  AdapterConfig config;
  config.is_new = true;
  config.base = of.pretrained_path.value();
  config.base_revision = of.pretrained_revision;
  const config::AdapterTargets targets = config::adapter_targets(options, of);
  if (targets.modules.is_string())
    config.target_modules = targets.modules.get<std::string>();
  else
    config.target_modules = targets.modules.get<std::vector<std::string>>();
  config.full_training_modules = targets.full_training_modules;
  config.lora.r = options.r;
  if (options.lora_alpha) config.lora.alpha = static_cast<double>(*options.lora_alpha);
  if (options.init_type) {
    const auto init = find_init(*options.init_type);
    check_internal(init.has_value(), "an initialisation that the command line let pass");
    config.lora.init = *init;
  }
  config.document = to_document(config, options.init_type, policy);
  return config;
}

AdapterConfig read_adapter_config(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / config::kAdapterConfigFile;
  if (!std::filesystem::exists(file))
    fail(
        "{}: is missing, although config.json says use_peft: the folder holds no adapter; if it is "
        "a whole policy, pass --policy.use_peft=false",
        file.string());
  return AdapterFile(file).read();
}

}  // namespace lerobot::policy
