// The policies that --policy.type can name, as configuration sees them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lerobot/config/policy_config.h"

namespace lerobot::config {

/// One policy type: policy/registry.h holds the list, made with policy_type<T>() of
/// config/reflection.h for every configuration struct T that Boost.Describe describes.
struct PolicyType;
using PolicyTypes = std::vector<PolicyType>;

}  // namespace lerobot::config
