#include "lerobot/hub/download.h"

#include <exception>
#include <span>
#include <unistd.h>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "lerobot/hub/curl_handle.h"
#include "lerobot/hub/home.h"

namespace lerobot::hub {
namespace {

/// What libcurl's callbacks see. No exception may cross its C code: the first is kept.
struct Transfer {
  FileWriter& file;
  const DownloadOptions& options;
  std::exception_ptr error;

  static std::size_t on_data(char* data, std::size_t, std::size_t size, void* self) {
    auto& transfer = *static_cast<Transfer*>(self);
    try {
      transfer.file.write(std::string_view(data, size));
      return size;
    } catch (...) {
      transfer.error = std::current_exception();
      return CURL_WRITEFUNC_ERROR;
    }
  }

  static int on_progress(void* self, curl_off_t total, curl_off_t received, curl_off_t,
                         curl_off_t) {
    auto& transfer = *static_cast<Transfer*>(self);
    try {
      if (transfer.options.progress)
        transfer.options.progress(static_cast<std::uint64_t>(received),
                                  static_cast<std::uint64_t>(total));
      return 0;
    } catch (...) {
      transfer.error = std::current_exception();
      return 1;
    }
  }
};

void perform(const std::string& url, Transfer& transfer) {
  const CurlEasy handle = make_curl_easy();
  CURL* curl = handle.get();
  const DownloadOptions& options = transfer.options;
  char detail[CURL_ERROR_SIZE] = "";
  const char* protocols = options.allow_plain_http ? "http,https" : "https";
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
#if LIBCURL_VERSION_NUM >= 0x075500  // 7.85 replaced the bit masks by names
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, protocols);
  curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, protocols);
#else
  const long mask = CURLPROTO_HTTPS | (options.allow_plain_http ? CURLPROTO_HTTP : 0);
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS, mask);
  curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS, mask);
  (void)protocols;
#endif
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
  curl_easy_setopt(curl, CURLOPT_MAXREDIRS, 10L);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT,
                   static_cast<long>(options.connect_timeout.count()));
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1024L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, static_cast<long>(options.stall_timeout.count()));
  curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, detail);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &Transfer::on_data);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, &Transfer::on_progress);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);

  const CURLcode code = curl_easy_perform(curl);
  if (transfer.error) std::rethrow_exception(transfer.error);
  if (code != CURLE_OK) fail("{}: {}", url, *detail ? detail : curl_easy_strerror(code));
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  if (status != 200) fail("{}: expected status 200, found {}", url, status);
}

}  // namespace

void download_file(const std::string& url, const std::filesystem::path& destination,
                   const DownloadOptions& options) {
  if (offline_requested()) fail("{}: not fetched, HF_HUB_OFFLINE is set", url);
  const fs::path directory =
      destination.has_parent_path() ? destination.parent_path() : fs::path(".");
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) fail("{}: cannot be created: {}", directory.string(), error.message());
  fs::path temporary = destination;
  temporary += fmt::format(".tmp.{}", ::getpid());
  {
    FileWriter file(temporary);
    Transfer transfer{file, options, nullptr};
    perform(url, transfer);
    file.commit();
  }
  fs::rename(temporary, destination, error);
  if (error) {
    const std::string reason = error.message();
    fs::remove(temporary, error);
    fail("{}: cannot be created: {}", destination.string(), reason);
  }
  sync_directory(directory);
}

}  // namespace lerobot::hub
