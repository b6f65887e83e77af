// --data_only=true: the data path alone, to see whether it is the bottleneck.
#pragma once

#include "lerobot/config/train_config.h"
#include "lerobot/train/data_share.h"

namespace lerobot::train {

/// Draws config.steps batches as training would (order, windows, decoding, transforms) and throws
/// them away; logs samples per second, waits and memory every log_freq steps and at the end. Writes
/// metrics.jsonl when `output_dir_given`. Of several processes each reads its share, without
/// waiting for the others; numbers and files are rank 0's. Returns the exit code.
int run_data_only(config::TrainConfig config, DataShare share, bool output_dir_given);

}  // namespace lerobot::train
