#include "tests/support/http_message.h"

#include <algorithm>
#include <cctype>
#include <cstdio>

#include <fmt/format.h>

namespace lerobot::test_server {

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string Request::header(const std::string& name) const {
  const auto at = headers.find(name);
  return at == headers.end() ? std::string() : at->second;
}

Answer plain_answer(int status) {
  if (status == 304 || status == 204) return {status, {}, {}};
  return {status, {}, fmt::format("status {}\n", status)};
}

Answer content_answer(const Request& request, const Bytes& content, Headers headers) {
  std::string etag;
  for (const auto& [name, value] : headers)
    if (lower_case(name) == "etag") etag = value;
  if (!etag.empty() && request.header("if-none-match") == etag) return {304, headers, {}};
  headers.emplace_back("Accept-Ranges", "bytes");
  unsigned long long first = 0;
  unsigned long long last = 0;
  const int fields = std::sscanf(request.header("range").c_str(), "bytes=%llu-%llu", &first, &last);
  if (fields <= 0) return {200, std::move(headers), content};
  if (first >= content.size()) {
    Answer refusal = plain_answer(416);
    refusal.headers = {{"Content-Range", fmt::format("bytes */{}", content.size())}};
    return refusal;
  }
  if (fields == 1 || last >= content.size()) last = content.size() - 1;
  headers.emplace_back("Content-Range", fmt::format("bytes {}-{}/{}", first, last, content.size()));
  return {206, std::move(headers), content.part(first, last - first + 1)};
}

void set_header(Headers& headers, const std::string& name, std::string value) {
  for (auto& [key, old] : headers)
    if (lower_case(key) == lower_case(name)) {
      old = std::move(value);
      return;
    }
  headers.emplace_back(name, std::move(value));
}

Behaviour Behaviour::answer(int status, Headers headers) {
  Behaviour behaviour;
  behaviour.status = status;
  behaviour.headers = std::move(headers);
  return behaviour;
}

Behaviour Behaviour::redirect(int status, const std::string& location, Headers headers) {
  Behaviour behaviour = answer(status, std::move(headers));
  behaviour.headers.emplace_back("Location", location);
  return behaviour;
}

}  // namespace lerobot::test_server
