#include "lerobot/hub/environment.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>

#include "lerobot/base/error.h"
#include "lerobot/hub/home.h"
#include "lerobot/hub/url.h"

namespace lerobot::hub {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string trimmed(std::string text) {
  std::erase_if(text, [](char c) { return c == '\r' || c == '\n'; });
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::string file_text(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return "";
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::chrono::seconds timeout_of(const char* name, std::chrono::seconds unset) {
  const std::string text = trimmed(variable(name));
  if (text.empty()) return unset;
  int seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || seconds < 0)
    fail_usage("{}={}: expected a whole number of seconds", name, text);
  return seconds == 0 ? unset : std::chrono::seconds(seconds);
}

std::string endpoint_of_environment(const std::string& unset) {
  std::string endpoint = trimmed(variable("HF_ENDPOINT"));
  if (endpoint.empty()) return unset;
  while (endpoint.ends_with('/')) endpoint.pop_back();
  if (!is_http_url(endpoint) || endpoint.find_first_of("?#") != std::string::npos)
    fail_usage("HF_ENDPOINT={}: expected the address of a Hub, such as https://huggingface.co",
               printable_url(endpoint));
  return endpoint;
}

void check_token(const Credentials& credentials) {
  const std::string& token = *credentials.token;
  // A line break in a header would be a header of its own.
  if (std::any_of(token.begin(), token.end(),
                  [](unsigned char c) { return c <= 0x20 || c >= 0x7f; }))
    fail_usage("the token from {} holds a blank, a control character or a non-ASCII one",
               credentials.origin);
}

}  // namespace

Credentials find_credentials() {
  const std::string given = variable("HF_TOKEN_PATH");
  const fs::path file = given.empty() ? hf_home() / "token" : expand_path(given);
  if (is_set("HF_HUB_DISABLE_IMPLICIT_TOKEN"))
    return {.token = {}, .origin = "the environment, HF_HUB_DISABLE_IMPLICIT_TOKEN is set"};
  struct Source {
    std::string name;
    std::string text;
  };
  const std::vector<Source> sources = {
      {"HF_TOKEN", variable("HF_TOKEN")},
      {"HUGGING_FACE_HUB_TOKEN", variable("HUGGING_FACE_HUB_TOKEN")},
      {file.string(), file_text(file)}};
  const std::string login = trimmed(sources.back().text);
  for (const Source& source : sources) {
    Credentials credentials{.token = trimmed(source.text), .origin = source.name};
    if (credentials.token->empty()) continue;
    // A variable set long ago is easily forgotten beside a later login.
    if (&source != &sources.back() && !login.empty() && login != *credentials.token)
      credentials.origin += fmt::format(" (which goes before the login in {})", file.string());
    check_token(credentials);
    return credentials;
  }
  return {.token = {},
          .origin = fmt::format("HF_TOKEN, HUGGING_FACE_HUB_TOKEN or {}", file.string())};
}

HubEnvironment HubEnvironment::read() {
  HubEnvironment out;
  out.endpoint = endpoint_of_environment(out.endpoint);
  out.credentials = find_credentials();
  out.offline = offline_requested();
  std::string cache = variable("HF_HUB_CACHE");
  if (cache.empty()) cache = variable("HUGGINGFACE_HUB_CACHE");
  out.cache = cache.empty() ? hf_home() / "hub" : expand_path(cache);
  out.symlinks = !is_set("HF_HUB_DISABLE_SYMLINKS");
  out.etag_timeout = timeout_of("HF_HUB_ETAG_TIMEOUT", out.etag_timeout);
  out.download_timeout = timeout_of("HF_HUB_DOWNLOAD_TIMEOUT", out.download_timeout);
  return out;
}

}  // namespace lerobot::hub
