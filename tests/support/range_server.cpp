#include "tests/support/range_server.h"

#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "lerobot/base/files.h"

namespace lerobot::test_server {
namespace {

std::string etag_of(const std::string& content) {
  return fmt::format("\"{:016x}\"", std::hash<std::string>{}(content));
}

}  // namespace

RangeServer::RangeServer(std::filesystem::path folder, Hook hook)
    : folder_(std::move(folder)),
      hook_(std::move(hook)),
      server_({.handler = [this](const Request& request) { return answer(request); },
               .hook = [this](const Request& request) { return behaviour(request); }}) {}

void RangeServer::put(const std::string& path, std::string content) {
  const std::lock_guard lock(mutex_);
  files_[path] = std::move(content);
}

void RangeServer::remove(const std::string& path) {
  const std::lock_guard lock(mutex_);
  files_.erase(path);
}

void RangeServer::set_hook(Hook hook) {
  const std::lock_guard lock(mutex_);
  hook_ = std::move(hook);
}

std::vector<Request> RangeServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

int RangeServer::requests(const std::string& method, const std::string& path) const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(std::count_if(
      requests_.begin(), requests_.end(),
      [&](const Request& request) { return request.method == method && request.path == path; }));
}

Behaviour RangeServer::behaviour(const Request& request) {
  const std::lock_guard lock(mutex_);
  requests_.push_back(request);
  return hook_ ? hook_(request) : Behaviour{};
}

Answer RangeServer::answer(const Request& request) const {
  const auto found = content(request.path);
  if (!found) return plain_answer(404);
  return content_answer(
      request, *found,
      {{"ETag", etag_of(*found)}, {"Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT"}});
}

std::optional<std::string> RangeServer::content(const std::string& path) const {
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = files_.find(path); at != files_.end()) return at->second;
  }
  if (folder_.empty() || path.find("/..") != std::string::npos) return std::nullopt;
  const std::filesystem::path file = folder_ / path.substr(1);
  if (!std::filesystem::is_regular_file(file)) return std::nullopt;
  return read_text_file(file);
}

}  // namespace lerobot::test_server
