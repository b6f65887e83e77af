// Addresses: joining, comparing and showing them.
#pragma once

#include <string>
#include <string_view>

namespace lerobot::hub {

/// `path` with every byte but A-Z a-z 0-9 - . _ ~ and '/' percent-encoded.
std::string percent_encode_path(std::string_view path);
/// The same with '/' encoded, too: for a revision in a path, or a value in a query.
std::string percent_encode(std::string_view text);
/// The text that percent-encoding hides. Throws Error on a '%' without two hexadecimal digits.
std::string percent_decode(std::string_view text);

/// True for an http or https URL that libcurl can read.
bool is_http_url(const std::string& url);

/// "https://host:443" in lower case, the port always there. Throws Error when `url` is no http or
/// https URL.
std::string url_origin(const std::string& url);

/// The absolute form of a Location header of an answer to `base` (RFC 3986, section 5). Throws
/// Error when the result is no http or https URL.
std::string join_url(const std::string& base, const std::string& location);

/// `url` with one more query parameter; both parts are encoded here.
std::string with_query_parameter(const std::string& url, std::string_view name,
                                 std::string_view value);

/// What may be shown and stored: no user, password, query or fragment. A query, where signatures
/// live, leaves "?..." behind.
std::string printable_url(const std::string& url);

/// A server's text without control characters, at most `longest` bytes of it.
std::string printable_text(std::string text, std::size_t longest);

}  // namespace lerobot::hub
