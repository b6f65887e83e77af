// Owners for libcurl's handles.
#pragma once

#include <memory>

#include <curl/curl.h>

namespace lerobot::hub {

// CURL and CURLM may both be void to the compiler, so each owner has a deleter of its own.
struct CurlMultiDeleter {
  void operator()(CURLM* multi) const { curl_multi_cleanup(multi); }
};
struct CurlEasyDeleter {
  void operator()(CURL* easy) const { curl_easy_cleanup(easy); }
};
struct CurlListDeleter {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
struct CurlUrlDeleter {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};

using CurlEasy = std::unique_ptr<CURL, CurlEasyDeleter>;
using CurlMulti = std::unique_ptr<CURLM, CurlMultiDeleter>;
using CurlList = std::unique_ptr<curl_slist, CurlListDeleter>;
using CurlUrl = std::unique_ptr<CURLU, CurlUrlDeleter>;

/// Initialise libcurl once in the process, then make a handle. Throw Error when libcurl can't.
CurlEasy make_curl_easy();
CurlMulti make_curl_multi();

}  // namespace lerobot::hub
