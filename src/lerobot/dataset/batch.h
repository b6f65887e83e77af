// What travels from a dataset to a policy.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace lerobot::dataset {

/// B samples, batch dimension first. As loaded: cameras uint8 [B, C, H, W] (or [B, T, C, H, W] with
/// a window of T > 1 frames; depth is float32), vectors [B, n] or [B, T, n], scalars [B], booleans
/// as bool, every floating type as float32, every integer as int64. `<key>_is_pad` [B, T] is true
/// where a window reaches outside its episode.
struct Batch {
  std::map<std::string, at::Tensor, std::less<>> tensors;
  /// Task texts, B of them ("task" in LeRobot's batches).
  std::vector<std::string> task;
  /// Other string columns, B values each.
  std::map<std::string, std::vector<std::string>, std::less<>> strings;
  /// Global frame number ("index") of every sample, in batch order.
  std::vector<std::int64_t> frame_index;

  std::int64_t size() const { return static_cast<std::int64_t>(frame_index.size()); }
  bool contains(std::string_view key) const { return tensors.find(key) != tensors.end(); }
  /// Throws Error naming the key and the keys that are there.
  const at::Tensor& at(std::string_view key) const;
};

/// The statistics of one feature by name: mean, std, min, max, count, q01, q10, q50, q90, q99
/// (float32; cameras (C,1,1), count (1)).
using FeatureStats = std::map<std::string, at::Tensor, std::less<>>;
/// By feature, as in meta/stats.json.
using DatasetStats = std::map<std::string, FeatureStats, std::less<>>;

}  // namespace lerobot::dataset
