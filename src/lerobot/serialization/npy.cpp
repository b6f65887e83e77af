#include "lerobot/serialization/npy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "lerobot/base/checked.h"
#include "lerobot/base/error.h"

namespace lerobot::serialization {
namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);
// numpy refuses longer headers too (its max_header_size), unless told otherwise.
constexpr std::uint32_t kLongestHeader = 10'000;

/// The few forms of Python literals that a header is made of.
class DictParser {
 public:
  DictParser(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  NpyHeader parse() {
    NpyHeader header;
    bool has_type = false, has_order = false, has_shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr" && !has_type) {
        has_type = true;
        read_type(header);
      } else if (key == "fortran_order" && !has_order) {
        has_order = true;
        read_boolean();  // the same for arrays of one dimension or none
      } else if (key == "shape" && !has_shape) {
        has_shape = true;
        header.shape = read_shape();
      } else {
        fail("{}: npy header: unexpected key '{}'", name_, key);
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_spaces();
    if (at_ != text_.size()) broken("text behind the dict");
    if (!has_type || !has_order || !has_shape)
      broken("one of 'descr', 'fortran_order' and 'shape' is missing");
    return header;
  }

 private:
  [[noreturn]] void broken(std::string_view what) const {
    fail("{}: damaged npy header: {} (byte {} of the dict)", name_, what, at_);
  }
  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t'))
      ++at_;
  }
  bool accept(char wanted) {
    skip_spaces();
    if (at_ == text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted) {
    if (!accept(wanted)) broken(fmt::format("expected '{}'", wanted));
  }

  std::string string() {
    skip_spaces();
    if (at_ == text_.size() || (text_[at_] != '\'' && text_[at_] != '"'))
      broken("expected a quoted text");
    const char quote = text_[at_++];
    const std::size_t end = text_.find(quote, at_);
    if (end == std::string_view::npos) broken("a quoted text does not end");
    std::string result(text_.substr(at_, end - at_));
    at_ = end + 1;
    return result;
  }

  void read_boolean() {
    skip_spaces();
    for (const std::string_view word : {"True", "False"})
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return;
      }
    broken("expected True or False");
  }

  std::uint64_t read_number() {
    skip_spaces();
    const std::size_t begin = at_;
    std::uint64_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      const auto digit = static_cast<std::uint64_t>(text_[at_] - '0');
      value = checked_add(checked_mul(value, std::uint64_t{10}, "npy shape"), digit, "npy shape");
    }
    if (at_ == begin) broken("expected a number");
    return value;
  }

  std::vector<std::uint64_t> read_shape() {
    std::vector<std::uint64_t> shape;
    expect('(');
    while (!accept(')')) {
      shape.push_back(read_number());
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return shape;
  }

  void read_type(NpyHeader& header) {
    skip_spaces();
    if (at_ < text_.size() && text_[at_] == '[')
      fail("{}: an array of records, expected plain numbers", name_);
    const std::string type = string();
    const auto refuse = [&]() {
      fail("{}: numpy type '{}' is not supported, expected integers, floats or bytes", name_, type);
    };
    if (type.size() < 2) refuse();
    const char order = type[0];
    header.kind = type[1];
    if (header.kind == 'O')
      fail(
          "{}: an array of Python objects (a pickle) is refused: it could run anything; save plain "
          "numbers",
          name_);
    if ((order != '<' && order != '>' && order != '|' && order != '=') || type.size() > 20 ||
        std::string_view("iufbS").find(header.kind) == std::string_view::npos)
      refuse();
    header.big_endian = order == '>';
    for (const char digit : type.substr(2)) {
      if (digit < '0' || digit > '9') refuse();
      header.item_bytes = header.item_bytes * 10 + static_cast<std::uint64_t>(digit - '0');
    }
    const std::uint64_t size = header.item_bytes;
    const bool sized = header.kind == 'S'   ? type.size() > 2
                       : header.kind == 'b' ? size == 1
                       : header.kind == 'f' ? size == 2 || size == 4 || size == 8
                                            : size == 1 || size == 2 || size == 4 || size == 8;
    if (!sized) refuse();
  }

  std::string_view text_;
  std::string_view name_;
  std::size_t at_ = 0;
};

template <class Unsigned>
Unsigned load(const std::uint8_t* bytes, bool big_endian) {
  Unsigned value = 0;
  for (std::size_t i = 0; i < sizeof value; ++i) {
    const std::size_t shift = 8 * (big_endian ? sizeof value - 1 - i : i);
    value = static_cast<Unsigned>(value |
                                  static_cast<Unsigned>(static_cast<Unsigned>(bytes[i]) << shift));
  }
  return value;
}

/// IEEE 754 half precision.
double half_to_double(std::uint16_t bits) {
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  if (exponent == 31)
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(fraction + 1024, exponent - 25);
}

/// Calls visit(value) with one item as int64, uint64 or double.
template <class Visit>
auto visit_item(const NpyHeader& header, const std::uint8_t* item, Visit&& visit) {
  const bool big = header.big_endian;
  if (header.kind == 'f') {
    switch (header.item_bytes) {
      case 2:
        return visit(half_to_double(load<std::uint16_t>(item, big)));
      case 4:
        return visit(static_cast<double>(std::bit_cast<float>(load<std::uint32_t>(item, big))));
      default:
        return visit(std::bit_cast<double>(load<std::uint64_t>(item, big)));
    }
  }
  std::uint64_t value = 0;
  switch (header.item_bytes) {
    case 1:
      value = *item;
      break;
    case 2:
      value = load<std::uint16_t>(item, big);
      break;
    case 4:
      value = load<std::uint32_t>(item, big);
      break;
    default:
      value = load<std::uint64_t>(item, big);
  }
  if (header.kind != 'i') return visit(value);
  const int unused = static_cast<int>(64 - 8 * header.item_bytes);
  return visit(static_cast<std::int64_t>(value << unused) >> unused);  // sign extended
}

std::string array_name(const ZipReader& archive, std::string_view member) {
  return fmt::format("{}: {}", archive.name(), member);
}

const ZipReader::Member& require_member(const ZipReader& archive, std::string_view member) {
  const ZipReader::Member* found = archive.find(member);
  if (!found) fail("{}: member {} is missing", archive.name(), member);
  return *found;
}

/// Checks the header against what is left of the member.
void check_length(const NpyHeader& header, const ZipMemberStream& stream, std::string_view name) {
  const std::uint64_t bytes = checked_mul(header.count(), header.item_bytes, name);
  if (bytes != stream.left())
    fail("{}: its shape needs {} bytes, it has {}", name, bytes, stream.left());
}

/// Reads a one-dimensional array, converting each item by convert(value, position).
template <class Number, class Convert>
std::vector<Number> read_numbers(const ZipReader& archive, std::string_view member,
                                 const Convert& convert) {
  const std::string name = array_name(archive, member);
  ZipMemberStream stream(archive, require_member(archive, member));
  const NpyHeader header = read_npy_header(stream, name);
  if (header.shape.size() != 1 || header.kind == 'S' || header.kind == 'b')
    fail("{}: expected a one-dimensional array of numbers, found kind '{}' with {} dimensions",
         name, header.kind, header.shape.size());
  check_length(header, stream, name);
  std::vector<Number> values(header.shape[0]);
  const char natural_kind = std::is_floating_point_v<Number> ? 'f' : 'i';
  if (header.kind == natural_kind && header.item_bytes == 8 && !header.big_endian) {
    stream.read({reinterpret_cast<std::uint8_t*>(values.data()), 8 * values.size()});
  } else {
    constexpr std::size_t kBlockItems = 4096;
    std::vector<std::uint8_t> block(kBlockItems * header.item_bytes);
    for (std::size_t done = 0; done < values.size();) {
      const std::size_t items = std::min(kBlockItems, values.size() - done);
      stream.read(std::span(block).first(items * header.item_bytes));
      for (std::size_t i = 0; i < items; ++i)
        values[done + i] = visit_item(header, block.data() + i * header.item_bytes,
                                      [&](auto value) { return convert(value, done + i); });
      done += items;
    }
  }
  stream.finish();
  return values;
}

std::vector<std::uint8_t> npy_file(std::string_view type, std::string_view shape,
                                   std::span<const std::uint8_t> data) {
  // Magic, version and length are 10 bytes; spaces and a newline fill up to a multiple of 64.
  std::string dict =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", type, shape);
  constexpr std::size_t kAlignment = 64, kPrefix = 10;
  const std::size_t unpadded = kPrefix + dict.size() + 1;
  dict.append((kAlignment - unpadded % kAlignment) % kAlignment, ' ');
  dict += '\n';
  std::string head(kMagic);
  head += {'\1', '\0', static_cast<char>(dict.size()), static_cast<char>(dict.size() >> 8)};
  head += dict;
  std::vector<std::uint8_t> file(head.size() + data.size());
  std::memcpy(file.data(), head.data(), head.size());
  if (!data.empty()) std::memcpy(file.data() + head.size(), data.data(), data.size());
  return file;
}

template <class Number>
std::span<const std::uint8_t> bytes_of(std::span<const Number> values) {
  return {reinterpret_cast<const std::uint8_t*>(values.data()), values.size_bytes()};
}

}  // namespace

std::uint64_t NpyHeader::count() const {
  std::uint64_t items = 1;
  for (const std::uint64_t length : shape) items = checked_mul(items, length, "npy shape");
  return items;
}

NpyHeader parse_npy_dict(std::string_view dict, std::string_view name) {
  return DictParser(dict, name).parse();
}

NpyHeader read_npy_header(ZipMemberStream& stream, std::string_view name) {
  std::array<std::uint8_t, 12> head{};
  constexpr std::size_t kVersionEnd = 8;
  if (stream.left() < kVersionEnd) fail("{}: is no npy file: it has {} bytes", name, stream.left());
  stream.read(std::span(head).first(kVersionEnd));
  if (std::memcmp(head.data(), kMagic.data(), kMagic.size()) != 0)
    fail("{}: is no npy file: it does not begin with \\x93NUMPY", name);
  const int version = head[6];
  if (version < 1 || version > 3) fail("{}: npy version {} is not known", name, version);
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  stream.read(std::span(head).subspan(kVersionEnd, length_bytes));
  const std::uint32_t length = version == 1 ? load<std::uint16_t>(head.data() + kVersionEnd, false)
                                            : load<std::uint32_t>(head.data() + kVersionEnd, false);
  if (length > kLongestHeader)
    fail("{}: its npy header has {} bytes, at most {} are supported", name, length, kLongestHeader);
  std::string dict(length, '\0');
  stream.read({reinterpret_cast<std::uint8_t*>(dict.data()), dict.size()});
  return parse_npy_dict(dict, name);
}

std::vector<std::int64_t> read_npy_integers(const ZipReader& archive, std::string_view member) {
  return read_numbers<std::int64_t>(
      archive, member, [&](auto value, std::size_t position) -> std::int64_t {
        if constexpr (std::is_same_v<decltype(value), double>) {
          constexpr double kLimit = 9007199254740992.0;  // beyond 2^53 a float is not exact
          if (!(std::abs(value) <= kLimit) || value != std::floor(value))
            fail("{}: item {} is {}, expected a whole number", array_name(archive, member),
                 position, value);
          return static_cast<std::int64_t>(value);
        } else {
          if (!std::in_range<std::int64_t>(value))
            fail("{}: item {} is out of range: {}", array_name(archive, member), position, value);
          return static_cast<std::int64_t>(value);
        }
      });
}

std::vector<double> read_npy_floats(const ZipReader& archive, std::string_view member) {
  return read_numbers<double>(archive, member,
                              [](auto value, std::size_t) { return static_cast<double>(value); });
}

std::string read_npy_text(const ZipReader& archive, std::string_view member) {
  const std::string name = array_name(archive, member);
  ZipMemberStream stream(archive, require_member(archive, member));
  const NpyHeader header = read_npy_header(stream, name);
  const bool bytes = header.kind == 'S' && header.shape.empty();
  const bool numbers = header.kind == 'u' && header.item_bytes == 1 && header.shape.size() == 1;
  if (!bytes && !numbers)
    fail(
        "{}: expected a 0-d byte string or a 1-D array of uint8, found kind '{}' with {} "
        "dimensions",
        name, header.kind, header.shape.size());
  check_length(header, stream, name);
  std::string text(stream.left(), '\0');
  stream.read({reinterpret_cast<std::uint8_t*>(text.data()), text.size()});
  stream.finish();
  if (bytes) text.erase(text.find_last_not_of('\0') + 1);
  return text;
}

std::vector<std::uint8_t> npy_of_integers(std::span<const std::int64_t> values) {
  return npy_file("<i8", fmt::format("({},)", values.size()), bytes_of(values));
}

std::vector<std::uint8_t> npy_of_floats(std::span<const double> values) {
  return npy_file("<f8", fmt::format("({},)", values.size()), bytes_of(values));
}

std::vector<std::uint8_t> npy_of_text(std::string_view text) {
  return npy_file(fmt::format("|S{}", text.size()), "()",
                  {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
}

}  // namespace lerobot::serialization
