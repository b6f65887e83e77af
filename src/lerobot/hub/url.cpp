#include "lerobot/hub/url.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "lerobot/base/error.h"
#include "lerobot/hub/curl_handle.h"

namespace lerobot::hub {
namespace {

std::string encode(std::string_view text, std::string_view kept) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = byte < 0x80 && std::isalnum(byte);
    if (plain || kept.find(c) != std::string_view::npos) {
      out += c;
    } else {
      out += '%';
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    }
  }
  return out;
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

CurlUrl new_url() {
  CurlUrl handle(curl_url());
  if (!handle) fail("libcurl cannot be initialised");
  return handle;
}

CurlUrl parse(const std::string& url) {
  CurlUrl handle = new_url();
  if (curl_url_set(handle.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK)
    fail("{}: is not a URL; expected http://HOST/PATH or https://HOST/PATH", url);
  return handle;
}

/// Empty when the URL has no such part.
std::string part(const CurlUrl& url, CURLUPart which, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url.get(), which, &text, flags) != CURLUE_OK || !text) return {};
  std::string copy(text);
  curl_free(text);
  return copy;
}

bool is_http(const CurlUrl& url) {
  const std::string scheme = part(url, CURLUPART_SCHEME);
  return scheme == "http" || scheme == "https";
}

}  // namespace

std::string percent_encode_path(std::string_view path) { return encode(path, "-._~/"); }

std::string percent_encode(std::string_view text) { return encode(text, "-._~"); }

std::string percent_decode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    const int high = i + 2 < text.size() ? hex_value(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? hex_value(text[i + 2]) : -1;
    if (high < 0 || low < 0) fail("{}: expected two hexadecimal digits after each %", text);
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

bool is_http_url(const std::string& url) {
  // libcurl forgives a third slash and takes the first folder for the host.
  if (url.find(":///") != std::string::npos) return false;
  const CurlUrl handle = new_url();
  return curl_url_set(handle.get(), CURLUPART_URL, url.c_str(), 0) == CURLUE_OK && is_http(handle);
}

std::string url_origin(const std::string& url) {
  const CurlUrl handle = parse(url);
  if (!is_http(handle)) fail("{}: expected an http or https URL", printable_url(url));
  std::string host = part(handle, CURLUPART_HOST);
  std::transform(host.begin(), host.end(), host.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return fmt::format("{}://{}:{}", part(handle, CURLUPART_SCHEME), host,
                     part(handle, CURLUPART_PORT, CURLU_DEFAULT_PORT));
}

std::string join_url(const std::string& base, const std::string& location) {
  const CurlUrl handle = parse(base);
  // libcurl joins a relative reference to what the handle holds.
  const CURLUcode code =
      curl_url_set(handle.get(), CURLUPART_URL, location.c_str(), CURLU_URLENCODE);
  if (code != CURLUE_OK || !is_http(handle))
    fail("{}: redirects to {}, which is no http or https URL", printable_url(base),
         printable_url(location));
  return part(handle, CURLUPART_URL);
}

std::string with_query_parameter(const std::string& url, std::string_view name,
                                 std::string_view value) {
  const CurlUrl handle = parse(url);
  const std::string parameter = percent_encode(name) + "=" + percent_encode(value);
  if (curl_url_set(handle.get(), CURLUPART_QUERY, parameter.c_str(), CURLU_APPENDQUERY) !=
      CURLUE_OK)
    fail("{}: cannot take a query parameter", printable_url(url));
  return part(handle, CURLUPART_URL);
}

std::string printable_text(std::string text, std::size_t longest) {
  if (text.size() > longest) text.resize(longest);
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  return text;
}

std::string printable_url(const std::string& url) {
  std::string out = url.substr(0, url.find('#'));
  const std::size_t query = out.find('?');
  if (query != std::string::npos) out = out.substr(0, query) + "?...";
  const std::size_t scheme = out.find("://");
  if (scheme == std::string::npos) return out;
  const std::size_t authority = scheme + 3;
  const std::size_t path = std::min(out.find_first_of("/?", authority), out.size());
  const std::size_t at = out.substr(0, path).rfind('@');
  if (at != std::string::npos && at >= authority) out.erase(authority, at + 1 - authority);
  return out;
}

}  // namespace lerobot::hub
