// Which episodes train and which are held out: --dataset.episodes, --dataset.exclude_episodes,
// --dataset.eval_split and --max_eval_samples.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lerobot/dataset/episodes.h"

namespace lerobot::dataset {

/// The episodes that the two lists leave, in the order of `allow` (or ascending without it).
/// Numbers beyond the last episode are dropped with a warning. Throws Error on negative numbers,
/// duplicates, an empty list, and when nothing is left.
std::vector<std::int64_t> select_episodes(std::int64_t total_episodes,
                                          const std::optional<std::vector<std::int64_t>>& allow,
                                          const std::optional<std::vector<std::int64_t>>& exclude);

struct EpisodeSplit {
  std::vector<std::int64_t> train;
  std::vector<std::int64_t> eval;
};

/// Groups the episodes by their first task, in order of first appearance, and holds out the last
/// ceil(n * eval_split) of each group of n. eval_split = 0 holds out none. Throws Error when no
/// training episode is left or eval_split is outside [0, 1).
EpisodeSplit split_episodes(const EpisodeTable& table, const std::vector<std::int64_t>& episodes,
                            double eval_split);

/// Positions of an evaluation: every row in order for max_samples = 0, else the first
/// max(1, max_samples / number of tasks) rows of each task, task by task. `task_index` has one
/// entry a row.
std::vector<std::int64_t> evaluation_positions(std::span<const std::int64_t> task_index,
                                               std::int64_t max_samples);

}  // namespace lerobot::dataset
