#include "lerobot/distributed/wrap_units.h"

#include <algorithm>
#include <functional>
#include <map>
#include <regex>
#include <set>

#include <fmt/ranges.h>

#include "lerobot/base/error.h"
#include "lerobot/nn/lora.h"

namespace lerobot::distributed {
namespace {

using NamedModules = std::vector<std::pair<std::string, nn::Module*>>;

std::string joined(const std::string& module, const std::string& parameter) {
  return module.empty() ? parameter : module + "." + parameter;
}

bool lies_below(const std::string& name, const std::string& ancestor) {
  return name.size() > ancestor.size() && name.starts_with(ancestor) &&
         name[ancestor.size()] == '.';
}

std::int64_t parameter_count(const nn::Module& module) {
  std::set<const void*> seen;
  std::int64_t count = 0;
  for (const auto& [name, parameter] : module.named_parameters())
    if (seen.insert(parameter.unsafeGetTensorImpl()).second) count += parameter.numel();
  return count;
}

std::set<std::string> units_by_class(const NamedModules& modules,
                                     const std::vector<std::string>& classes) {
  std::set<std::string> units;
  for (const std::string& wanted : classes) {
    std::set<std::string> classes_there;
    bool found = false;
    for (const auto& [name, module] : modules) {
      if (module->is_callable()) classes_there.insert(module->class_name());
      if (module->class_name() != wanted) continue;
      if (!module->is_callable())
        fail(
            "--accelerator.fsdp.wrap_modules: {} ({}) only holds other modules and is never called "
            "itself, so it cannot be gathered as a unit; name the class of what it holds",
            wanted, name.empty() ? "the whole policy" : name);
      found = true;
      if (!name.empty()) units.insert(name);
    }
    if (!found)
      fail(
          "--accelerator.fsdp.wrap_modules: could not find the class {} in the model, which has "
          "{}; pass a list such as '[\"{}\"]'",
          wanted, fmt::join(classes_there, ", "), *classes_there.rbegin());
  }
  return units;
}

std::set<std::string> units_by_size(const NamedModules& modules, std::int64_t min_num_params) {
  std::set<std::string> units;
  std::int64_t largest = 0;
  for (const auto& [name, module] : modules) {
    if (name.empty() || !module->is_callable()) continue;
    const std::int64_t count = parameter_count(*module);
    largest = std::max(largest, count);
    if (count > min_num_params) units.insert(name);
  }
  if (units.empty())
    fail(
        "--accelerator.fsdp.min_num_params={}: no part of the model has more parameters; the "
        "largest one has {}",
        min_num_params, largest);
  return units;
}

std::set<std::string> unit_names(const NamedModules& modules,
                                 const std::vector<std::string>& declared,
                                 const config::FsdpConfig& options) {
  if (options.wrap_modules) return units_by_class(modules, *options.wrap_modules);
  if (options.min_num_params) return units_by_size(modules, *options.min_num_params);
  if (declared.empty())
    fail(
        "this policy does not declare which of its modules sharded training gathers one at a time; "
        "name their classes with --accelerator.fsdp.wrap_modules='[\"MyTransformerBlock\"]' or "
        "pass --accelerator.fsdp.min_num_params=1000000");
  // A policy declares classes that a configuration may leave out (ACT without its encoders).
  std::vector<std::string> present;
  for (const std::string& name : declared)
    if (std::any_of(modules.begin(), modules.end(),
                    [&](const auto& entry) { return entry.second->class_name() == name; }))
      present.push_back(name);
  if (present.empty())
    fail("none of the classes {} that this policy declares as units occurs in the model",
         fmt::join(declared, ", "));
  return units_by_class(modules, present);
}

/// An adapter's matrices are part of the layer that has them, which may use their weights without
/// calling them (attention).
void leave_adapters_in_their_layers(std::set<std::string>& units, const NamedModules& modules) {
  for (const auto& [name, module] : modules) {
    const auto* layer = dynamic_cast<const nn::LoraLayer*>(module);
    if (layer == nullptr || !layer->has_lora()) continue;
    const std::string matrices = joined(name, "lora_");
    std::erase_if(units, [&](const std::string& unit) { return unit.starts_with(matrices); });
  }
}

/// Names of the modules that stay whole.
std::set<std::string> ignored_names(const NamedModules& modules,
                                    const std::optional<std::string>& pattern) {
  std::set<std::string> ignored;
  if (!pattern) return ignored;
  std::regex expression;
  try {
    expression = std::regex(*pattern);
  } catch (const std::regex_error& error) {
    fail(
        "--accelerator.fsdp.ignored_modules={} is not a regular expression ({}); it must match a "
        "module's whole name, and what glob patterns write as * is .* here, such as .*{}",
        *pattern, error.what(), modules.back().first);
  }
  for (const auto& [name, module] : modules)
    if (!name.empty() && std::regex_match(name, expression)) ignored.insert(name);
  if (ignored.empty())
    fail(
        "--accelerator.fsdp.ignored_modules={} matches no module; it must match a whole name such "
        "as {}",
        *pattern, modules.back().first);
  return ignored;
}

/// The longest name of `units` that is `module` or lies above it; "" for the root.
std::string owner_of(const std::string& module, const std::set<std::string>& units) {
  std::string name = module;
  while (!name.empty() && !units.contains(name)) {
    const auto dot = name.rfind('.');
    name = dot == std::string::npos ? "" : name.substr(0, dot);
  }
  return name;
}

bool is_ignored(const std::string& module, const std::set<std::string>& ignored) {
  return std::any_of(ignored.begin(), ignored.end(), [&](const std::string& name) {
    return module == name || lies_below(module, name);
  });
}

void check_one_type(const WrapUnit& unit) {
  const UnitParameter* first = nullptr;
  for (const UnitParameter& parameter : unit.parameters) {
    if (!parameter.tensor.requires_grad()) continue;
    if (first == nullptr) first = &parameter;
    if (parameter.tensor.scalar_type() != first->tensor.scalar_type())
      fail(
          "the trainable parameters {} ({}) and {} ({}) of one unit have different types, which "
          "sharded training cannot reduce together; use --accelerator.mixed_precision=bf16, under "
          "which every trainable parameter is float32",
          first->names.front(), at::toString(first->tensor.scalar_type()), parameter.names.front(),
          at::toString(parameter.tensor.scalar_type()));
  }
}

}  // namespace

WrapUnits choose_wrap_units(nn::Module& root, const std::vector<std::string>& declared,
                            const config::FsdpConfig& options, bool one_type) {
  const NamedModules modules = root.named_modules();
  std::set<std::string> names = unit_names(modules, declared, options);
  leave_adapters_in_their_layers(names, modules);
  const std::set<std::string> ignored = ignored_names(modules, options.ignored_modules);

  WrapUnits result;
  std::map<std::string, std::size_t> unit_index;
  for (const auto& [name, module] : modules) {
    if (!name.empty() && (!names.contains(name) || is_ignored(name, ignored))) continue;
    unit_index.emplace(name, result.units.size());
    result.units.push_back({.name = name, .module = module, .parameters = {}});
  }

  struct Place {
    std::vector<UnitParameter>* list;
    std::size_t position;
    std::string where;
  };
  std::map<const void*, Place> places;
  const auto describe = [](const std::string& unit) {
    return unit.empty() ? std::string("the root unit") : "unit " + unit;
  };
  for (const auto& [module_name, module] : modules) {
    const bool module_is_ignored = is_ignored(module_name, ignored);
    const std::string owner = module_is_ignored ? "" : owner_of(module_name, names);
    for (const auto& [parameter_name, tensor] : module->own_parameters()) {
      const bool whole = module_is_ignored || tensor.dim() == 0;
      auto& list = whole ? result.whole : result.units[unit_index.at(owner)].parameters;
      const std::string where = whole ? "the parameters that stay whole" : describe(owner);
      const std::string name = joined(module_name, parameter_name);
      const auto [entry, is_new] =
          places.try_emplace(tensor.unsafeGetTensorImpl(), Place{&list, list.size(), where});
      const Place& place = entry->second;
      if (is_new) {
        list.push_back({.names = {name}, .tensor = tensor});
      } else if (place.list == &list) {
        list[place.position].names.push_back(name);
      } else {
        fail(
            "the parameters {} (in {}) and {} (in {}) are tied and cannot be divided in two units; "
            "wrap the class of the repeated block with --accelerator.fsdp.wrap_modules, which "
            "usually keeps both in the root unit",
            (*place.list)[place.position].names.front(), place.where, name, where);
      }
    }
  }
  std::erase_if(result.units,
                [](const WrapUnit& unit) { return !unit.name.empty() && unit.parameters.empty(); });
  if (!one_type) std::for_each(result.units.begin(), result.units.end(), check_one_type);
  return result;
}

}  // namespace lerobot::distributed
