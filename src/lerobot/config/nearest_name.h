// The name that a typo probably meant.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace lerobot::config {

/// Among `names` (dotted), the one nearest to `name` by edits (insert, drop, change, swap), over
/// the whole name or over the part behind the last dot; "-" counts as "_". Empty when none is near.
std::string nearest_name(std::string_view name, std::span<const std::string> names);

}  // namespace lerobot::config
