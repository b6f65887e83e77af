#include "lerobot/config/reader.h"

#include <algorithm>
#include <initializer_list>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lerobot/config/nearest_name.h"

namespace lerobot::config {
namespace {

/// "CLASS" for a type of LeRobot's that has no counterpart here, "" otherwise.
std::string known_elsewhere(const std::string& option, const Json& found) {
  if (!found.is_string()) return "";
  const auto& name = found.get_ref<const std::string&>();
  const auto is_one_of = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (option == "optimizer.type" && is_one_of({"multi_adam", "xvla-adamw"})) return name;
  if (option == "policy.type" &&
      is_one_of({"act", "diffusion", "eo1", "evo1", "groot", "fastwam", "gaussian_actor",
                 "lingbot_va", "molmoact2", "multi_task_dit", "pi0", "pi0_fast", "pi05", "smolvla",
                 "tdmpc", "vla_jepa", "vqbet", "wall_x", "xvla"}))
    return name;
  return "";
}

}  // namespace

std::string short_json(const Json& value) {
  constexpr std::size_t kLongest = 80;
  std::string text = to_python_json(value, -1, false);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

void Reader::expected(std::string_view what, const Json& found) {
  std::string note;
  if (const std::string name = known_elsewhere(path_, found); !name.empty())
    note = fmt::format(" ({} is not supported yet)", name);
  if (!file_.empty()) {
    add(fmt::format("{}: {}: expected {}, found {}{}", file_, path_, what, short_json(found),
                    note));
  } else if (path_ == text_name_) {
    add(fmt::format("--{}={}: expected {}{}", path_, text_, what, note));
  } else {
    add(fmt::format("--{}={}: expected {} at {}, found {}{}", text_name_, text_, what, path_,
                    short_json(found), note));
  }
}

void Reader::unknown(std::string_view key, const std::vector<std::string>& siblings) {
  const std::string name = path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
  // Inside an object with free keys, names of options mean nothing.
  const bool in_map = path_.find('[') != std::string::npos;
  std::string nearest;
  if (!known_names.empty() && !in_map) {
    nearest = nearest_name(name, known_names);
  } else {
    nearest = nearest_name(key, siblings);
  }
  // An option of another type of optimizer, scheduler or policy.
  const bool elsewhere = nearest == name;
  const std::string_view dashes = file_.empty() ? "--" : "";
  const std::string hint =
      elsewhere ? std::string(" of this type")
      : nearest.empty()
          ? (in_map ? fmt::format("; known: {}", fmt::join(siblings, ", ")) : std::string())
          : fmt::format("; did you mean {}{}?", in_map ? "" : dashes, nearest);
  const auto scope = enter_field(key);
  if (!file_.empty())
    add(fmt::format("{}: {}: unknown option{}", file_, name, hint));
  else if (text_name_ == name)
    add(fmt::format("--{}={}: unknown option{}", name, text_, hint));
  else
    add(fmt::format("--{}={}: unknown option {}{}", text_name_, text_, name, hint));
}

void Reader::problem(std::string_view text) {
  if (file_.empty())
    add(fmt::format("--{}: {}", path_, text));
  else
    add(fmt::format("{}: {}: {}", file_, path_, text));
}

void Reader::add(std::string message) { problems_->push_back({path_, std::move(message)}); }

}  // namespace lerobot::config
