#include "lerobot/train/tracking/trackio_place.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <sstream>
#include <system_error>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "lerobot/base/log.h"
#include "lerobot/config/trackio_names.h"
#include "lerobot/hub/home.h"

namespace lerobot::train {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 13> kNetworkFileSystems = {
    "nfs",       "nfs4",  "lustre", "gpfs", "cephfs", "beegfs", "fhgfs",
    "glusterfs", "ocfs2", "panfs",  "cifs", "smbfs",  "wekafs"};
/// In any type's name.
constexpr std::array<std::string_view, 6> kNetworkNames = {"nfs",  "lustre", "weka",
                                                           "gpfs", "beegfs", "ceph"};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

bool is_network_type(std::string type) {
  std::transform(type.begin(), type.end(), type.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  constexpr std::string_view kUserSpace = "fuse.";
  if (type.starts_with(kUserSpace)) type.erase(0, kUserSpace.size());
  const auto in_type = [&](std::string_view name) { return type.find(name) != type.npos; };
  return std::find(kNetworkFileSystems.begin(), kNetworkFileSystems.end(), type) !=
             kNetworkFileSystems.end() ||
         std::any_of(kNetworkNames.begin(), kNetworkNames.end(), in_type);
}

/// The kernel writes blanks of a path as "\040".
std::string unescaped(const std::string& field) {
  constexpr std::size_t kDigits = 3;
  std::string out;
  for (std::size_t i = 0; i < field.size(); ++i) {
    const bool octal = field[i] == '\\' && i + kDigits < field.size() &&
                       std::all_of(&field[i + 1], &field[i + 1] + kDigits,
                                   [](char c) { return c >= '0' && c <= '7'; });
    if (octal) {
      out += static_cast<char>(std::stoi(field.substr(i + 1, kDigits), nullptr, 8));
      i += kDigits;
    } else {
      out += field[i];
    }
  }
  return out;
}

TrackioPlace::Storage storage_of(const fs::path& folder) {
  const std::string setting = variable("TRACKIO_STORAGE_MODE");
  std::istringstream words(setting);
  std::string mode;
  words >> mode;
  std::transform(mode.begin(), mode.end(), mode.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (mode == "sqlite") return TrackioPlace::Storage::kDatabase;
  if (mode == "jsonl") return TrackioPlace::Storage::kInbox;
  if (!mode.empty() && mode != "auto")
    log::warning("TRACKIO_STORAGE_MODE={}: expected auto, sqlite or jsonl; going on with auto",
                 setting);
  std::error_code error;
  const fs::path absolute = fs::weakly_canonical(fs::absolute(folder, error), error);
  std::string mounts;
  try {
    mounts = read_text_file("/proc/mounts");
  } catch (const Error&) {  // not every container has it
  }
  return is_on_network(absolute, mounts) ? TrackioPlace::Storage::kInbox
                                         : TrackioPlace::Storage::kDatabase;
}

}  // namespace

fs::path trackio_folder() {
  if (const std::string folder = variable("TRACKIO_DIR"); !folder.empty()) return folder;
  const char* home = std::getenv("HF_HOME");
  if (home != nullptr && *home == '\0') return "trackio";
  return hub::hf_home() / "trackio";
}

TrackioPlace trackio_place(const std::string& project) {
  const fs::path folder = trackio_folder();
  return {.folder = folder,
          .project = config::canonical_trackio_project(project),
          .storage = storage_of(folder)};
}

bool is_on_network(const fs::path& path, std::string_view mounts) {
  const std::string text = path.string();
  std::istringstream lines{std::string(mounts)};
  std::string line, device, point, type, deepest_type;
  std::size_t deepest = 0;
  while (std::getline(lines, line)) {
    std::istringstream fields(line);
    if (!(fields >> device >> point >> type)) continue;
    point = unescaped(point);
    const bool contains =
        text == point || text.starts_with(point.ends_with('/') ? point : point + "/");
    if (!contains || point.size() <= deepest) continue;
    deepest = point.size();
    deepest_type = type;
  }
  return is_network_type(deepest_type);
}

}  // namespace lerobot::train
