// meta/stats.json.
#pragma once

#include <filesystem>
#include <string_view>

#include "lerobot/dataset/batch.h"
#include "lerobot/dataset/dataset_info.h"

namespace lerobot::dataset {

/// Reads a stats.json; a missing file gives an empty map. Statistics of depth cameras are rescaled
/// from their recorded unit to `depth_output_unit` ("m" or "mm"), the unit of the frames. Values
/// that are not finite are kept: the normaliser refuses those that matter. Throws Error naming the
/// file, feature and statistic on anything that isn't a nested list of numbers.
DatasetStats read_stats(const std::filesystem::path& path, const DatasetInfo& info,
                        std::string_view depth_output_unit);

/// Replaces mean and std of every RGB camera by ImageNet's (shape (3,1,1)), keeping the other
/// statistics: --dataset.use_imagenet_stats.
void use_imagenet_stats(DatasetStats& stats, const DatasetInfo& info);

}  // namespace lerobot::dataset
