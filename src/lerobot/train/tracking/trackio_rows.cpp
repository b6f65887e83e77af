#include "lerobot/train/tracking/trackio_rows.h"

#include <array>
#include <cmath>
#include <ctime>
#include <random>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace lerobot::train {
namespace {

/// metrics.jsonl has the names of the log line, LeRobot's loggers those of its fields.
constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kLoggedNames = {{
    {"step", "steps"},
    {"grdn", "grad_norm"},
    {"data_s", "dataloading_s"},
    {"prep_s", "preprocessing_s"},
    {"updt_s", "update_s"},
    {"mem_gb", "gpu_mem_gb"},
}};

std::string_view logged_name(std::string_view name) {
  for (const auto& [ours, theirs] : kLoggedNames)
    if (name == ours) return theirs;
  return name;
}

Json with_finite_numbers(const Json& value) {
  if (value.is_structured()) {
    Json out = value;
    for (auto& child : out) child = with_finite_numbers(child);
    return out;
  }
  if (!value.is_number_float()) return value;
  const double number = value.get<double>();
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
  return value;
}

std::string group_of(const config::TrainConfig& config) {
  return fmt::format("policy:{}-seed:{}-dataset:{}", config.policy->type(),
                     config.seed ? std::to_string(*config.seed) : "None", config.dataset.repo_id);
}

}  // namespace

std::string random_tracking_id() {
  std::random_device random;
  std::string digits =
      fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
  // RFC 9562: the version, and the variant in the two highest bits of its digit.
  constexpr std::size_t kVersion = 12, kVariant = 16;
  digits[kVersion] = '4';
  digits[kVariant] = "89ab"[random() % 4];
  return digits;
}

std::string tracking_timestamp(std::chrono::system_clock::time_point time) {
  using std::chrono::microseconds;
  constexpr std::int64_t kOfSecond = 1'000'000;
  const std::int64_t since =
      std::chrono::duration_cast<microseconds>(time.time_since_epoch()).count();
  const std::time_t seconds = since / kOfSecond;
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}+00:00", utc.tm_year + 1900,
                     utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                     since % kOfSecond);
}

std::string tracked_json(const Json& value) {
  return with_finite_numbers(value).dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json tracked_training_line(const Json& line) {
  Json metrics = Json::object();
  for (const auto& [name, value] : line.items())
    if (value.is_number() || value.is_string() || value.is_boolean())
      metrics[fmt::format("train/{}", logged_name(name))] = value;
  return metrics;
}

Json tracked_config(const config::TrainConfig& config, Json tree, const std::string& created) {
  tree["_Username"] = nullptr;
  tree["_Created"] = created;
  tree["_Group"] = group_of(config);
  return tree;
}

}  // namespace lerobot::train
