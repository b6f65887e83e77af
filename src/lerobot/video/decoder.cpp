#include "lerobot/video/decoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "lerobot/base/checked.h"
#include "lerobot/video/ffmpeg.h"
#include "lerobot/video/frame_converter.h"
#include "lerobot/video/random_access.h"

namespace lerobot::video {
namespace {

const AVCodec* find_decoder(Codec codec) {
  switch (codec) {
    case Codec::kH264:
      if (const AVCodec* found = avcodec_find_decoder_by_name("h264")) return found;
      return avcodec_find_decoder(AV_CODEC_ID_H264);
    case Codec::kHevc:
      if (const AVCodec* found = avcodec_find_decoder_by_name("hevc")) return found;
      return avcodec_find_decoder(AV_CODEC_ID_HEVC);
    case Codec::kAv1:
      // FFmpeg's own "av1" decoder works with a hardware decoder only.
      if (const AVCodec* found = avcodec_find_decoder_by_name("libdav1d")) return found;
      return avcodec_find_decoder_by_name("libaom-av1");
  }
  return nullptr;
}

UniqueCodecContext open_codec(const PacketSource& source) {
  const Mp4Index& index = source.index();
  const AVCodec* codec = find_decoder(index.codec);
  if (!codec)
    fail("{}: this FFmpeg has no decoder for {}; install one that has (for AV1: with libdav1d)",
         source.name(), codec_name(index.codec));
  UniqueCodecContext context = make_codec_context(codec);
  // H.264 pictures that follow an open GOP's keyframe are held back as possibly incomplete unless
  // the keyframe itself has come out before. Which pictures are whole is known here.
  context->flags |= AV_CODEC_FLAG_OUTPUT_CORRUPT;
  // Without this, an H.264 stream that does not state its reordering loses its first B-frames.
  context->has_b_frames = index.reorder_depth;
  context->width = index.width;
  context->height = index.height;
  context->pkt_timebase = {1, checked_cast<int>(index.time_scale, "MP4 media time scale")};
  if (!index.decoder_configuration.empty()) {
    const std::size_t bytes = index.decoder_configuration.size();
    context->extradata =
        static_cast<std::uint8_t*>(av_mallocz(bytes + AV_INPUT_BUFFER_PADDING_SIZE));
    if (!context->extradata) throw std::bad_alloc();
    std::memcpy(context->extradata, index.decoder_configuration.data(), bytes);
    context->extradata_size = checked_cast<int>(bytes, "size of the decoder configuration");
  }
  forget_ffmpeg_message();
  if (const int result = avcodec_open2(context.get(), codec, nullptr); result < 0)
    fail("{}: the {} decoder does not open: {}; the decoder configuration in the MP4 is damaged",
         source.name(), codec->name, ffmpeg_error_text(result));
  return context;
}

// The packet's bytes belong to the source, which outlives every reference to them.
void keep_bytes(void* /*opaque*/, std::uint8_t* /*data*/) {}

/// What a codec context was opened for.
struct CodecSetUp {
  explicit CodecSetUp(const Mp4Index& index)
      : codec(index.codec),
        width(index.width),
        height(index.height),
        time_scale(index.time_scale),
        reorder_depth(index.reorder_depth),
        configuration(index.decoder_configuration) {}
  bool operator==(const CodecSetUp&) const = default;

  Codec codec;
  int width;
  int height;
  std::uint32_t time_scale;
  int reorder_depth;
  std::vector<std::uint8_t> configuration;
};

/// A frame that is wanted: where it goes, and who else wants the same one.
struct Wanted {
  std::size_t sample;
  void* out;
};

// What libavcodec says about a picture that it could not decode as it was coded.
constexpr int kDamage = FF_DECODE_ERROR_INVALID_BITSTREAM | FF_DECODE_ERROR_CONCEALMENT_ACTIVE |
                        FF_DECODE_ERROR_DECODE_SLICES;

constexpr std::size_t kMostInFlight = 64;

}  // namespace

FrameNotFound::FrameNotFound(std::string_view video, double asked_s, double nearest_s,
                             double tolerance_s)
    : Error(fmt::format("{}: no frame at {:.6f} s: the nearest is at {:.6f} s, {:.6f} s away, the "
                        "tolerance is {} s; check the timestamps and fps of the dataset, or raise "
                        "--tolerance_s",
                        video, asked_s, nearest_s, std::abs(asked_s - nearest_s), tolerance_s)),
      asked_s_(asked_s),
      nearest_s_(nearest_s),
      tolerance_s_(tolerance_s) {}

bool within_tolerance(double asked_s, double frame_s, double tolerance_s) {
  const auto magnitude =
      static_cast<float>(std::max({std::abs(asked_s), std::abs(frame_s), tolerance_s}));
  const double step = std::nextafter(magnitude, std::numeric_limits<float>::infinity()) - magnitude;
  return std::abs(asked_s - frame_s) <= tolerance_s + step;  // false for NaN
}

std::size_t find_sample(const PacketSource& source, double time_s, double tolerance_s) {
  const Mp4Index& index = source.index();
  const std::size_t sample = index.sample_of_frame(index.nearest_frame(time_s));
  const double frame_s = index.presentation_time(sample);
  if (!within_tolerance(time_s, frame_s, tolerance_s))
    throw FrameNotFound(source.name(), time_s, frame_s, tolerance_s);
  return sample;
}

class Decoder::Implementation {
 public:
  Implementation(std::shared_ptr<const PacketSource> source, PixelLayout layout)
      : source_(std::move(source)),
        codec_set_up_(source_->index()),
        context_(open_codec(*source_)),
        packet_(av_packet_alloc()),
        frame_(av_frame_alloc()),
        converter_(layout),
        zero_copy_(std::string_view(context_->codec->name) == "libdav1d") {
    if (!packet_ || !frame_) throw std::bad_alloc();
  }

  const std::shared_ptr<const PacketSource>& source() const { return source_; }
  PixelLayout layout() const { return converter_.layout(); }
  std::uint64_t packets_sent() const { return packets_sent_; }

  void decode(std::span<const FrameRequest> requests, double tolerance_s);
  std::size_t distance_to(std::size_t sample) const;
  bool suits(const PacketSource& source) const;
  void rebind(std::shared_ptr<const PacketSource> source);
  void detach();

 private:
  enum class State {
    kIdle,      // nothing sent since the last flush
    kRunning,   // samples run_start_ .. next_ - 1 are sent
    kFinished,  // libavcodec was told that the stream ends; it must be flushed before the next
                // packet
  };

  bool continues_reading(std::size_t sample) const;
  bool reachable(std::size_t sample) const;
  bool valid_from(std::size_t start, std::size_t sample) const;
  bool valid_in_run(std::size_t sample) const { return valid_from(run_start_, sample); }
  std::size_t end_of_run(std::size_t first, std::size_t start) const;
  void decode_run(std::size_t first, std::size_t last, bool sequential);
  bool is_wanted(std::size_t sample) const;
  void seek(std::size_t sample);
  void flush();
  void send(std::size_t sample);
  void finish();
  bool receive();
  void deliver(std::size_t sample);
  [[noreturn]] void fail_decoding(std::size_t sample, const std::string& why) const;
  const Mp4Index& index() const { return source_->index(); }

  // Declared first: outlives the context's references. Null while detached.
  std::shared_ptr<const PacketSource> source_;
  CodecSetUp codec_set_up_;
  UniqueCodecContext context_;
  UniquePacket packet_;
  UniqueFrame frame_;
  FrameConverter converter_;
  bool zero_copy_;

  State state_ = State::kIdle;
  std::size_t run_start_ = 0;
  std::size_t next_ = 0;
  std::vector<std::size_t> in_flight_;  // sent, picture not received yet
  std::size_t last_wanted_ = 0;         // shown last of the previous call's frames
  bool any_wanted_ = false;
  std::uint64_t packets_sent_ = 0;

  std::vector<Wanted> wanted_;  // of this call, by sample
  std::size_t missing_ = 0;     // pictures of the current run that have not come out yet
  std::size_t run_first_ = 0;   // the current run's part of wanted_
  std::size_t run_last_ = 0;
};

void Decoder::Implementation::decode(std::span<const FrameRequest> requests, double tolerance_s) {
  wanted_.clear();
  for (const FrameRequest& request : requests)
    wanted_.push_back({find_sample(*source_, request.time_s, tolerance_s), request.out});
  if (wanted_.empty()) return;
  std::stable_sort(wanted_.begin(), wanted_.end(),
                   [](const Wanted& a, const Wanted& b) { return a.sample < b.sample; });

  try {
    for (std::size_t first = 0; first < wanted_.size();) {
      const std::size_t sample = wanted_[first].sample;
      const bool sequential = continues_reading(sample);
      std::size_t last = end_of_run(first, run_start_);
      const bool goes_on =
          std::all_of(wanted_.begin() + static_cast<std::ptrdiff_t>(first),
                      wanted_.begin() + static_cast<std::ptrdiff_t>(last) + 1,
                      [&](const Wanted& wanted) { return reachable(wanted.sample); });
      if (!goes_on) {
        seek(random_access_point(index(), sample));
        last = end_of_run(first, run_start_);
      }
      decode_run(first, last, sequential);
      first = last + 1;
    }
  } catch (...) {
    // Whatever libavcodec holds now, the next call begins at a sync sample with a clean context.
    flush();
    any_wanted_ = false;
    throw;
  }
  last_wanted_ =
      std::max_element(wanted_.begin(), wanted_.end(), [&](const Wanted& a, const Wanted& b) {
        return index().samples.composition_time(a.sample) <
               index().samples.composition_time(b.sample);
      })->sample;
  any_wanted_ = true;
}

/// Whether `sample` is what somebody asks for who reads on from the previous call's last frame.
bool Decoder::Implementation::continues_reading(std::size_t sample) const {
  return any_wanted_ &&
         index().samples.composition_time(sample) >
             index().samples.composition_time(last_wanted_) &&
         random_access_point(index(), sample) <= next_;
}

/// Whether decoding from sync sample `start` gives `sample` its true pixels: the leading pictures
/// of `start` itself refer to pictures before it.
bool Decoder::Implementation::valid_from(std::size_t start, std::size_t sample) const {
  const SampleTable& samples = index().samples;
  return sample >= start &&
         (start == 0 || samples.composition_time(sample) >= samples.composition_time(start));
}

/// The last wanted frame that one pass from `start` over wanted_[first] on reaches without skipping
/// to a later GOP.
std::size_t Decoder::Implementation::end_of_run(std::size_t first, std::size_t start) const {
  std::size_t last = first;
  while (last + 1 < wanted_.size() &&
         random_access_point(index(), wanted_[last + 1].sample) <= wanted_[last].sample + 1 &&
         valid_from(start, wanted_[last + 1].sample))
    ++last;
  return last;
}

bool Decoder::Implementation::reachable(std::size_t sample) const {
  if (!valid_in_run(sample)) return false;
  if (sample >= next_)
    return state_ == State::kRunning && random_access_point(index(), sample) <= next_;
  return std::find(in_flight_.begin(), in_flight_.end(), sample) != in_flight_.end();
}

std::size_t Decoder::Implementation::distance_to(std::size_t sample) const {
  if (reachable(sample)) return sample < next_ ? 0 : sample - next_ + 1;
  return sample - random_access_point(index(), sample) + 1;
}

void Decoder::Implementation::decode_run(std::size_t first, std::size_t last, bool sequential) {
  run_first_ = first;
  run_last_ = last;
  missing_ = 1;
  for (std::size_t i = first; i < last; ++i)
    if (wanted_[i].sample != wanted_[i + 1].sample) ++missing_;
  const std::size_t last_sample = wanted_[last].sample;

  while (missing_ > 0) {
    if (receive()) continue;
    if (next_ <= last_sample) {
      if (is_wanted(next_) || !is_disposable(index(), source_->packet(next_)))
        send(next_);
      else
        ++next_;
    } else if (state_ == State::kFinished) {
      fail_decoding(last_sample, "the decoder gave no picture for it");
    } else if (sequential && next_ < index().samples.size()) {
      // The picture waits in the reorder buffer. Who reads on will need the next samples anyway.
      send(next_);
    } else {
      finish();
    }
  }
}

bool Decoder::Implementation::is_wanted(std::size_t sample) const {
  return std::binary_search(wanted_.begin(), wanted_.end(), Wanted{sample, nullptr},
                            [](const Wanted& a, const Wanted& b) { return a.sample < b.sample; });
}

void Decoder::Implementation::seek(std::size_t sample) {
  flush();
  run_start_ = sample;
  next_ = sample;
}

void Decoder::Implementation::flush() {
  if (state_ != State::kIdle) avcodec_flush_buffers(context_.get());
  state_ = State::kIdle;
  in_flight_.clear();
}

void Decoder::Implementation::send(std::size_t sample) {
  const std::span<const std::uint8_t> bytes = source_->packet(sample);
  AVPacket& packet = *packet_;
  packet.data = const_cast<std::uint8_t*>(bytes.data());
  packet.size = checked_cast<int>(bytes.size(), "size of a coded frame");
  // The picture comes back with this number, in whatever order the decoder gives pictures.
  packet.pts = static_cast<std::int64_t>(sample);
  packet.dts = AV_NOPTS_VALUE;
  packet.flags = index().samples.is_sync(sample) ? AV_PKT_FLAG_KEY : 0;
  // libdav1d reads the source's own bytes. The other decoders may read beyond the end of a damaged
  // packet unless zeros follow it: without a buffer of ours, libavcodec makes such a copy.
  if (zero_copy_) {
    packet.buf = av_buffer_create(packet.data, static_cast<FfmpegBufferSize>(packet.size),
                                  keep_bytes, nullptr, AV_BUFFER_FLAG_READONLY);
    if (!packet.buf) throw std::bad_alloc();
  }
  forget_ffmpeg_message();
  const int result = avcodec_send_packet(context_.get(), &packet);
  av_packet_unref(&packet);
  state_ = State::kRunning;
  next_ = sample + 1;
  ++packets_sent_;
  if (result < 0) {
    // Leading pictures of the first sync sample may lack what they refer to; nobody wants them
    // here.
    if (valid_in_run(sample)) fail_decoding(sample, ffmpeg_error_text(result));
    return;
  }
  in_flight_.push_back(sample);
  // Some samples never give a picture (the second field of a pair); no reorder buffer is this long.
  if (in_flight_.size() > kMostInFlight) in_flight_.erase(in_flight_.begin());
}

void Decoder::Implementation::finish() {
  avcodec_send_packet(context_.get(), nullptr);
  state_ = State::kFinished;
}

/// Takes one picture, if there is one.
bool Decoder::Implementation::receive() {
  if (state_ == State::kIdle) return false;
  forget_ffmpeg_message();
  const int result = avcodec_receive_frame(context_.get(), frame_.get());
  if (result == AVERROR(EAGAIN) || result == AVERROR_EOF) return false;
  if (result < 0) {
    const std::size_t sample = in_flight_.empty() ? next_ - 1 : in_flight_.front();
    if (valid_in_run(sample)) fail_decoding(sample, ffmpeg_error_text(result));
    if (!in_flight_.empty()) in_flight_.erase(in_flight_.begin());
    return true;
  }
  const auto found =
      std::find(in_flight_.begin(), in_flight_.end(), static_cast<std::size_t>(frame_->pts));
  if (found == in_flight_.end()) return true;  // a second picture of one sample (field pairs)
  const std::size_t sample = *found;
  in_flight_.erase(found);
  if (valid_in_run(sample)) {
    if ((frame_->decode_error_flags & kDamage) != 0)
      fail_decoding(sample, ffmpeg_error_text(AVERROR_INVALIDDATA));
    deliver(sample);
  }
  return true;
}

void Decoder::Implementation::deliver(std::size_t sample) {
  const auto begin = wanted_.begin() + static_cast<std::ptrdiff_t>(run_first_);
  const auto end = wanted_.begin() + static_cast<std::ptrdiff_t>(run_last_) + 1;
  auto found = std::lower_bound(
      begin, end, sample, [](const Wanted& wanted, std::size_t s) { return wanted.sample < s; });
  if (found == end || found->sample != sample) return;
  const Mp4Index& index = this->index();
  if (frame_->width != index.width || frame_->height != index.height)
    fail(
        "{}: the frame at {:.6f} s is {}x{}, the MP4's sample description says {}x{}; re-encode "
        "the video",
        source_->name(), index.presentation_time(sample), frame_->width, frame_->height,
        index.width, index.height);
  void* const out = found->out;
  try {
    converter_.convert(*frame_, out);
  } catch (const Error& error) {
    fail("{}: {}", source_->name(), error.what());
  }
  const std::size_t bytes = FrameConverter::output_bytes(layout(), index.width, index.height);
  for (++found; found != end && found->sample == sample; ++found)
    if (found->out != out) std::memcpy(found->out, out, bytes);
  --missing_;
}

void Decoder::Implementation::fail_decoding(std::size_t sample, const std::string& why) const {
  fail(
      "{}: the coded frame at {:.6f} s (number {} in the file, {} bytes at byte {}) does not "
      "decode: {}; the file is damaged: copy or download it again",
      source_->name(), index().presentation_time(sample), sample, index().samples.bytes(sample),
      index().samples.offset(sample), why);
}

bool Decoder::Implementation::suits(const PacketSource& source) const {
  return codec_set_up_ == CodecSetUp(source.index());
}

void Decoder::Implementation::rebind(std::shared_ptr<const PacketSource> source) {
  check_internal(suits(*source), "a decoder was turned to a video that it can't decode");
  detach();
  source_ = std::move(source);
}

void Decoder::Implementation::detach() {
  flush();
  source_.reset();
  any_wanted_ = false;
}

Decoder::Decoder(std::shared_ptr<const PacketSource> source, PixelLayout layout)
    : implementation_(std::make_unique<Implementation>(std::move(source), layout)) {}
Decoder::Decoder(Decoder&&) noexcept = default;
Decoder& Decoder::operator=(Decoder&&) noexcept = default;
Decoder::~Decoder() = default;

const std::shared_ptr<const PacketSource>& Decoder::source() const {
  return implementation_->source();
}
PixelLayout Decoder::layout() const { return implementation_->layout(); }
void Decoder::decode(std::span<const FrameRequest> requests, double tolerance_s) {
  implementation_->decode(requests, tolerance_s);
}
std::size_t Decoder::distance_to(std::size_t sample) const {
  return implementation_->distance_to(sample);
}
bool Decoder::suits(const PacketSource& source) const { return implementation_->suits(source); }
void Decoder::rebind(std::shared_ptr<const PacketSource> source) {
  implementation_->rebind(std::move(source));
}
void Decoder::detach() { implementation_->detach(); }
std::uint64_t Decoder::packets_sent() const { return implementation_->packets_sent(); }

}  // namespace lerobot::video
