#include "lerobot/dataset/stats.h"

#include <cmath>
#include <string>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "lerobot/base/json.h"
#include "lerobot/base/log.h"

namespace lerobot::dataset {
namespace {

constexpr double kMillimetresPerMetre = 1000.0;
constexpr std::size_t kMaximumDimensions = 5;

/// The numbers of a nested list with its shape; a bare number has shape {1}, as numpy's atleast_1d.
struct NestedNumbers {
  std::vector<std::int64_t> shape;
  std::vector<double> values;
};

void flatten(const Json& value, std::size_t depth, NestedNumbers& out, const std::string& where) {
  if (value.is_array()) {
    if (depth >= kMaximumDimensions) fail("{}: is nested too deeply", where);
    const auto length = static_cast<std::int64_t>(value.size());
    if (out.shape.size() == depth) {
      if (!out.values.empty()) fail("{}: mixes numbers and lists", where);
      out.shape.push_back(length);
    } else if (out.shape[depth] != length) {
      fail("{}: has lists of {} and of {} elements side by side", where, out.shape[depth], length);
    }
    for (const Json& child : value) flatten(child, depth + 1, out, where);
    return;
  }
  if (depth != out.shape.size()) fail("{}: mixes numbers and lists", where);
  if (value.is_boolean()) {
    out.values.push_back(value.get<bool>() ? 1.0 : 0.0);
  } else if (value.is_number()) {
    out.values.push_back(value.get<double>());
  } else {
    fail("{}: expected numbers, found {}", where, to_python_json(value, -1, false));
  }
}

/// What converts a depth camera's statistics to the unit of its frames.
double depth_factor(const Feature* feature, std::string_view output_unit) {
  if (!feature || !feature->is_depth || !feature->depth_unit || *feature->depth_unit == output_unit)
    return 1.0;
  return *feature->depth_unit == "m" ? kMillimetresPerMetre : 1.0 / kMillimetresPerMetre;
}

void warn_unknown_depth_units(const DatasetInfo& info, std::string_view output_unit) {
  for (const Feature& feature : info.features)
    if (feature.is_depth && !feature.depth_unit)
      log::warning(
          "depth camera \"{}\" has no depth_unit in info.json: its statistics{} are taken as they "
          "are, without conversion to {}",
          feature.name, feature.type == ValueType::kImage ? " and images" : "", output_unit);
}

}  // namespace

DatasetStats read_stats(const std::filesystem::path& path, const DatasetInfo& info,
                        std::string_view depth_output_unit) {
  DatasetStats stats;
  warn_unknown_depth_units(info, depth_output_unit);
  if (!std::filesystem::exists(path)) return stats;
  if (is_git_lfs_pointer(path))
    fail("{}: is a Git LFS pointer; fetch the dataset's files with `git lfs pull`", path.string());
  const Json json = read_json_file(path);
  if (!json.is_object()) fail("{}: must hold an object of features", path.string());
  for (const auto& [name, statistics] : json.items()) {
    if (!statistics.is_object())
      fail("{}: feature \"{}\": must be an object of statistics", path.string(), name);
    const double factor = depth_factor(info.find(name), depth_output_unit);
    FeatureStats& feature_stats = stats[name];
    for (const auto& [statistic, value] : statistics.items()) {
      const std::string where =
          fmt::format("{}: feature \"{}\", statistic \"{}\"", path.string(), name, statistic);
      NestedNumbers numbers;
      flatten(value, 0, numbers, where);
      if (numbers.shape.empty()) numbers.shape.push_back(1);
      at::Tensor tensor = at::empty(numbers.shape, at::kFloat);
      if (static_cast<std::size_t>(tensor.numel()) != numbers.values.size())
        fail("{}: lists differ in length", where);
      float* out = tensor.mutable_data_ptr<float>();
      for (double number : numbers.values)
        *out++ = static_cast<float>(statistic == "count" ? number : number * factor);
      feature_stats.emplace(statistic, std::move(tensor));
    }
  }
  return stats;
}

void use_imagenet_stats(DatasetStats& stats, const DatasetInfo& info) {
  for (const Feature& feature : info.features) {
    if (!feature.is_camera() || feature.is_depth) continue;
    FeatureStats& of_camera = stats[feature.name];
    of_camera["mean"] = at::tensor({0.485f, 0.456f, 0.406f}).view({3, 1, 1});
    of_camera["std"] = at::tensor({0.229f, 0.224f, 0.225f}).view({3, 1, 1});
  }
}

}  // namespace lerobot::dataset
