#include "lerobot/video/frame_converter.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>

#include "lerobot/base/error.h"

namespace lerobot::video {
namespace {

// A block of packed rows that stays in the second-level cache until it is split into planes.
constexpr int kBlockBytes = 96 * 1024;
// swscale's vector code writes whole registers: rows are spaced and padded for it.
constexpr int kRowAlignment = 64;

std::string format_name(int format) {
  const char* name = av_get_pix_fmt_name(static_cast<AVPixelFormat>(format));
  return name ? name : "unknown";
}

/// Whether swscale converts such frames line pair by line pair, so that they may be cut into blocks
/// of rows without changing a value. Other conversions filter vertically over all rows.
bool converts_by_row_pairs(const AVFrame& frame) {
  return (frame.format == AV_PIX_FMT_YUV420P || frame.format == AV_PIX_FMT_YUVJ420P) &&
         frame.height % 2 == 0;
}

/// torchcodec 0.11 has two paths to RGB, chosen by width. The one through a filter graph honours
/// the "full range" flag of a frame whose pixel format does not say it (AV1), the one through
/// swscale does not. Pixels must equal either, so we follow; formats like yuvj420p are full range
/// in both.
bool honours_color_range(int width) { return width % 32 > 1; }

}  // namespace

std::size_t FrameConverter::output_bytes(PixelLayout layout, int width, int height) {
  const std::size_t pixels = static_cast<std::size_t>(width) * static_cast<std::size_t>(height);
  return layout == PixelLayout::kRgbPlanes ? 3 * pixels : 2 * pixels;
}

void FrameConverter::convert(const AVFrame& frame, void* out) {
  if (layout_ == PixelLayout::kRgbPlanes)
    convert_rgb(frame, static_cast<std::uint8_t*>(out));
  else
    convert_gray(frame, static_cast<std::uint16_t*>(out));
}

void FrameConverter::prepare_scaler(const AVFrame& frame) {
  if (scaler_ && frame.width == width_ && frame.height == height_ && frame.format == format_ &&
      frame.colorspace == color_space_ && frame.color_range == color_range_)
    return;
  scaler_.reset();
  const auto format = static_cast<AVPixelFormat>(frame.format);
  if (!sws_isSupportedInput(format))
    fail("frames of pixel format {} cannot be converted to RGB", format_name(frame.format));
  forget_ffmpeg_message();
  scaler_.reset(sws_getContext(frame.width, frame.height, format, frame.width, frame.height,
                               AV_PIX_FMT_RGB24, SWS_BICUBIC, nullptr, nullptr, nullptr));
  if (!scaler_)
    fail("frames of {}x{}, pixel format {}, cannot be converted to RGB: {}", frame.width,
         frame.height, format_name(frame.format), ffmpeg_error_text(AVERROR(EINVAL)));
  int* inverse_table = nullptr;
  int* table = nullptr;
  int source_range = 0;
  int destination_range = 0;
  int brightness = 0;
  int contrast = 0;
  int saturation = 0;
  if (sws_getColorspaceDetails(scaler_.get(), &inverse_table, &source_range, &table,
                               &destination_range, &brightness, &contrast, &saturation) >= 0) {
    const int* coefficients = sws_getCoefficients(frame.colorspace);
    if (frame.color_range == AVCOL_RANGE_JPEG && honours_color_range(frame.width)) source_range = 1;
    sws_setColorspaceDetails(scaler_.get(), coefficients, source_range, coefficients,
                             destination_range, brightness, contrast, saturation);
  }
  width_ = frame.width;
  height_ = frame.height;
  format_ = frame.format;
  color_space_ = frame.colorspace;
  color_range_ = frame.color_range;
}

void FrameConverter::convert_rgb(const AVFrame& frame, std::uint8_t* planes) {
  prepare_scaler(frame);
  const auto width = static_cast<std::size_t>(frame.width);
  const std::size_t plane = width * static_cast<std::size_t>(frame.height);
  const int stride = (3 * frame.width + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
  const int block_rows = converts_by_row_pairs(frame)
                             ? std::clamp(kBlockBytes / stride / 2 * 2, 2, frame.height)
                             : frame.height;
  packed_.resize(static_cast<std::size_t>(stride) * static_cast<std::size_t>(block_rows) +
                 kRowAlignment);

  for (int row = 0; row < frame.height; row += block_rows) {
    const int rows = std::min(block_rows, frame.height - row);
    const std::uint8_t* source[4] = {};
    for (int i = 0; i < 4 && frame.data[i]; ++i) {
      const int plane_row = i == 0 || block_rows == frame.height ? row : row / 2;
      source[i] = frame.data[i] + std::ptrdiff_t{frame.linesize[i]} * plane_row;
    }
    // Every block is row 0 onwards to swscale: line pairs are independent, and so it writes to the
    // start of the scratch.
    std::uint8_t* const destination[4] = {packed_.data(), nullptr, nullptr, nullptr};
    const int destination_stride[4] = {stride, 0, 0, 0};
    const int written =
        sws_scale(scaler_.get(), source, frame.linesize, 0, rows, destination, destination_stride);
    if (written != rows)
      fail("swscale converted {} of {} rows of pixel format {}", written, rows,
           format_name(frame.format));
    if (static_cast<std::size_t>(stride) == 3 * width) {
      const std::size_t offset = width * static_cast<std::size_t>(row);
      split_rgb(packed_.data(), width * static_cast<std::size_t>(rows), planes + offset,
                planes + plane + offset, planes + 2 * plane + offset);
      continue;
    }
    for (int i = 0; i < rows; ++i) {
      const std::size_t offset = width * static_cast<std::size_t>(row + i);
      split_rgb(packed_.data() + std::ptrdiff_t{stride} * i, width, planes + offset,
                planes + plane + offset, planes + 2 * plane + offset);
    }
  }
}

void FrameConverter::convert_gray(const AVFrame& frame, std::uint16_t* out) const {
  const AVPixFmtDescriptor* format = av_pix_fmt_desc_get(static_cast<AVPixelFormat>(frame.format));
  const auto refuse = [&] {
    fail("frames of pixel format {} have no luma plane of 8 to 16 bits to read depth codes from",
         format_name(frame.format));
  };
  if (!format || (format->flags &
                  (AV_PIX_FMT_FLAG_RGB | AV_PIX_FMT_FLAG_BE | AV_PIX_FMT_FLAG_PAL |
                   AV_PIX_FMT_FLAG_BITSTREAM | AV_PIX_FMT_FLAG_HWACCEL | AV_PIX_FMT_FLAG_FLOAT)))
    refuse();
  const AVComponentDescriptor& luma = format->comp[0];
  const int bytes = luma.depth > 8 ? 2 : 1;
  if (luma.plane != 0 || luma.shift != 0 || luma.offset != 0 || luma.step != bytes) refuse();
  const auto width = static_cast<std::size_t>(frame.width);
  for (int row = 0; row < frame.height; ++row, out += width) {
    const std::uint8_t* source = frame.data[0] + std::ptrdiff_t{frame.linesize[0]} * row;
    if (bytes == 2)
      std::memcpy(out, source, 2 * width);
    else
      std::copy_n(source, width, out);
  }
}

}  // namespace lerobot::video
