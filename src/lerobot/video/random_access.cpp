#include "lerobot/video/random_access.h"

namespace lerobot::video {
namespace {

/// H.264 (ITU-T H.264, section 7.4.1): nal_ref_idc is 0 exactly for pictures without referrers.
/// Undecided (-1) for units that are not picture data.
int h264_disposable(const std::uint8_t* unit) {
  const int type = unit[0] & 31;
  if (type < 1 || type > 5) return -1;
  return type == 1 && (unit[0] >> 5 & 3) == 0 ? 1 : 0;
}

/// HEVC (ITU-T H.265, table 7-1): even types below 16 are not referred to by pictures of their own
/// temporal layer. With one layer in the stream that means by nobody.
int hevc_disposable(const std::uint8_t* unit) {
  const int type = unit[0] >> 1 & 63;
  if (type >= 32) return -1;
  return type < 16 && type % 2 == 0 ? 1 : 0;
}

}  // namespace

bool is_disposable(const Mp4Index& index, std::span<const std::uint8_t> packet) {
  // Where avcC (14496-15, section 5.3.3) and hvcC (section 8.3.3) say how long a unit's length is.
  const std::vector<std::uint8_t>& configuration = index.decoder_configuration;
  std::size_t length_bytes = 0;
  if (index.codec == Codec::kH264 && configuration.size() >= 7) {
    length_bytes = (configuration[4] & 3) + 1;
  } else if (index.codec == Codec::kHevc && configuration.size() >= 23) {
    const int temporal_layers = configuration[21] >> 3 & 7;
    if (temporal_layers != 1) return false;
    length_bytes = (configuration[21] & 3) + 1;
  } else {
    return false;
  }
  while (packet.size() > length_bytes + 1) {
    std::size_t length = 0;
    for (std::size_t i = 0; i < length_bytes; ++i) length = length << 8 | packet[i];
    packet = packet.subspan(length_bytes);
    if (length < 2 || length > packet.size()) return false;
    const int disposable = index.codec == Codec::kH264 ? h264_disposable(packet.data())
                                                       : hevc_disposable(packet.data());
    if (disposable >= 0) return disposable == 1;
    packet = packet.subspan(length);
  }
  return false;
}

}  // namespace lerobot::video
