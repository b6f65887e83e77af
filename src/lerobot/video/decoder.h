// Frames by presentation time from one video: packets of our own index, straight into libavcodec.
//
// "The frame at time t" is the presented frame whose presentation time is nearest to t, which must
// not be farther away than the tolerance. Pixels equal those of a decode of the whole file from its
// start, whatever was asked for before.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lerobot/base/error.h"
#include "lerobot/video/frame_request.h"
#include "lerobot/video/packet_source.h"

namespace lerobot::video {

/// No frame is near enough to the time that was asked for.
class FrameNotFound : public Error {
 public:
  FrameNotFound(std::string_view video, double asked_s, double nearest_s, double tolerance_s);

  double asked_s() const { return asked_s_; }
  double nearest_s() const { return nearest_s_; }
  double tolerance_s() const { return tolerance_s_; }

 private:
  double asked_s_;
  double nearest_s_;
  double tolerance_s_;
};

/// Whether a frame at `frame_s` answers a request for `asked_s`: |difference| <= tolerance_s, the
/// boundary included. Timestamps in a dataset are float32 and LeRobot compares in float32, where an
/// hour into a file neighbouring numbers are 0.24 ms apart, more than its default tolerance. So
/// that no valid data is refused, one float32 step at that time is allowed on top.
bool within_tolerance(double asked_s, double frame_s, double tolerance_s);

/// The sample that answers a request. Throws FrameNotFound.
std::size_t find_sample(const PacketSource& source, double time_s, double tolerance_s);

/// One codec context with its pixel converter, kept open over calls. Single-threaded, by one thread
/// at a time: parallelism comes from many decoders.
class Decoder {
 public:
  /// Opens the codec. Throws Error when this FFmpeg has no decoder for it or the stream's
  /// configuration is broken.
  Decoder(std::shared_ptr<const PacketSource> source, PixelLayout layout);
  Decoder(Decoder&&) noexcept;
  Decoder& operator=(Decoder&&) noexcept;
  ~Decoder();

  const std::shared_ptr<const PacketSource>& source() const;
  PixelLayout layout() const;

  /// Answers every request, in any order; equal requests may repeat. Decodes each GOP at most once,
  /// goes on without a seek where the position suits, and stops as soon as all frames are out.
  /// Throws FrameNotFound before anything is decoded, and Error for data that doesn't decode; the
  /// decoder stays usable after either.
  void decode(std::span<const FrameRequest> requests, double tolerance_s);

  /// How many samples decode() would have to decode to reach `sample` from where it stands.
  std::size_t distance_to(std::size_t sample) const;

  /// Whether the codec context as it stands can decode that video too: same codec, size, time scale
  /// and configuration, as a camera's files have.
  bool suits(const PacketSource& source) const;
  /// Turns to another video, which it suits.
  void rebind(std::shared_ptr<const PacketSource> source);
  /// Lets go of the video, whose memory may then be freed; source() is null, and only suits() and
  /// rebind() may be called until it is turned to another one.
  void detach();

  /// Coded frames handed to libavcodec so far: what tests and benchmarks look at.
  std::uint64_t packets_sent() const;

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace lerobot::video
