#include "lerobot/hub/lfs_upload_batch.h"

#include <algorithm>
#include <charconv>

#include "lerobot/base/error.h"
#include "lerobot/hub/url.h"

namespace lerobot::hub {
namespace {

class BatchAnswer {
 public:
  explicit BatchAnswer(const Subject& subject) : subject_(subject) {}

  LfsActions actions_of(const Json& actions, const LfsObject& object) const {
    LfsActions out;
    if (!actions.is_object() || !actions.contains("upload"))
      fail_for(object, "actions without \"upload\"");
    out.upload = target_of(actions["upload"], object);
    take_parts(out.upload, actions["upload"], object);
    if (actions.contains("verify") && !actions["verify"].is_null())
      out.verify = target_of(actions["verify"], object);
    return out;
  }

  [[noreturn]] void fail_for(const LfsObject& object, const std::string& what) const {
    fail_answer(subject_, fmt::format("the large-file storage has, for {}, {}",
                                      object.content->path(), what));
  }

 private:
  LfsTarget target_of(const Json& action, const LfsObject& object) const {
    LfsTarget target;
    target.url = text_field(action, "href", subject_);
    if (!is_http_url(target.url)) fail_for(object, "an address that is none");
    if (!action.contains("header") || !action["header"].is_object()) return target;
    for (const auto& [name, value] : action["header"].items()) {
      if (is_part_number(name) || name == "chunk_size" || !value.is_string()) continue;
      std::string line = fmt::format("{}: {}", name, value.get<std::string>());
      if (line.find_first_of("\r\n") != std::string::npos)
        fail_for(object, "a header with a line break");
      target.headers.push_back(std::move(line));
    }
    return target;
  }

  /// The Hub hides its transfer in parts in the header of the upload: "chunk_size", and under
  /// "00001", "00002", ... an address for each part.
  void take_parts(LfsTarget& target, const Json& action, const LfsObject& object) const {
    if (!action.contains("header") || !action["header"].is_object()) return;
    const Json& header = action["header"];
    if (!header.contains("chunk_size")) return;
    target.part_size = part_size(header["chunk_size"], object);
    std::map<std::uint64_t, std::string> parts;
    for (const auto& [name, value] : header.items()) {
      if (!is_part_number(name)) continue;
      if (!value.is_string() || !is_http_url(value.get<std::string>()))
        fail_for(object, "an address of a part that is none");
      parts.emplace(number(name).value_or(0), value.get<std::string>());
    }
    const std::uint64_t expected =
        (object.content->size() + target.part_size - 1) / target.part_size;
    if (parts.size() != expected)
      fail_for(object, fmt::format("{} parts of {} bytes, of which {} bytes need {}", parts.size(),
                                   target.part_size, object.content->size(), expected));
    for (auto& [index, url] : parts) target.parts.push_back(std::move(url));
  }

  std::uint64_t part_size(const Json& value, const LfsObject& object) const {
    std::optional<std::uint64_t> size;
    if (value.is_string()) size = number(value.get<std::string>());
    if (value.is_number_unsigned()) size = value.get<std::uint64_t>();
    if (!size || *size == 0) fail_for(object, "a \"chunk_size\" that is no number of bytes");
    return *size;
  }

  static bool is_part_number(const std::string& name) {
    return !name.empty() &&
           std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
  }

  static std::optional<std::uint64_t> number(const std::string& text) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
  }

  const Subject& subject_;
};

Json question(const std::string& branch, std::span<const LfsObject> objects) {
  Json list = Json::array();
  for (const LfsObject& object : objects)
    list.push_back({{"oid", object.sha256}, {"size", object.content->size()}});
  return {{"operation", "upload"},
          {"transfers", {"basic", "multipart"}},
          {"objects", std::move(list)},
          {"hash_algo", "sha256"},
          {"ref", {{"name", branch}}}};
}

/// What the storage says against an object: {"code": 422, "message": "..."}.
std::string refusal(const Json& error) {
  if (!error.is_object()) return "an error";
  const std::string message = error.value("message", Json("")).is_string()
                                  ? error.value("message", std::string())
                                  : std::string();
  const Json code = error.value("code", Json());
  return fmt::format("error {}: {}", code.is_number_integer() ? code.dump() : "without a code",
                     printable_text(message, 500));
}

}  // namespace

std::map<std::string, std::optional<LfsActions>> ask_lfs_batch(HubClient& client, const Repo& repo,
                                                               const std::string& branch,
                                                               std::span<const LfsObject> objects) {
  const Subject subject{.repo = repo, .action = "upload large files"};
  const Json answer =
      client.call_json({.method = "POST",
                        .url = page_url(client.endpoint(), repo) + ".git/info/lfs/objects/batch",
                        .body = question(branch, objects).dump(),
                        .content_type = kLfsContentType,
                        .headers = {std::string("Accept: ") + kLfsContentType}},
                       subject);
  const BatchAnswer reader(subject);
  std::map<std::string, std::optional<LfsActions>> out;
  const Json found = answer.is_object() ? answer.value("objects", Json::array()) : Json::array();
  for (const LfsObject& object : objects) {
    const auto at = std::find_if(found.begin(), found.end(), [&object](const Json& candidate) {
      return candidate.is_object() && candidate.value("oid", Json()) == object.sha256;
    });
    if (at == found.end()) reader.fail_for(object, "nothing");
    if (at->contains("error") && !(*at)["error"].is_null())
      throw HubError(HubFault::kRefused, 0,
                     fmt::format("cannot upload {} to {}: the large-file storage refuses, {}",
                                 object.content->path(), describe(repo), refusal((*at)["error"])));
    if (count_field(*at, "size", subject) != object.content->size())
      reader.fail_for(object, "another size");
    std::optional<LfsActions>& actions = out[object.sha256];
    if (at->contains("actions") && !(*at)["actions"].is_null())
      actions = reader.actions_of((*at)["actions"], object);
  }
  return out;
}

}  // namespace lerobot::hub
