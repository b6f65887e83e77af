#include "tests/support/hub_repository.h"

#include <algorithm>
#include <charconv>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "lerobot/base/digest.h"
#include "lerobot/base/error.h"

namespace lerobot::test_server {
namespace {

constexpr std::size_t kShortestCommit = 7;

std::string git_id(std::string_view type, std::string_view content) {
  Sha1 digest;
  digest.update(fmt::format("{} {}", type, content.size()));
  digest.update(std::string_view("\0", 1));
  digest.update(content);
  return digest.hex_digest();
}

std::string blob_id_of(const Bytes& content) {
  Digest digest = git_blob_digest(content.size());
  content.for_each_block([&](std::string_view block) { digest.update(block); });
  return digest.hex_digest();
}

/// The 20 bytes that 40 digits stand for.
std::string raw_id(const std::string& hex) {
  std::string raw;
  for (std::size_t at = 0; at < hex.size(); at += 2) {
    unsigned value = 0;
    std::from_chars(hex.data() + at, hex.data() + at + 2, value, 16);
    raw += static_cast<char>(value);
  }
  return raw;
}

/// The id of the folder whose files stand from `file` on; moves behind them. Paths in the order of
/// their bytes are entries in git's order, which compares a folder as if its name ended with '/'.
std::string folder_id(Tree::const_iterator& file, Tree::const_iterator end,
                      const std::string& folder, std::map<std::string, std::string>& ids) {
  const std::string prefix = folder.empty() ? "" : folder + "/";
  std::string entries;
  const auto add = [&](std::string_view mode, std::string_view name, const std::string& id) {
    entries += fmt::format("{} {}", mode, name);
    entries += '\0';
    entries += raw_id(id);
  };
  while (file != end && file->first.starts_with(prefix)) {
    const std::string rest = file->first.substr(prefix.size());
    const std::size_t slash = rest.find('/');
    if (slash == std::string::npos) {
      add("100644", rest, file->second->blob_id);
      ++file;
    } else {
      const std::string name = rest.substr(0, slash);
      add("40000", name, folder_id(file, end, prefix + name, ids));
    }
  }
  return ids[folder] = git_id("tree", entries);
}

std::string commit_id(const Commit& commit) {
  std::string text = fmt::format("tree {}\n", folder_ids(commit.tree).at(""));
  if (!commit.parent.empty()) text += fmt::format("parent {}\n", commit.parent);
  for (const char* role : {"author", "committer"})
    text += fmt::format("{} {} <{}@users.example> {} +0000\n", role, commit.author, commit.author,
                        commit.time);
  text += fmt::format("\n{}\n", commit.title);
  if (!commit.description.empty()) text += fmt::format("\n{}\n", commit.description);
  return git_id("commit", text);
}

}  // namespace

std::string sha256_of(const Bytes& bytes) {
  Sha256 digest;
  bytes.for_each_block([&](std::string_view block) { digest.update(block); });
  return digest.hex_digest();
}

RepoFile RepoFile::regular(Bytes content) {
  std::string blob_id = blob_id_of(content);
  return {std::move(content), std::move(blob_id)};
}

RepoFile RepoFile::large(Bytes content, std::string sha256, std::string xet_hash) {
  const std::string pointer =
      fmt::format("version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize {}\n", sha256,
                  content.size());
  return {std::move(content), git_id("blob", pointer), std::move(sha256), std::move(xet_hash),
          pointer.size()};
}

std::map<std::string, std::string> folder_ids(const Tree& tree) {
  std::map<std::string, std::string> ids;
  auto file = tree.begin();
  folder_id(file, tree.end(), "", ids);
  return ids;
}

Repository::Repository(std::string author, Tree files) : created_at(iso_time(std::time(nullptr))) {
  Commit first;
  first.title = "initial commit";
  first.author = std::move(author);
  first.time = std::time(nullptr);
  first.tree = std::move(files);
  branches["main"] = add(std::move(first)).id;
}

const Commit* Repository::find(std::string_view revision) const {
  for (const std::string_view prefix : {"refs/heads/", "refs/tags/"})
    if (revision.starts_with(prefix)) revision.remove_prefix(prefix.size());
  const std::string name(revision);
  for (const auto* refs : {&branches, &tags})
    if (const auto at = refs->find(name); at != refs->end()) return &commits_.at(at->second);
  if (revision.size() < kShortestCommit) return nullptr;
  const auto at = commits_.lower_bound(revision);
  return at != commits_.end() && at->first.starts_with(revision) ? &at->second : nullptr;
}

const Commit& Repository::commit(const std::string& branch, Tree tree, std::string title,
                                 std::string description, std::string author) {
  std::string& head = branches.at(branch);
  Commit next;
  next.parent = head;
  next.title = std::move(title);
  next.description = std::move(description);
  next.author = std::move(author);
  next.time = std::time(nullptr);
  next.tree = std::move(tree);
  const Commit& added = add(std::move(next));
  head = added.id;
  return added;
}

std::vector<const Commit*> Repository::history(const Commit& last) const {
  std::vector<const Commit*> commits{&last};
  while (!commits.back()->parent.empty()) commits.push_back(&commits_.at(commits.back()->parent));
  return commits;
}

const Commit& Repository::last_change(const Commit& commit, const std::string& path) const {
  const std::string& present = commit.tree.at(path)->blob_id;
  const Commit* last = &commit;
  while (!last->parent.empty()) {
    const Commit& before = commits_.at(last->parent);
    const auto at = before.tree.find(path);
    if (at == before.tree.end() || at->second->blob_id != present) break;
    last = &before;
  }
  return *last;
}

const Commit& Repository::add(Commit commit) {
  commit.id = commit_id(commit);
  const std::string id = commit.id;
  return commits_.insert_or_assign(id, std::move(commit)).first->second;
}

std::string iso_time(std::time_t time) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.000Z", fmt::gmtime(time));
}

}  // namespace lerobot::test_server
