// How fast any loader of these videos could be: random frames through libavcodec on a few threads,
// with RGB conversion into planes, and nothing else. The files are mapped and indexed and their
// bytes are in memory before the clock starts; every thread keeps a decoder for every file, begins
// at the nearest keyframe and leaves out the pictures that no other one refers to. No requests, no
// times, no cache, no checks of the data, no batches.
//   decode_limit THREADS SAMPLES SEED FILE...
// A sample is the same random frame of every FILE. Prints one JSON line: samples_per_s, seconds.
#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "lerobot/base/error.h"
#include "lerobot/video/ffmpeg.h"
#include "lerobot/video/frame_converter.h"
#include "lerobot/video/random_access.h"
#include "lerobot/video/video_file.h"

namespace {

using namespace lerobot::video;
using Clock = std::chrono::steady_clock;
using Video = std::shared_ptr<const VideoFile>;

void check(int result, const char* what) {
  if (result < 0)
    lerobot::fail("decode_limit: {}: {}", what, lerobot::video::ffmpeg_error_text(result));
}

UniqueCodecContext open_decoder(const Mp4Index& index) {
  const char* const name = index.codec == Codec::kAv1    ? "libdav1d"
                           : index.codec == Codec::kHevc ? "hevc"
                                                         : "h264";
  const AVCodec* const codec = avcodec_find_decoder_by_name(name);
  if (codec == nullptr) lerobot::fail("decode_limit: this FFmpeg has no {}", name);
  UniqueCodecContext context = make_codec_context(codec);
  context->has_b_frames = index.reorder_depth;
  context->width = index.width;
  context->height = index.height;
  const std::size_t bytes = index.decoder_configuration.size();
  context->extradata = static_cast<std::uint8_t*>(av_mallocz(bytes + AV_INPUT_BUFFER_PADDING_SIZE));
  if (context->extradata == nullptr) throw std::bad_alloc();
  std::memcpy(context->extradata, index.decoder_configuration.data(), bytes);
  context->extradata_size = static_cast<int>(bytes);
  check(avcodec_open2(context.get(), codec, nullptr), "opening the decoder");
  return context;
}

class FrameDecoder {
 public:
  explicit FrameDecoder(Video video)
      : video_(std::move(video)),
        context_(open_decoder(video_->index())),
        packet_(av_packet_alloc()),
        frame_(av_frame_alloc()),
        converter_(PixelLayout::kRgbPlanes),
        planes_(FrameConverter::output_bytes(PixelLayout::kRgbPlanes, video_->width(),
                                             video_->height())) {}

  /// Decodes and converts the coded frame `wanted`.
  void decode(std::size_t wanted) {
    avcodec_flush_buffers(context_.get());
    for (std::size_t at = random_access_point(video_->index(), wanted); at <= wanted; ++at) {
      if (at != wanted && is_disposable(video_->index(), video_->packet(at))) continue;
      send(at);
      if (receive(wanted)) return;
    }
    // It waits for its turn among reordered pictures: there are no more.
    check(avcodec_send_packet(context_.get(), nullptr), "ending the stream");
    if (!receive(wanted)) lerobot::fail("decode_limit: no picture for coded frame {}", wanted);
  }

 private:
  void send(std::size_t sample) {
    const auto bytes = video_->packet(sample);
    packet_->data = const_cast<std::uint8_t*>(bytes.data());
    packet_->size = static_cast<int>(bytes.size());
    packet_->pts = static_cast<std::int64_t>(sample);
    packet_->flags = video_->index().samples.is_sync(sample) ? AV_PKT_FLAG_KEY : 0;
    // libdav1d reads the mapping itself; the others need padding and make a copy.
    if (video_->index().codec == Codec::kAv1)
      packet_->buf = av_buffer_create(
          packet_->data, static_cast<FfmpegBufferSize>(bytes.size()), [](void*, std::uint8_t*) {},
          nullptr, AV_BUFFER_FLAG_READONLY);
    check(avcodec_send_packet(context_.get(), packet_.get()), "sending a packet");
    av_packet_unref(packet_.get());
  }

  /// Takes what has been decoded; true when `wanted` was among it.
  bool receive(std::size_t wanted) {
    for (;;) {
      const int result = avcodec_receive_frame(context_.get(), frame_.get());
      if (result == AVERROR(EAGAIN) || result == AVERROR_EOF) return false;
      check(result, "decoding");
      if (frame_->pts != static_cast<std::int64_t>(wanted)) continue;
      converter_.convert(*frame_, planes_.data());
      return true;
    }
  }

  Video video_;
  UniqueCodecContext context_;
  UniquePacket packet_;
  UniqueFrame frame_;
  FrameConverter converter_;
  std::vector<std::uint8_t> planes_;
};

/// Brings the packets into memory, by reading them.
void touch(const VideoFile& video) {
  std::uint64_t sum = 0;
  for (std::size_t sample = 0; sample < video.index().samples.size(); ++sample)
    for (const std::uint8_t byte : video.packet(sample)) sum += byte;
  if (sum == 0) lerobot::fail("{}: holds nothing but zeros", video.name());
}

void run(int threads, std::size_t samples, std::uint64_t seed,
         const std::vector<std::string>& files) {
  std::vector<Video> videos;
  for (const std::string& file : files) {
    videos.push_back(VideoFile::open(file));
    touch(*videos.back());
    if (videos.back()->frame_count() != videos.front()->frame_count())
      lerobot::fail("decode_limit: {} has {} frames, {} has {}", file, videos.back()->frame_count(),
                    files.front(), videos.front()->frame_count());
  }
  std::mt19937_64 random(seed);
  const auto frame_count = static_cast<std::uint64_t>(videos.front()->frame_count());
  std::vector<std::size_t> frames(samples);
  for (std::size_t& frame : frames) frame = random() % frame_count;

  const auto began = Clock::now();
  std::atomic<std::size_t> next{0};
  const auto decode_samples = [&] {
    std::vector<FrameDecoder> decoders(videos.begin(), videos.end());
    for (std::size_t at; (at = next++) < frames.size();)
      for (std::size_t v = 0; v < videos.size(); ++v)
        decoders[v].decode(videos[v]->index().sample_of_frame(frames[at]));
  };
  std::vector<std::thread> pool;
  for (int i = 0; i < threads; ++i) {
    pool.emplace_back([&] {
      try {
        decode_samples();
      } catch (const std::exception& error) {
        std::cerr << error.what() << '\n';
        std::_Exit(EXIT_FAILURE);
      }
    });
  }
  for (std::thread& thread : pool) thread.join();
  const double seconds = std::chrono::duration<double>(Clock::now() - began).count();
  std::cout << "{\"samples_per_s\": " << static_cast<double>(samples) / seconds
            << ", \"seconds\": " << seconds << "}\n";
}

template <class Number>
Number parse_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 1)
    lerobot::fail("decode_limit: expected a number of at least 1, found {}", text);
  return number;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::cerr << "usage: decode_limit THREADS SAMPLES SEED FILE...\n";
    return 2;
  }
  capture_ffmpeg_log();
  try {
    run(parse_number<int>(argv[1]), parse_number<std::size_t>(argv[2]),
        std::strtoull(argv[3], nullptr, 10), std::vector<std::string>(argv + 4, argv + argc));
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return EXIT_FAILURE;
  }
}
