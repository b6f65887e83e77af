#include "lerobot/video/ffmpeg.h"

#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <new>
#include <string_view>

namespace lerobot::video {
namespace {

/// FFmpeg's log callback carries no pointer of ours, so the last line is kept by thread.
struct LastMessage {
  std::string text;
  bool complete = true;  // FFmpeg may write a line in several calls
};
thread_local LastMessage last_message;

void keep_message(void* context, int level, const char* format, va_list arguments) {
  if (level > AV_LOG_ERROR) return;
  char buffer[256];
  std::vsnprintf(buffer, sizeof buffer, format, arguments);
  std::string_view line(buffer);
  const bool complete = line.ends_with('\n');
  while (line.ends_with('\n') || line.ends_with(' ')) line.remove_suffix(1);
  if (last_message.complete) {
    const AVClass* category = context ? *static_cast<AVClass**>(context) : nullptr;
    last_message.text = category ? std::string(category->item_name(context)) + ": " : "";
  }
  last_message.text += line;
  last_message.complete = complete;
}

}  // namespace

void capture_ffmpeg_log() {
  static std::once_flag once;
  std::call_once(once, [] { av_log_set_callback(keep_message); });
}

void forget_ffmpeg_message() {
  last_message.text.clear();
  last_message.complete = true;
}

std::string ffmpeg_error_text(int code) {
  char text[AV_ERROR_MAX_STRING_SIZE] = "";
  if (av_strerror(code, text, sizeof text) < 0) return "unknown error";
  std::string result(text);
  if (!last_message.text.empty()) result += " (" + last_message.text + ")";
  return result;
}

UniqueCodecContext make_codec_context(const AVCodec* codec) {
  capture_ffmpeg_log();
  UniqueCodecContext context(avcodec_alloc_context3(codec));
  if (!context) throw std::bad_alloc();
  context->thread_count = 1;  // parallelism comes from many decoders
  // A picture of more pixels than this is a lie of a damaged file, not a camera's.
  context->max_pixels = std::int64_t{1} << 28;
  return context;
}

}  // namespace lerobot::video
