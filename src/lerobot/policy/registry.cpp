#include "lerobot/policy/registry.h"

#include <array>

#include <c10/core/GradMode.h>
#include <fmt/ranges.h>

#include "lerobot/base/error.h"
#include "lerobot/base/log.h"
#include "lerobot/config/reflection.h"
#include "lerobot/policy/act/act_config.h"
#include "lerobot/policy/act/act_policy.h"
#include "lerobot/policy/diffusion/diffusion_config.h"
#include "lerobot/policy/diffusion/diffusion_policy.h"
#include "lerobot/processor/steps.h"
#include "lerobot/serialization/safetensors.h"

namespace lerobot::policy {
namespace {

/// What the rest of the program needs of one policy type.
struct Entry {
  config::PolicyType (*type)();
  std::unique_ptr<Policy> (*make)(const config::PolicyConfig&, bool load_pretrained_backbone);
  processor::NormalizationMap (*normalization)(const config::PolicyConfig&);
};

/// For a policy P with configuration C: P(const C&, bool), C::normalization_mapping.
template <class P, class C>
constexpr Entry entry() {
  return {&config::policy_type<C>,
          [](const config::PolicyConfig& config, bool load) -> std::unique_ptr<Policy> {
            return std::make_unique<P>(dynamic_cast<const C&>(config), load);
          },
          [](const config::PolicyConfig& config) {
            return dynamic_cast<const C&>(config).normalization_mapping;
          }};
}

constexpr std::array kEntries{entry<ActPolicy, ActConfig>(),
                              entry<DiffusionPolicy, DiffusionConfig>()};

const Entry& entry_of(const config::PolicyConfig& config) {
  const config::PolicyTypes& types = policy_types();
  for (std::size_t i = 0; i < types.size(); ++i)
    if (types[i].name == config.type()) return kEntries[i];
  throw InternalError("a configuration of a policy that is not registered: " + config.type());
}

processor::PolicyProcessorSettings settings_of(
    const config::PolicyConfig& config, const std::map<std::string, std::string>& rename_map) {
  processor::PolicyProcessorSettings settings;
  settings.input_features = config.input_features;
  settings.output_features = config.output_features;
  settings.normalization = entry_of(config).normalization(config);
  settings.device = config.device.value_or("cpu");
  settings.rename_map = rename_map;
  return settings;
}

/// The parameter's own name: torch.compile puts its wrapper's into those of what it has compiled.
std::string plain_name(std::string name) {
  constexpr std::string_view kWrapper = "._orig_mod";
  for (auto at = name.find(kWrapper); at != name.npos; at = name.find(kWrapper))
    name.erase(at, kWrapper.size());
  return name;
}

std::string shape_text(const at::Tensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.sizes(), ", "));
}

}  // namespace

const config::PolicyTypes& policy_types() {
  static const config::PolicyTypes types = [] {
    config::PolicyTypes all;
    for (const Entry& entry : kEntries) all.push_back(entry.type());
    return all;
  }();
  return types;
}

std::unique_ptr<Policy> make_policy(const config::PolicyConfig& config,
                                    bool load_pretrained_backbone) {
  std::unique_ptr<Policy> policy = entry_of(config).make(config, load_pretrained_backbone);
  if (config.device) policy->module().to(processor::device_of(*config.device));
  return policy;
}

void load_policy_weights(Policy& policy, const std::filesystem::path& path) {
  const serialization::SafetensorsFile file(path);
  const nn::NamedTensors wanted = policy.module().state_dict();
  std::map<std::string, std::string, std::less<>> saved_names;  // plain name -> in the file
  for (const std::string& name : file.names()) saved_names.emplace(plain_name(name), name);
  std::vector<std::string> missing;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;  // from, to
  std::map<std::string, at::Tensor, std::less<>> known;
  for (const auto& [name, tensor] : wanted) {
    known.emplace(name, tensor);
    const auto found = saved_names.find(name);
    if (found == saved_names.end()) {
      missing.push_back(name);
      continue;
    }
    at::Tensor saved = file.view(found->second);
    if (saved.sizes() != tensor.sizes())
      fail("{}: tensor {} has shape {}, but this policy's configuration needs {}", path.string(),
           name, shape_text(saved), shape_text(tensor));
    copies.emplace_back(std::move(saved), tensor);
  }
  std::vector<std::string> unexpected;
  for (const auto& [name, saved_name] : saved_names)
    if (!known.contains(name)) unexpected.push_back(saved_name);
  if (copies.empty() && !wanted.empty())
    fail("{}: holds none of the policy's {} tensors (its first is {})", path.string(),
         wanted.size(), file.names().empty() ? "absent: the file is empty" : file.names().front());
  if (!missing.empty())
    log::warning("{}: lacks {} of the policy's tensors, which keep their initial values: {}",
                 path.string(), missing.size(), fmt::join(missing, ", "));
  if (!unexpected.empty())
    log::warning("{}: holds {} tensors that the policy does not have: {}", path.string(),
                 unexpected.size(), fmt::join(unexpected, ", "));
  c10::AutoGradMode no_grad(false);
  for (auto& [from, to] : copies) to.copy_(from);
}

processor::PolicyProcessors make_processors(const config::PolicyConfig& config,
                                            const dataset::DatasetStats& statistics) {
  return processor::make_policy_processors(settings_of(config, {}), statistics);
}

processor::PolicyProcessors load_processors(const config::PolicyConfig& config,
                                            const std::filesystem::path& directory,
                                            const std::map<std::string, std::string>& rename_map,
                                            const dataset::DatasetStats* new_statistics) {
  return processor::load_policy_processors(directory, settings_of(config, rename_map),
                                           new_statistics);
}

}  // namespace lerobot::policy
