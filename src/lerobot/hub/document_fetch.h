// A small file as a whole.
#pragma once

#include <optional>
#include <string>

#include "lerobot/hub/http_request.h"
#include "lerobot/hub/range_client.h"

namespace lerobot::hub {

class DocumentFetch : public HttpRequest, public BodySink {
 public:
  DocumentFetch(DocumentRequest request, const Credentials& credentials);

  void prepare(HttpExchange& exchange) override;
  Step judge(const HttpExchange& exchange) override;
  std::string describe() const override;

  bool begin(const HttpAnswer& answer) override;
  bool write(std::span<const std::uint8_t> bytes) override;

  /// nullopt when there is no such file.
  std::optional<Document> take_result() { return std::move(result_); }

 private:
  const DocumentRequest request_;
  const Credentials& credentials_;
  std::string url_;  // where redirects have led
  std::string body_;
  std::optional<Document> result_;
};

}  // namespace lerobot::hub
