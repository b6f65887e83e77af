// FFmpeg's C structures with owners, its log, and what differs between its releases.
//
// Supported: FFmpeg 4.4 (libavcodec 58.134) to 8. What we use is the same in all of them but for
// the features below.
#pragma once

#include <memory>
#include <string>

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavutil/buffer.h>
#include <libavutil/error.h>
#include <libavutil/frame.h>
#include <libavutil/imgutils.h>
#include <libavutil/log.h>
#include <libavutil/opt.h>
#include <libavutil/pixdesc.h>
#include <libswscale/swscale.h>
}

#if LIBAVCODEC_VERSION_INT < AV_VERSION_INT(58, 134, 100)
#error "FFmpeg 4.4 or newer is needed"
#endif

// FFmpeg 5.0 (libavutil 57) made the size of a reference-counted buffer a size_t; it was an int.
#if LIBAVUTIL_VERSION_MAJOR >= 57
#define LEROBOT_FFMPEG_BUFFER_SIZE_IS_SIZE_T 1
#else
#define LEROBOT_FFMPEG_BUFFER_SIZE_IS_SIZE_T 0
#endif

namespace lerobot::video {

struct CodecContextDeleter {
  void operator()(AVCodecContext* context) const { avcodec_free_context(&context); }
};
struct PacketDeleter {
  void operator()(AVPacket* packet) const { av_packet_free(&packet); }
};
struct FrameDeleter {
  void operator()(AVFrame* frame) const { av_frame_free(&frame); }
};
struct ScalerDeleter {
  void operator()(SwsContext* scaler) const { sws_freeContext(scaler); }
};

using UniqueCodecContext = std::unique_ptr<AVCodecContext, CodecContextDeleter>;
using UniquePacket = std::unique_ptr<AVPacket, PacketDeleter>;
using UniqueFrame = std::unique_ptr<AVFrame, FrameDeleter>;
using UniqueScaler = std::unique_ptr<SwsContext, ScalerDeleter>;

#if LEROBOT_FFMPEG_BUFFER_SIZE_IS_SIZE_T
using FfmpegBufferSize = std::size_t;
#else
using FfmpegBufferSize = int;
#endif

/// Keeps FFmpeg's log off the terminal: its last error line, by thread, is kept for our own
/// message. Process-wide, as FFmpeg's log is; idempotent and thread-safe.
void capture_ffmpeg_log();
/// Forgets this thread's last line.
void forget_ffmpeg_message();
/// `code`'s text, followed by FFmpeg's last own line of this thread, if there is one.
std::string ffmpeg_error_text(int code);

/// A context of `codec` for one thread of ours, not opened yet.
UniqueCodecContext make_codec_context(const AVCodec* codec);

}  // namespace lerobot::video
