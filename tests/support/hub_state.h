// All that the test Hub holds, and who may see and change it.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lerobot/hub/repo.h"
#include "tests/support/hub_answers.h"
#include "tests/support/hub_repository.h"
#include "tests/support/hub_server.h"
#include "tests/support/hub_xet_store.h"

namespace lerobot::test_server {

struct BucketObject {
  Bytes content;
  std::string xet_hash;
  std::uint64_t modified_ms = 0;
  std::string uploaded_at;
  std::string content_type = {};
};

struct Bucket {
  bool is_private = false;
  std::string created_at;
  std::string updated_at;
  std::map<std::string, BucketObject> objects;  ///< by path
};

struct RepoOrder {
  bool operator()(const hub::Repo& a, const hub::Repo& b) const {
    return a.type != b.type ? a.type < b.type : a.id < b.id;
  }
};

/// An upload in parts that is not complete yet.
struct PartialUpload {
  std::uint64_t size = 0;
  std::uint64_t chunk_size = 0;
  std::map<std::uint64_t, Bytes> parts;  ///< by number, from 1
};

/// Everything but the addresses is guarded by `mutex`; member functions expect it held.
struct HubState {
  mutable std::mutex mutex;

  std::string hub_url;      ///< http://127.0.0.1:PORT
  std::string storage_url;  ///< http://localhost:PORT, as of the CDN
  std::string xet_url;      ///< the same with another port

  std::uint64_t large_from = 1 << 10;
  std::uint64_t multipart_size = 0;
  std::size_t page_size = 1000;
  std::optional<std::chrono::milliseconds> link_lifetime;
  bool everything_in_xet = false;

  std::vector<HubAccount> accounts;
  std::map<hub::Repo, Repository, RepoOrder> repositories;
  std::map<std::string, Bucket> buckets;  ///< by id
  std::map<hub::Repo, std::string, RepoOrder> renamed;
  std::map<std::string, Bytes> large;  ///< large files by SHA-256
  std::map<std::string, PartialUpload> partial;
  XetStore xet;
  std::set<std::string> xet_read_tokens;
  std::set<std::string> xet_write_tokens;
  std::uint64_t counter = 0;  ///< for names that must differ

  /// Whether the Hub takes a file for a large one.
  bool is_large(const std::string& path, std::uint64_t size) const;
  /// A file from its content, as an upload would have brought it.
  std::shared_ptr<const RepoFile> add_file(const std::string& path, const Bytes& content);
  /// A large file whose content was uploaded; null: it was not.
  std::shared_ptr<const RepoFile> uploaded_file(const std::string& sha256) const;
  void put_object(Bucket& bucket, const std::string& path, const Bytes& content);

  /// The address of something in the storage, signed.
  std::string signed_url(const std::string& path) const;
  /// Throws a 403 Refusal when a storage address is not signed, or too old.
  void check_signature(const Request& request) const;
};

/// Who asks. Made from the request; throws a 401 Refusal for a token that nobody has.
class Caller {
 public:
  Caller(const HubState& state, const Request& request);

  /// Empty: nobody.
  const std::string& user() const { return user_; }
  bool has_token() const { return has_token_; }
  bool is_anonymous() const { return user_.empty(); }
  const HubAccount* account() const { return account_; }

  bool may_see(const std::string& id, bool is_private) const;
  /// Throws a Refusal unless the caller may change what belongs to the owner of `id`.
  void check_write(const std::string& id) const;
  bool owns(const std::string& id) const;

 private:
  bool open_;  ///< a Hub without accounts
  bool has_token_ = false;
  const HubAccount* account_ = nullptr;
  std::string user_;
};

}  // namespace lerobot::test_server
