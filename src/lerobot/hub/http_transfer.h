// One exchange under way, as libcurl carries it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "lerobot/hub/curl_handle.h"
#include "lerobot/hub/http_engine.h"

namespace lerobot::hub {

/// Of the engine's thread alone. Its address is what libcurl's callbacks get.
struct Transfer {
  using Clock = HttpEngine::Clock;

  std::unique_ptr<HttpExchange> exchange;
  std::shared_ptr<Mailbox> mailbox;
  CurlEasy easy;
  CurlList headers;
  char detail[CURL_ERROR_SIZE] = "";
  Clock::time_point last_byte;
  Clock::time_point window_start;
  std::uint64_t window_bytes = 0;
  std::uint64_t dropped = 0;
  bool begun = false;
  bool wanted = false;
  bool refused = false;
  bool cut = false;     ///< we closed it, having seen all that matters
  bool paused = false;  ///< the sink had no room
  std::string failure;  ///< of the sink or the body's source
  std::atomic<std::uint64_t>* received = nullptr;

  /// Tells libcurl all about the exchange. Throws what the body's source throws.
  void set_up(const HttpEngineOptions& options);
  void read_status();
  bool has_room(std::size_t size) const;

  void count(std::size_t bytes);
  void on_header_line(std::string_view line);
  /// False cuts the transfer.
  bool on_body(std::span<const std::uint8_t> bytes);
};

/// True for a failure that another attempt may not meet.
bool may_pass(CURLcode code);

}  // namespace lerobot::hub
