// A dataset in a Bucket: objects without revisions, told apart by the hashes of their contents.
#pragma once

#include <memory>
#include <string>

#include "lerobot/streaming/dataset_place.h"

namespace lerobot::streaming {

/// Lists the Bucket and brings its meta/ into lerobot_home/hub/buckets--OWNER--NAME. Throws
/// HubError, and Error for a Bucket without a dataset.
std::unique_ptr<DatasetPlace> open_bucket(const std::string& bucket_id,
                                          const PlaceOptions& options);

}  // namespace lerobot::streaming
