// What the reader and the writer of safetensors files share. Private to serialization/.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/ScalarType.h>

namespace lerobot::serialization {

inline constexpr std::uint64_t kHeaderLengthBytes = 8;
/// The Python library's limit; it keeps a damaged length from asking for the whole memory.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr std::string_view kMetadataKey = "__metadata__";

struct SafetensorsType {
  std::string_view name;
  c10::ScalarType dtype;
  std::uint64_t bits;
};

/// In the order in which the library writes them.
inline constexpr SafetensorsType kSafetensorsTypes[] = {
    {"U64", c10::kUInt64, 64},
    {"I64", c10::kLong, 64},
    {"F64", c10::kDouble, 64},
    {"C64", c10::kComplexFloat, 64},
    {"F32", c10::kFloat, 32},
    {"U32", c10::kUInt32, 32},
    {"I32", c10::kInt, 32},
    {"BF16", c10::kBFloat16, 16},
    {"F16", c10::kHalf, 16},
    {"U16", c10::kUInt16, 16},
    {"I16", c10::kShort, 16},
    {"F8_E5M2FNUZ", c10::kFloat8_e5m2fnuz, 8},
    {"F8_E4M3FNUZ", c10::kFloat8_e4m3fnuz, 8},
    {"F8_E8M0", c10::kFloat8_e8m0fnu, 8},
    {"F8_E4M3", c10::kFloat8_e4m3fn, 8},
    {"F8_E5M2", c10::kFloat8_e5m2, 8},
    {"I8", c10::kChar, 8},
    {"U8", c10::kByte, 8},
    // torch packs two numbers into one element, the format counts them singly.
    {"F4", c10::ScalarType::Float4_e2m1fn_x2, 4},
    {"BOOL", c10::kBool, 8},
};

/// One tensor in the header.
struct SafetensorsEntry {
  std::string name;
  const SafetensorsType* type = nullptr;
  std::vector<std::int64_t> shape;  // as in the file
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// Size of a tensor in the file, from its shape and type. Throws Error naming `file` and the tensor
/// on overflow.
std::uint64_t bytes_in_file(std::string_view file, const SafetensorsEntry& entry);

}  // namespace lerobot::serialization
