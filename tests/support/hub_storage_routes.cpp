// The host of presigned addresses: the storage that takes uploads, and the CDN that gives files
// away.
#include <charconv>

#include <fmt/format.h>

#include "tests/support/hub_routes.h"

namespace lerobot::test_server {
namespace {

[[noreturn]] void refuse_bytes(const std::string& code, const std::string& message) {
  throw Refusal({400,
                 {{"Content-Type", "application/xml"}},
                 fmt::format("<Code>{}</Code><Message>{}</Message>", code, message)});
}

/// The segments behind the first, "/uploads/A/B" -> A, B.
std::vector<std::string> names(const std::string& path) {
  std::vector<std::string> names;
  for (std::size_t at = path.find('/', 1); at != std::string::npos;) {
    const std::size_t end = path.find('/', at + 1);
    names.push_back(path.substr(at + 1, end == std::string::npos ? end : end - at - 1));
    at = end;
  }
  return names;
}

Answer give(const HubState& state, const Request& request) {
  const auto is_below = [&](const char* folder) { return request.path.starts_with(folder); };
  const std::string name = names(request.path).at(0);
  std::optional<Bytes> content;
  if (is_below("/large/")) {
    if (const auto file = state.uploaded_file(name)) content = file->content;
  } else if (is_below("/xet/")) {
    if (const XetFile* file = state.xet.file(name)) content = file->content;
    if (name == empty_xet_hash()) content = Bytes();
  } else if (is_below("/xorbs/")) {
    if (const Xorb* xorb = state.xet.xorb(name)) content = xorb->bytes;
  }
  if (!content) throw Refusal(plain_answer(404));
  // The storage's own ETag has nothing to do with the Hub's.
  return content_answer(request, *content,
                        {{"ETag", fmt::format("\"storage-{}\"", name.substr(0, 16))},
                         {"Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT"},
                         {"Content-Type", "application/octet-stream"}});
}

Answer take(HubState& state, const Request& request) {
  const std::string sha256 = names(request.path).at(0);
  const std::string found = sha256_of(request.content);
  if (found != sha256)
    refuse_bytes("XAmzContentSHA256Mismatch",
                 fmt::format("the body has SHA-256 {}, not {}", found, sha256));
  state.large.emplace(sha256, request.content);
  return {200, {{"ETag", fmt::format("\"{}\"", found.substr(0, 32))}}, {}};
}

std::string etag_of_part(const Bytes& part) {
  return fmt::format("\"{}\"", sha256_of(part).substr(0, 32));
}

PartialUpload& partial(HubState& state, const std::string& id) {
  const auto at = state.partial.find(id);
  if (at == state.partial.end()) throw Refusal(plain_answer(404));
  return at->second;
}

Answer take_part(HubState& state, const Request& request) {
  const auto path = names(request.path);
  PartialUpload& upload = partial(state, path.at(1));
  std::uint64_t number = 0;
  std::from_chars(path.at(2).data(), path.at(2).data() + path.at(2).size(), number);
  const std::uint64_t begin = (number - 1) * upload.chunk_size;
  if (number == 0 || begin >= upload.size ||
      request.content.size() != std::min(upload.chunk_size, upload.size - begin))
    refuse_bytes("EntityTooSmall",
                 fmt::format("part {} has {} bytes", number, request.content.size()));
  upload.parts[number] = request.content;
  return {200, {{"ETag", etag_of_part(request.content)}}, {}};
}

Answer complete(HubState& state, const Request& request) {
  const auto path = names(request.path);
  const std::string& sha256 = path.at(0);
  PartialUpload& upload = partial(state, path.at(1));
  const Json body = json_body(request);
  if (body.value("oid", "") != sha256) refuse_bytes("InvalidRequest", "another oid");
  Bytes whole;
  std::uint64_t number = 0;
  for (const Json& part : body.value("parts", Json::array())) {
    const auto at = upload.parts.find(++number);
    if (part.value("partNumber", 0u) != number || at == upload.parts.end() ||
        part.value("etag", "") != etag_of_part(at->second))
      refuse_bytes("InvalidPart", fmt::format("part {} was not uploaded like this", number));
    whole.append(at->second);
  }
  if (const std::string found = sha256_of(whole); found != sha256)
    refuse_bytes("InvalidPart", fmt::format("the parts have SHA-256 {}, not {}", found, sha256));
  state.large.emplace(sha256, whole);
  state.partial.erase(path.at(1));
  return json_answer(Json::object());
}

Answer answer_signed(HubState& state, const Request& request) {
  if (request.has("authorization"))
    refuse_bytes("InvalidArgument", "Only one auth mechanism allowed");
  state.check_signature(request);
  const bool upload = request.path.starts_with("/uploads/");
  const std::size_t depth = names(request.path).size();
  if (!upload && depth == 1 && (request.method == "GET" || request.method == "HEAD"))
    return give(state, request);
  if (upload && depth == 1 && request.method == "PUT") return take(state, request);
  if (upload && depth == 3 && request.method == "PUT") return take_part(state, request);
  if (upload && depth == 3 && request.method == "POST") return complete(state, request);
  return plain_answer(405);
}

}  // namespace

Answer answer_storage(HubState& state, const Request& request) {
  try {
    return answer_signed(state, request);
  } catch (const Refusal& refusal) {
    return refusal.answer();
  }
}

}  // namespace lerobot::test_server
