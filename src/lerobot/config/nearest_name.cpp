#include "lerobot/config/nearest_name.h"

#include <algorithm>
#include <cctype>
#include <vector>

namespace lerobot::config {
namespace {

std::string plain(std::string_view name) {
  std::string text(name);
  for (char& c : text)
    c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string_view last_part(std::string_view name) { return name.substr(name.rfind('.') + 1); }

/// Damerau and Levenshtein's distance (optimal string alignment).
std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), previous(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) previous[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] =
          std::min({previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, previous);
    std::swap(previous, row);
  }
  return previous[b.size()];
}

}  // namespace

std::string nearest_name(std::string_view name, std::span<const std::string> names) {
  const std::string wanted = plain(name);
  const std::string_view wanted_part = last_part(wanted);
  const std::size_t most_whole = std::max<std::size_t>(1, wanted.size() / 4);
  const std::size_t most_part = wanted_part.size() / 4;
  std::string nearest;
  std::size_t fewest = wanted.size() + 2;
  for (const std::string& candidate : names) {
    const std::string known = plain(candidate);
    const std::size_t whole = edits(wanted, known);
    if (whole <= most_whole && whole < fewest) {
      fewest = whole;
      nearest = candidate;
    }
    // The right option in the wrong group ("--lr"): one step further than a slip in the name.
    const std::size_t part = edits(wanted_part, last_part(known)) + 1;
    if (part <= most_part + 1 && part < fewest) {
      fewest = part;
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace lerobot::config
