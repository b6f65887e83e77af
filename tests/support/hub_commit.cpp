// The commit route: lines of JSON, all of them or none.
#include <sstream>

#include <fmt/format.h>

#include "tests/support/hub_routes.h"

namespace lerobot::test_server {
namespace {

[[noreturn]] void refuse_commit(const std::string& message) { refuse(400, "", message); }

std::string text(const Json& value, const char* name) {
  const auto at = value.find(name);
  if (at == value.end() || !at->is_string())
    refuse_commit(fmt::format("\"{}\" is missing in {}", name, value.dump()));
  return *at;
}

int base64_value(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  if (c == '/') return 63;
  return -1;
}

std::string base64_decoded(const std::string& encoded) {
  if (encoded.size() % 4 != 0) refuse_commit("The content is no base64: wrong length");
  std::string plain;
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < encoded.size(); ++i) {
    const bool padding = encoded[i] == '=' && i + 2 >= encoded.size();
    const int value = padding ? 0 : base64_value(encoded[i]);
    if (value < 0) refuse_commit(fmt::format("The content is no base64: '{}'", encoded[i]));
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    if (i % 4 == 3)
      for (int shift = 16; shift >= 0; shift -= 8) plain += static_cast<char>(bits >> shift);
  }
  for (std::size_t i = encoded.size(); i-- > 0 && encoded[i] == '=';) plain.pop_back();
  return plain;
}

/// A path that may stand in a repository.
std::string checked_path(const Json& value) {
  const std::string path = text(value, "path");
  std::istringstream segments(path);
  for (std::string segment; std::getline(segments, segment, '/');)
    if (segment.empty() || segment == "." || segment == ".." || segment == ".git")
      refuse_commit(fmt::format("Invalid path: {}", path));
  if (path.empty() || path.ends_with('/')) refuse_commit(fmt::format("Invalid path: {}", path));
  return path;
}

/// The header of a commit, and the tree as its lines change it.
class Draft {
 public:
  Draft(HubState& state, const Commit& head) : state_(state), head_(head), tree_(head.tree) {}

  void take(const Json& line) {
    const std::string key = text(line, "key");
    const Json value = line.value("value", Json::object());
    if ((key == "header") == has_header_)
      refuse_commit("The first line, and no other, is the header");
    if (key == "header") {
      take_header(value);
    } else if (key == "file") {
      tree_[checked_path(value)] = regular_file(value);
    } else if (key == "lfsFile") {
      tree_[checked_path(value)] = large_file(value);
    } else if (key == "deletedFile") {
      if (tree_.erase(checked_path(value)) == 0) refuse_missing(value);
    } else if (key == "deletedFolder") {
      remove_folder(value);
    } else {
      refuse_commit(fmt::format("Unknown key: {}", key));
    }
  }

  const std::string& summary() const { return summary_; }
  const std::string& description() const { return description_; }
  Tree& tree() { return tree_; }
  bool is_complete() const { return has_header_; }

 private:
  void take_header(const Json& value) {
    has_header_ = true;
    summary_ = text(value, "summary");
    description_ = value.value("description", "");
    if (summary_.empty()) refuse_commit("The summary is empty");
    if (value.contains("parentCommit") && value["parentCommit"].is_string() &&
        value["parentCommit"] != head_.id)
      refuse(412, "", "A commit has happened since. Please refresh and try again.");
  }

  std::shared_ptr<const RepoFile> regular_file(const Json& value) const {
    if (value.value("encoding", "base64") != "base64") refuse_commit("The encoding must be base64");
    const Bytes content(base64_decoded(text(value, "content")));
    if (content.size() >= state_.large_from)
      refuse_commit(fmt::format("{} has {} bytes: files from {} on must be stored as large ones",
                                text(value, "path"), content.size(), state_.large_from));
    return std::make_shared<const RepoFile>(RepoFile::regular(content));
  }

  std::shared_ptr<const RepoFile> large_file(const Json& value) const {
    if (text(value, "algo") != "sha256") refuse_commit("The algorithm must be sha256");
    auto file = state_.uploaded_file(text(value, "oid"));
    if (!file)
      refuse_commit(fmt::format("The large file {} ({}) was not uploaded", text(value, "path"),
                                text(value, "oid")));
    if (value.contains("size") && value["size"] != file->content.size())
      refuse_commit(
          fmt::format("The large file {} has {} bytes", text(value, "path"), file->content.size()));
    return file;
  }

  void remove_folder(const Json& value) {
    std::string folder = text(value, "path");
    if (!folder.ends_with('/')) folder += '/';
    auto begin = tree_.lower_bound(folder);
    auto end = begin;
    while (end != tree_.end() && end->first.starts_with(folder)) ++end;
    if (begin == end) refuse_missing(value);
    tree_.erase(begin, end);
  }

  [[noreturn]] void refuse_missing(const Json& value) const {
    refuse(404, "EntryNotFound",
           fmt::format("A file with the name \"{}\" does not exist", text(value, "path")));
  }

  HubState& state_;
  const Commit& head_;
  Tree tree_;
  bool has_header_ = false;
  std::string summary_;
  std::string description_;
};

/// A path can't be a file and a folder.
void check_no_file_is_a_folder(const Tree& tree) {
  for (auto at = tree.begin(); at != tree.end(); ++at)
    for (auto next = std::next(at); next != tree.end() && next->first.starts_with(at->first);
         ++next)
      if (next->first[at->first.size()] == '/')
        refuse_commit(fmt::format("{} is a file and a folder", at->first));
}

}  // namespace

Answer answer_commit(HubState& state, const RepoCall& call) {
  Repository& repository = own_repository(state, call);
  std::string branch = call.path(0);
  if (branch.starts_with("refs/heads/")) branch.erase(0, std::string_view("refs/heads/").size());
  if (!repository.branches.contains(branch))
    refuse(404, "RevisionNotFound", fmt::format("Invalid rev id: {}", branch));
  Draft draft(state, seen_commit(repository, branch));
  std::istringstream lines(call.request.content.text());
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    const Json value = Json::parse(line, nullptr, false);
    if (!value.is_object()) refuse_commit("A line is no JSON object");
    draft.take(value);
  }
  if (!draft.is_complete()) refuse_commit("The header is missing");
  check_no_file_is_a_folder(draft.tree());
  const Commit& added = repository.commit(branch, std::move(draft.tree()), draft.summary(),
                                          draft.description(), call.caller.user());
  return json_answer({{"success", true},
                      {"commitOid", added.id},
                      {"commitUrl", fmt::format("{}/commit/{}",
                                                hub::page_url(state.hub_url, call.repo), added.id)},
                      {"hookOutput", ""}});
}

}  // namespace lerobot::test_server
