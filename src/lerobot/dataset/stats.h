// meta/stats.json, and what normalisation asks of it.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "lerobot/config/policy_config.h"
#include "lerobot/dataset/batch.h"
#include "lerobot/dataset/dataset_info.h"

namespace lerobot::dataset {

/// Reads a stats.json; a missing file gives an empty map. Statistics of depth cameras are rescaled
/// from their recorded unit to `depth_output_unit` ("m" or "mm"), the unit of the frames. Values
/// that are not finite are kept: require_stats() refuses those that matter. Throws Error naming the
/// file, feature and statistic on anything that isn't a nested list of numbers.
DatasetStats read_stats(const std::filesystem::path& path, const DatasetInfo& info,
                        std::string_view depth_output_unit);

/// Replaces mean and std of every RGB camera by ImageNet's (shape (3,1,1)), keeping the other
/// statistics: --dataset.use_imagenet_stats.
void use_imagenet_stats(DatasetStats& stats, const DatasetInfo& info);

/// How one feature is normalised.
struct NormalizedFeature {
  std::string name;
  config::NormalizationMode mode = config::NormalizationMode::kIdentity;
};

/// Throws Error naming the feature and the statistic when one that its mode needs (MEAN_STD: mean,
/// std; MIN_MAX: min, max; QUANTILES: q01, q99; QUANTILE10: q10, q90) is missing or not finite. To
/// be called before a policy is built. (Shapes are the normaliser's business.)
void require_stats(const DatasetStats& stats, const std::vector<NormalizedFeature>& features);

}  // namespace lerobot::dataset
