#include "lerobot/dataset/camera_reader.h"

#include <algorithm>
#include <cstring>

#include "lerobot/base/error.h"
#include "lerobot/video/image_decoder.h"

namespace lerobot::dataset {
namespace {

constexpr float kMillimetresPerMetre = 1000.0f;

/// Distances of a depth image, stored in `stored_unit`, in `output_unit`.
template <class Value>
void write_depth(const std::vector<Value>& values, const std::optional<std::string>& stored_unit,
                 const std::string& output_unit, float* out) {
  if (!stored_unit || *stored_unit == output_unit)
    std::transform(values.begin(), values.end(), out,
                   [](Value value) { return static_cast<float>(value); });
  else if (*stored_unit == "m")
    std::transform(values.begin(), values.end(), out,
                   [](Value value) { return static_cast<float>(value) * kMillimetresPerMetre; });
  else
    std::transform(values.begin(), values.end(), out,
                   [](Value value) { return static_cast<float>(value) / kMillimetresPerMetre; });
}

}  // namespace

CameraReader::CameraReader(const DatasetMetadata& metadata, const Feature& feature,
                           std::optional<std::size_t> video_camera, double tolerance_s)
    : metadata_(metadata),
      feature_(feature),
      video_camera_(video_camera),
      tolerance_s_(tolerance_s) {
  const auto shape = feature.sample_shape();
  height_ = shape[1];
  width_ = shape[2];
  const auto value_bytes = static_cast<std::int64_t>(feature.is_depth ? sizeof(float) : 1);
  frame_bytes_ = feature.elements() * value_bytes;
  column_ = FrameTable::column_number(metadata.info(), video_camera_ ? "timestamp" : feature.name);
  if (video_camera_ && feature.is_depth)
    dequantizer_.emplace(feature.depth_quantizer, metadata.depth_output_unit());
}

void CameraReader::read(const FrameTable& table, const FrameTable::Run& run,
                        const std::vector<std::int64_t>& frames, std::uint8_t* out,
                        const std::shared_ptr<const video::PacketSource>& video,
                        video::DecoderCache& decoders) const {
  if (video_camera_) return read_video(table, run, frames, out, video, decoders);
  for (std::int64_t frame : frames) {
    read_image(table, run, frame, out);
    out += frame_bytes_;
  }
}

void CameraReader::read_video(const FrameTable& table, const FrameTable::Run& run,
                              const std::vector<std::int64_t>& frames, std::uint8_t* out,
                              const std::shared_ptr<const video::PacketSource>& video,
                              video::DecoderCache& decoders) const {
  // Depth codes are decoded beside the batch and widened into it.
  thread_local std::vector<std::uint16_t> codes;
  const std::int64_t pixels = height_ * width_;
  if (dequantizer_) codes.resize(frames.size() * static_cast<std::size_t>(pixels));

  thread_local std::vector<video::FrameRequest> requests;
  requests.clear();
  const double from_s = metadata_.episodes().video(run.episode, *video_camera_).from_s;
  const std::vector<float>& timestamps = table.columns()[column_].floats();
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const auto offset = static_cast<std::int64_t>(i);
    void* target = dequantizer_ ? static_cast<void*>(codes.data() + offset * pixels)
                                : static_cast<void*>(out + offset * frame_bytes_);
    const float timestamp = timestamps[static_cast<std::size_t>(run.position_of(frames[i]))];
    requests.push_back({from_s + static_cast<double>(timestamp), target});
  }
  try {
    decoders.decode(video,
                    dequantizer_ ? video::PixelLayout::kGray16 : video::PixelLayout::kRgbPlanes,
                    requests, tolerance_s_);
  } catch (const video::FrameNotFound& error) {
    const auto asked = std::find_if(
        requests.begin(), requests.end(),
        [&](const video::FrameRequest& request) { return request.time_s == error.asked_s(); });
    const auto at = std::min<std::size_t>(asked - requests.begin(), frames.size() - 1);
    fail(
        "episode {}, camera {}, frame {}: no frame within {} s of {} s; the nearest one is at {} s "
        "of {}",
        run.episode, feature_.name, frames[at] - run.from, tolerance_s_, error.asked_s(),
        error.nearest_s(), video->name());
  } catch (const Error& error) {
    fail("episode {}, camera {}, frame {}: {}", run.episode, feature_.name,
         frames.front() - run.from, error.what());
  }
  if (dequantizer_) dequantizer_->apply(codes, reinterpret_cast<float*>(out));
}

void CameraReader::read_image(const FrameTable& table, const FrameTable::Run& run,
                              std::int64_t frame, std::uint8_t* out) const {
  using Format = video::Image::Format;
  const auto where = [&] {
    return fmt::format("{}: episode {}, camera {}, frame {}",
                       metadata_.data_file(run.episode).string(), run.episode, feature_.name,
                       frame - run.from);
  };
  video::Image image;
  try {
    image = video::decode_image(table.columns()[column_].image(run.position_of(frame)));
  } catch (const Error& error) {
    fail("{}: {}", where(), error.what());
  }
  if (image.width != width_ || image.height != height_)
    fail("{}: the image is {}x{} (width x height), info.json declares {}x{}", where(), image.width,
         image.height, width_, height_);
  if (feature_.is_depth != (image.format != Format::kRgbPlanes))
    fail("{}: the image has {} channel(s) of {} bits, expected {}", where(), image.channels,
         image.bits, feature_.is_depth ? "16-bit or floating-point depth" : "8-bit colour");
  float* distances = reinterpret_cast<float*>(out);
  switch (image.format) {
    case Format::kRgbPlanes:
      std::memcpy(out, image.planes.data(), image.planes.size());
      break;
    case Format::kGray16:
      write_depth(image.gray16, feature_.depth_unit, metadata_.depth_output_unit(), distances);
      break;
    case Format::kGrayFloat:
      write_depth(image.gray_float, feature_.depth_unit, metadata_.depth_output_unit(), distances);
      break;
  }
}

}  // namespace lerobot::dataset
