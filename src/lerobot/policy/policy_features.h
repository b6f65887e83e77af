// What policies ask of their features: finding them, and checks that they share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lerobot/config/policy_config.h"
#include "lerobot/processor/pipeline.h"

namespace lerobot::policy {

/// Name and description of one feature, as it stands in a FeatureMap.
using Feature = config::FeatureMap::value_type;

/// The first feature of that type and, unless empty, that name; null when there is none.
const Feature* find_feature(const config::FeatureMap& features, config::FeatureType type,
                            std::string_view name = {});
/// The visual features, in the order of the map.
std::vector<const Feature*> find_cameras(const config::FeatureMap& features);

/// Appends a message unless the feature (may be null) is a vector with at least one element.
void require_vector(std::vector<std::string>& problems, const Feature* feature);
/// Appends a message unless the camera has shape [3, height, width] with sizes above 0.
void require_rgb(std::vector<std::string>& problems, const Feature& camera);
/// Appends a message for every key of policy.normalization_mapping that is no type of feature.
void require_known_types(std::vector<std::string>& problems,
                         const processor::NormalizationMap& mapping);

}  // namespace lerobot::policy
