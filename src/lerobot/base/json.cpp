#include "lerobot/base/json.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <set>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"

namespace lerobot {
namespace {

// JSON has no NaN and no infinities, Python's module writes and reads them as bare words. They are
// replaced by out-of-band strings before parsing and turned into numbers after it.
constexpr std::string_view kNan = "\x01NaN";
constexpr std::string_view kInfinity = "\x01Infinity";
constexpr std::string_view kMinusInfinity = "\x01-Infinity";

bool starts_with_at(std::string_view text, std::size_t at, std::string_view word) {
  return text.substr(at, word.size()) == word;
}

std::string quote_bare_constants(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      out += c;
      if (c == '\\' && i + 1 < text.size())
        out += text[++i];
      else if (c == '"')
        in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    bool replaced = false;
    for (std::string_view word : {"NaN", "Infinity", "-Infinity"}) {
      if (!starts_with_at(text, i, word)) continue;
      out += "\"\\u0001";
      out += word;
      out += '"';
      i += word.size() - 1;
      replaced = true;
      break;
    }
    if (!replaced) out += c;
  }
  return out;
}

void restore_constants(Json& value) {
  if (value.is_structured()) {
    for (auto& child : value) restore_constants(child);
  } else if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (text == kNan)
      value = std::numeric_limits<double>::quiet_NaN();
    else if (text == kInfinity)
      value = std::numeric_limits<double>::infinity();
    else if (text == kMinusInfinity)
      value = -std::numeric_limits<double>::infinity();
  }
}

void append_string(std::string& out, const std::string& text, bool ensure_ascii) {
  out += Json(text).dump(-1, ' ', ensure_ascii, Json::error_handler_t::replace);
}

void append(std::string& out, const Json& value, int indent, int depth, bool ensure_ascii) {
  const auto separate = [&](int levels) {
    if (indent < 0) return;
    out += '\n';
    out.append(static_cast<std::size_t>(indent * levels), ' ');
  };
  const std::string_view comma = indent < 0 ? ", " : ",";
  if (value.is_object()) {
    if (value.empty()) {
      out += "{}";
      return;
    }
    out += '{';
    bool first = true;
    for (const auto& [key, child] : value.items()) {
      if (!first) out += comma;
      first = false;
      separate(depth + 1);
      append_string(out, key, ensure_ascii);
      out += ": ";
      append(out, child, indent, depth + 1, ensure_ascii);
    }
    separate(depth);
    out += '}';
  } else if (value.is_array()) {
    if (value.empty()) {
      out += "[]";
      return;
    }
    out += '[';
    bool first = true;
    for (const auto& child : value) {
      if (!first) out += comma;
      first = false;
      separate(depth + 1);
      append(out, child, indent, depth + 1, ensure_ascii);
    }
    separate(depth);
    out += ']';
  } else if (value.is_number_float()) {
    out += python_float(value.get<double>());
  } else if (value.is_string()) {
    append_string(out, value.get_ref<const std::string&>(), ensure_ascii);
  } else {
    out += value.dump();
  }
}

/// Follows the keys of every object of a text.
class KeyListener : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    Level& level = levels_.back();
    level.key = name;
    if (level.seen.insert(name).second) return true;
    std::string path;
    for (const Level& each : levels_) {
      if (each.key.empty()) continue;
      if (!path.empty()) path += '.';
      path += each.key;
    }
    duplicates.push_back(std::move(path));
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const Json::exception&) override {
    valid = false;
    return false;
  }

  std::vector<std::string> duplicates;
  bool valid = true;

 private:
  struct Level {
    std::string key;
    std::set<std::string> seen;
  };
  bool open() {
    levels_.emplace_back();
    return true;
  }
  bool close() {
    levels_.pop_back();
    return true;
  }

  std::vector<Level> levels_;
};

}  // namespace

std::vector<std::string> duplicate_json_keys(std::string_view text) {
  KeyListener listener;
  Json::sax_parse(quote_bare_constants(text), &listener);
  return listener.valid ? listener.duplicates : std::vector<std::string>();
}

Json parse_json(std::string_view text, std::string_view name) {
  const bool has_constants = text.find("NaN") != text.npos || text.find("Infinity") != text.npos;
  try {
    if (!has_constants) return Json::parse(text);
    Json value = Json::parse(quote_bare_constants(text));
    restore_constants(value);
    return value;
  } catch (const nlohmann::json::exception& error) {
    // Also a number that overflows. "[json.exception.parse_error.101] parse error at line 1, column
    // 2: ..."
    std::string_view reason = error.what();
    if (const auto end = reason.find("] "); end != reason.npos) reason.remove_prefix(end + 2);
    fail("{}: is not valid JSON: {}", name, reason);
  }
}

Json read_json_file(const std::filesystem::path& path) {
  return parse_json(read_text_file(path), path.string());
}

std::string python_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  if (value == 0.0) return std::signbit(value) ? "-0.0" : "0.0";
  // Python switches to the exponent form below 1e-4 and from 1e16 on.
  const double magnitude = std::abs(value);
  const auto form = (magnitude < 1e-4 || magnitude >= 1e16) ? std::chars_format::scientific
                                                            : std::chars_format::fixed;
  char buffer[400];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value, form);
  std::string text(buffer, end);
  if (form == std::chars_format::fixed && text.find('.') == text.npos) text += ".0";
  return text;
}

std::string to_python_json(const Json& value, int indent, bool ensure_ascii) {
  std::string out;
  append(out, value, indent, 0, ensure_ascii);
  return out;
}

}  // namespace lerobot
