// One planned range of one file, from the request to the caller's memory.
#pragma once

#include <memory>
#include <string>

#include "lerobot/hub/http_request.h"
#include "lerobot/hub/range_plan.h"
#include "lerobot/hub/remote_file.h"

namespace lerobot::hub {

class RangeFetch : public HttpRequest, public BodySink {
 public:
  RangeFetch(std::shared_ptr<RemoteFile> file, PlannedFetch plan, const Credentials& credentials);

  void prepare(HttpExchange& exchange) override;
  Step judge(const HttpExchange& exchange) override;
  std::string describe() const override;
  bool made_progress() override;

  bool begin(const HttpAnswer& answer) override;
  bool write(std::span<const std::uint8_t> bytes) override;

  /// True when the place that the source redirected to answered 401 or 403: its signature has
  /// expired, perhaps. The fetch is then to be sent once more, after a refresh of its file.
  bool denied() const { return denied_; }
  const std::shared_ptr<RemoteFile>& file() const { return file_; }
  /// Of the place that answered last.
  int generation() const { return place_.generation; }

 private:
  /// Why a 206 is not the answer to what was asked; empty when it is.
  std::string fault_of(const HttpAnswer& answer) const;
  Step judge_body(const HttpExchange& exchange);
  Step short_body(const HttpExchange& exchange) const;
  Step judge_denial(const HttpAnswer& answer);
  void copy(std::uint64_t position, std::span<const std::uint8_t> bytes);

  std::shared_ptr<RemoteFile> file_;
  PlannedFetch plan_;
  const Credentials& credentials_;
  ResolvedUrl place_;
  std::uint64_t position_;       // the next byte that is wanted
  std::uint64_t attempt_start_;  // position_ when the last attempt began
  std::size_t first_open_ = 0;   // segments before it are full
  bool accepts_ = false;         // the answer under way is the asked range
  bool changed_ = false;
  bool denied_ = false;
  bool refreshed_ = false;
};

}  // namespace lerobot::hub
