#include "lerobot/dataset/episode_selection.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "lerobot/base/error.h"
#include "lerobot/base/log.h"

namespace lerobot::dataset {
namespace {

/// The list without the numbers that the dataset doesn't have.
std::vector<std::int64_t> checked_list(const std::vector<std::int64_t>& list,
                                       std::int64_t total_episodes, const char* option) {
  if (list.empty())
    fail("{}: is an empty list; leave the option out (or give null) to mean no restriction",
         option);
  std::vector<std::int64_t> kept;
  std::unordered_set<std::int64_t> seen;
  std::string beyond;
  for (std::int64_t episode : list) {
    if (episode < 0) fail("{}: episode numbers start at 0, found {}", option, episode);
    if (!seen.insert(episode).second) fail("{}: episode {} is listed twice", option, episode);
    if (episode < total_episodes) {
      kept.push_back(episode);
    } else {
      beyond += fmt::format("{}{}", beyond.empty() ? "" : ", ", episode);
    }
  }
  if (!beyond.empty())
    log::warning("{}: ignoring {}: the dataset has episodes 0 to {}", option, beyond,
                 total_episodes - 1);
  return kept;
}

}  // namespace

std::vector<std::int64_t> select_episodes(std::int64_t total_episodes,
                                          const std::optional<std::vector<std::int64_t>>& allow,
                                          const std::optional<std::vector<std::int64_t>>& exclude) {
  std::vector<std::int64_t> selected;
  if (allow) {
    selected = checked_list(*allow, total_episodes, "dataset.episodes");
  } else {
    for (std::int64_t episode = 0; episode < total_episodes; ++episode) selected.push_back(episode);
  }
  if (exclude && !exclude->empty()) {
    const auto list = checked_list(*exclude, total_episodes, "dataset.exclude_episodes");
    const std::unordered_set<std::int64_t> excluded(list.begin(), list.end());
    std::erase_if(selected, [&](std::int64_t episode) { return excluded.contains(episode); });
  }
  if (selected.empty())
    fail("dataset.episodes and dataset.exclude_episodes leave none of the dataset's {} episodes",
         total_episodes);
  return selected;
}

EpisodeSplit split_episodes(const EpisodeTable& table, const std::vector<std::int64_t>& episodes,
                            double eval_split) {
  if (!(eval_split >= 0.0 && eval_split < 1.0))
    fail("dataset.eval_split: must be at least 0 and below 1, found {}", eval_split);
  if (eval_split == 0.0) return {episodes, {}};

  std::vector<std::vector<std::int64_t>> groups;
  std::unordered_map<std::string_view, std::size_t> group_of_task;
  for (std::int64_t episode : episodes) {
    const auto [entry, added] = group_of_task.emplace(table.first_task(episode), groups.size());
    if (added) groups.emplace_back();
    groups[entry->second].push_back(episode);
  }
  EpisodeSplit split;
  for (const auto& group : groups) {
    const double held_out = std::ceil(static_cast<double>(group.size()) * eval_split);
    const auto first_held_out = group.end() - static_cast<std::ptrdiff_t>(held_out);
    split.train.insert(split.train.end(), group.begin(), first_held_out);
    split.eval.insert(split.eval.end(), first_held_out, group.end());
  }
  if (split.train.empty())
    fail(
        "dataset.eval_split: {} leaves no training episode of {}: each of the {} task(s) holds out "
        "at least one episode",
        eval_split, episodes.size(), groups.size());
  return split;
}

std::vector<std::int64_t> evaluation_positions(std::span<const std::int64_t> task_index,
                                               std::int64_t max_samples) {
  std::vector<std::int64_t> positions;
  const auto rows = static_cast<std::int64_t>(task_index.size());
  if (max_samples <= 0) {
    for (std::int64_t row = 0; row < rows; ++row) positions.push_back(row);
    return positions;
  }
  std::map<std::int64_t, std::vector<std::int64_t>> rows_by_task;
  for (std::int64_t row = 0; row < rows; ++row)
    rows_by_task[task_index[static_cast<std::size_t>(row)]].push_back(row);
  if (rows_by_task.empty()) return positions;
  const std::int64_t per_task =
      std::max<std::int64_t>(1, max_samples / static_cast<std::int64_t>(rows_by_task.size()));
  for (const auto& [task, of_task] : rows_by_task) {
    const auto kept = std::min(per_task, static_cast<std::int64_t>(of_task.size()));
    positions.insert(positions.end(), of_task.begin(), of_task.begin() + kept);
  }
  return positions;
}

}  // namespace lerobot::dataset
