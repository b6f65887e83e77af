// What the root of a dataset says about the place where it is.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lerobot::hub {

enum class LocationKind {
  kLocal,      ///< no "://"; a leading ~ is left for whoever opens it
  kHfBucket,   ///< hf://buckets/OWNER/NAME[/path]
  kHfDataset,  ///< hf://datasets/[OWNER/]NAME[@REVISION][/path]
  kHfOther,    ///< any other hf://
  kHttp,       ///< http:// or https://
  kOther,      ///< any other scheme
};

struct Location {
  LocationKind kind = LocationKind::kLocal;
  std::string root;                     ///< as given; of URIs without trailing slashes
  std::string repo_id;                  ///< of buckets and Hub datasets: OWNER/NAME
  std::optional<std::string> revision;  ///< of Hub datasets; %2F and the like decoded
  std::string path;                     ///< inside the bucket or dataset; empty: its root
  /// True for hf://datasets/OWNER/NAME@SHA[/path] with 40 lower-case hexadecimal digits: what is
  /// read there can't change.
  bool pinned = false;
};

/// Classifies a root without touching network or disk. Throws UsageError for an empty root, a
/// bucket or dataset without a name, and an http(s) URL without a host or with a query or fragment.
Location classify_location(std::string_view root);

/// The bucket that --dataset.root names, for a run with this --dataset.repo_id (empty: not given).
/// Throws UsageError when the root is a folder inside a bucket or another bucket than `repo_id`.
std::string bucket_of_root(const Location& bucket, std::string_view repo_id);

}  // namespace lerobot::hub
