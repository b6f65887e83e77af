// Publishing: repositories, branches and tags are made, files are uploaded, and one commit adds
// them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lerobot/hub/hub_client.h"
#include "lerobot/hub/repo.h"
#include "lerobot/hub/transfer_log.h"

namespace lerobot::hub {

struct UploadFile {
  std::string path;  ///< in the repository or Bucket, with '/'
  std::variant<std::filesystem::path, std::string> content;  ///< a local file, or the bytes
};

/// Of what must be sent: files of a repository that travel in the commit, and what the Hub has
/// already, don't count. All is 0 until that is known.
struct UploadOptions {
  /// Called several times a second on the calling thread, and at the end; may throw to give up,
  /// which waits for answers under way. HubClient::cancel() doesn't.
  std::function<void(const TransferProgress&)> progress;
};

/// Makes a repository unless it is there. nullopt leaves its visibility to the owner's settings.
/// Returns its page. Throws HubError (no right to create it and it is not there, ...).
std::string create_repo(HubClient& client, const Repo& repo, std::optional<bool> is_private);

/// Both leave one that is there as it is. Throw HubError.
void create_branch(HubClient& client, const Repo& repo, const std::string& branch,
                   const std::string& starting_point);
void create_tag(HubClient& client, const Repo& repo, const std::string& tag,
                const std::string& revision);

struct CommitRequest {
  std::string branch = "main";
  std::string message;  ///< its first line
  std::vector<UploadFile> files;
};

struct CommitResult {
  std::string commit;
  std::string url;
  bool unchanged = false;  ///< the branch held all of it; nothing was committed
};

/// Uploads what the branch doesn't hold and adds it in one commit: pre-upload, large-file storage
/// (single and in parts), commit. What a broken upload brought there is not sent again. The commit
/// is made on the branch as it was found; when somebody else committed meanwhile it is tried again
/// on theirs, a few times, and when an answer is lost the branch is looked at before a repeat, so
/// that there is never a second commit of the same. Files that an uploaded .gitignore names are
/// left out, as the Hub does it. Throws HubError, and Error for a file that can't be read or
/// changed meanwhile, for a path that no repository takes, and for more than 100 MB of files that
/// the Hub doesn't take for large ones, which one commit doesn't carry.
CommitResult upload_commit(HubClient& client, const Repo& repo, const CommitRequest& request,
                           const UploadOptions& options = {});

/// The files of a folder and those below it as they are to lie under `prefix` (empty: the root),
/// sorted; `wanted` sees paths relative to the folder (null: all). Links are followed; .git and
/// .cache/huggingface are left out. Throws Error for a folder that can't be listed, a link that
/// leads nowhere, and links in a circle.
std::vector<UploadFile> folder_files(
    const std::filesystem::path& folder, const std::string& prefix,
    const std::function<bool(const std::string& path)>& wanted = {});

/// A line in the log at most every two seconds: "Uploading NAME: 1/3 files, 120/206 MB, 40 MB/s".
std::function<void(const TransferProgress&)> log_upload(const std::string& name);

}  // namespace lerobot::hub
