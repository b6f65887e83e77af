#include "lerobot/dataset/map_dataset.h"

#include <algorithm>
#include <cstring>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "lerobot/base/checked.h"
#include "lerobot/base/error.h"
#include "lerobot/dataset/camera_reader.h"
#include "lerobot/dataset/frame_table.h"
#include "lerobot/dataset/validation.h"
#include "lerobot/dataset/windows.h"

namespace lerobot::dataset {
namespace {

/// Videos kept mapped and indexed at once. Far below the kernel's limit of 65,530 mappings, and so
/// many that only datasets of tiny files ever reopen one.
constexpr std::size_t kOpenVideos = 4096;

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

/// What allocate() and the fill functions do, worked out once.
struct MapDataset::Plan {
  /// One tensor of a batch.
  struct Output {
    std::string key;
    at::ScalarType type;
    std::vector<std::int64_t> row_shape;
    std::int64_t row_bytes = 0;
  };
  /// A column that becomes a tensor.
  struct Value {
    const FrameColumn* column;
    std::vector<std::int64_t> deltas;  // empty: the sample's frame, without a time axis
    std::size_t output;
  };
  struct Text {
    const FrameColumn* column;
    std::string key;
  };
  struct Camera {
    CameraReader reader;
    std::vector<std::int64_t> deltas;  // {0} without a window
    std::size_t output;
    std::vector<std::int64_t> row_shape;
  };
  struct Mask {
    std::vector<std::int64_t> deltas;
    std::size_t output;
  };

  std::shared_ptr<const DatasetMetadata> metadata;
  std::vector<std::int64_t> episodes;
  FrameTable table;
  mutable video::VideoFileCache files{kOpenVideos};

  std::vector<Output> outputs;
  std::vector<Value> values;
  std::vector<Text> texts;
  std::vector<Camera> cameras;
  std::vector<Mask> masks;
  std::size_t index_output = 0;
  std::size_t episode_index_output = 0;
  const FrameColumn* task_index = nullptr;

  std::size_t add_output(const std::string& key, at::ScalarType type,
                         std::vector<std::int64_t> row_shape) {
    std::int64_t bytes = static_cast<std::int64_t>(c10::elementSize(type));
    for (std::int64_t side : row_shape) bytes = checked_mul(bytes, side, key + ": bytes of a row");
    outputs.push_back({key, type, std::move(row_shape), bytes});
    return outputs.size() - 1;
  }

  void build(const MapDatasetOptions& options);
  void add_camera(const Feature& feature, std::optional<std::size_t> video_camera,
                  const std::vector<std::int64_t>& deltas, double tolerance_s);
};

void MapDataset::Plan::add_camera(const Feature& feature, std::optional<std::size_t> video_camera,
                                  const std::vector<std::int64_t>& deltas, double tolerance_s) {
  std::vector<std::int64_t> shape = feature.sample_shape();
  // LeRobot drops the time axis of a video's window of one frame, and only of a video's.
  const bool has_time_axis = video_camera ? deltas.size() > 1 : !deltas.empty();
  if (has_time_axis) shape.insert(shape.begin(), static_cast<std::int64_t>(deltas.size()));
  const std::size_t output =
      add_output(feature.name, feature.is_depth ? at::kFloat : at::kByte, shape);
  cameras.push_back({CameraReader(*metadata, table, feature, video_camera, tolerance_s),
                     deltas.empty() ? std::vector<std::int64_t>{0} : deltas, output, shape});
}

void MapDataset::Plan::build(const MapDatasetOptions& options) {
  const DatasetInfo& info = metadata->info();
  const std::vector<Window> windows = resolve_windows(info, options.windows);
  task_index = &table.column("task_index");
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
      add_camera(feature, videos++, deltas, options.tolerance_s);
    } else if (feature.type == ValueType::kImage) {
      add_camera(feature, std::nullopt, deltas, options.tolerance_s);
    } else if (feature.type == ValueType::kString) {
      texts.push_back({&table.column(feature.name), feature.name});
    } else if (feature.name == "index") {
      index_output = add_output(feature.name, at::kLong, {});
    } else if (feature.name == "episode_index") {
      episode_index_output = add_output(feature.name, at::kLong, {});
    } else {
      std::vector<std::int64_t> shape = feature.sample_shape();
      if (!deltas.empty()) shape.insert(shape.begin(), static_cast<std::int64_t>(deltas.size()));
      values.push_back({&table.column(feature.name), deltas,
                        add_output(feature.name, tensor_type(feature.type), shape)});
    }
  }
}

bool BatchBuffer::is_unshared() const {
  for (const auto& [key, tensor] : batch.tensors)
    if (tensor.use_count() != 1 || tensor.storage().use_count() != 1) return false;
  return true;
}

MapDataset::MapDataset() : plan_(std::make_unique<Plan>()) {}
MapDataset::~MapDataset() = default;

std::shared_ptr<const MapDataset> MapDataset::open(std::shared_ptr<const DatasetMetadata> metadata,
                                                   MapDatasetOptions options) {
  std::shared_ptr<MapDataset> dataset(new MapDataset());
  Plan& plan = *dataset->plan_;
  plan.metadata = std::move(metadata);
  const std::int64_t total = plan.metadata->episodes().size();
  if (options.episodes) {
    plan.episodes = *options.episodes;
    std::sort(plan.episodes.begin(), plan.episodes.end());
    plan.episodes.erase(std::unique(plan.episodes.begin(), plan.episodes.end()),
                        plan.episodes.end());
    if (plan.episodes.empty()) fail("no episode is selected");
    if (plan.episodes.front() < 0 || plan.episodes.back() >= total)
      fail("episode {} is selected, but the dataset has episodes 0 to {}",
           plan.episodes.front() < 0 ? plan.episodes.front() : plan.episodes.back(), total - 1);
  } else {
    for (std::int64_t episode = 0; episode < total; ++episode) plan.episodes.push_back(episode);
  }
  check_files_present(*plan.metadata, plan.episodes);
  plan.table = FrameTable::load(*plan.metadata, plan.episodes);
  check_videos(*plan.metadata, plan.table, options.tolerance_s, plan.files);
  plan.build(options);
  return dataset;
}

const DatasetMetadata& MapDataset::metadata() const { return *plan_->metadata; }
std::int64_t MapDataset::size() const { return plan_->table.size(); }
std::span<const std::int64_t> MapDataset::episodes() const { return plan_->episodes; }

std::vector<std::int64_t> MapDataset::first_rows() const {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(plan_->metadata->episodes().size()), -1);
  for (const auto& run : plan_->table.runs())
    rows[static_cast<std::size_t>(run.episode)] = run.position;
  return rows;
}

std::span<const std::int64_t> MapDataset::task_index() const {
  return plan_->task_index->integers();
}

std::unique_ptr<BatchBuffer> MapDataset::allocate(std::int64_t rows, bool pinned) const {
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

std::size_t MapDataset::cameras() const { return plan_->cameras.size(); }

const std::string& MapDataset::camera_name(std::size_t camera) const {
  return plan_->cameras[camera].reader.feature().name;
}

bool MapDataset::camera_is_rgb(std::size_t camera) const {
  return plan_->cameras[camera].reader.is_rgb();
}

void MapDataset::fill_values(std::int64_t position, std::int64_t row, BatchBuffer& buffer) const {
  const Plan& plan = *plan_;
  const FrameTable::Run& run = plan.table.run_of(position);
  const std::int64_t frame = run.frame_of(position);
  const auto row_of = [&](std::size_t output) {
    return buffer.data_[output] + row * plan.outputs[output].row_bytes;
  };

  for (const Plan::Value& value : plan.values) {
    const auto bytes = static_cast<std::size_t>(value.column->row_bytes());
    std::uint8_t* out = row_of(value.output);
    if (value.deltas.empty()) std::memcpy(out, value.column->row_data(position), bytes);
    for (std::int64_t delta : value.deltas) {
      const WindowStep step = window_step(frame, delta, run.from, run.to);
      std::memcpy(out, value.column->row_data(run.position_of(step.frame)), bytes);
      out += bytes;
    }
  }
  for (const Plan::Mask& mask : plan.masks) {
    std::uint8_t* out = row_of(mask.output);
    for (std::int64_t delta : mask.deltas)
      *out++ = window_step(frame, delta, run.from, run.to).is_pad ? 1 : 0;
  }
  std::memcpy(row_of(plan.index_output), &frame, sizeof frame);
  std::memcpy(row_of(plan.episode_index_output), &run.episode, sizeof run.episode);

  const auto at = static_cast<std::size_t>(row);
  for (std::size_t i = 0; i < plan.texts.size(); ++i)
    (*buffer.texts_[i])[at] = plan.texts[i].column->text(position);
  buffer.batch.frame_index[at] = frame;
  const auto task = plan.task_index->integers()[static_cast<std::size_t>(position)];
  buffer.batch.task[at] = *plan.metadata->tasks().find(task);  // FrameTable::load() checked it
}

void MapDataset::fill_camera(std::size_t camera, std::int64_t position, std::int64_t row,
                             BatchBuffer& buffer, video::DecoderCache& decoders) const {
  const Plan::Camera& plan = plan_->cameras[camera];
  const FrameTable::Run& run = plan_->table.run_of(position);
  const std::int64_t frame = run.frame_of(position);
  thread_local std::vector<std::int64_t> frames;
  frames.clear();
  for (std::int64_t delta : plan.deltas)
    frames.push_back(window_step(frame, delta, run.from, run.to).frame);
  std::uint8_t* out = buffer.data_[plan.output] + row * plan_->outputs[plan.output].row_bytes;
  plan.reader.read(run, frames, out, plan_->files, decoders);
}

at::Tensor MapDataset::camera_row(std::size_t camera, std::int64_t row, BatchBuffer& buffer) const {
  const Plan::Camera& plan = plan_->cameras[camera];
  const Plan::Output& output = plan_->outputs[plan.output];
  return at::from_blob(buffer.data_[plan.output] + row * output.row_bytes, plan.row_shape,
                       at::TensorOptions().dtype(output.type));
}

}  // namespace lerobot::dataset
