#include <algorithm>
#include <set>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "lerobot/hub/upload.h"

namespace lerobot::hub {
namespace {

class FolderWalk {
 public:
  FolderWalk(const std::string& prefix, const std::function<bool(const std::string&)>& wanted)
      : prefix_(prefix), wanted_(wanted) {}

  /// `below` is empty, or the path from the root of the walk with '/' at its end.
  void visit(const fs::path& folder, const std::string& below) {
    const fs::path real = canonical(folder);
    if (!above_.insert(real).second)
      fail("{}: links lead back into a folder that is being uploaded ({})", folder.string(),
           real.string());
    std::error_code error;
    fs::directory_iterator entries(folder, error);
    if (error) fail("{}: cannot be listed: {}", folder.string(), error.message());
    for (; entries != fs::directory_iterator(); entries.increment(error)) {
      add(entries->path(), below + entries->path().filename().string());
      if (error) break;
    }
    if (error) fail("{}: cannot be listed: {}", folder.string(), error.message());
    above_.erase(real);
  }

  std::vector<UploadFile> take() {
    std::sort(files_.begin(), files_.end(),
              [](const UploadFile& a, const UploadFile& b) { return a.path < b.path; });
    return std::move(files_);
  }

 private:
  static fs::path canonical(const fs::path& folder) {
    std::error_code error;
    fs::path real = fs::canonical(folder, error);
    if (error) fail("{}: cannot be uploaded: {}", folder.string(), error.message());
    return real;
  }

  void add(const fs::path& entry, const std::string& path) {
    std::error_code error;
    const fs::file_status status = fs::status(entry, error);  // of what a link leads to
    if (fs::is_directory(status)) {
      if (!is_of_tools(path)) visit(entry, path + "/");
      return;
    }
    if (wanted_ && !wanted_(path)) return;
    if (!fs::exists(status))
      fail("{}: cannot be uploaded: {}", entry.string(),
           fs::is_symlink(fs::symlink_status(entry)) ? "the link leads nowhere" : error.message());
    if (fs::is_regular_file(status)) files_.push_back({prefix_ + path, entry});
  }

  /// Folders that git and the Hub's own clients keep beside the content.
  static bool is_of_tools(const std::string& path) {
    const std::string framed = "/" + path;
    return framed.ends_with("/.git") || framed.ends_with("/.cache/huggingface");
  }

  const std::string prefix_;
  const std::function<bool(const std::string&)>& wanted_;
  std::set<fs::path> above_;  ///< the folders from the root to the one being visited
  std::vector<UploadFile> files_;
};

}  // namespace

std::vector<UploadFile> folder_files(const fs::path& folder, const std::string& prefix,
                                     const std::function<bool(const std::string& path)>& wanted) {
  std::string begin = prefix;
  while (begin.ends_with('/')) begin.pop_back();
  if (!begin.empty()) begin += '/';
  FolderWalk walk(begin, wanted);
  walk.visit(folder, "");
  return walk.take();
}

}  // namespace lerobot::hub
