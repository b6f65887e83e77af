#include "lerobot/hub/xet/xet_server.h"

#include <algorithm>
#include <utility>

#include "lerobot/base/error.h"
#include "lerobot/hub/upload_request.h"
#include "lerobot/hub/url.h"

namespace lerobot::hub::xet {
namespace {

/// A token is renewed so long before its end: a large body may take a while.
constexpr std::chrono::seconds kMargin{30};
/// Far enough for any token, and far from overflow.
constexpr std::uint64_t kLastSecond = 9'000'000'000;

}  // namespace

XetServer::XetServer(HubClient& client, std::string token_url, Subject subject)
    : client_(client), token_url_(std::move(token_url)), subject_(std::move(subject)) {}

void XetServer::post(const std::string& path, BodySource& body, const std::string& name) {
  for (bool renewed = false;; renewed = true) {
    const auto access = this->access();
    const UploadRequest request{.method = "POST",
                                .url = access->url + path,
                                .headers = {"Content-Type: application/octet-stream"},
                                .body = &body,
                                .credentials = &access->credentials,
                                .subject = {.repo = subject_.repo, .action = "upload " + name}};
    const UploadAnswer answer = send_upload(client_, request);
    if (answer.head.status < 400) return;
    body.rewind();  // what was sent doesn't count
    if (answer.head.status != 401 || renewed) fail_upload(request, answer);
    forget(access);
  }
}

std::shared_ptr<const XetServer::Access> XetServer::access() {
  const std::lock_guard lock(mutex_);
  if (access_ && std::chrono::system_clock::now() + kMargin < access_->end) return access_;
  const Json answer = client_.call_json({.url = token_url_}, subject_);
  auto access = std::make_shared<Access>();
  access->url = text_field(answer, "casUrl", subject_);
  while (access->url.ends_with('/')) access->url.pop_back();
  access->credentials = {.token = text_field(answer, "accessToken", subject_),
                         .origin = "the Hub, for its Xet storage"};
  const auto end = std::min(count_field(answer, "exp", subject_), kLastSecond);
  access->end = std::chrono::system_clock::time_point(std::chrono::seconds(end));
  if (!is_http_url(access->url) ||
      access->credentials.token->find_first_of("\r\n") != std::string::npos)
    fail_answer(subject_, "address or token of the Xet storage is unusable");
  access_ = access;
  return access_;
}

void XetServer::forget(const std::shared_ptr<const Access>& refused) {
  const std::lock_guard lock(mutex_);
  if (access_ == refused) access_.reset();
}

}  // namespace lerobot::hub::xet
