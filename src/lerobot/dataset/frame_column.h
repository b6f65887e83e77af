// One column of the data Parquet in memory, row after row.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <arrow/array/array_base.h>

#include "lerobot/dataset/dataset_info.h"
#include "lerobot/dataset/image_store.h"

namespace lerobot::dataset {

/// The values of one feature, one row a frame, contiguous and in the type that batches have.
/// Vectors and matrices lie in row-major order, elements() numbers a row. Only the member that
/// belongs to the feature's type is filled.
class FrameColumn {
 public:
  explicit FrameColumn(const Feature& feature);

  const Feature& feature() const { return feature_; }
  std::int64_t rows() const { return rows_; }
  /// Numbers in one row.
  std::int64_t elements() const { return elements_; }

  /// Makes room for `rows` rows in all.
  void reserve(std::int64_t rows);
  /// Appends an array of the Parquet column. `where` names file and column, `first_row` is the
  /// array's first row in the file. Throws Error on nulls, lists of another length than the
  /// declared shape, and types that cannot stand for the declared one.
  void append(const arrow::Array& array, std::string_view where, std::int64_t first_row);
  /// No more rows come.
  void finish();

  const std::vector<float>& floats() const { return floats_; }
  const std::vector<std::int64_t>& integers() const { return integers_; }
  const std::vector<std::uint8_t>& booleans() const { return booleans_; }
  std::string_view text(std::int64_t row) const;
  std::span<const std::uint8_t> image(std::int64_t row) const { return images_[row]; }

  /// The bytes of a row of numbers, and how many there are.
  const std::uint8_t* row_data(std::int64_t row) const;
  std::int64_t row_bytes() const;

 private:
  void append_level(const arrow::Array& array, std::int64_t begin, std::int64_t length,
                    std::size_t level, std::string_view where, std::int64_t first_row);
  void append_leaf(const arrow::Array& array, std::int64_t begin, std::int64_t length,
                   std::string_view where);
  void append_images(const arrow::Array& array, std::string_view where, std::int64_t first_row);
  [[noreturn]] void fail_type(const arrow::Array& array, std::string_view where) const;

  Feature feature_;
  std::int64_t elements_ = 1;
  std::int64_t rows_ = 0;
  std::vector<float> floats_;
  std::vector<std::int64_t> integers_;
  std::vector<std::uint8_t> booleans_;
  std::vector<std::uint64_t> text_ends_;
  std::string texts_;
  ImageStore images_;
};

}  // namespace lerobot::dataset
