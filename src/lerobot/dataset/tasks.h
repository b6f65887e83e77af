// meta/tasks.parquet: what task_index numbers stand for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <unordered_map>

namespace lerobot::dataset {

/// Task texts by the value of task_index; the order of the rows has no effect.
class TaskTable {
 public:
  TaskTable() = default;
  /// The text is in the column that the pandas metadata names as index, else in "task" or
  /// "__index_level_0__". Throws Error naming the file on missing columns, nulls and duplicates.
  static TaskTable read(const std::filesystem::path& path);

  std::size_t size() const { return texts_.size(); }
  /// Null when the number is unknown.
  const std::string* find(std::int64_t task_index) const;

 private:
  std::unordered_map<std::int64_t, std::string> texts_;
};

}  // namespace lerobot::dataset
