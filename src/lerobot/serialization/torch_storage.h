// How torch names the types of storages and tensors in its pickles. For readers of torch files:
// here, and of sharded checkpoints.
#pragma once

#include <string_view>

#include <c10/core/ScalarType.h>

namespace lerobot::serialization {

/// One element type. `storage` is empty for types that came after typed storages: tensors of those
/// are pickled with an UntypedStorage and their dtype.
struct TorchType {
  std::string_view storage;  // class in module torch
  std::string_view dtype;    // constant in module torch
  c10::ScalarType type;
};

inline constexpr TorchType kTorchTypes[] = {
    {"FloatStorage", "float32", c10::ScalarType::Float},
    {"DoubleStorage", "float64", c10::ScalarType::Double},
    {"HalfStorage", "float16", c10::ScalarType::Half},
    {"BFloat16Storage", "bfloat16", c10::ScalarType::BFloat16},
    {"LongStorage", "int64", c10::ScalarType::Long},
    {"IntStorage", "int32", c10::ScalarType::Int},
    {"ShortStorage", "int16", c10::ScalarType::Short},
    {"CharStorage", "int8", c10::ScalarType::Char},
    {"ByteStorage", "uint8", c10::ScalarType::Byte},
    {"BoolStorage", "bool", c10::ScalarType::Bool},
    {"ComplexFloatStorage", "complex64", c10::ScalarType::ComplexFloat},
    {"ComplexDoubleStorage", "complex128", c10::ScalarType::ComplexDouble},
    {"", "complex32", c10::ScalarType::ComplexHalf},
    {"", "uint16", c10::ScalarType::UInt16},
    {"", "uint32", c10::ScalarType::UInt32},
    {"", "uint64", c10::ScalarType::UInt64},
    {"", "float8_e5m2", c10::ScalarType::Float8_e5m2},
    {"", "float8_e4m3fn", c10::ScalarType::Float8_e4m3fn},
    {"", "float8_e5m2fnuz", c10::ScalarType::Float8_e5m2fnuz},
    {"", "float8_e4m3fnuz", c10::ScalarType::Float8_e4m3fnuz},
    {"", "float8_e8m0fnu", c10::ScalarType::Float8_e8m0fnu},
};

}  // namespace lerobot::serialization
