#include "lerobot/policy/adapter.h"

#include <algorithm>
#include <cctype>
#include <regex>
#include <set>

#include <fmt/ranges.h>

#include "lerobot/base/error.h"
#include "lerobot/base/log.h"

namespace lerobot::policy {
namespace {

using NamedModules = std::vector<std::pair<std::string, nn::Module*>>;

constexpr std::string_view kAllLinear = "all-linear";
constexpr std::string_view kFullTraining = "modules_to_save.default";
constexpr std::string_view kWrappedPolicy = "base_model.model";

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// Whether `name` is `ending` or ends with it after a dot.
bool is_or_ends_with(const std::string& name, const std::string& ending) {
  return name == ending || name.ends_with("." + ending);
}

/// Whether `part` is `name`, or one of the names between its dots, or some in a row.
bool contains_part(const std::string& name, const std::string& part) {
  return ("." + name + ".").find("." + part + ".") != std::string::npos;
}

std::string last_part(const std::string& name) { return name.substr(name.rfind('.') + 1); }

/// The ends of the names of modules that can have an adapter, for messages.
std::string adaptable_names(const NamedModules& modules) {
  std::set<std::string> ends;
  for (const auto& [name, module] : modules)
    if (dynamic_cast<nn::LoraLayer*>(module) != nullptr) ends.insert(last_part(name));
  return fmt::format("{}", fmt::join(ends, ", "));
}

bool is_linear(const nn::Module& module) {
  return module.class_name() == "Linear" ||
         module.class_name() == "NonDynamicallyQuantizableLinear";
}

// --- Which modules -------------------------------------------------------------------------------

void name_targets(AdapterConfig& config, std::vector<std::string> names) {
  config.document["target_modules"] = names;
  config.target_modules = std::move(names);
}

/// peft replaces "all-linear" by the names that it found.
void resolve_all_linear(AdapterConfig& config, const NamedModules& modules) {
  const auto* pattern = std::get_if<std::string>(&config.target_modules);
  if (pattern == nullptr || lower(*pattern) != kAllLinear) return;
  std::vector<std::string> names;
  for (const auto& [name, module] : modules)
    if (!name.empty() && is_linear(*module)) names.push_back(name);
  name_targets(config, std::move(names));
}

std::regex expression_of(const std::string& pattern) {
  try {
    return std::regex(pattern);
  } catch (const std::regex_error& error) {
    fail(
        "target_modules: \"{}\" is not a regular expression ({}); pass endings of names as a list, "
        "such as '[\"linear1\",\"linear2\"]'",
        pattern, error.what());
  }
}

/// Finds the modules that are to get an adapter, in the order of the tree.
class Targets {
 public:
  explicit Targets(const AdapterConfig& config) : config_(config) {
    if (const auto* pattern = std::get_if<std::string>(&config.target_modules))
      expression_ = expression_of(*pattern);
  }

  bool match(const std::string& name) {
    if (!is_named(name)) return false;
    const auto& full = config_.full_training_modules;
    const bool is_claimed = std::any_of(full.begin(), full.end(), [&](const std::string& module) {
      return contains_part(name, module);
    });
    any_claimed_ |= is_claimed;
    return !is_claimed;
  }

  /// Why nothing matched.
  std::string problem(const NamedModules& modules) const {
    if (any_claimed_)
      return fmt::format("target_modules: what {} names is trained whole by full_training_modules",
                         text());
    return fmt::format("target_modules: {} is not found in the policy, which has {}{}", text(),
                       adaptable_names(modules),
                       expression_ ? "; a text is a regular expression for whole names, endings of "
                                     "names are a list, such as '[\"linear1\"]'"
                                   : "");
  }

  std::vector<std::string> unused() const {
    std::vector<std::string> unused;
    if (const auto* endings = std::get_if<std::vector<std::string>>(&config_.target_modules))
      for (const std::string& ending : *endings)
        if (!used_.contains(ending)) unused.push_back(ending);
    return unused;
  }

  std::string text() const { return config_.document.value("target_modules", Json()).dump(); }

 private:
  bool is_named(const std::string& name) {
    if (expression_) return std::regex_match(name, *expression_);
    bool found = false;
    for (const std::string& ending : std::get<std::vector<std::string>>(config_.target_modules)) {
      if (!is_or_ends_with(name, ending)) continue;
      used_.insert(ending);
      found = true;
    }
    return found;
  }

  const AdapterConfig& config_;
  std::optional<std::regex> expression_;
  std::set<std::string> used_;
  bool any_claimed_ = false;
};

/// Names that the user has just written are a mistake; those of a file may be another version's.
void report_unknown_names(const std::string& problem, bool is_new) {
  if (is_new) fail("--peft.{}", problem);
  log::warning("{}", problem);
}

nn::LoraLayer& adaptable(const std::string& name, nn::Module& module) {
  if (auto* layer = dynamic_cast<nn::LoraLayer*>(&module)) return *layer;
  fail(
      "target_modules: {} is of the class {}, which cannot have an adapter; Linear, Conv1d, Conv2d "
      "and MultiheadAttention can. Name it in full_training_modules to train it whole",
      name, module.class_name());
}

std::vector<std::pair<std::string, nn::LoraLayer*>> find_targets(const AdapterConfig& config,
                                                                 const NamedModules& modules,
                                                                 bool is_new) {
  std::vector<std::pair<std::string, nn::LoraLayer*>> found;
  Targets targets(config);
  std::string attention;  // the last one that gets an adapter
  for (const auto& [name, module] : modules) {
    if (name.empty() || !targets.match(name)) continue;
    if (!attention.empty() && name.starts_with(attention + "."))
      fail("target_modules: {} is part of {}, whose adapter takes it in; name one of them only",
           name, attention);
    found.emplace_back(name, &adaptable(name, *module));
    if (module->class_name() == "MultiheadAttention") attention = name;
  }
  if (found.empty()) fail("{}", targets.problem(modules));
  if (const auto unused = targets.unused(); !unused.empty())
    report_unknown_names(fmt::format("target_modules: the policy has no {}; it has {}",
                                     fmt::join(unused, ", "), adaptable_names(modules)),
                         is_new);
  return found;
}

/// Output projections of attention that are targeted on their own.
void check_idle_targets(const std::vector<std::pair<std::string, nn::LoraLayer*>>& targets,
                        const NamedModules& full) {
  const auto is_idle = [](const auto& target) {
    const auto* module = dynamic_cast<const nn::Module*>(target.second);
    return module->class_name() == "NonDynamicallyQuantizableLinear";
  };
  const auto idle = std::find_if(targets.begin(), targets.end(), is_idle);
  if (idle == targets.end()) return;
  const std::string attention = idle->first.substr(0, idle->first.rfind('.'));
  const std::string problem = fmt::format(
      "the adapter of {} has no effect, in peft neither: attention uses that weight without "
      "calling the layer. Target {} to adapt attention",
      idle->first, last_part(attention));
  if (full.empty() && std::all_of(targets.begin(), targets.end(), is_idle))
    fail("target_modules: {}", problem);
  log::warning("{}", problem);
}

/// Modules that are trained as they are: the outermost ones whose names end so.
NamedModules find_full_training(const AdapterConfig& config, const NamedModules& modules,
                                bool is_new) {
  NamedModules found;
  std::set<std::string> used;
  for (const auto& [name, module] : modules) {
    if (name.empty()) continue;
    if (!found.empty() && name.starts_with(found.back().first + ".")) continue;
    for (const std::string& ending : config.full_training_modules) {
      if (!name.ends_with(ending)) continue;
      used.insert(ending);
      if (module->class_name() == "ModuleList")
        fail(
            "full_training_modules: {} is a list of modules, which peft cannot wrap; name the "
            "modules in it",
            name);
      found.emplace_back(name, module);
      break;
    }
  }
  for (const std::string& ending : config.full_training_modules) {
    if (used.contains(ending)) continue;
    std::set<std::string> ends;
    for (const auto& [name, module] : modules)
      if (!name.empty() && !module->own_parameters().empty()) ends.insert(last_part(name));
    report_unknown_names(
        fmt::format("full_training_modules: no module of the policy is called {}; there are {}",
                    ending, fmt::join(ends, ", ")),
        is_new);
  }
  return found;
}

void set_requires_grad(const nn::Module& module, bool on) {
  for (const auto& [name, parameter] : module.named_parameters()) parameter.set_requires_grad(on);
}

}  // namespace

void adapt(Policy& policy, AdapterConfig& config) {
  nn::Module& root = policy.module();
  const NamedModules modules = root.named_modules();
  const bool is_new = config.is_new;
  resolve_all_linear(config, modules);
  const auto targets = find_targets(config, modules, is_new);
  const NamedModules full = find_full_training(config, modules, is_new);
  for (const auto& [name, layer] : targets)
    for (const auto& [trained, module] : full)
      if (name == trained || name.starts_with(trained + ".") || trained.starts_with(name + "."))
        fail("{} is named by target_modules and by full_training_modules: choose one", name);
  check_idle_targets(targets, full);
  if (is_new && std::holds_alternative<std::string>(config.target_modules)) {
    // An expression may match modules without parameters, too, which peft would refuse.
    std::vector<std::string> names;
    for (const auto& [name, layer] : targets) names.push_back(name);
    name_targets(config, std::move(names));
  }

  set_requires_grad(root, false);
  for (const auto& [name, layer] : targets) layer->add_lora(config.lora);
  for (const auto& [name, module] : full) {
    set_requires_grad(*module, true);
    module->prefix_names(kFullTraining);
  }
  root.prefix_names(kWrappedPolicy);
}

std::optional<std::string> adapter_tensor_name(std::string_view name) {
  const auto without = [&](std::string_view part, std::size_t keep) {
    const std::size_t at = name.find(part);
    std::string shorter(name);
    shorter.erase(at + keep, part.size() - keep - 1);
    return shorter;
  };
  constexpr std::string_view kA = ".lora_A.default.", kB = ".lora_B.default.",
                             kFull = ".modules_to_save.default.";
  for (const std::string_view matrix : {kA, kB})
    if (name.find(matrix) != name.npos) return without(matrix, matrix.find(".default"));
  if (name.find(kFull) != name.npos) return without(kFull, 0);
  return std::nullopt;
}

}  // namespace lerobot::policy
