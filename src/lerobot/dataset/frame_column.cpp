#include "lerobot/dataset/frame_column.h"

#include <arrow/array/array_binary.h>
#include <arrow/array/array_nested.h>
#include <arrow/array/array_primitive.h>
#include <arrow/extension_type.h>
#include <arrow/util/float16.h>
#include <fmt/ranges.h>

#include "lerobot/base/checked.h"
#include "lerobot/base/error.h"

namespace lerobot::dataset {
namespace {

/// Throws when one of the rows [begin, begin + length) of `array` is null. `rows_per_frame` of them
/// make up a frame, the first of which is `first_row` of the file.
void check_no_nulls(const arrow::Array& array, std::int64_t begin, std::int64_t length,
                    std::int64_t rows_per_frame, std::string_view where, std::int64_t first_row) {
  if (array.null_count() == 0) return;
  for (std::int64_t i = 0; i < length; ++i)
    if (array.IsNull(begin + i))
      fail("{}: is null in row {}", where, first_row + i / rows_per_frame);
}

template <class Array, class Target>
void convert(const arrow::Array& array, std::int64_t begin, std::int64_t length,
             std::vector<Target>& out) {
  const auto* values = static_cast<const Array&>(array).raw_values() + begin;
  const std::size_t old_size = out.size();
  out.resize(old_size + static_cast<std::size_t>(length));
  Target* target = out.data() + old_size;
  for (std::int64_t i = 0; i < length; ++i) target[i] = static_cast<Target>(values[i]);
}

/// Integers of any width as Target. False when the array holds none.
template <class Target>
bool convert_integers(const arrow::Array& array, std::int64_t begin, std::int64_t length,
                      std::vector<Target>& out, std::string_view where) {
  switch (array.type_id()) {
    case arrow::Type::INT8:
      convert<arrow::Int8Array>(array, begin, length, out);
      return true;
    case arrow::Type::INT16:
      convert<arrow::Int16Array>(array, begin, length, out);
      return true;
    case arrow::Type::INT32:
      convert<arrow::Int32Array>(array, begin, length, out);
      return true;
    case arrow::Type::INT64:
      convert<arrow::Int64Array>(array, begin, length, out);
      return true;
    case arrow::Type::UINT8:
      convert<arrow::UInt8Array>(array, begin, length, out);
      return true;
    case arrow::Type::UINT16:
      convert<arrow::UInt16Array>(array, begin, length, out);
      return true;
    case arrow::Type::UINT32:
      convert<arrow::UInt32Array>(array, begin, length, out);
      return true;
    case arrow::Type::UINT64: {
      const auto* values = static_cast<const arrow::UInt64Array&>(array).raw_values() + begin;
      for (std::int64_t i = 0; i < length; ++i)
        out.push_back(static_cast<Target>(checked_cast<std::int64_t>(values[i], where)));
      return true;
    }
    default:
      return false;
  }
}

bool convert_floats(const arrow::Array& array, std::int64_t begin, std::int64_t length,
                    std::vector<float>& out) {
  switch (array.type_id()) {
    case arrow::Type::FLOAT:
      convert<arrow::FloatArray>(array, begin, length, out);
      return true;
    case arrow::Type::DOUBLE:
      convert<arrow::DoubleArray>(array, begin, length, out);
      return true;
    case arrow::Type::HALF_FLOAT: {
      const auto* bits = static_cast<const arrow::HalfFloatArray&>(array).raw_values() + begin;
      for (std::int64_t i = 0; i < length; ++i)
        out.push_back(arrow::util::Float16::FromBits(bits[i]).ToFloat());
      return true;
    }
    default:
      return false;
  }
}

}  // namespace

FrameColumn::FrameColumn(const Feature& feature)
    : feature_(feature), elements_(feature.is_camera() ? 1 : feature.elements()) {}

void FrameColumn::reserve(std::int64_t rows) {
  const auto numbers = static_cast<std::size_t>(checked_mul(rows, elements_, "number of values"));
  switch (feature_.type) {
    case ValueType::kFloat32:
      floats_.reserve(numbers);
      break;
    case ValueType::kInt64:
      integers_.reserve(numbers);
      break;
    case ValueType::kBool:
      booleans_.reserve(numbers);
      break;
    case ValueType::kString:
      text_ends_.reserve(numbers);
      break;
    case ValueType::kImage:
    case ValueType::kVideo:
      break;
  }
}

void FrameColumn::append(const arrow::Array& array, std::string_view where,
                         std::int64_t first_row) {
  if (feature_.type == ValueType::kImage) {
    append_images(array, where, first_row);
  } else {
    append_level(array, 0, array.length(), 0, where, first_row);
  }
  rows_ += array.length();
}

void FrameColumn::append_level(const arrow::Array& array, std::int64_t begin, std::int64_t length,
                               std::size_t level, std::string_view where, std::int64_t first_row) {
  if (array.type_id() == arrow::Type::EXTENSION)
    return append_level(*static_cast<const arrow::ExtensionArray&>(array).storage(), begin, length,
                        level, where, first_row);
  std::int64_t rows_per_frame = 1;
  for (std::size_t i = 0; i < level; ++i) rows_per_frame *= feature_.shape[i];
  check_no_nulls(array, begin, length, rows_per_frame, where, first_row);

  const auto descend = [&](const auto& lists) {
    if (level >= feature_.shape.size()) fail_type(array, where);
    const std::int64_t expected = feature_.shape[level];
    for (std::int64_t i = 0; i < length; ++i)
      if (lists.value_length(begin + i) != expected)
        fail("{}: row {} has a list of {} values, info.json declares {} in dimension {}", where,
             first_row + i / rows_per_frame, lists.value_length(begin + i), expected, level);
    const std::int64_t child_begin = length == 0 ? 0 : lists.value_offset(begin);
    append_level(*lists.values(), child_begin, length * expected, level + 1, where, first_row);
  };
  switch (array.type_id()) {
    case arrow::Type::LIST:
      return descend(static_cast<const arrow::ListArray&>(array));
    case arrow::Type::LARGE_LIST:
      return descend(static_cast<const arrow::LargeListArray&>(array));
    case arrow::Type::FIXED_SIZE_LIST:
      return descend(static_cast<const arrow::FixedSizeListArray&>(array));
    default:
      break;
  }
  if (level != feature_.shape.size() && !feature_.is_scalar()) fail_type(array, where);
  append_leaf(array, begin, length, where);
}

void FrameColumn::append_leaf(const arrow::Array& array, std::int64_t begin, std::int64_t length,
                              std::string_view where) {
  switch (feature_.type) {
    case ValueType::kFloat32:
      if (convert_floats(array, begin, length, floats_) ||
          convert_integers(array, begin, length, floats_, where))
        return;
      break;
    case ValueType::kInt64:
      if (convert_integers(array, begin, length, integers_, where)) return;
      break;
    case ValueType::kBool:
      if (array.type_id() == arrow::Type::BOOL) {
        const auto& bits = static_cast<const arrow::BooleanArray&>(array);
        for (std::int64_t i = 0; i < length; ++i) booleans_.push_back(bits.Value(begin + i));
        return;
      }
      break;
    case ValueType::kString: {
      const auto append_texts = [&](const auto& texts) {
        for (std::int64_t i = 0; i < length; ++i) {
          texts_ += texts.GetView(begin + i);
          text_ends_.push_back(texts_.size());
        }
      };
      if (array.type_id() == arrow::Type::STRING)
        return append_texts(static_cast<const arrow::StringArray&>(array));
      if (array.type_id() == arrow::Type::LARGE_STRING)
        return append_texts(static_cast<const arrow::LargeStringArray&>(array));
      break;
    }
    case ValueType::kImage:
    case ValueType::kVideo:
      break;
  }
  fail_type(array, where);
}

void FrameColumn::append_images(const arrow::Array& array, std::string_view where,
                                std::int64_t first_row) {
  if (array.type_id() == arrow::Type::EXTENSION)
    return append_images(*static_cast<const arrow::ExtensionArray&>(array).storage(), where,
                         first_row);
  if (array.type_id() != arrow::Type::STRUCT) fail_type(array, where);
  check_no_nulls(array, 0, array.length(), 1, where, first_row);
  // field() applies the offset of a sliced struct; GetFieldByName() does too.
  const auto bytes = static_cast<const arrow::StructArray&>(array).GetFieldByName("bytes");
  if (!bytes) fail_type(array, where);
  const auto append_bytes = [&](const auto& images) {
    for (std::int64_t i = 0; i < images.length(); ++i) {
      if (images.IsNull(i))
        fail("{}: row {} has no image bytes, only a path; embed the images in the Parquet file",
             where, first_row + i);
      const std::string_view view = images.GetView(i);
      images_.append({reinterpret_cast<const std::uint8_t*>(view.data()), view.size()});
    }
  };
  if (bytes->type_id() == arrow::Type::BINARY)
    return append_bytes(static_cast<const arrow::BinaryArray&>(*bytes));
  if (bytes->type_id() == arrow::Type::LARGE_BINARY)
    return append_bytes(static_cast<const arrow::LargeBinaryArray&>(*bytes));
  fail_type(array, where);
}

void FrameColumn::fail_type(const arrow::Array& array, std::string_view where) const {
  fail("{}: holds {}, but info.json declares {} of shape [{}]", where, array.type()->ToString(),
       feature_.dtype, fmt::join(feature_.shape, ", "));
}

void FrameColumn::finish() {
  floats_.shrink_to_fit();
  integers_.shrink_to_fit();
  booleans_.shrink_to_fit();
  text_ends_.shrink_to_fit();
  texts_.shrink_to_fit();
  if (feature_.type == ValueType::kImage) images_.finish();
}

std::string_view FrameColumn::text(std::int64_t row) const {
  const auto at = static_cast<std::size_t>(row);
  const std::uint64_t begin = at == 0 ? 0 : text_ends_[at - 1];
  return std::string_view(texts_).substr(begin, text_ends_[at] - begin);
}

const std::uint8_t* FrameColumn::row_data(std::int64_t row) const {
  const auto at = static_cast<std::size_t>(row * elements_);
  switch (feature_.type) {
    case ValueType::kFloat32:
      return reinterpret_cast<const std::uint8_t*>(floats_.data() + at);
    case ValueType::kInt64:
      return reinterpret_cast<const std::uint8_t*>(integers_.data() + at);
    case ValueType::kBool:
      return booleans_.data() + at;
    default:
      throw InternalError("a column of texts or images has no row of numbers");
  }
}

std::int64_t FrameColumn::row_bytes() const {
  switch (feature_.type) {
    case ValueType::kFloat32:
      return elements_ * static_cast<std::int64_t>(sizeof(float));
    case ValueType::kInt64:
      return elements_ * static_cast<std::int64_t>(sizeof(std::int64_t));
    case ValueType::kBool:
      return elements_;
    default:
      throw InternalError("a column of texts or images has no row of numbers");
  }
}

}  // namespace lerobot::dataset
