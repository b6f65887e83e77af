// The policies that --policy.type can name, as configuration sees them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lerobot/base/json.h"
#include "lerobot/config/policy_config.h"

namespace lerobot::config {

class Reader;
struct Option;
struct Problem;

/// One policy type: policy/registry.h holds the list, made with policy_type<T>() of
/// config/reflection.h for every configuration struct T that Boost.Describe describes. The
/// functions expect a PolicyConfig of exactly this type.
struct PolicyType {
  std::string name;
  std::unique_ptr<PolicyConfig> (*make)();
  /// Reads the fields of a config.json object; `type` itself must have been taken out.
  void (*read)(Reader& reader, const Json& fields, PolicyConfig& config);
  /// The fields in LeRobot's order, without `type`.
  Json (*write)(const PolicyConfig& config);
  /// Appends one Option a field, named `prefix` + "." + field.
  void (*describe)(std::vector<Option>& options, const std::string& prefix);
  /// Appends the values that are out of range.
  void (*check)(std::vector<Problem>& problems, const std::string& prefix,
                const PolicyConfig& config);
};
using PolicyTypes = std::vector<PolicyType>;

/// The type of that name; null when there is none.
const PolicyType* find_policy_type(const PolicyTypes& policies, const std::string& name);

}  // namespace lerobot::config
