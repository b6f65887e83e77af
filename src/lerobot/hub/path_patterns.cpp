#include "lerobot/hub/path_patterns.h"

#include <algorithm>
#include <optional>

namespace lerobot::hub {
namespace {

/// The character at `at` of UTF-8 text: what `?` and a set stand for.
std::string_view character(std::string_view text, std::size_t at) {
  std::size_t end = at + 1;
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) ++end;
  return text.substr(at, end - at);
}

/// The place of the ']' that closes the set which begins at `at`; nullopt when none does. A ']' at
/// the very beginning is a member.
std::optional<std::size_t> set_end(std::string_view pattern, std::size_t at) {
  std::size_t end = at + 1;
  if (end < pattern.size() && pattern[end] == '!') ++end;
  if (end < pattern.size() && pattern[end] == ']') ++end;
  end = pattern.find(']', end);
  if (end == std::string_view::npos) return std::nullopt;
  return end;
}

/// `set` is what stands between the brackets. Bytes of UTF-8 compare as their characters do.
bool in_set(std::string_view set, std::string_view wanted) {
  const bool negated = set.starts_with('!');
  if (negated) set.remove_prefix(1);
  bool found = false;
  for (std::size_t at = 0; at < set.size() && !found;) {
    const std::string_view low = character(set, at);
    at += low.size();
    std::string_view high = low;
    if (at + 1 < set.size() && set[at] == '-') {
      high = character(set, at + 1);
      at += 1 + high.size();
    }
    found = low <= wanted && wanted <= high;
  }
  return found != negated;
}

/// The part of `pattern` at `at` that stands for one character of the text: its length when it
/// matches `wanted`, else 0.
std::size_t match_one(std::string_view pattern, std::size_t at, std::string_view wanted) {
  if (pattern[at] == '?') return 1;
  if (pattern[at] == '[') {
    if (const auto end = set_end(pattern, at))
      return in_set(pattern.substr(at + 1, *end - at - 1), wanted) ? *end + 1 - at : 0;
  }
  return pattern.substr(at).starts_with(wanted) ? wanted.size() : 0;
}

/// Python's fnmatch.fnmatchcase. Only the last `*` is ever tried again, so that time is bounded by
/// the product of both lengths.
bool matches(std::string_view path, std::string_view pattern) {
  std::size_t text = 0;
  std::size_t at = 0;
  std::optional<std::size_t> star;  // behind the last one
  std::size_t star_text = 0;
  while (text < path.size()) {
    const std::string_view wanted = character(path, text);
    if (at < pattern.size() && pattern[at] == '*') {
      star = ++at;
      star_text = text;
      continue;
    }
    const std::size_t taken = at < pattern.size() ? match_one(pattern, at, wanted) : 0;
    if (taken > 0) {
      at += taken;
      text += wanted.size();
      continue;
    }
    if (!star) return false;
    star_text += character(path, star_text).size();
    text = star_text;
    at = *star;
  }
  while (at < pattern.size() && pattern[at] == '*') ++at;
  return at == pattern.size();
}

}  // namespace

bool matches_any(std::string_view path, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return matches(path, pattern.ends_with('/') ? pattern + "*" : pattern);
  });
}

bool is_repo_path(std::string_view path) {
  if (std::any_of(path.begin(), path.end(),
                  [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }))
    return false;
  while (true) {
    const std::size_t slash = path.find('/');
    const std::string_view segment = path.substr(0, slash);
    if (segment.empty() || segment == "." || segment == "..") return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
}

}  // namespace lerobot::hub
