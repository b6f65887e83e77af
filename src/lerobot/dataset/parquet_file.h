// A Parquet file, read a few columns and row groups at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <arrow/array/array_base.h>
#include <arrow/chunked_array.h>
#include <arrow/io/interfaces.h>
#include <arrow/table.h>
#include <arrow/type.h>
#include <parquet/arrow/reader.h>
#include <parquet/file_reader.h>

namespace lerobot::dataset {

/// One open file. Reads in the calling thread, into memory of the system's allocator that is gone
/// when the tables are.
class ParquetFile {
 public:
  /// Throws Error naming the file when it is missing, a Git LFS pointer, cut short or no Parquet.
  explicit ParquetFile(const std::filesystem::path& path);
  /// A file that is read through `source`; `name` stands for it in messages. With `footer` (of an
  /// earlier opening) nothing is read but what read() is asked for. Throws Error as above.
  ParquetFile(std::shared_ptr<arrow::io::RandomAccessFile> source, std::string name,
              std::shared_ptr<parquet::FileMetaData> footer = nullptr);

  std::shared_ptr<parquet::FileMetaData> footer() const;
  const std::string& name() const { return name_; }
  std::int64_t rows() const { return rows_; }
  int row_groups() const { return static_cast<int>(group_rows_.size()); }
  std::int64_t rows_of_group(int group) const { return group_rows_[group]; }
  /// Uncompressed, all columns.
  std::int64_t bytes_of_group(int group) const { return group_bytes_[group]; }

  /// Where a row group lies in the file, all columns: [begin, end). Checked against the file's
  /// size.
  struct Extent {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };
  Extent extent_of_group(int group) const;
  /// The least and the greatest value of an integer column in a row group, as its statistics have
  /// them; nullopt without statistics.
  std::optional<std::pair<std::int64_t, std::int64_t>> bounds(int group,
                                                              std::string_view column) const;

  /// Top-level columns, in the order of the file.
  const std::vector<std::string>& columns() const { return columns_; }
  bool has_column(std::string_view name) const;
  /// A value of the file's key-value metadata.
  std::optional<std::string> metadata(std::string_view key) const;

  /// Some columns of some row groups; Table columns come in the order of the file. Throws Error
  /// naming the file when a column is missing or bytes are damaged.
  std::shared_ptr<arrow::Table> read(const std::vector<std::string>& columns,
                                     const std::vector<int>& groups) const;
  /// The same for all row groups.
  std::shared_ptr<arrow::Table> read(const std::vector<std::string>& columns) const;

 private:
  void build(std::unique_ptr<parquet::ParquetFileReader> file);

  std::string name_;
  std::uint64_t file_bytes_ = 0;
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::int64_t rows_ = 0;
  std::vector<std::int64_t> group_rows_;
  std::vector<std::int64_t> group_bytes_;
  std::vector<std::string> columns_;
};

/// The values of a column of numbers as int64 (any integer type) or double (any number type).
/// Throws Error naming the file, column and row on nulls and on other types.
std::vector<std::int64_t> integer_column(const arrow::Table& table, const std::string& column,
                                         std::string_view file);
std::vector<double> number_column(const arrow::Table& table, const std::string& column,
                                  std::string_view file);
/// The values of a text column.
std::vector<std::string> text_column(const arrow::Table& table, const std::string& column,
                                     std::string_view file);

/// The files <directory>/*/*.parquet by sorted path, as LeRobot finds them.
std::vector<std::filesystem::path> sorted_parquet_files(const std::filesystem::path& directory);

}  // namespace lerobot::dataset
