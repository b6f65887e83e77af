#include "lerobot/hub/http_transfer.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <system_error>

#include "lerobot/base/error.h"

namespace lerobot::hub {
namespace {

/// The body of an error page is read up to here, which keeps the connection; beyond, closing it is
/// cheaper.
constexpr std::uint64_t kDroppedBody = 64 << 10;
/// libcurl's buffer for one system call. With its default of 16 KiB, ten times as many are made.
constexpr long kReceiveBuffer = 256 << 10;
constexpr long kSendBuffer = 256 << 10;
constexpr std::size_t kMostHeaders = 200;

// libcurl's callbacks. No exception may cross its C code.

std::size_t header_callback(char* data, std::size_t, std::size_t size, void* self) {
  auto& transfer = *static_cast<Transfer*>(self);
  try {
    transfer.count(size);
    transfer.on_header_line({data, size});
    return size;
  } catch (const std::exception& error) {
    transfer.failure = error.what();
    return 0;
  }
}

std::size_t upload_callback(char* out, std::size_t, std::size_t size, void* self) {
  auto& transfer = *static_cast<Transfer*>(self);
  try {
    if (!transfer.exchange->body) return 0;
    const std::size_t given =
        transfer.exchange->body->read({reinterpret_cast<std::uint8_t*>(out), size});
    transfer.count(given);
    return given;
  } catch (const std::exception& error) {
    transfer.failure = error.what();
    return CURL_READFUNC_ABORT;
  }
}

int seek_callback(void* self, curl_off_t offset, int whence) {
  auto& transfer = *static_cast<Transfer*>(self);
  if (whence != SEEK_SET || offset != 0) return CURL_SEEKFUNC_CANTSEEK;
  try {
    if (transfer.exchange->body) transfer.exchange->body->rewind();
    return CURL_SEEKFUNC_OK;
  } catch (const std::exception& error) {
    transfer.failure = error.what();
    return CURL_SEEKFUNC_FAIL;
  }
}

std::size_t body_callback(char* data, std::size_t, std::size_t size, void* self) {
  auto& transfer = *static_cast<Transfer*>(self);
  try {
    if (!transfer.has_room(size)) {
      transfer.paused = true;
      return CURL_WRITEFUNC_PAUSE;  // libcurl keeps the bytes and brings them again
    }
    transfer.count(size);
    *transfer.received += size;
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(data);
    return transfer.on_body({bytes, size}) ? size : CURL_WRITEFUNC_ERROR;
  } catch (const std::exception& error) {
    transfer.failure = error.what();
    return CURL_WRITEFUNC_ERROR;
  }
}

CurlList header_list(const HttpExchange& exchange) {
  CurlList list;
  const auto append = [&list](const char* line) {
    curl_slist* longer = curl_slist_append(list.get(), line);
    if (!longer) fail("out of memory");
    (void)list.release();
    list.reset(longer);
  };
  append("Accept-Encoding: identity");  // ranges and sizes are those of the file itself
  append("Expect:");                    // a body is sent at once, not after a "100 Continue"
  for (const std::string& line : exchange.headers) append(line.c_str());
  return list;
}

void set_up_method(Transfer& transfer) {
  CURL* curl = transfer.easy.get();
  const HttpExchange& exchange = *transfer.exchange;
  if (exchange.method == "HEAD") {
    curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
    return;
  }
  if (exchange.method == "GET") return;
  if (exchange.method == "POST" || exchange.method == "PUT") {
    curl_easy_setopt(curl, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(curl, CURLOPT_INFILESIZE_LARGE,
                     exchange.body ? static_cast<curl_off_t>(exchange.body->size()) : 0);
    if (exchange.body) exchange.body->rewind();
    curl_easy_setopt(curl, CURLOPT_READFUNCTION, &upload_callback);
    curl_easy_setopt(curl, CURLOPT_READDATA, &transfer);
    curl_easy_setopt(curl, CURLOPT_SEEKFUNCTION, &seek_callback);
    curl_easy_setopt(curl, CURLOPT_SEEKDATA, &transfer);
    curl_easy_setopt(curl, CURLOPT_UPLOAD_BUFFERSIZE, kSendBuffer);
  }
  curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, exchange.method.c_str());
}

/// The variables by which users of Python's clients name a private certificate authority: a file,
/// or a folder as OpenSSL wants it.
void set_up_authorities(CURL* curl) {
  for (const char* name : {"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"}) {
    const char* authorities = std::getenv(name);
    if (!authorities || !*authorities) continue;
    std::error_code ignored;
    const bool folder = std::filesystem::is_directory(authorities, ignored);
    curl_easy_setopt(curl, folder ? CURLOPT_CAPATH : CURLOPT_CAINFO, authorities);
    return;
  }
}

/// libcurl takes proxies, and whom to spare them, from the environment, but for HTTP_PROXY: in a
/// CGI program that would be a header of the request. Python takes it elsewhere.
void set_up_proxy(CURL* curl, const std::string& url) {
  const auto given = [](const char* name) {
    const char* value = std::getenv(name);
    return value && *value ? value : nullptr;
  };
  if (!url.starts_with("http:") || given("http_proxy") || given("REQUEST_METHOD")) return;
  if (const char* proxy = given("HTTP_PROXY")) curl_easy_setopt(curl, CURLOPT_PROXY, proxy);
}

}  // namespace

void Transfer::set_up(const HttpEngineOptions& options) {
  CURL* curl = easy.get();
  curl_easy_reset(curl);  // keeps TLS sessions
  curl_easy_setopt(curl, CURLOPT_URL, exchange->url.c_str());
#if LIBCURL_VERSION_NUM >= 0x075500  // 7.85 replaced the bit masks by names
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
#else
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS, static_cast<long>(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
#if LIBCURL_VERSION_NUM >= 0x075700
  // Without it, breaking off a transfer waits for the system's name look-up, which may take long.
  curl_easy_setopt(curl, CURLOPT_QUICK_EXIT, 1L);
#endif
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  // HTTP/2 by ALPN. Transfers don't wait for a connection that could be shared (CURLOPT_PIPEWAIT):
  // several connections have several congestion windows, which is what the option is for.
  curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_2TLS));
  curl_easy_setopt(curl, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
  curl_easy_setopt(curl, CURLOPT_TCP_KEEPIDLE, 30L);
  curl_easy_setopt(curl, CURLOPT_TCP_KEEPINTVL, 15L);
  curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, kReceiveBuffer);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, options.user_agent.c_str());
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS,
                   static_cast<long>(options.connect_timeout.count()));
  set_up_authorities(curl);
  set_up_proxy(curl, exchange->url);
  set_up_method(*this);
  curl_easy_setopt(curl, CURLOPT_FRESH_CONNECT, exchange->once ? 1L : 0L);
  headers = header_list(*exchange);
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, detail);
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, &header_callback);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, this);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &body_callback);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, this);
  curl_easy_setopt(curl, CURLOPT_PRIVATE, this);
}

void Transfer::read_status() {
  curl_easy_getinfo(easy.get(), CURLINFO_RESPONSE_CODE, &exchange->answer.status);
}

bool Transfer::has_room(std::size_t size) const {
  return !exchange->sink || exchange->sink->has_room(size);
}

void Transfer::count(std::size_t bytes) {
  last_byte = Clock::now();
  window_bytes += bytes;
}

void Transfer::on_header_line(std::string_view line) {
  while (!line.empty() && (line.back() == '\r' || line.back() == '\n')) line.remove_suffix(1);
  if (line.starts_with("HTTP/")) {  // a new answer: what came before was a 1xx
    exchange->answer.headers.clear();
    return;
  }
  const std::size_t colon = line.find(':');
  if (begun || colon == std::string_view::npos) return;  // trailers can't change the answer
  if (exchange->answer.headers.size() >= kMostHeaders) return;
  std::string name(line.substr(0, colon));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::string_view value = line.substr(colon + 1);
  while (!value.empty() && std::isspace(static_cast<unsigned char>(value.front())))
    value.remove_prefix(1);
  while (!value.empty() && std::isspace(static_cast<unsigned char>(value.back())))
    value.remove_suffix(1);
  exchange->answer.headers.emplace_back(std::move(name), value);
}

bool Transfer::on_body(std::span<const std::uint8_t> bytes) {
  if (!begun) {
    begun = true;
    read_status();
    wanted = exchange->sink && exchange->sink->begin(exchange->answer);
  }
  if (wanted) {
    refused = !exchange->sink->write(bytes);
    return !refused;
  }
  dropped += bytes.size();
  cut = dropped > kDroppedBody;
  return !cut;
}

/// True for a failure that another attempt may not meet.
bool may_pass(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
      return true;
    default:
      return false;
  }
}

}  // namespace lerobot::hub
