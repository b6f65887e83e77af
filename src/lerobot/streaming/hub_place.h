// A dataset in a repository of the Hub, read at one commit without being downloaded.
#pragma once

#include <memory>

#include "lerobot/dataset/hub_dataset.h"
#include "lerobot/streaming/dataset_place.h"

namespace lerobot::streaming {

/// The branch that holds published sidecars; the source's own branches stay as they are.
inline constexpr const char* kSidecarBranch = "lerobot-sidecars";

/// Pins the revision and fetches the metadata. Throws HubError and Error as
/// dataset::fetch_metadata() does.
std::unique_ptr<DatasetPlace> open_hub_dataset(const dataset::HubDatasetAddress& address,
                                               const PlaceOptions& options);

}  // namespace lerobot::streaming
