// A repository of the test Hub: files in trees, trees in commits, commits under branches and tags;
// every id is the one that git gives.
#pragma once

#include <cstdint>
#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/http_bytes.h"

namespace lerobot::test_server {

/// SHA-256 in hexadecimal digits.
std::string sha256_of(const Bytes& bytes);

struct RepoFile {
  Bytes content;
  std::string blob_id;        ///< SHA-1 of the blob; of a large file, of its pointer
  std::string sha256 = {};    ///< of a large file
  std::string xet_hash = {};  ///< of a large file in Xet storage
  std::uint64_t pointer_size = 0;

  bool is_large() const { return !sha256.empty(); }
  /// What resolve calls it.
  const std::string& etag() const { return is_large() ? sha256 : blob_id; }

  static RepoFile regular(Bytes content);
  static RepoFile large(Bytes content, std::string sha256, std::string xet_hash = {});
};

/// Files by path. A value: copies share the contents.
using Tree = std::map<std::string, std::shared_ptr<const RepoFile>>;

/// The ids of a tree's folders, the root's under "".
std::map<std::string, std::string> folder_ids(const Tree& tree);

struct Commit {
  std::string id;
  std::string parent;  ///< empty: the first
  std::string title;
  std::string description;
  std::string author;
  std::time_t time = 0;
  Tree tree;
};

class Repository {
 public:
  /// With an empty first commit on main, or one that holds `files`.
  explicit Repository(std::string author, Tree files = {});

  bool is_private = false;
  bool is_gated = false;
  std::string created_at;
  std::map<std::string, std::string> branches;  ///< name -> commit
  std::map<std::string, std::string> tags;

  /// What a branch, tag, commit, or the beginning of a commit (7 digits or more) names; null:
  /// nothing.
  const Commit* find(std::string_view revision) const;
  /// Adds a commit to a branch that is there.
  const Commit& commit(const std::string& branch, Tree tree, std::string title,
                       std::string description, std::string author);
  /// A commit and those before it, the last first.
  std::vector<const Commit*> history(const Commit& last) const;
  /// The commit that gave a file its present content.
  const Commit& last_change(const Commit& commit, const std::string& path) const;

 private:
  const Commit& add(Commit commit);

  std::map<std::string, Commit, std::less<>> commits_;
};

/// "2026-11-30T10:00:00.000Z"
std::string iso_time(std::time_t time);

}  // namespace lerobot::test_server
