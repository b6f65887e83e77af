// Numpy's array files: a header that is a Python dict literal, then the numbers
// (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html, versions 1 to 3).
//
// Read are one-dimensional arrays of integers and floats in either byte order, and texts (a 0-d
// byte string, or a 1-D array of uint8). Arrays of Python objects are pickles: refused.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lerobot/serialization/zip_archive.h"

namespace lerobot::serialization {

/// What the header says.
struct NpyHeader {
  char kind = 'i';  ///< numpy's: 'i' integer, 'u' unsigned, 'f' float, 'b' bool, 'S' bytes
  std::uint64_t item_bytes = 0;
  bool big_endian = false;
  std::vector<std::uint64_t> shape;

  /// Number of items; throws Error when it overflows.
  std::uint64_t count() const;
};

/// Reads magic, version, length and dict from the beginning of `stream`; the numbers come next.
/// `name` stands for the array in messages. Throws Error.
NpyHeader read_npy_header(ZipMemberStream& stream, std::string_view name);
/// Parses the dict alone.
NpyHeader parse_npy_dict(std::string_view dict, std::string_view name);

/// The numbers of a one-dimensional array. A float read as integer has to be one. Throws Error
/// naming array and position.
std::vector<std::int64_t> read_npy_integers(const ZipReader& archive, std::string_view member);
std::vector<double> read_npy_floats(const ZipReader& archive, std::string_view member);
/// The text of a 0-d byte string (without the zero bytes that numpy pads with) or of uint8 numbers.
std::string read_npy_text(const ZipReader& archive, std::string_view member);

/// Whole files: version 1.0, little-endian, as numpy.save() writes them.
std::vector<std::uint8_t> npy_of_integers(std::span<const std::int64_t> values);
std::vector<std::uint8_t> npy_of_floats(std::span<const double> values);
std::vector<std::uint8_t> npy_of_text(std::string_view text);

}  // namespace lerobot::serialization
