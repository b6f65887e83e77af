#include "lerobot/hub/url.h"

#include <gmock/gmock.h>

#include "tests/support/error_of.h"

namespace lerobot::hub {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Expected texts: urllib.parse.quote(text, safe="/") and quote(text, safe="") of Python.
TEST(Url, EncodesPathsAndRevisionsAsTheHubsClientDoes) {
  EXPECT_EQ(percent_encode_path("videos/cam a/file#1.mp4"), "videos/cam%20a/file%231.mp4");
  EXPECT_EQ(percent_encode_path("a[1]?b%c&d+e~f_g-h.i"), "a%5B1%5D%3Fb%25c%26d%2Be~f_g-h.i");
  EXPECT_EQ(percent_encode_path("\xc3\xa4"), "%C3%A4");
  EXPECT_EQ(percent_encode("refs/pr/1"), "refs%2Fpr%2F1");
}

TEST(Url, DecodesWhatItEncodes) {
  std::string all;
  for (int c = 1; c < 256; ++c) all += static_cast<char>(c);
  EXPECT_EQ(percent_decode(percent_encode(all)), all);
  EXPECT_EQ(percent_decode("refs%2fpr%2F1"), "refs/pr/1");
  for (const char* bad : {"%", "a%2", "%zz", "%2x"})
    EXPECT_THAT(error_of([&] { percent_decode(bad); }), HasSubstr("hexadecimal digits")) << bad;
}

TEST(Url, ComparesOriginsBySchemeHostAndPort) {
  EXPECT_EQ(url_origin("https://Hub.example/a"), url_origin("https://hub.example:443/b?c"));
  EXPECT_NE(url_origin("https://hub.example"), url_origin("http://hub.example"));
  EXPECT_NE(url_origin("https://hub.example"), url_origin("https://hub.example:8443"));
  EXPECT_NE(url_origin("https://hub.example"), url_origin("https://cdn.hub.example"));
  EXPECT_EQ(url_origin("https://user:pass@hub.example/"), url_origin("https://hub.example"));
}

// RFC 3986, section 5.4.
TEST(Url, JoinsRelativeReferences) {
  const std::string base = "http://a/b/c/d;p?q";
  EXPECT_EQ(join_url(base, "g"), "http://a/b/c/g");
  EXPECT_EQ(join_url(base, "/g"), "http://a/g");
  EXPECT_EQ(join_url(base, "../g"), "http://a/b/g");
  EXPECT_EQ(join_url(base, "//g/x"), "http://g/x");
  EXPECT_EQ(join_url(base, "g?y=1"), "http://a/b/c/g?y=1");
  EXPECT_EQ(join_url(base, "https://g/x?sig=a%2Fb"), "https://g/x?sig=a%2Fb");
}

TEST(Url, LeadsNowhereButToHttp) {
  for (const char* target : {"file:///etc/passwd", "ftp://host/x", "gopher://host"})
    EXPECT_THAT(error_of([&] { join_url("https://a/b", target); }),
                HasSubstr("which is no http or https URL"));
  EXPECT_FALSE(is_http_url("file:///etc/passwd"));
  EXPECT_FALSE(is_http_url("http://"));
  EXPECT_FALSE(is_http_url("http:///folder"));
  EXPECT_FALSE(is_http_url("http://a b/"));
  EXPECT_TRUE(is_http_url("http://127.0.0.1:80/x"));
}

TEST(Url, AddsQueryParameters) {
  EXPECT_EQ(with_query_parameter("https://a/b", "_refresh", "1 2"), "https://a/b?_refresh=1%202");
  EXPECT_EQ(with_query_parameter("https://a/b?c=d", "_refresh", "1"), "https://a/b?c=d&_refresh=1");
}

TEST(Url, ShowsNoSecrets) {
  EXPECT_EQ(printable_url("https://user:pass@host:1/a/b?Signature=s#f"), "https://host:1/a/b?...");
  EXPECT_EQ(printable_url("https://user:p@ss@host/a@b"), "https://host/a@b");
  EXPECT_EQ(printable_url("https://host?x=1"), "https://host?...");
  EXPECT_THAT(error_of([] { join_url("https://u:secret@a/b?sig=secret", "file:///x"); }),
              AllOf(HasSubstr("https://a/b?..."), Not(HasSubstr("secret"))));
}

}  // namespace
}  // namespace lerobot::hub
