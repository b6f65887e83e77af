#include "lerobot/dataset/tasks.h"

#include "lerobot/base/error.h"
#include "lerobot/base/json.h"
#include "lerobot/dataset/parquet_file.h"

namespace lerobot::dataset {
namespace {

/// The column that holds the texts: pandas stores a frame's index as a column and names it in its
/// metadata; files of other writers have one of two names.
std::string text_column_name(const ParquetFile& file) {
  if (const auto pandas = file.metadata("pandas")) {
    const Json json = parse_json(*pandas, file.name() + ": pandas metadata");
    const auto columns = json.is_object() ? json.find("index_columns") : json.end();
    if (columns != json.end() && columns->is_array() && columns->size() == 1 &&
        (*columns)[0].is_string() && file.has_column((*columns)[0].get<std::string>()))
      return (*columns)[0].get<std::string>();
  }
  for (const char* name : {"task", "__index_level_0__"})
    if (file.has_column(name)) return name;
  fail("{}: has no column with task texts; expected \"task\" or \"__index_level_0__\"",
       file.name());
}

}  // namespace

TaskTable TaskTable::read(const std::filesystem::path& path) {
  const ParquetFile file(path);
  const std::string text_name = text_column_name(file);
  const auto table = file.read({"task_index", text_name});
  const auto numbers = integer_column(*table, "task_index", file.name());
  auto texts = text_column(*table, text_name, file.name());
  TaskTable tasks;
  for (std::size_t row = 0; row < numbers.size(); ++row) {
    const auto [entry, added] = tasks.texts_.emplace(numbers[row], std::move(texts[row]));
    if (!added)
      fail("{}: task_index {} stands in two rows, row {} is the second", file.name(), numbers[row],
           row);
  }
  return tasks;
}

const std::string* TaskTable::find(std::int64_t task_index) const {
  const auto found = texts_.find(task_index);
  return found == texts_.end() ? nullptr : &found->second;
}

}  // namespace lerobot::dataset
