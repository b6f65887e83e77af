#include "lerobot/policy/policy_features.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lerobot::policy {

using config::FeatureType;

const Feature* find_feature(const config::FeatureMap& features, FeatureType type,
                            std::string_view name) {
  for (const auto& feature : features)
    if (feature.second.type == type && (name.empty() || feature.first == name)) return &feature;
  return nullptr;
}

std::vector<const Feature*> find_cameras(const config::FeatureMap& features) {
  std::vector<const Feature*> cameras;
  for (const auto& feature : features)
    if (feature.second.type == FeatureType::kVisual) cameras.push_back(&feature);
  return cameras;
}

void require_vector(std::vector<std::string>& problems, const Feature* feature) {
  if (feature && (feature->second.shape.size() != 1 || feature->second.shape[0] <= 0))
    problems.push_back(fmt::format("policy features: {} must be a vector, found shape [{}]",
                                   feature->first, fmt::join(feature->second.shape, ", ")));
}

void require_rgb(std::vector<std::string>& problems, const Feature& camera) {
  const auto& shape = camera.second.shape;
  if (shape.size() != 3 || shape[0] != 3 || shape[1] <= 0 || shape[2] <= 0)
    problems.push_back(fmt::format(
        "policy.input_features: camera {} must have 3 channels (shape [3, height, width]), found "
        "[{}]",
        camera.first, fmt::join(shape, ", ")));
}

void require_known_types(std::vector<std::string>& problems,
                         const processor::NormalizationMap& mapping) {
  std::vector<std::string_view> known;
  for (const auto& [type, name] : config::enum_names(FeatureType{})) known.push_back(name);
  for (const auto& [type, mode] : mapping)
    if (std::find(known.begin(), known.end(), type) == known.end())
      problems.push_back(
          fmt::format("policy.normalization_mapping: unknown feature type {} (known: {})", type,
                      fmt::join(known, ", ")));
}

}  // namespace lerobot::policy
