#include "lerobot/dataset/frame_table.h"

#include <algorithm>
#include <malloc.h>
#include <map>
#include <set>

#include "lerobot/base/error.h"
#include "lerobot/dataset/parquet_file.h"

namespace lerobot::dataset {
namespace {

/// About this many uncompressed bytes of row groups are decoded at a time.
constexpr std::int64_t kBytesPerRead = std::int64_t{32} << 20;

/// Rows [begin, end) of a file.
struct RowRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// What meta/episodes says about one data file.
struct FileLayout {
  std::int64_t rows = 0;
  std::int64_t first_episode = 0;
  std::int64_t last_episode = 0;
  std::vector<std::size_t> runs;      // of the selected episodes in it
  std::vector<RowRange> rows_of_run;  // where they are
};

/// Files of the selected episodes with everything that lies in them: an episode's rows come after
/// those of the lower-numbered episodes of its file.
std::map<FileIndex, FileLayout> file_layouts(const EpisodeTable& episodes,
                                             const std::vector<FrameTable::Run>& runs) {
  std::map<FileIndex, FileLayout> layouts;
  for (const auto& run : runs) layouts[episodes.data_file(run.episode)];
  std::size_t next_run = 0;
  for (std::int64_t episode = 0; episode < episodes.size(); ++episode) {
    const bool is_selected = next_run < runs.size() && runs[next_run].episode == episode;
    const auto found = layouts.find(episodes.data_file(episode));
    if (found != layouts.end()) {
      FileLayout& layout = found->second;
      if (layout.rows == 0) layout.first_episode = episode;
      layout.last_episode = episode;
      const RowRange rows{layout.rows, layout.rows + episodes.length(episode)};
      layout.rows = rows.end;
      if (is_selected) {
        layout.runs.push_back(next_run);
        layout.rows_of_run.push_back(rows);
      }
    }
    if (is_selected) ++next_run;
  }
  return layouts;
}

void check_columns(const ParquetFile& file, const DatasetInfo& info) {
  std::set<std::string, std::less<>> declared;
  for (const Feature& feature : info.features) {
    if (feature.type == ValueType::kVideo) continue;
    if (!file.has_column(feature.name))
      fail("{}: has no column \"{}\", which info.json declares", file.name(), feature.name);
    declared.insert(feature.name);
  }
  for (const std::string& column : file.columns())
    if (!declared.contains(column))
      fail("{}: has a column \"{}\", which info.json does not declare", file.name(), column);
}

/// Adjacent ranges become one.
std::vector<RowRange> merged(const std::vector<RowRange>& ranges) {
  std::vector<RowRange> out;
  for (const RowRange& range : ranges) {
    if (!out.empty() && out.back().end == range.begin)
      out.back().end = range.end;
    else
      out.push_back(range);
  }
  return out;
}

void append_rows(const arrow::Table& table, std::int64_t table_first_row, RowRange rows,
                 std::vector<FrameColumn>& columns, const std::string& file) {
  for (FrameColumn& column : columns) {
    const std::string& name = column.feature().name;
    const auto values = table.GetColumnByName(name);
    const auto wanted = values->Slice(rows.begin - table_first_row, rows.end - rows.begin);
    const std::string where = fmt::format("{}: column \"{}\"", file, name);
    std::int64_t row = rows.begin;
    for (const auto& chunk : wanted->chunks()) {
      column.append(*chunk, where, row);
      row += chunk->length();
    }
  }
}

void read_file(const ParquetFile& file, const std::vector<RowRange>& wanted,
               std::vector<FrameColumn>& columns) {
  std::vector<std::string> names;
  for (const FrameColumn& column : columns) names.push_back(column.feature().name);

  auto range = wanted.begin();
  std::int64_t row = 0;
  for (int group = 0; group < file.row_groups() && range != wanted.end();) {
    if (row + file.rows_of_group(group) <= range->begin) {
      row += file.rows_of_group(group++);
      continue;
    }
    // A run of neighbouring groups that all hold wanted rows, up to the size of one read.
    std::vector<int> groups;
    const std::int64_t first_row = row;
    std::int64_t bytes = 0;
    auto last = range;
    while (group < file.row_groups() && (groups.empty() || bytes < kBytesPerRead)) {
      while (last != wanted.end() && last->end <= row) ++last;
      if (last == wanted.end() || last->begin >= row + file.rows_of_group(group)) break;
      bytes += file.bytes_of_group(group);
      row += file.rows_of_group(group);
      groups.push_back(group++);
    }
    const auto table = file.read(names, groups);
    if (table->num_rows() != row - first_row)
      fail("{}: is damaged: row groups of {} rows hold {}", file.name(), row - first_row,
           table->num_rows());
    while (range != wanted.end() && range->begin < row) {
      append_rows(*table, first_row, {std::max(range->begin, first_row), std::min(range->end, row)},
                  columns, file.name());
      if (range->end > row) break;
      ++range;
    }
  }
}

/// The row numbers of the file, its frames' numbers and its episodes must be those of
/// meta/episodes.
void check_rows(const FrameTable::Run& run, RowRange rows, const FrameColumn& index,
                const FrameColumn& episode_index, const std::string& file) {
  for (std::int64_t i = 0; i < rows.end - rows.begin; ++i) {
    const auto at = static_cast<std::size_t>(run.position + i);
    const std::int64_t found_index = index.integers()[at];
    const std::int64_t found_episode = episode_index.integers()[at];
    if (found_episode != run.episode)
      fail(
          "{}: row {} belongs to episode {}, but meta/episodes puts episode {} there (wrong "
          "data/file_index or length)",
          file, rows.begin + i, found_episode, run.episode);
    if (found_index != run.from + i)
      fail(
          "{}: row {} of episode {} has index {}, expected {}: the numbering has a gap or does not "
          "match meta/episodes",
          file, rows.begin + i, run.episode, found_index, run.from + i);
  }
}

void check_tasks(const FrameTable& table, const FrameColumn& task_index,
                 const DatasetMetadata& metadata) {
  std::int64_t last = -1;
  const auto& values = task_index.integers();
  for (std::size_t position = 0; position < values.size(); ++position) {
    if (position > 0 && values[position] == last) continue;
    last = values[position];
    if (metadata.tasks().find(last)) continue;
    const auto& run = table.run_of(static_cast<std::int64_t>(position));
    fail("{}: frame {} of episode {} has task_index {}, which meta/tasks.parquet does not know",
         metadata.data_file(run.episode).string(),
         static_cast<std::int64_t>(position) - run.position, run.episode, last);
  }
}

bool is_stored(const Feature& feature) { return feature.type != ValueType::kVideo; }
bool is_numbering(const Feature& feature) {
  return feature.name == "index" || feature.name == "episode_index";
}

/// The rows of `episode` in a table of some row groups: [begin, end).
RowRange rows_of_episode(const arrow::Table& table, std::int64_t episode, std::int64_t expected,
                         const std::string& file) {
  const std::vector<std::int64_t> owners = integer_column(table, "episode_index", file);
  const auto begin = std::find(owners.begin(), owners.end(), episode);
  const auto end = std::find_if(begin, owners.end(), [&](auto owner) { return owner != episode; });
  const auto found = std::count(owners.begin(), owners.end(), episode);
  if (found != end - begin)
    fail("{}: the rows of episode {} do not lie side by side", file, episode);
  if (found != expected)
    fail("{}: holds {} rows of episode {}, but meta/episodes says {}", file, found, episode,
         expected);
  return {begin - owners.begin(), end - owners.begin()};
}

}  // namespace

FrameTable FrameTable::with_columns(const DatasetInfo& info) {
  FrameTable table;
  for (const Feature& feature : info.features)
    if (is_stored(feature)) table.columns_.emplace_back(feature);
  return table;
}

/// What check_rows() has compared follows from a row's position from now on.
void FrameTable::drop_numbering() {
  std::erase_if(columns_, [](const FrameColumn& column) { return is_numbering(column.feature()); });
  for (FrameColumn& column : columns_) column.finish();
}

std::size_t FrameTable::column_number(const DatasetInfo& info, std::string_view feature) {
  std::size_t number = 0;
  for (const Feature& candidate : info.features) {
    if (!is_stored(candidate) || is_numbering(candidate)) continue;
    if (candidate.name == feature) return number;
    ++number;
  }
  throw InternalError("frame tables have no such column");
}

FrameTable FrameTable::load(const DatasetMetadata& metadata,
                            std::span<const std::int64_t> episodes) {
  FrameTable table = with_columns(metadata.info());
  for (std::int64_t episode : episodes) {
    const std::int64_t from = metadata.episodes().from(episode);
    const std::int64_t to = metadata.episodes().to(episode);
    table.runs_.push_back({episode, table.size_, from, to});
    table.size_ += to - from;
  }
  // Files in the order of their first selected episode: rows arrive in the order of positions.
  const auto layouts = file_layouts(metadata.episodes(), table.runs_);
  std::vector<const FileLayout*> order;
  for (const auto& [file, layout] : layouts) order.push_back(&layout);
  std::sort(order.begin(), order.end(), [](const FileLayout* a, const FileLayout* b) {
    return a->runs.front() < b->runs.front();
  });
  for (const FileLayout* layout : order) {
    const ParquetFile file(metadata.data_file(layout->first_episode));
    for (std::size_t i = 1; i < layout->runs.size(); ++i)
      if (layout->runs[i] != layout->runs[i - 1] + 1)
        fail(
            "{}: holds episodes {} and {}, but meta/episodes puts one between them elsewhere: the "
            "rows of the data files must be in the order of the episodes",
            file.name(), table.runs_[layout->runs[i - 1]].episode,
            table.runs_[layout->runs[i]].episode);
    check_columns(file, metadata.info());
    if (file.rows() != layout->rows)
      fail("{}: holds {} rows, but meta/episodes puts {} frames of episodes {} to {} there",
           file.name(), file.rows(), layout->rows, layout->first_episode, layout->last_episode);
    // The size is trusted once the file has confirmed it.
    if (order.size() == 1)
      for (FrameColumn& column : table.columns_) column.reserve(table.size_);
    read_file(file, merged(layout->rows_of_run), table.columns_);
    for (std::size_t i = 0; i < layout->runs.size(); ++i)
      check_rows(table.runs_[layout->runs[i]], layout->rows_of_run[i], table.column("index"),
                 table.column("episode_index"), file.name());
  }
  check_tasks(table, table.column("task_index"), metadata);
  table.drop_numbering();
  ::malloc_trim(0);  // Arrow's buffers went through the allocator; hand their pages back
  return table;
}

std::vector<int> FrameTable::groups_of_episode(const ParquetFile& file, std::int64_t episode) {
  std::vector<int> groups;
  for (int group = 0; group < file.row_groups(); ++group) {
    const auto bounds = file.bounds(group, "episode_index");
    if (!bounds || (bounds->first <= episode && episode <= bounds->second)) groups.push_back(group);
  }
  return groups;
}

FrameTable FrameTable::load_episode(const DatasetMetadata& metadata, std::int64_t episode,
                                    const ParquetFile& file) {
  FrameTable table = with_columns(metadata.info());
  const Run run{episode, 0, metadata.episodes().from(episode), metadata.episodes().to(episode)};
  table.runs_.push_back(run);
  table.size_ = run.to - run.from;
  check_columns(file, metadata.info());

  std::vector<std::string> names;
  for (const FrameColumn& column : table.columns_) names.push_back(column.feature().name);
  const auto read = file.read(names, groups_of_episode(file, episode));
  const RowRange rows = rows_of_episode(*read, episode, table.size_, file.name());
  append_rows(*read, 0, rows, table.columns_, file.name());
  check_rows(run, {0, table.size_}, table.column("index"), table.column("episode_index"),
             file.name());
  check_tasks(table, table.column("task_index"), metadata);
  table.drop_numbering();
  return table;
}

const FrameTable::Run& FrameTable::run_of(std::int64_t position) const {
  const auto after =
      std::upper_bound(runs_.begin(), runs_.end(), position,
                       [](std::int64_t value, const Run& run) { return value < run.position; });
  return *(after - 1);
}

const FrameColumn& FrameTable::column(std::string_view feature) const {
  for (const FrameColumn& column : columns_)
    if (column.feature().name == feature) return column;
  throw InternalError("the frame table has no such column");
}

}  // namespace lerobot::dataset
