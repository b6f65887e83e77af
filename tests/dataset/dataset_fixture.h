// Copies of fixture datasets that a test may break.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unistd.h>
#include <vector>

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/writer.h>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "lerobot/base/json.h"
#include "tests/support/error_of.h"

namespace lerobot::dataset {

inline fs::path fixture(const std::string& dataset) {
  return fs::path(LEROBOT_TEST_DATA) / "datasets" / dataset;
}

using TableEdit = std::function<std::shared_ptr<arrow::Table>(std::shared_ptr<arrow::Table>)>;

inline std::shared_ptr<arrow::Table> read_table(const fs::path& path) {
  auto file = arrow::io::ReadableFile::Open(path.string()).ValueOrDie();
  auto reader = parquet::arrow::OpenFile(file, arrow::default_memory_pool()).ValueOrDie();
  return reader->ReadTable().ValueOrDie()->CombineChunks().ValueOrDie();
}

inline void write_table(const arrow::Table& table, const fs::path& path,
                        std::int64_t row_group_rows = 1 << 20) {
  auto file = arrow::io::FileOutputStream::Open(path.string()).ValueOrDie();
  auto properties = parquet::ArrowWriterProperties::Builder().store_schema()->build();
  ASSERT_TRUE(parquet::arrow::WriteTable(table, arrow::default_memory_pool(), file, row_group_rows,
                                         parquet::default_writer_properties(), properties)
                  .ok());
}

/// A table with another column in the place of `name`; appended when there is none.
inline std::shared_ptr<arrow::Table> with_column(const std::shared_ptr<arrow::Table>& table,
                                                 const std::string& name,
                                                 std::shared_ptr<arrow::Array> values) {
  const auto field = arrow::field(name, values->type());
  const auto column = std::make_shared<arrow::ChunkedArray>(std::move(values));
  const int at = table->schema()->GetFieldIndex(name);
  return at < 0 ? table->AddColumn(table->num_columns(), field, column).ValueOrDie()
                : table->SetColumn(at, field, column).ValueOrDie();
}

inline std::shared_ptr<arrow::Table> without_column(const std::shared_ptr<arrow::Table>& table,
                                                    const std::string& name) {
  return table->RemoveColumn(table->schema()->GetFieldIndex(name)).ValueOrDie();
}

/// An array of optional values: nullopt is null.
template <class Builder, class Value>
std::shared_ptr<arrow::Array> array_of(const std::vector<std::optional<Value>>& values) {
  Builder builder;
  for (const auto& value : values)
    EXPECT_TRUE((value ? builder.Append(*value) : builder.AppendNull()).ok());
  return builder.Finish().ValueOrDie();
}

inline std::vector<std::optional<std::int64_t>> integers_of(
    const std::shared_ptr<arrow::Table>& table, const std::string& name) {
  const auto& array =
      static_cast<const arrow::Int64Array&>(*table->GetColumnByName(name)->chunk(0));
  std::vector<std::optional<std::int64_t>> values;
  for (std::int64_t i = 0; i < array.length(); ++i) values.push_back(array.Value(i));
  return values;
}

inline std::vector<std::optional<double>> doubles_of(const std::shared_ptr<arrow::Table>& table,
                                                     const std::string& name) {
  const auto& array =
      static_cast<const arrow::DoubleArray&>(*table->GetColumnByName(name)->chunk(0));
  std::vector<std::optional<double>> values;
  for (std::int64_t i = 0; i < array.length(); ++i) values.push_back(array.Value(i));
  return values;
}

/// An edit that puts `value` (null for nullopt) into one cell of an int64 column.
inline TableEdit set_integer(const std::string& column, std::size_t row,
                             std::optional<std::int64_t> value) {
  return [=](std::shared_ptr<arrow::Table> table) {
    auto values = integers_of(table, column);
    values[row] = value;
    return with_column(table, column, array_of<arrow::Int64Builder>(values));
  };
}

inline TableEdit set_double(const std::string& column, std::size_t row,
                            std::optional<double> value) {
  return [=](std::shared_ptr<arrow::Table> table) {
    auto values = doubles_of(table, column);
    values[row] = value;
    return with_column(table, column, array_of<arrow::DoubleBuilder>(values));
  };
}

/// A copy of a fixture in a temporary folder, gone with the object.
class DatasetCopy {
 public:
  explicit DatasetCopy(const std::string& dataset) {
    std::string pattern = (fs::temp_directory_path() / "lerobot-dataset-XXXXXX").string();
    if (!::mkdtemp(pattern.data())) throw std::runtime_error("mkdtemp");
    root_ = pattern;
    fs::copy(fixture(dataset), root_, fs::copy_options::recursive);
    for (const auto& entry : fs::recursive_directory_iterator(root_))
      fs::permissions(entry.path(), fs::perms::owner_all, fs::perm_options::add);
  }
  DatasetCopy(const DatasetCopy&) = delete;
  DatasetCopy& operator=(const DatasetCopy&) = delete;
  ~DatasetCopy() {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }

  const fs::path& root() const { return root_; }
  fs::path file(const std::string& path) const { return root_ / path; }

  void edit_json(const std::string& path, const std::function<void(Json&)>& edit) {
    Json json = read_json_file(file(path));
    edit(json);
    write(path, to_python_json(json, 4));
  }
  void edit_info(const std::function<void(Json&)>& edit) { edit_json("meta/info.json", edit); }

  void edit_table(const std::string& path, const TableEdit& edit,
                  std::int64_t row_group_rows = 1 << 20) {
    write_table(*edit(read_table(file(path))), file(path), row_group_rows);
  }
  void edit_episodes(const TableEdit& edit) {
    edit_table("meta/episodes/chunk-000/file-000.parquet", edit);
  }
  void edit_data(const TableEdit& edit) { edit_table("data/chunk-000/file-000.parquet", edit); }

  void write(const std::string& path, const std::string& text) {
    std::ofstream(file(path), std::ios::binary | std::ios::trunc) << text;
  }
  void cut(const std::string& path, std::uintmax_t bytes) { fs::resize_file(file(path), bytes); }

 private:
  fs::path root_;
};

}  // namespace lerobot::dataset
