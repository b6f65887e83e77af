#include "lerobot/config/text_value.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include <yaml-cpp/yaml.h>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"

namespace lerobot::config {
namespace {

/// Nested deeper than any configuration; a bound for the recursion over hostile text.
constexpr int kDeepest = 64;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// A number as YAML 1.1 writes it, plus 1e-5, which Python takes as well. Leading zeros make text:
/// YAML reads them as octal, people do not.
std::optional<Json> parse_number(const std::string& text) {
  std::string digits;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool between =
        i > 0 && i + 1 < text.size() && is_digit(text[i - 1]) && is_digit(text[i + 1]);
    if (text[i] == '_' && between) continue;
    digits += text[i];
  }
  std::string_view rest = digits;
  const bool signed_text = !rest.empty() && (rest[0] == '-' || rest[0] == '+');
  if (signed_text) rest.remove_prefix(1);
  const bool negative = signed_text && digits[0] == '-';
  if (rest == ".inf" || rest == ".Inf" || rest == ".INF" || rest == "inf" || rest == "Infinity")
    return Json(negative ? -std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::infinity());
  if (!signed_text &&
      (rest == ".nan" || rest == ".NaN" || rest == ".NAN" || rest == "nan" || rest == "NaN"))
    return Json(std::numeric_limits<double>::quiet_NaN());
  if (rest.empty() || !(is_digit(rest[0]) || (rest[0] == '.' && rest.size() > 1))) return {};
  if (rest.size() > 1 && rest[0] == '0' && is_digit(rest[1])) return {};

  const std::string_view number = signed_text && !negative ? std::string_view(rest) : digits;
  const char* const end = number.data() + number.size();
  std::int64_t integer = 0;
  if (const auto [stop, error] = std::from_chars(number.data(), end, integer);
      error == std::errc() && stop == end)
    return Json(integer);
  if (rest.find_first_not_of("0123456789") == rest.npos) return {};  // too large an integer
  double real = 0;
  if (const auto [stop, error] = std::from_chars(number.data(), end, real);
      error == std::errc() && stop == end)
    return Json(real);
  return {};
}

/// Nothing here needs deep nesting, and it would exhaust the stack.
bool nested_too_deep(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\')
      ++i;
    else if (c == '"')
      quoted = !quoted;
    else if (!quoted && (c == '[' || c == '{') && ++depth > kDeepest)
      return true;
    else if (!quoted && (c == ']' || c == '}'))
      --depth;
  }
  return false;
}

Json plain_scalar(const std::string& text) {
  for (const char* word : {"null", "Null", "NULL", "~"})
    if (text == word) return nullptr;
  for (const char* word : {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"})
    if (text == word) return true;
  for (const char* word : {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"})
    if (text == word) return false;
  if (auto number = parse_number(text)) return *number;
  return text;
}

Json from_yaml(const YAML::Node& node, const std::string& path, int depth,
               std::vector<std::string>& duplicates) {
  if (depth > kDeepest) fail("nested deeper than {} levels", kDeepest);
  switch (node.Type()) {
    case YAML::NodeType::Scalar:
      // "?" is the tag of a plain scalar, "!" that of a quoted one.
      return node.Tag() == "?" ? plain_scalar(node.Scalar()) : Json(node.Scalar());
    case YAML::NodeType::Sequence: {
      Json items = Json::array();
      for (const auto& item : node) items.push_back(from_yaml(item, path, depth + 1, duplicates));
      return items;
    }
    case YAML::NodeType::Map: {
      Json object = Json::object();
      for (const auto& entry : node) {
        if (!entry.first.IsScalar()) fail("{}: a key must be text", path);
        const std::string& key = entry.first.Scalar();
        const std::string name = path.empty() ? key : path + "." + key;
        if (object.contains(key)) duplicates.push_back(name);
        object[key] = from_yaml(entry.second, name, depth + 1, duplicates);
      }
      return object;
    }
    default:
      return nullptr;
  }
}

}  // namespace

Json parse_value(std::string_view text) {
  if (text.empty()) return "";
  const std::string copy(text);
  if (nested_too_deep(text)) return copy;
  if (text[0] == '{' || text[0] == '[' || text[0] == '"') {
    Json json = Json::parse(copy, nullptr, false);
    if (!json.is_discarded()) return json;
  }
  try {
    std::vector<std::string> duplicates;
    return from_yaml(YAML::Load(copy), "", 0, duplicates);
  } catch (const std::exception&) {
    return copy;
  }
}

ConfigFile read_config_file(const std::filesystem::path& file) {
  const std::string text = read_text_file(file);
  const std::string extension = file.extension().string();
  ConfigFile result;
  if (extension == ".toml") fail("{}: TOML is not supported; write JSON or YAML", file.string());
  result.yaml = extension == ".yaml" || extension == ".yml";
  if (result.yaml) {
    try {
      result.content = from_yaml(YAML::Load(text), "", 0, result.duplicates);
    } catch (const std::exception& error) {
      fail("{}: is not valid YAML: {}", file.string(), error.what());
    }
  } else {
    if (nested_too_deep(text)) fail("{}: nested deeper than {} levels", file.string(), kDeepest);
    result.content = parse_json(text, file.string());
    result.duplicates = duplicate_json_keys(text);
  }
  if (!result.content.is_object())
    fail("{}: expected an object with options, found {}", file.string(),
         result.content.type_name());
  return result;
}

}  // namespace lerobot::config
