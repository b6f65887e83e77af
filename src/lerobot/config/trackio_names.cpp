#include "lerobot/config/trackio_names.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

namespace lerobot::config {
namespace {

constexpr std::string_view kReservedBeginning = "registry-";
// With something before it.
constexpr std::array<std::string_view, 8> kReservedEndings = {"_system",
                                                              "_configs",
                                                              "_traces",
                                                              "_artifacts",
                                                              "_artifact_versions",
                                                              "_artifact_aliases",
                                                              "_run_artifact_links",
                                                              "_external_run_artifact_links"};

bool is_ascii(unsigned char c) { return c < 0x80; }

bool stays(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

}  // namespace

std::string canonical_trackio_project(const std::string& project) {
  std::string name;
  std::copy_if(project.begin(), project.end(), std::back_inserter(name), stays);
  return name.empty() ? "default" : name;
}

std::string trackio_project_problem(const std::string& project) {
  if (project.empty()) return "expected a name";
  // trackio keeps the letters of every alphabet, by Python's tables, which are not here.
  if (!std::all_of(project.begin(), project.end(), is_ascii))
    return "names of projects are ASCII letters, digits, '-' and '_'";
  constexpr std::size_t kLongest = 200;  // a file's name has 255 bytes, "-journal" and more follow
  const std::string name = canonical_trackio_project(project);
  if (name.size() > kLongest)
    return fmt::format("names of projects have at most {} characters, this one has {}", kLongest,
                       name.size());
  if (name.starts_with(kReservedBeginning))
    return fmt::format("names that begin with {} are trackio's own", kReservedBeginning);
  for (const std::string_view ending : kReservedEndings)
    if (name.size() > ending.size() && name.ends_with(ending))
      return fmt::format("names that end with {} are trackio's own", ending);
  return "";
}

}  // namespace lerobot::config
