// How fast any loader could be: random frames of some MP4 files through libavcodec on a few
// threads, with RGB conversion into planes, and nothing else. Packets are in memory before the
// clock starts, decoders stay open, and a frame costs the decoding from its keyframe on.
//   decode_limit THREADS SAMPLES SEED FILE...
// A sample is the same random frame of every FILE. Prints one JSON line: samples_per_s, seconds.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/log.h>
#include <libavutil/opt.h>
#include <libswscale/swscale.h>
}

#include "lerobot/base/error.h"

namespace {

struct Free {
  void operator()(AVFormatContext* context) const { avformat_close_input(&context); }
  void operator()(AVCodecContext* context) const { avcodec_free_context(&context); }
  void operator()(AVCodecParameters* parameters) const { avcodec_parameters_free(&parameters); }
  void operator()(AVPacket* packet) const { av_packet_free(&packet); }
  void operator()(AVFrame* frame) const { av_frame_free(&frame); }
  void operator()(SwsContext* context) const { sws_freeContext(context); }
};
template <class T>
using Owned = std::unique_ptr<T, Free>;

void check(int result, const char* what) {
  if (result < 0) lerobot::fail("decode_limit: {} failed ({})", what, result);
}

/// The video packets of one file, in decoding order.
struct Video {
  Owned<AVCodecParameters> parameters;
  std::vector<Owned<AVPacket>> packets;
  std::vector<std::int64_t> times;  // presentation times, ascending: frame number -> time

  explicit Video(const std::string& file) {
    AVFormatContext* opened = nullptr;
    check(avformat_open_input(&opened, file.c_str(), nullptr, nullptr), file.c_str());
    const Owned<AVFormatContext> container(opened);
    const int stream = av_find_best_stream(container.get(), AVMEDIA_TYPE_VIDEO, -1, -1, nullptr, 0);
    check(stream, "finding the video stream");
    parameters.reset(avcodec_parameters_alloc());
    check(avcodec_parameters_copy(parameters.get(), container->streams[stream]->codecpar),
          "copying the codec's parameters");
    for (;;) {
      Owned<AVPacket> packet(av_packet_alloc());
      if (av_read_frame(container.get(), packet.get()) < 0) break;
      if (packet->stream_index != stream) continue;
      times.push_back(packet->pts);
      packets.push_back(std::move(packet));
    }
    std::sort(times.begin(), times.end());
  }

  /// The position from which decoding reaches the frame with this time: its nearest keyframe
  /// before.
  std::size_t start_of(std::int64_t time) const {
    std::size_t at = 0;
    while (packets[at]->pts != time) ++at;
    while (at > 0 && (packets[at]->flags & AV_PKT_FLAG_KEY) == 0) --at;
    return at;
  }
};

class FrameDecoder {
 public:
  explicit FrameDecoder(const Video& video) : video_(video), frame_(av_frame_alloc()) {
    const AVCodec* codec = avcodec_find_decoder(video.parameters->codec_id);
    if (codec == nullptr) lerobot::fail("decode_limit: no decoder for this codec");
    context_.reset(avcodec_alloc_context3(codec));
    check(avcodec_parameters_to_context(context_.get(), video.parameters.get()), "decoder set-up");
    context_->thread_count = 1;
    // libdav1d: hand out a frame as soon as it is decoded.
    av_opt_set_int(context_->priv_data, "max_frame_delay", 1, 0);
    check(avcodec_open2(context_.get(), codec, nullptr), "opening the decoder");
    rgb_.resize(static_cast<std::size_t>(context_->width) * context_->height * 3);
    planes_.resize(rgb_.size());
  }

  void decode(std::int64_t time) {
    avcodec_flush_buffers(context_.get());
    for (std::size_t at = video_.start_of(time);; ++at) {
      const bool end = at >= video_.packets.size();
      check(avcodec_send_packet(context_.get(), end ? nullptr : video_.packets[at].get()),
            "sending a packet");
      for (;;) {
        const int result = avcodec_receive_frame(context_.get(), frame_.get());
        if (result == AVERROR(EAGAIN)) break;
        check(result, "decoding");
        if (frame_->pts == time) return convert();
      }
    }
  }

 private:
  void convert() {
    const int width = frame_->width;
    const int height = frame_->height;
    if (!scaler_) {
      scaler_.reset(sws_getContext(width, height, static_cast<AVPixelFormat>(frame_->format), width,
                                   height, AV_PIX_FMT_RGB24, SWS_BILINEAR, nullptr, nullptr,
                                   nullptr));
    }
    std::uint8_t* out[] = {rgb_.data()};
    const int stride[] = {3 * width};
    sws_scale(scaler_.get(), frame_->data, frame_->linesize, 0, height, out, stride);
    const std::size_t pixels = static_cast<std::size_t>(width) * height;
    for (std::size_t i = 0; i < pixels; ++i) {
      planes_[i] = rgb_[3 * i];
      planes_[pixels + i] = rgb_[3 * i + 1];
      planes_[2 * pixels + i] = rgb_[3 * i + 2];
    }
  }

  const Video& video_;
  Owned<AVCodecContext> context_;
  Owned<AVFrame> frame_;
  Owned<SwsContext> scaler_;
  std::vector<std::uint8_t> rgb_;
  std::vector<std::uint8_t> planes_;
};

void run(int threads, int samples, std::uint64_t seed, const std::vector<std::string>& files) {
  std::vector<Video> videos;
  for (const std::string& file : files) videos.emplace_back(file);
  std::mt19937_64 random(seed);
  std::vector<std::size_t> frames(static_cast<std::size_t>(samples));
  for (std::size_t& frame : frames) frame = random() % videos.front().times.size();

  const auto began = std::chrono::steady_clock::now();
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> pool;
  for (int i = 0; i < threads; ++i) {
    pool.emplace_back([&] {
      std::vector<FrameDecoder> decoders;
      decoders.reserve(videos.size());
      for (const Video& video : videos) decoders.emplace_back(video);
      for (std::size_t at = next++; at < frames.size(); at = next++) {
        for (std::size_t v = 0; v < videos.size(); ++v) {
          decoders[v].decode(videos[v].times[frames[at]]);
        }
      }
    });
  }
  for (std::thread& thread : pool) thread.join();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  std::cout << "{\"samples_per_s\": " << samples / seconds << ", \"seconds\": " << seconds << "}\n";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::cerr << "usage: decode_limit THREADS SAMPLES SEED FILE...\n";
    return 2;
  }
  av_log_set_level(AV_LOG_ERROR);
  try {
    run(std::atoi(argv[1]), std::atoi(argv[2]), std::strtoull(argv[3], nullptr, 10),
        std::vector<std::string>(argv + 4, argv + argc));
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return EXIT_FAILURE;
  }
}
