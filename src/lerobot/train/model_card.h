// The README.md of a published policy.
#pragma once

#include <string>

#include "lerobot/config/train_config.h"
#include "lerobot/dataset/metadata.h"

namespace lerobot::train {

/// Front matter as LeRobot writes it (library_name, license, model_name, pipeline_tag, tags,
/// datasets), then what the policy is, what it takes and gives, what it was trained on and how, and
/// the commands that run it and train on.
std::string model_card(const config::TrainConfig& config, const dataset::DatasetMetadata& metadata);

}  // namespace lerobot::train
