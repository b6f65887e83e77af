#include "lerobot/hub/location.h"

#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

#include "lerobot/base/error.h"
#include "lerobot/hub/repo.h"
#include "lerobot/hub/url.h"

namespace lerobot::hub {
namespace {

std::vector<std::string_view> non_empty_parts(std::string_view text) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('/'), text.size());
    if (end > 0) parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

std::string join(const std::vector<std::string_view>& parts, std::size_t first) {
  std::string out;
  for (std::size_t i = first; i < parts.size(); ++i) {
    if (i > first) out += '/';
    out += parts[i];
  }
  return out;
}

void read_bucket(Location& location, std::string_view rest) {
  const auto parts = non_empty_parts(rest);
  if (parts.size() < 2)
    fail_usage("invalid bucket root {}: expected hf://buckets/OWNER/BUCKET", location.root);
  location.kind = LocationKind::kHfBucket;
  location.repo_id = fmt::format("{}/{}", parts[0], parts[1]);
  location.path = join(parts, 2);
}

/// How many of the parts after the first belong to the revision: the Hub's own refs have slashes
/// (refs/pr/1, refs/convert/parquet).
std::size_t more_revision_parts(std::string_view revision,
                                const std::vector<std::string_view>& after) {
  const bool special =
      revision == "refs" && after.size() >= 2 && (after[0] == "pr" || after[0] == "convert");
  return special ? 2 : 0;
}

void read_dataset(Location& location, std::string_view rest) {
  auto parts = non_empty_parts(rest);
  const auto fail_form = [&location]() {
    fail_usage("invalid dataset root {}: expected hf://datasets/OWNER/NAME[@REVISION][/PATH]",
               location.root);
  };
  if (parts.empty()) fail_form();
  location.kind = LocationKind::kHfDataset;
  const bool has_owner = parts[0].find('@') == std::string_view::npos && parts.size() > 1;
  const std::size_t last = has_owner ? 1 : 0;
  const std::string_view named = parts[last];
  const std::size_t at = named.find('@');
  const std::string_view name = named.substr(0, at);
  if (name.empty()) fail_form();
  location.repo_id = has_owner ? fmt::format("{}/{}", parts[0], name) : std::string(name);

  std::size_t path = last + 1;
  if (at != std::string_view::npos) {
    const std::string_view revision = named.substr(at + 1);
    if (revision.empty()) fail_form();
    const std::vector<std::string_view> after(parts.begin() + static_cast<std::ptrdiff_t>(path),
                                              parts.end());
    location.revision = percent_decode(revision);
    for (std::size_t i = 0, more = more_revision_parts(revision, after); i < more; ++i)
      *location.revision += fmt::format("/{}", parts[path++]);
    location.pinned = has_owner && is_commit(revision);
  }
  location.path = join(parts, path);
}

void read_http(Location& location) {
  location.kind = LocationKind::kHttp;
  if (location.root.find_first_of("?#") != std::string::npos)
    fail_usage(
        "{}: a dataset's root can't have a query or fragment: the paths of its files are appended "
        "to it",
        printable_url(location.root));
  if (!is_http_url(location.root))
    fail_usage("{}: is not a URL; expected http://HOST/PATH or https://HOST/PATH",
               printable_url(location.root));
}

}  // namespace

Location classify_location(std::string_view root) {
  if (root.empty()) fail_usage("the root of the dataset is empty");
  Location location;
  location.root = root;
  const std::size_t separator = root.find("://");
  if (separator == std::string_view::npos) return location;

  std::string scheme(root.substr(0, separator));
  std::transform(scheme.begin(), scheme.end(), scheme.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  while (location.root.size() > separator + 3 && location.root.ends_with('/'))
    location.root.pop_back();
  std::string_view rest = std::string_view(location.root).substr(separator + 3);
  const auto take = [&rest](std::string_view word) {
    if (rest != word && !rest.starts_with(std::string(word) + "/")) return false;
    rest.remove_prefix(word.size());
    return true;
  };

  location.kind = LocationKind::kOther;
  if (scheme == "http" || scheme == "https") {
    read_http(location);
  } else if (scheme == "hf") {
    location.kind = LocationKind::kHfOther;
    if (take("buckets"))
      read_bucket(location, rest);
    else if (take("datasets"))
      read_dataset(location, rest);
  }
  return location;
}

std::string bucket_of_root(const Location& bucket, std::string_view repo_id) {
  check_internal(bucket.kind == LocationKind::kHfBucket, "not the location of a bucket");
  if (!bucket.path.empty())
    fail_usage(
        "--dataset.root={}: a sub-directory of a bucket ({}) is not supported; expected the bucket "
        "itself, hf://buckets/{}",
        bucket.root, bucket.path, bucket.repo_id);
  if (!repo_id.empty() && repo_id != bucket.repo_id)
    fail_usage("--dataset.root={} does not match --dataset.repo_id={}; leave one of them out",
               bucket.root, repo_id);
  return bucket.repo_id;
}

}  // namespace lerobot::hub
