#include "lerobot/hub/curl_handle.h"

#include <mutex>

#include "lerobot/base/error.h"

namespace lerobot::hub {
namespace {

void initialise_curl() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) fail("libcurl cannot be initialised");
  });
}

}  // namespace

CurlEasy make_curl_easy() {
  initialise_curl();
  CurlEasy handle(curl_easy_init());
  if (!handle) fail("libcurl cannot be initialised");
  return handle;
}

CurlMulti make_curl_multi() {
  initialise_curl();
  CurlMulti handle(curl_multi_init());
  if (!handle) fail("libcurl cannot be initialised");
  return handle;
}

}  // namespace lerobot::hub
