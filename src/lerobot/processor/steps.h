// The steps of a pipeline that change names, shapes and places of tensors, not their values.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "lerobot/dataset/batch.h"
#include "lerobot/processor/pipeline.h"

namespace lerobot::processor {

/// The device that --policy.device names ("cpu", "cuda", "cuda:1"). Throws Error naming the text.
at::Device device_of(const std::string& name);

/// Renames observations: old key to new key. Throws Error when two would get one name.
class RenameStep final : public Step {
 public:
  static constexpr std::string_view kName = "rename_observations_processor";
  explicit RenameStep(std::map<std::string, std::string> names) : names_(std::move(names)) {}

  std::string name() const override { return std::string(kName); }
  Json config() const override;
  void apply(dataset::Batch& batch) const override;

 private:
  std::map<std::string, std::string> names_;
};

/// Gives single items a batch dimension: state vectors, images, indices.
class ToBatchStep final : public Step {
 public:
  static constexpr std::string_view kName = "to_batch_processor";

  std::string name() const override { return std::string(kName); }
  Json config() const override { return Json::object(); }
  void apply(dataset::Batch& batch) const override;
};

/// Moves all tensors to a device and, if asked to, casts those of floating type.
class DeviceStep final : public Step {
 public:
  static constexpr std::string_view kName = "device_processor";
  /// Throws Error for an unknown device or type ("float32", "bfloat16", ...).
  DeviceStep(const std::string& device, std::optional<std::string> float_type);

  std::string name() const override { return std::string(kName); }
  /// The device without its number, as LeRobot writes it.
  Json config() const override;
  /// Tensors that lie on some GPU already stay there when the device is a GPU.
  void apply(dataset::Batch& batch) const override;

 private:
  at::Device device_;
  std::optional<std::string> float_type_;
  std::optional<at::ScalarType> type_;
};

}  // namespace lerobot::processor
