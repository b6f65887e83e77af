// A Hugging Face Hub for tests: repositories with branches and tags, Buckets, large-file storage,
// Xet, and a second host that gives the bytes away. It can misbehave on demand.
//
// tests/interop/test_hub_server.py drives it with the real huggingface_hub client, which is what
// its answers are worth.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lerobot/hub/repo.h"
#include "tests/support/http_message.h"

namespace lerobot::test_server {

/// Who a token belongs to. Without any account, every token and none may do everything.
struct HubAccount {
  std::string token;
  std::string user;
  bool may_write = true;
  std::vector<std::string> organizations = {};  ///< whose repositories are the user's, too
};

/// Names with contents.
using HubFiles = std::map<std::string, std::string>;

class HubServer {
 public:
  /// Three listeners: the Hub on 127.0.0.1; on localhost the storage with its CDN, which answers
  /// 400 to a request with a token, and the server of Xet. Request::server is "hub", "storage" or
  /// "xet".
  HubServer();
  HubServer(const HubServer&) = delete;
  HubServer& operator=(const HubServer&) = delete;
  ~HubServer();

  /// What HF_ENDPOINT is to say: http://127.0.0.1:PORT
  std::string endpoint() const;

  void add_account(HubAccount account);
  /// With an empty first commit on main. (One that is made through the API has a .gitattributes, as
  /// on the Hub.) Or a Bucket.
  void add_repo(const hub::Repo& repo, bool is_private = false);
  /// A new commit on a branch, which like the repository is made if needed (from main), with these
  /// files beside those that are there; its SHA.
  std::string commit(const hub::Repo& repo, const HubFiles& files,
                     const std::string& branch = "main");
  /// The same with every file below a folder, read from there when it is asked for.
  std::string commit_folder(const hub::Repo& repo, const std::filesystem::path& folder,
                            const std::string& branch = "main");
  void tag(const hub::Repo& repo, const std::string& name, const std::string& commit);
  /// An object of a Bucket, which is made if needed.
  void put(const hub::Repo& bucket, const std::string& path, std::string content);
  void put_folder(const hub::Repo& bucket, const std::filesystem::path& folder);
  /// Moves a repository, if there is one. Answers under the old name redirect (307) to the new one.
  void rename(const hub::Repo& from, const hub::Repo& to);
  /// Its files are refused to everyone but an account that owns it.
  void set_gated(const hub::Repo& repo);

  /// The content of a file at a branch, tag or commit; of a Bucket whatever the revision.
  std::optional<std::string> file(const hub::Repo& repo, const std::string& revision,
                                  const std::string& path) const;
  std::vector<std::string> files(const hub::Repo& repo, const std::string& revision) const;
  /// Commits of a branch, the last first, as (commit, message): the title and, behind an empty
  /// line, the description.
  std::vector<std::pair<std::string, std::string>> history(const hub::Repo& repo,
                                                           const std::string& branch) const;

  /// Files of at least this many bytes are large ones (LFS); default 1 KiB, so that tests stay
  /// small. Others are regular unless .gitattributes-like rules (*.safetensors, *.parquet, *.mp4,
  /// *.npz) say large.
  void set_large_from(std::uint64_t bytes);
  /// Large uploads above this size come in parts of it; 0: never.
  void set_multipart(std::uint64_t chunk_size);
  /// Entries on a page of a listing; default 1000.
  void set_page_size(std::size_t entries);
  /// Addresses of the CDN are refused (403) this long after they were given out; default: never.
  void set_link_lifetime(std::chrono::milliseconds time);
  /// Large files that are committed here, and not through uploads, are in Xet storage from now on,
  /// as on the Hub. Default: not, which spares the time for chunks and hashes.
  void set_xet(bool everything);
  /// Latency of every answer.
  void set_latency(std::chrono::milliseconds time);

  /// Called for every request of all listeners, one at a time: nullopt lets it be answered
  /// properly. A long body (above 1 MiB) has not been read then.
  using Hook = std::function<std::optional<Behaviour>(const Request&)>;
  void set_hook(Hook hook);

  /// What arrived, in order; Request::body holds bodies up to 1 MiB.
  std::vector<Request> requests() const;
  /// Of one method, whose path contains `part`.
  std::size_t requests(const std::string& method, const std::string& part) const;
  void forget_requests();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lerobot::test_server
