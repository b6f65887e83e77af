#include "lerobot/dataset/parquet_file.h"

#include <algorithm>

#include <arrow/array/array_binary.h>
#include <arrow/array/array_primitive.h>
#include <arrow/io/file.h>
#include <arrow/memory_pool.h>
#include <arrow/util/key_value_metadata.h>
#include <parquet/arrow/schema.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>
#include <parquet/statistics.h>

#include "lerobot/base/checked.h"
#include "lerobot/base/error.h"
#include "lerobot/base/files.h"

namespace lerobot::dataset {
namespace {

void collect_leaves(const parquet::arrow::SchemaField& field, std::vector<int>& leaves) {
  if (field.column_index >= 0) leaves.push_back(field.column_index);
  for (const auto& child : field.children) collect_leaves(child, leaves);
}

[[noreturn]] void fail_damaged(const std::string& name, std::string_view reason) {
  fail("{}: is damaged or was cut short, fetch it again: {}", name, reason);
}

/// A column without nulls.
std::shared_ptr<arrow::ChunkedArray> column_of(const arrow::Table& table, const std::string& column,
                                               std::string_view file) {
  auto found = table.GetColumnByName(column);
  if (!found) fail("{}: has no column \"{}\"", file, column);
  if (found->null_count() == 0) return found;
  for (std::int64_t row = 0, chunk = 0; chunk < found->num_chunks(); ++chunk) {
    const auto& array = *found->chunk(static_cast<int>(chunk));
    for (std::int64_t i = 0; i < array.length(); ++i, ++row)
      if (array.IsNull(i)) fail("{}: column \"{}\" is null in row {}", file, column, row);
  }
  throw InternalError("a column with nulls has none");
}

template <class Array, class Target>
void append_values(const arrow::Array& array, std::vector<Target>& out, std::string_view what) {
  const auto& typed = static_cast<const Array&>(array);
  for (std::int64_t i = 0; i < typed.length(); ++i) {
    if constexpr (std::is_integral_v<Target>) {
      out.push_back(checked_cast<Target>(typed.Value(i), what));
    } else {
      out.push_back(static_cast<Target>(typed.Value(i)));
    }
  }
}

/// False when the array doesn't hold integers.
template <class Target>
bool append_integers(const arrow::Array& array, std::vector<Target>& out, std::string_view what) {
  switch (array.type_id()) {
    case arrow::Type::INT8:
      append_values<arrow::Int8Array>(array, out, what);
      return true;
    case arrow::Type::INT16:
      append_values<arrow::Int16Array>(array, out, what);
      return true;
    case arrow::Type::INT32:
      append_values<arrow::Int32Array>(array, out, what);
      return true;
    case arrow::Type::INT64:
      append_values<arrow::Int64Array>(array, out, what);
      return true;
    case arrow::Type::UINT8:
      append_values<arrow::UInt8Array>(array, out, what);
      return true;
    case arrow::Type::UINT16:
      append_values<arrow::UInt16Array>(array, out, what);
      return true;
    case arrow::Type::UINT32:
      append_values<arrow::UInt32Array>(array, out, what);
      return true;
    case arrow::Type::UINT64:
      append_values<arrow::UInt64Array>(array, out, what);
      return true;
    default:
      return false;
  }
}

}  // namespace

namespace {

std::shared_ptr<arrow::io::RandomAccessFile> open_local(const std::filesystem::path& path) {
  const std::string name = path.string();
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    fail("{}: is missing; fetch the dataset's files again", name);
  if (is_git_lfs_pointer(path))
    fail("{}: is a Git LFS pointer; fetch the dataset's files with `git lfs pull`", name);
  auto opened = arrow::io::ReadableFile::Open(name, arrow::system_memory_pool());
  if (!opened.ok()) fail("{}: cannot open: {}", name, opened.status().message());
  return *opened;
}

}  // namespace

ParquetFile::ParquetFile(const std::filesystem::path& path)
    : ParquetFile(open_local(path), path.string()) {}

ParquetFile::ParquetFile(std::shared_ptr<arrow::io::RandomAccessFile> source, std::string name,
                         std::shared_ptr<parquet::FileMetaData> footer)
    : name_(std::move(name)) {
  const auto bytes = source->GetSize();
  if (!bytes.ok()) fail("{}: cannot be read: {}", name_, bytes.status().message());
  file_bytes_ = checked_cast<std::uint64_t>(*bytes, name_ + ": size");
  try {
    build(parquet::ParquetFileReader::Open(std::move(source),
                                           parquet::ReaderProperties(arrow::system_memory_pool()),
                                           std::move(footer)));
  } catch (const parquet::ParquetException& exception) {
    fail_damaged(name_, exception.what());
  }
}

void ParquetFile::build(std::unique_ptr<parquet::ParquetFileReader> file) {
  parquet::ArrowReaderProperties properties(/*use_threads=*/false);
  properties.set_pre_buffer(false);  // it would start Arrow's I/O threads
  auto built =
      parquet::arrow::FileReader::Make(arrow::system_memory_pool(), std::move(file), properties);
  if (!built.ok()) fail_damaged(name_, built.status().message());
  reader_ = std::move(*built);
  const auto file_metadata = footer();
  for (int group = 0; group < file_metadata->num_row_groups(); ++group) {
    const auto group_metadata = file_metadata->RowGroup(group);
    group_rows_.push_back(group_metadata->num_rows());
    group_bytes_.push_back(group_metadata->total_byte_size());
    if (group_rows_.back() < 0) fail_damaged(name_, "a row group has a negative number of rows");
    rows_ = checked_add(rows_, group_rows_.back(), name_ + ": number of rows");
  }
  if (rows_ != file_metadata->num_rows())
    fail_damaged(name_, fmt::format("its row groups hold {} rows, its footer says {}", rows_,
                                    file_metadata->num_rows()));
  for (const auto& field : reader_->manifest().schema_fields)
    columns_.push_back(field.field->name());
}

std::shared_ptr<parquet::FileMetaData> ParquetFile::footer() const {
  return reader_->parquet_reader()->metadata();
}

ParquetFile::Extent ParquetFile::extent_of_group(int group) const {
  Extent extent{file_bytes_, 0};
  try {
    const auto metadata = footer()->RowGroup(group);
    for (int column = 0; column < metadata->num_columns(); ++column) {
      const auto chunk = metadata->ColumnChunk(column);
      std::int64_t begin = chunk->data_page_offset();
      if (chunk->has_dictionary_page() && chunk->dictionary_page_offset() > 0)
        begin = std::min(begin, chunk->dictionary_page_offset());
      const std::int64_t bytes = chunk->total_compressed_size();
      if (begin < 0 || bytes < 0 || static_cast<std::uint64_t>(begin) > file_bytes_ ||
          static_cast<std::uint64_t>(bytes) > file_bytes_ - static_cast<std::uint64_t>(begin))
        fail_damaged(name_, fmt::format("row group {} has {} bytes from {} on, the file has {}",
                                        group, bytes, begin, file_bytes_));
      extent.begin = std::min(extent.begin, static_cast<std::uint64_t>(begin));
      extent.end = std::max(extent.end, static_cast<std::uint64_t>(begin + bytes));
    }
  } catch (const parquet::ParquetException& exception) {
    fail_damaged(name_, exception.what());
  }
  return {std::min(extent.begin, extent.end), extent.end};
}

std::optional<std::pair<std::int64_t, std::int64_t>> ParquetFile::bounds(
    int group, std::string_view column) const {
  const auto found = std::find(columns_.begin(), columns_.end(), column);
  if (found == columns_.end()) return std::nullopt;
  const int leaf = reader_->manifest().schema_fields[found - columns_.begin()].column_index;
  if (leaf < 0) return std::nullopt;
  try {
    const auto statistics = footer()->RowGroup(group)->ColumnChunk(leaf)->statistics();
    if (!statistics || !statistics->HasMinMax()) return std::nullopt;
    switch (statistics->physical_type()) {
      case parquet::Type::INT32: {
        const auto& typed = static_cast<const parquet::Int32Statistics&>(*statistics);
        return std::pair<std::int64_t, std::int64_t>(typed.min(), typed.max());
      }
      case parquet::Type::INT64: {
        const auto& typed = static_cast<const parquet::Int64Statistics&>(*statistics);
        return std::pair<std::int64_t, std::int64_t>(typed.min(), typed.max());
      }
      default:
        return std::nullopt;
    }
  } catch (const parquet::ParquetException& exception) {
    fail_damaged(name_, exception.what());
  }
}

bool ParquetFile::has_column(std::string_view name) const {
  return std::find(columns_.begin(), columns_.end(), name) != columns_.end();
}

std::optional<std::string> ParquetFile::metadata(std::string_view key) const {
  const auto pairs = reader_->parquet_reader()->metadata()->key_value_metadata();
  if (!pairs) return std::nullopt;
  const int found = pairs->FindKey(std::string(key));
  if (found < 0) return std::nullopt;
  return pairs->value(found);
}

std::shared_ptr<arrow::Table> ParquetFile::read(const std::vector<std::string>& columns,
                                                const std::vector<int>& groups) const {
  std::vector<int> leaves;
  for (const std::string& column : columns) {
    const auto found = std::find(columns_.begin(), columns_.end(), column);
    if (found == columns_.end()) fail("{}: has no column \"{}\"", name_, column);
    collect_leaves(reader_->manifest().schema_fields[found - columns_.begin()], leaves);
  }
  std::sort(leaves.begin(), leaves.end());
  try {
    auto table = reader_->ReadRowGroups(groups, leaves);
    if (!table.ok()) fail_damaged(name_, table.status().message());
    return *table;
  } catch (const parquet::ParquetException& exception) {
    fail_damaged(name_, exception.what());
  }
}

std::shared_ptr<arrow::Table> ParquetFile::read(const std::vector<std::string>& columns) const {
  std::vector<int> groups(group_rows_.size());
  for (std::size_t i = 0; i < groups.size(); ++i) groups[i] = static_cast<int>(i);
  return read(columns, groups);
}

std::vector<std::int64_t> integer_column(const arrow::Table& table, const std::string& column,
                                         std::string_view file) {
  const auto values = column_of(table, column, file);
  const std::string what = fmt::format("{}: column \"{}\"", file, column);
  std::vector<std::int64_t> out;
  out.reserve(static_cast<std::size_t>(values->length()));
  for (const auto& chunk : values->chunks())
    if (!append_integers(*chunk, out, what))
      fail("{}: expected integers, found {}", what, values->type()->ToString());
  return out;
}

std::vector<double> number_column(const arrow::Table& table, const std::string& column,
                                  std::string_view file) {
  const auto values = column_of(table, column, file);
  const std::string what = fmt::format("{}: column \"{}\"", file, column);
  std::vector<double> out;
  out.reserve(static_cast<std::size_t>(values->length()));
  for (const auto& chunk : values->chunks()) {
    if (chunk->type_id() == arrow::Type::DOUBLE)
      append_values<arrow::DoubleArray>(*chunk, out, what);
    else if (chunk->type_id() == arrow::Type::FLOAT)
      append_values<arrow::FloatArray>(*chunk, out, what);
    else if (!append_integers(*chunk, out, what))
      fail("{}: expected numbers, found {}", what, values->type()->ToString());
  }
  return out;
}

std::vector<std::string> text_column(const arrow::Table& table, const std::string& column,
                                     std::string_view file) {
  const auto values = column_of(table, column, file);
  std::vector<std::string> out;
  out.reserve(static_cast<std::size_t>(values->length()));
  for (const auto& chunk : values->chunks()) {
    if (chunk->type_id() == arrow::Type::STRING) {
      const auto& texts = static_cast<const arrow::StringArray&>(*chunk);
      for (std::int64_t i = 0; i < texts.length(); ++i) out.emplace_back(texts.GetView(i));
    } else if (chunk->type_id() == arrow::Type::LARGE_STRING) {
      const auto& texts = static_cast<const arrow::LargeStringArray&>(*chunk);
      for (std::int64_t i = 0; i < texts.length(); ++i) out.emplace_back(texts.GetView(i));
    } else {
      fail("{}: column \"{}\": expected text, found {}", file, column, values->type()->ToString());
    }
  }
  return out;
}

std::vector<std::filesystem::path> sorted_parquet_files(const std::filesystem::path& directory) {
  namespace fs = std::filesystem;
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& chunk : fs::directory_iterator(directory, error)) {
    if (!chunk.is_directory()) continue;
    for (const auto& file : fs::directory_iterator(chunk.path(), error))
      if (file.path().extension() == ".parquet") files.push_back(file.path());
  }
  if (error) fail("{}: cannot be listed: {}", directory.string(), error.message());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace lerobot::dataset
