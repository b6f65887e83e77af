#include "lerobot/streaming/sidecar.h"

#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <utility>

#include "lerobot/base/digest.h"
#include "lerobot/base/error.h"
#include "lerobot/hub/home.h"
#include "lerobot/hub/location.h"
#include "lerobot/streaming/side_by_side.h"

namespace lerobot::streaming {
namespace {

namespace fs = std::filesystem;

std::span<const std::uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

bool is_slug_character(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '-';
}

/// Each run of other characters than [A-Za-z0-9_.-] replaced, '-' stripped at both ends.
std::string slug(std::string_view text, std::string_view replacement) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (is_slug_character(text[i]))
      result += text[i];
    else if (i == 0 || is_slug_character(text[i - 1]))
      result += replacement;
  }
  const std::size_t begin = result.find_first_not_of('-');
  if (begin == std::string::npos) return {};
  return result.substr(begin, result.find_last_not_of('-') - begin + 1);
}

/// A version 4 UUID.
std::string random_uuid() {
  std::random_device device;
  std::array<std::uint32_t, 4> words{};
  for (std::uint32_t& word : words) word = device();
  return fmt::format("{:08x}-{:04x}-4{:03x}-{:04x}-{:04x}{:08x}", words[0], words[1] >> 16,
                     words[1] & 0xfff, (words[2] >> 16 & 0x3fff) | 0x8000, words[2] & 0xffff,
                     words[3]);
}

/// json.dumps(value, sort_keys=True, separators=(",", ":")) for texts, numbers and their objects.
std::string canonical_json(const nlohmann::json& sorted) {
  return sorted.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
}

nlohmann::json identity_json(const SidecarIdentity& identity) {
  nlohmann::json json{{"data_root", identity.data_root},
                      {"repo_id", identity.repo_id},
                      {"revision", identity.revision},
                      {"schema_version", kSidecarSchema}};
  if (!identity.fingerprints.empty()) json["source_fingerprints"] = identity.fingerprints;
  return json;
}

// ---- JSON
// ---------------------------------------------------------------------------------------

std::string to_hex(std::span<const std::uint8_t> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

/// One object of a manifest; messages name the file and the key.
class Fields {
 public:
  Fields(const Json& json, std::string place, std::string_view name)
      : json_(json), place_(std::move(place)), name_(name) {
    if (!json.is_object()) fail("{}: {} is no object", name_, place_);
  }

  const Json& value(const char* key) const {
    const auto found = json_.find(key);
    if (found == json_.end()) fail("{}: {} lacks '{}'", name_, place_, key);
    return *found;
  }
  std::string text(const char* key) const {
    const Json& found = value(key);
    if (!found.is_string()) wrong(key, "a text", found);
    return found.get<std::string>();
  }
  std::uint64_t number(const char* key) const {
    const Json& found = value(key);
    if (!found.is_number_unsigned()) wrong(key, "a whole number, not negative", found);
    return found.get<std::uint64_t>();
  }
  std::uint32_t number32(const char* key) const {
    const std::uint64_t found = number(key);
    if (found > 0xffffffff) wrong(key, "a number of 32 bits", value(key));
    return static_cast<std::uint32_t>(found);
  }
  bool boolean(const char* key) const {
    const Json& found = value(key);
    if (!found.is_boolean()) wrong(key, "true or false", found);
    return found.get<bool>();
  }
  const Json& list(const char* key) const {
    const Json& found = value(key);
    if (!found.is_array()) wrong(key, "a list", found);
    return found;
  }
  std::vector<std::uint8_t> hex(const char* key) const {
    const std::string found = text(key);
    const auto digit = [&](char c) -> int {
      if (c >= '0' && c <= '9') return c - '0';
      if (c >= 'a' && c <= 'f') return c - 'a' + 10;
      if (c >= 'A' && c <= 'F') return c - 'A' + 10;
      wrong(key, "hexadecimal digits", value(key));
    };
    if (found.size() % 2 != 0) wrong(key, "pairs of hexadecimal digits", value(key));
    std::vector<std::uint8_t> bytes(found.size() / 2);
    for (std::size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<std::uint8_t>(digit(found[2 * i]) * 16 + digit(found[2 * i + 1]));
    return bytes;
  }
  /// A path that stays below the data root.
  std::string path(const char* key) const {
    std::string found = text(key);
    const fs::path parts(found);
    if (found.empty() || parts.is_absolute() ||
        std::find(parts.begin(), parts.end(), "..") != parts.end())
      wrong(key, "a path inside the dataset", value(key));
    return found;
  }

 private:
  [[noreturn]] void wrong(const char* key, std::string_view expected, const Json& found) const {
    std::string text = to_python_json(found, -1);
    constexpr std::size_t kShown = 80;
    if (text.size() > kShown) text = text.substr(0, kShown) + "...";
    fail("{}: {}.{} has to be {}, found {}", name_, place_, key, expected, text);
  }

  const Json& json_;
  std::string place_;
  std::string_view name_;
};

SidecarIdentity parse_identity(const Fields& fields, std::string_view name) {
  if (const auto schema = fields.number("schema_version"); schema != kSidecarSchema)
    fail("{}: its schema is {}, expected {}", name, schema, kSidecarSchema);
  SidecarIdentity identity;
  identity.repo_id = fields.text("repo_id");
  identity.revision = fields.text("revision");
  identity.data_root = fields.text("data_root");
  for (const Json& entry : fields.list("source_files")) {
    const Fields source(entry, "sidecar.source_files[]", name);
    identity.sources.push_back({source.path("path"), std::nullopt});
    if (!source.value("size").is_null()) identity.sources.back().size = source.number("size");
  }
  const Json& fingerprints = fields.value("source_fingerprints");
  if (!fingerprints.is_object()) fail("{}: sidecar.source_fingerprints is no object", name);
  for (const auto& [path, fingerprint] : fingerprints.items()) {
    if (!fingerprint.is_string())
      fail("{}: sidecar.source_fingerprints: that of {} is no text", name, path);
    identity.fingerprints.emplace(path, fingerprint.get<std::string>());
  }
  return identity;
}

SidecarVideo parse_video(const Json& entry, std::string_view name) {
  const Fields file(entry, "files[]", name);
  SidecarVideo video;
  video.path = file.path("file_path");
  video.size = file.number("file_size");
  const Fields mp4(file.value("mp4"), fmt::format("files[{}].mp4", video.path), name);
  if (mp4.path("file_path") != video.path || mp4.number("file_size") != video.size)
    fail("{}: files[{}].mp4 names another file or size", name, video.path);
  video.file_type_box = mp4.hex("ftyp");
  video.moov_offset = mp4.number("moov_offset");
  video.mdat_offset = mp4.number("mdat_offset");
  video.mdat_payload_offset = mp4.number("mdat_payload_offset");
  video.mdat_payload_size = mp4.number("mdat_payload_size");
  video.faststart = mp4.boolean("faststart");
  video.codec = mp4.text("codec");
  video.timescale = mp4.number32("timescale");
  video.duration = mp4.number("duration");
  video.track_id = mp4.number32("track_id");
  video.width = mp4.number32("width");
  video.height = mp4.number32("height");
  video.sample_description = mp4.hex("stsd_body");
  if (video.timescale == 0) fail("{}: files[{}]: its time scale is 0", name, video.path);
  return video;
}

/// Sources and videos are the same files.
void check_sources(SidecarManifest& manifest, std::string_view name) {
  const auto& sources = manifest.identity.sources;
  if (sources.size() != manifest.videos.size())
    fail("{}: it lists {} source files and {} indexed ones", name, sources.size(),
         manifest.videos.size());
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const SidecarVideo& video = manifest.videos[i];
    if (sources[i].path != video.path)
      fail("{}: source file {} is {}, indexed is {}", name, i, sources[i].path, video.path);
    if (i > 0 && sources[i - 1].path >= sources[i].path)
      fail("{}: source files are not sorted: {} comes before {}", name, sources[i - 1].path,
           sources[i].path);
    if (sources[i].size && *sources[i].size != video.size)
      fail("{}: {} has {} bytes as a source and {} as an indexed file", name, video.path,
           *sources[i].size, video.size);
  }
}

std::string shortened(const std::string& text) { return text.empty() ? "(empty)" : text; }

}  // namespace

std::string to_json_text(const SidecarManifest& manifest) {
  const SidecarIdentity& identity = manifest.identity;
  Json sources = Json::array();
  for (const SourceFile& source : identity.sources)
    sources.push_back(
        {{"path", source.path}, {"size", source.size ? Json(*source.size) : Json(nullptr)}});
  Json fingerprints = Json::object();
  for (const auto& [path, fingerprint] : identity.fingerprints) fingerprints[path] = fingerprint;
  Json files = Json::array();
  for (const SidecarVideo& video : manifest.videos) {
    const Json mp4 = {{"file_path", video.path},
                      {"file_size", video.size},
                      {"ftyp", to_hex(video.file_type_box)},
                      {"moov_offset", video.moov_offset},
                      {"mdat_offset", video.mdat_offset},
                      {"mdat_payload_offset", video.mdat_payload_offset},
                      {"mdat_payload_size", video.mdat_payload_size},
                      {"faststart", video.faststart},
                      {"codec", video.codec},
                      {"timescale", video.timescale},
                      {"duration", video.duration},
                      {"track_id", video.track_id},
                      {"width", video.width},
                      {"height", video.height},
                      {"stsd_body", to_hex(video.sample_description)}};
    files.push_back({{"file_path", video.path}, {"file_size", video.size}, {"mp4", mp4}});
  }
  const Json json = {{"version", kSidecarSchema},
                     {"sidecar",
                      {{"schema_version", kSidecarSchema},
                       {"repo_id", identity.repo_id},
                       {"revision", identity.revision},
                       {"data_root", identity.data_root},
                       {"source_files", sources},
                       {"source_fingerprints", fingerprints}}},
                     {"files", files}};
  return to_python_json(json, -1);
}

SidecarManifest parse_manifest(std::string_view text, std::string_view name) {
  const Json json = parse_json(text, name);
  const Fields fields(json, "the manifest", name);
  if (const auto version = fields.number("version"); version != kSidecarSchema)
    fail("{}: its version is {}, expected {}", name, version, kSidecarSchema);
  SidecarManifest manifest;
  manifest.identity = parse_identity(Fields(fields.value("sidecar"), "sidecar", name), name);
  const Json& files = fields.list("files");
  manifest.videos.reserve(files.size());
  for (const Json& entry : files) manifest.videos.push_back(parse_video(entry, name));
  check_sources(manifest, name);
  return manifest;
}

bool is_pinned(std::string_view data_root) {
  if (!data_root.starts_with("hf://datasets/")) return false;
  try {
    return hub::classify_location(data_root).pinned;
  } catch (const UsageError&) {  // a root that no dataset can have, in a foreign sidecar
    return false;
  }
}

std::string local_data_root(const fs::path& directory) {
  std::string text = fs::absolute(hub::expand_user(directory.string())).lexically_normal().string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

std::optional<std::string> stale_reason(const SidecarIdentity& found,
                                        const SidecarIdentity& expected) {
  const auto differs = [](std::string_view what, const std::string& is, const std::string& wanted) {
    return fmt::format("its {} is {}, expected {}", what, shortened(is), shortened(wanted));
  };
  if (found.repo_id != expected.repo_id) return differs("repo_id", found.repo_id, expected.repo_id);
  if (found.data_root != expected.data_root)
    return differs("data_root", found.data_root, expected.data_root);
  if (found.revision != expected.revision && !is_pinned(expected.data_root))
    return differs("revision", found.revision, expected.revision);
  if (found.sources.size() != expected.sources.size())
    return fmt::format("it has {} videos, the dataset {}", found.sources.size(),
                       expected.sources.size());
  for (std::size_t i = 0; i < found.sources.size(); ++i) {
    const SourceFile& is = found.sources[i];
    const SourceFile& wanted = expected.sources[i];
    if (is.path != wanted.path) return differs("video", is.path, wanted.path);
    if (wanted.size && is.size != wanted.size)
      return fmt::format("{} had {} bytes and has {}", is.path, is.size.value_or(0), *wanted.size);
  }
  if (found.fingerprints != expected.fingerprints)
    return found.fingerprints.empty() ? "it has no fingerprints of its videos"
                                      : "videos have changed since (their fingerprints differ)";
  return std::nullopt;
}

std::string identity_digest(const SidecarIdentity& identity) {
  nlohmann::json json = identity_json(identity);
  if (is_pinned(identity.data_root)) json.erase("revision");
  Sha256 hash;
  hash.update(bytes_of(canonical_json(json)));
  for (const SourceFile& source : identity.sources) {
    hash.update(bytes_of(source.path));
    hash.update(bytes_of(std::string_view("\0", 1)));
  }
  return hash.hex_digest();
}

std::vector<std::string> video_paths(const dataset::DatasetFiles& dataset,
                                     std::optional<std::int64_t> episodes) {
  const std::vector<std::string>& cameras = dataset.video_keys();
  if (cameras.empty()) return {};
  if (!dataset.info().video_path)
    fail("dataset {}: it has video features, but info.json has no video_path", dataset.repo_id());
  const dataset::EpisodeTable& table = dataset.episodes();
  const std::int64_t count = std::min(episodes.value_or(table.size()), table.size());
  std::vector<std::string> paths;
  for (std::size_t camera = 0; camera < cameras.size(); ++camera) {
    std::set<dataset::FileIndex> files;
    for (std::int64_t episode = 0; episode < count; ++episode)
      files.insert(table.video(episode, camera).file);
    for (const dataset::FileIndex& file : files)
      paths.push_back(dataset.info().video_path->expand(file.chunk, file.file, cameras[camera]));
  }
  std::sort(paths.begin(), paths.end());
  paths.erase(std::unique(paths.begin(), paths.end()), paths.end());
  return paths;
}

SidecarIdentity expected_identity(std::string repo_id, std::string revision, std::string data_root,
                                  const std::vector<std::string>& paths, Payload& payload,
                                  int workers) {
  if (repo_id.empty() || revision.empty())
    fail("a sidecar needs a repo_id and a revision, found '{}' and '{}'", repo_id, revision);
  SidecarIdentity identity{std::move(repo_id), std::move(revision), std::move(data_root), {}, {}};
  identity.sources.resize(paths.size());
  for (std::size_t i = 0; i < paths.size(); ++i) identity.sources[i].path = paths[i];
  if (is_pinned(identity.data_root)) return identity;

  std::vector<std::string> fingerprints(paths.size());
  side_by_side(paths.size(), workers, "sidecar-sources", [&](std::size_t i) {
    identity.sources[i].size = payload.size(paths[i]);
    fingerprints[i] = payload.fingerprint(paths[i]).value_or("");
    if (fingerprints[i].empty()) fingerprints[i] = random_uuid();
  });
  for (std::size_t i = 0; i < paths.size(); ++i)
    identity.fingerprints.emplace_hint(identity.fingerprints.end(), paths[i],
                                       std::move(fingerprints[i]));
  return identity;
}

std::string sidecar_file_name(const SidecarIdentity& identity) {
  constexpr std::size_t kRevisionCharacters = 32, kDigestCharacters = 16;
  std::string revision = slug(identity.revision, "-").substr(0, kRevisionCharacters);
  if (revision.empty()) revision = "revision";
  const std::string digest = sha256_hex(bytes_of(canonical_json(identity_json(identity))));
  return fmt::format("mp4-v{}-{}-{}.npz", kSidecarSchema, revision,
                     digest.substr(0, kDigestCharacters));
}

fs::path sidecar_cache_path(const fs::path& lerobot_home, const SidecarIdentity& identity) {
  std::string repository = slug(identity.repo_id, "--");
  if (repository.empty()) repository = "dataset";
  return lerobot_home / "streaming-sidecars" / repository / sidecar_file_name(identity);
}

}  // namespace lerobot::streaming
