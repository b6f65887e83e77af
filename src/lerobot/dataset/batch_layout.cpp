#include "lerobot/dataset/batch_layout.h"

#include <algorithm>
#include <cstring>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "lerobot/base/checked.h"
#include "lerobot/base/error.h"
#include "lerobot/dataset/camera_reader.h"
#include "lerobot/dataset/windows.h"

namespace lerobot::dataset {
namespace {

at::ScalarType tensor_type(ValueType type) {
  switch (type) {
    case ValueType::kInt64:
      return at::kLong;
    case ValueType::kBool:
      return at::kBool;
    default:
      return at::kFloat;
  }
}

}  // namespace

/// What allocate() and the fill functions do, worked out once. Columns are numbers into
/// FrameTable::columns().
struct BatchLayout::Plan {
  /// One tensor of a batch.
  struct Output {
    std::string key;
    at::ScalarType type;
    std::vector<std::int64_t> row_shape;
    std::int64_t row_bytes = 0;
  };
  /// A column that becomes a tensor.
  struct Value {
    std::size_t column;
    std::vector<std::int64_t> deltas;  // empty: the sample's frame, without a time axis
    std::size_t output;
  };
  struct Text {
    std::size_t column;
    std::string key;
  };
  struct Camera {
    CameraReader reader;
    std::optional<std::size_t> video;
    std::vector<std::int64_t> deltas;  // {0} without a window
    std::size_t output;
    std::vector<std::int64_t> row_shape;
  };
  struct Mask {
    std::vector<std::int64_t> deltas;
    std::size_t output;
  };

  std::shared_ptr<const DatasetMetadata> metadata;
  std::vector<Output> outputs;
  std::vector<Value> values;
  std::vector<Text> texts;
  std::vector<Camera> cameras;
  std::vector<Mask> masks;
  std::size_t index_output = 0;
  std::size_t episode_index_output = 0;
  std::size_t task_index_column = 0;

  std::size_t add_output(const std::string& key, at::ScalarType type,
                         std::vector<std::int64_t> row_shape) {
    std::int64_t bytes = static_cast<std::int64_t>(c10::elementSize(type));
    for (std::int64_t side : row_shape) bytes = checked_mul(bytes, side, key + ": bytes of a row");
    outputs.push_back({key, type, std::move(row_shape), bytes});
    return outputs.size() - 1;
  }

  std::uint8_t* row(const BatchBuffer& buffer, std::size_t output, std::int64_t number) const {
    return buffer.data_[output] + number * outputs[output].row_bytes;
  }

  void build(const config::DeltaIndices& windows, double tolerance_s);
  void add_camera(const Feature& feature, std::optional<std::size_t> video,
                  const std::vector<std::int64_t>& deltas, double tolerance_s);
};

void BatchLayout::Plan::add_camera(const Feature& feature, std::optional<std::size_t> video,
                                   const std::vector<std::int64_t>& deltas, double tolerance_s) {
  std::vector<std::int64_t> shape = feature.sample_shape();
  // LeRobot drops the time axis of a video's window of one frame, and only of a video's.
  const bool has_time_axis = video ? deltas.size() > 1 : !deltas.empty();
  if (has_time_axis) shape.insert(shape.begin(), static_cast<std::int64_t>(deltas.size()));
  const std::size_t output =
      add_output(feature.name, feature.is_depth ? at::kFloat : at::kByte, shape);
  cameras.push_back({CameraReader(*metadata, feature, video, tolerance_s), video,
                     deltas.empty() ? std::vector<std::int64_t>{0} : deltas, output, shape});
}

void BatchLayout::Plan::build(const config::DeltaIndices& delta_indices, double tolerance_s) {
  const DatasetInfo& info = metadata->info();
  const std::vector<Window> windows = resolve_windows(info, delta_indices);
  const auto column = [&](const std::string& name) {
    return FrameTable::column_number(info, name);
  };
  task_index_column = column("task_index");
  std::size_t videos = 0;
  for (const Feature& feature : info.features) {
    const auto window = std::find_if(windows.begin(), windows.end(), [&](const Window& candidate) {
      return candidate.key == feature.name;
    });
    const auto deltas = window == windows.end() ? std::vector<std::int64_t>() : window->deltas;
    if (!deltas.empty())
      masks.push_back({deltas, add_output(feature.name + "_is_pad", at::kBool,
                                          {static_cast<std::int64_t>(deltas.size())})});
    if (feature.type == ValueType::kVideo) {
      add_camera(feature, videos++, deltas, tolerance_s);
    } else if (feature.type == ValueType::kImage) {
      add_camera(feature, std::nullopt, deltas, tolerance_s);
    } else if (feature.type == ValueType::kString) {
      texts.push_back({column(feature.name), feature.name});
    } else if (feature.name == "index") {
      index_output = add_output(feature.name, at::kLong, {});
    } else if (feature.name == "episode_index") {
      episode_index_output = add_output(feature.name, at::kLong, {});
    } else {
      std::vector<std::int64_t> shape = feature.sample_shape();
      if (!deltas.empty()) shape.insert(shape.begin(), static_cast<std::int64_t>(deltas.size()));
      values.push_back({column(feature.name), deltas,
                        add_output(feature.name, tensor_type(feature.type), shape)});
    }
  }
}

bool BatchBuffer::is_unshared() const {
  for (const auto& [key, tensor] : batch.tensors)
    if (tensor.use_count() != 1 || tensor.storage().use_count() != 1) return false;
  return true;
}

Batch BatchBuffer::first_rows(std::int64_t rows) const {
  Batch result = batch;
  if (rows == result.size()) return result;
  for (auto& [key, tensor] : result.tensors) tensor = tensor.narrow(0, 0, rows);
  const auto size = static_cast<std::size_t>(rows);
  result.task.resize(size);
  for (auto& [key, texts] : result.strings) texts.resize(size);
  result.frame_index.resize(size);
  return result;
}

BatchLayout::BatchLayout(std::shared_ptr<const DatasetMetadata> metadata,
                         const config::DeltaIndices& windows, double tolerance_s)
    : plan_(std::make_unique<Plan>()) {
  plan_->metadata = std::move(metadata);
  plan_->build(windows, tolerance_s);
}

BatchLayout::~BatchLayout() = default;

std::unique_ptr<BatchBuffer> BatchLayout::allocate(std::int64_t rows, bool pinned) const {
  auto buffer = std::make_unique<BatchBuffer>();
  buffer->capacity = rows;
  for (const Plan::Output& output : plan_->outputs) {
    std::vector<std::int64_t> shape = output.row_shape;
    shape.insert(shape.begin(), rows);
    at::Tensor tensor =
        at::empty(shape, at::TensorOptions().dtype(output.type).pinned_memory(pinned));
    buffer->data_.push_back(static_cast<std::uint8_t*>(tensor.mutable_data_ptr()));
    buffer->batch.tensors.emplace(output.key, std::move(tensor));
  }
  const auto size = static_cast<std::size_t>(rows);
  buffer->batch.task.resize(size);
  buffer->batch.frame_index.resize(size);
  for (const Plan::Text& text : plan_->texts) {
    auto& values = buffer->batch.strings[text.key];
    values.resize(size);
    buffer->texts_.push_back(&values);
  }
  return buffer;
}

std::size_t BatchLayout::cameras() const { return plan_->cameras.size(); }

const std::string& BatchLayout::camera_name(std::size_t camera) const {
  return plan_->cameras[camera].reader.feature().name;
}

bool BatchLayout::camera_is_rgb(std::size_t camera) const {
  return plan_->cameras[camera].reader.is_rgb();
}

std::optional<std::size_t> BatchLayout::video_of_camera(std::size_t camera) const {
  return plan_->cameras[camera].video;
}

void BatchLayout::fill_values(const FrameTable& table, const FrameTable::Run& run,
                              std::int64_t frame, std::int64_t row, BatchBuffer& buffer) const {
  const Plan& plan = *plan_;
  const std::int64_t position = run.position_of(frame);
  for (const Plan::Value& value : plan.values) {
    const FrameColumn& column = table.columns()[value.column];
    const auto bytes = static_cast<std::size_t>(column.row_bytes());
    std::uint8_t* out = plan.row(buffer, value.output, row);
    if (value.deltas.empty()) std::memcpy(out, column.row_data(position), bytes);
    for (std::int64_t delta : value.deltas) {
      const WindowStep step = window_step(frame, delta, run.from, run.to);
      std::memcpy(out, column.row_data(run.position_of(step.frame)), bytes);
      out += bytes;
    }
  }
  for (const Plan::Mask& mask : plan.masks) {
    std::uint8_t* out = plan.row(buffer, mask.output, row);
    for (std::int64_t delta : mask.deltas)
      *out++ = window_step(frame, delta, run.from, run.to).is_pad ? 1 : 0;
  }
  std::memcpy(plan.row(buffer, plan.index_output, row), &frame, sizeof frame);
  std::memcpy(plan.row(buffer, plan.episode_index_output, row), &run.episode, sizeof run.episode);

  const auto at = static_cast<std::size_t>(row);
  for (std::size_t i = 0; i < plan.texts.size(); ++i)
    (*buffer.texts_[i])[at] = table.columns()[plan.texts[i].column].text(position);
  buffer.batch.frame_index[at] = frame;
  const auto task =
      table.columns()[plan.task_index_column].integers()[static_cast<std::size_t>(position)];
  buffer.batch.task[at] = *plan.metadata->tasks().find(task);  // FrameTable checked it
}

void BatchLayout::fill_camera(std::size_t camera, const FrameTable& table,
                              const FrameTable::Run& run, std::int64_t frame,
                              const std::shared_ptr<const video::PacketSource>& video,
                              std::int64_t row, BatchBuffer& buffer,
                              video::DecoderCache& decoders) const {
  const Plan::Camera& plan = plan_->cameras[camera];
  thread_local std::vector<std::int64_t> frames;
  frames.clear();
  for (std::int64_t delta : plan.deltas)
    frames.push_back(window_step(frame, delta, run.from, run.to).frame);
  std::uint8_t* out = plan_->row(buffer, plan.output, row);
  plan.reader.read(table, run, frames, out, video, decoders);
}

at::Tensor BatchLayout::camera_row(std::size_t camera, std::int64_t row,
                                   BatchBuffer& buffer) const {
  const Plan::Camera& plan = plan_->cameras[camera];
  return at::from_blob(plan_->row(buffer, plan.output, row), plan.row_shape,
                       at::TensorOptions().dtype(plan_->outputs[plan.output].type));
}

BatchBuffers::BatchBuffers(const BatchLayout& layout, std::int64_t rows, bool pinned,
                           std::size_t kept)
    : layout_(layout), rows_(rows), pinned_(pinned), kept_(kept) {}

std::unique_ptr<BatchBuffer> BatchBuffers::take() {
  const auto free = std::find_if(delivered_.begin(), delivered_.end(),
                                 [](const auto& buffer) { return buffer->is_unshared(); });
  if (free == delivered_.end()) return layout_.allocate(rows_, pinned_);
  auto buffer = std::move(*free);
  delivered_.erase(free);
  return buffer;
}

Batch BatchBuffers::deliver(std::unique_ptr<BatchBuffer> buffer, std::int64_t rows) {
  Batch batch = buffer->first_rows(rows);
  if (pinned_) return batch;
  delivered_.push_back(std::move(buffer));
  // A consumer that keeps its batches gets memory of its own for each.
  if (delivered_.size() > kept_) delivered_.erase(delivered_.begin());
  return batch;
}

}  // namespace lerobot::dataset
