#include "lerobot/dataset/dataset_info.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "lerobot/base/checked.h"
#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "lerobot/base/log.h"

namespace lerobot::dataset {
namespace {

constexpr int kVersionMajor = 3;
constexpr int kVersionMinor = 0;
constexpr std::string_view kDefaultVideoPath =
    "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4";

std::string shown(const Json& value) { return to_python_json(value, -1, false); }

/// "v3.0", "3.0" or "2.3.0" as major and minor number.
std::optional<std::pair<int, int>> parse_version(std::string_view text) {
  if (text.starts_with('v')) text.remove_prefix(1);
  int numbers[2] = {0, 0};
  const char* at = text.data();
  const char* end = text.data() + text.size();
  for (int& number : numbers) {
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc() || number < 0) return std::nullopt;
    at = next;
    if (at == end) break;
    if (*at != '.') return std::nullopt;
    ++at;
  }
  return std::pair(numbers[0], numbers[1]);
}

void check_version(const Json& json, std::string_view file) {
  const std::string needed = fmt::format("v{}.{}", kVersionMajor, kVersionMinor);
  if (!json.contains("codebase_version"))
    fail("{}: has no codebase_version; a dataset of version {} is needed", file, needed);
  const Json& value = json["codebase_version"];
  const auto version =
      value.is_string() ? parse_version(value.get_ref<const std::string&>()) : std::nullopt;
  if (!version)
    fail("{}: codebase_version is {}; a dataset of version {} is needed", file, shown(value),
         needed);
  const std::string& found = value.get_ref<const std::string&>();
  if (version->first < kVersionMajor)
    fail(
        "{}: this is a dataset of version {}, version {} is needed: convert it with LeRobot's "
        "lerobot.scripts.convert_dataset_v21_to_v30{}",
        file, found, needed,
        version->first == 2 && version->second == 1 ? "" : " (after its conversion to v2.1)");
  if (version->first > kVersionMajor)
    fail("{}: this is a dataset of version {}, version {} is needed: use a newer lerobot.cpp", file,
         found, needed);
  if (version->second > kVersionMinor)
    log::warning("{}: dataset version {} is newer than {}; reading it as {}", file, found, needed,
                 needed);
}

double positive_number(const Json& json, const char* key, std::string_view file) {
  if (!json.contains(key)) fail("{}: has no {}", file, key);
  const Json& value = json[key];
  const bool is_number = value.is_number() && !value.is_boolean();
  const double number = is_number ? value.get<double>() : 0.0;
  if (!is_number || !std::isfinite(number) || number <= 0.0)
    fail("{}: {} must be a positive, finite number, found {}", file, key, shown(value));
  return number;
}

std::int64_t count(const Json& json, const char* key, std::string_view file) {
  if (!json.contains(key)) return 0;
  const Json& value = json[key];
  if (!value.is_number_integer() || value.is_boolean() ||
      (value.is_number_unsigned() && !std::in_range<std::int64_t>(value.get<std::uint64_t>())) ||
      value.get<std::int64_t>() < 0)
    fail("{}: {} must be a whole number of at least 0, found {}", file, key, shown(value));
  return value.get<std::int64_t>();
}

std::string text_or(const Json& json, const char* key, std::string_view fallback,
                    std::string_view file) {
  if (!json.contains(key)) return std::string(fallback);
  if (!json[key].is_string()) fail("{}: {} must be text, found {}", file, key, shown(json[key]));
  return json[key].get<std::string>();
}

const std::map<std::string, ValueType, std::less<>>& value_types() {
  static const std::map<std::string, ValueType, std::less<>> types = {
      {"float16", ValueType::kFloat32}, {"float32", ValueType::kFloat32},
      {"float64", ValueType::kFloat32}, {"int8", ValueType::kInt64},
      {"int16", ValueType::kInt64},     {"int32", ValueType::kInt64},
      {"int64", ValueType::kInt64},     {"uint8", ValueType::kInt64},
      {"uint16", ValueType::kInt64},    {"uint32", ValueType::kInt64},
      {"uint64", ValueType::kInt64},    {"bool", ValueType::kBool},
      {"string", ValueType::kString},   {"image", ValueType::kImage},
      {"video", ValueType::kVideo}};
  return types;
}

/// The value of `key` in the feature's "info", or null.
Json info_value(const Json& entry, const char* key) {
  const auto info = entry.find("info");
  if (info == entry.end() || !info->is_object() || !info->contains(key)) return nullptr;
  return (*info)[key];
}

void read_depth(const Json& entry, Feature& feature, std::string_view where) {
  const auto is_true = [](const Json& value) { return value.is_boolean() && value.get<bool>(); };
  const auto video_info = entry.find("video_info");
  feature.is_depth =
      is_true(info_value(entry, "is_depth_map")) ||
      is_true(info_value(entry, "video.is_depth_map")) ||
      (video_info != entry.end() && video_info->is_object() &&
       video_info->contains("video.is_depth_map") && is_true((*video_info)["video.is_depth_map"]));
  if (!feature.is_depth) return;
  if (!feature.is_camera())
    fail("{}: is marked as a depth map, but its dtype is \"{}\"", where, feature.dtype);

  const Json unit = info_value(entry, "depth_unit");
  if (!unit.is_null()) {
    if (unit != "m" && unit != "mm")
      fail("{}: info.depth_unit must be \"m\" or \"mm\", found {}", where, shown(unit));
    feature.depth_unit = unit.get<std::string>();
  }
  const auto number = [&](const char* key, double& target) {
    const Json value = info_value(entry, key);
    if (value.is_null()) return;
    if (!value.is_number() || !std::isfinite(value.get<double>()))
      fail("{}: info.{} must be a finite number, found {}", where, key, shown(value));
    target = value.get<double>();
  };
  DepthQuantizer& quantizer = feature.depth_quantizer;
  number("video.depth_min", quantizer.min_m);
  number("video.depth_max", quantizer.max_m);
  number("video.shift", quantizer.shift_m);
  if (const Json value = info_value(entry, "video.use_log"); !value.is_null()) {
    if (!value.is_boolean())
      fail("{}: info.video.use_log must be true or false, found {}", where, shown(value));
    quantizer.use_log = value.get<bool>();
  }
  if (quantizer.max_m <= quantizer.min_m)
    fail("{}: info.video.depth_max must be above video.depth_min, found {} and {}", where,
         quantizer.max_m, quantizer.min_m);
  if (quantizer.use_log && quantizer.min_m + quantizer.shift_m <= 0.0)
    fail("{}: info.video.depth_min + video.shift must be above 0, found {} + {}", where,
         quantizer.min_m, quantizer.shift_m);
}

Feature read_feature(const std::string& name, const Json& entry, std::string_view file) {
  const std::string where = fmt::format("{}: feature \"{}\"", file, name);
  if (name.empty() || name == "." || name == ".." || name.find('/') != name.npos)
    fail("{}: names of features must not be empty or contain '/'", where);
  if (!entry.is_object()) fail("{}: must be an object, found {}", where, shown(entry));
  if (!entry.contains("dtype") || !entry["dtype"].is_string()) fail("{}: has no dtype", where);

  Feature feature;
  feature.name = name;
  feature.dtype = entry["dtype"].get<std::string>();
  if (feature.dtype == "language" || name == "language_persistent" || name == "language_events")
    fail("{}: language columns are not supported; remove the feature from the dataset", where);
  const auto type = value_types().find(feature.dtype);
  if (type == value_types().end()) fail("{}: unknown dtype \"{}\"", where, feature.dtype);
  feature.type = type->second;

  if (!entry.contains("shape") || !entry["shape"].is_array()) fail("{}: has no shape", where);
  std::int64_t elements = 1;
  for (const Json& side : entry["shape"]) {
    if (!side.is_number_integer() || side.is_boolean() || side.get<std::int64_t>() < 1)
      fail("{}: shape must be a list of positive whole numbers, found {}", where,
           shown(entry["shape"]));
    feature.shape.push_back(side.get<std::int64_t>());
    elements = checked_mul(elements, feature.shape.back(), where + ": number of elements");
  }
  const std::size_t dimensions = feature.shape.size();
  if (dimensions == 0 || dimensions > 5)
    fail("{}: shape must have 1 to 5 dimensions, found {}", where, dimensions);
  if (feature.type == ValueType::kString && !feature.is_scalar())
    fail("{}: a string feature must have shape [1], found {}", where, shown(entry["shape"]));
  if (feature.is_camera() && dimensions != 3)
    fail("{}: a camera must have 3 dimensions, found shape {}", where, shown(entry["shape"]));
  if (entry.contains("names")) feature.names = entry["names"];
  read_depth(entry, feature, where);

  if (feature.is_camera()) {
    const std::int64_t channels = feature.sample_shape()[0];
    const std::int64_t expected = feature.is_depth ? 1 : 3;
    if (channels != expected)
      fail("{}: {} must have {} channel(s), found {} in shape {} with names {}", where,
           feature.is_depth ? "a depth camera" : "a camera", expected, channels,
           shown(entry["shape"]), shown(feature.names));
  }
  return feature;
}

void warn_unknown_keys(const Json& json, std::string_view file) {
  static const std::set<std::string, std::less<>> known = {"codebase_version",
                                                           "fps",
                                                           "features",
                                                           "total_episodes",
                                                           "total_frames",
                                                           "total_tasks",
                                                           "chunks_size",
                                                           "data_files_size_in_mb",
                                                           "video_files_size_in_mb",
                                                           "data_path",
                                                           "video_path",
                                                           "robot_type",
                                                           "splits",
                                                           "tools"};
  std::string unknown;
  for (const auto& [key, value] : json.items()) {
    if (known.contains(key)) continue;
    if (!unknown.empty()) unknown += ", ";
    unknown += key;
  }
  if (!unknown.empty()) log::warning("{}: ignoring unknown keys: {}", file, unknown);
}

void check_default_features(const DatasetInfo& info, std::string_view file) {
  const auto require = [&](std::string_view name, ValueType type, const char* kind) {
    const Feature* feature = info.find(name);
    if (!feature) fail("{}: features has no \"{}\"", file, name);
    if (feature->type != type || !feature->is_scalar())
      fail("{}: feature \"{}\" must be {} of shape [1], found dtype \"{}\"", file, name, kind,
           feature->dtype);
  };
  require("timestamp", ValueType::kFloat32, "a floating-point number");
  for (std::string_view name : {"frame_index", "episode_index", "index", "task_index"})
    require(name, ValueType::kInt64, "an integer");
}

}  // namespace

std::vector<std::int64_t> Feature::sample_shape() const {
  if (is_camera()) {
    const bool channels_last =
        names.is_array() && names.size() == 3 && (names[2] == "channel" || names[2] == "channels");
    if (channels_last) return {shape[2], shape[0], shape[1]};
    return shape;
  }
  if (is_scalar()) return {};
  return shape;
}

std::int64_t Feature::elements() const {
  std::int64_t product = 1;
  for (std::int64_t side : shape) product *= side;
  return product;
}

PathTemplate::PathTemplate(std::string_view text, std::string_view option) : text_(text) {
  if (text.empty()) fail("{}: is empty", option);
  if (text.starts_with('/'))
    fail("{}: must be relative to the dataset, found \"{}\"", option, text);
  for (const auto& part : std::filesystem::path(text))
    if (part == "..") fail("{}: must not leave the dataset, found \"{}\"", option, text);

  Piece piece;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    const bool doubled = at + 1 < text.size() && text[at + 1] == c;
    if ((c == '{' || c == '}') && doubled) {
      piece.literal += c;
      ++at;
      continue;
    }
    if (c == '}') fail("{}: has a '}}' without '{{': \"{}\"", option, text);
    if (c != '{') {
      piece.literal += c;
      continue;
    }
    const std::size_t close = text.find('}', at);
    if (close == text.npos) fail("{}: has a '{{' without '}}': \"{}\"", option, text);
    const std::string_view body = text.substr(at + 1, close - at - 1);
    const std::size_t colon = body.find(':');
    const std::string_view name = body.substr(0, colon);
    std::string_view spec = colon == body.npos ? std::string_view() : body.substr(colon + 1);
    if (name == "chunk_index")
      piece.field = Field::kChunkIndex;
    else if (name == "file_index")
      piece.field = Field::kFileIndex;
    else if (name == "video_key")
      piece.field = Field::kVideoKey;
    else
      fail("{}: unknown field {{{}}} in \"{}\"; known are chunk_index, file_index and video_key{}",
           option, name, text,
           name.starts_with("episode_") ? " (episode_* belongs to version 2.1 of the format)" : "");
    if (!spec.empty()) {
      const std::string_view whole = spec;
      if (piece.field == Field::kVideoKey)
        fail("{}: {{video_key}} takes no format, found \"{}\"", option, whole);
      if (spec.ends_with('d')) spec.remove_suffix(1);
      if (spec.starts_with('0')) {
        piece.zero_padded = true;
        spec.remove_prefix(1);
      }
      const auto [end, error] =
          std::from_chars(spec.data(), spec.data() + spec.size(), piece.width);
      const bool ok = spec.empty() || (error == std::errc() && end == spec.data() + spec.size());
      if (!ok || piece.width > 20)
        fail("{}: format \"{}\" of {{{}}} is not supported; expected one like 03d", option, whole,
             name);
    }
    pieces_.push_back(std::move(piece));
    piece = Piece();
    at = close;
  }
  pieces_.push_back(std::move(piece));
}

std::string PathTemplate::expand(std::int64_t chunk_index, std::int64_t file_index,
                                 std::string_view video_key) const {
  std::string path;
  for (const Piece& piece : pieces_) {
    path += piece.literal;
    switch (piece.field) {
      case Field::kNone:
        break;
      case Field::kVideoKey:
        path += video_key;
        break;
      case Field::kChunkIndex:
      case Field::kFileIndex: {
        const std::int64_t number = piece.field == Field::kChunkIndex ? chunk_index : file_index;
        path += piece.zero_padded ? fmt::format("{:0{}}", number, piece.width)
                                  : fmt::format("{:{}}", number, piece.width);
        break;
      }
    }
  }
  return path;
}

const Feature* DatasetInfo::find(std::string_view name) const {
  const auto found = std::find_if(features.begin(), features.end(),
                                  [&](const Feature& feature) { return feature.name == name; });
  return found == features.end() ? nullptr : &*found;
}

std::vector<std::string> DatasetInfo::video_keys() const {
  std::vector<std::string> keys;
  for (const Feature& feature : features)
    if (feature.type == ValueType::kVideo) keys.push_back(feature.name);
  return keys;
}

DatasetInfo parse_dataset_info(const Json& json, std::string_view name) {
  if (!json.is_object()) fail("{}: must hold an object", name);
  check_version(json, name);

  DatasetInfo info;
  info.codebase_version = json["codebase_version"].get<std::string>();
  info.fps = positive_number(json, "fps", name);
  info.total_episodes = count(json, "total_episodes", name);
  info.total_frames = count(json, "total_frames", name);
  info.total_tasks = count(json, "total_tasks", name);
  for (const char* key : {"chunks_size", "data_files_size_in_mb", "video_files_size_in_mb"})
    if (json.contains(key)) positive_number(json, key, name);
  info.data_path = PathTemplate(text_or(json, "data_path", info.data_path.text(), name),
                                fmt::format("{}: data_path", name));
  if (!json.contains("video_path") || !json["video_path"].is_null())
    info.video_path.emplace(text_or(json, "video_path", kDefaultVideoPath, name),
                            fmt::format("{}: video_path", name));
  if (json.contains("robot_type") && !json["robot_type"].is_null())
    info.robot_type = text_or(json, "robot_type", "", name);

  if (!json.contains("features") || !json["features"].is_object())
    fail("{}: has no features", name);
  for (const auto& [feature_name, entry] : json["features"].items())
    info.features.push_back(read_feature(feature_name, entry, name));
  check_default_features(info, name);
  if (!info.video_path && !info.video_keys().empty())
    fail("{}: video_path is null, but feature \"{}\" is a video", name, info.video_keys().front());
  warn_unknown_keys(json, name);
  return info;
}

DatasetInfo read_dataset_info(const std::filesystem::path& path) {
  if (is_git_lfs_pointer(path))
    fail("{}: is a Git LFS pointer; fetch the dataset's files with `git lfs pull`", path.string());
  return parse_dataset_info(read_json_file(path), path.string());
}

}  // namespace lerobot::dataset
