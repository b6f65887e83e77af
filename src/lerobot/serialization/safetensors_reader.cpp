#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <nlohmann/json.hpp>

#include "lerobot/base/checked.h"
#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "lerobot/serialization/safetensors.h"
#include "lerobot/serialization/safetensors_format.h"

namespace lerobot::serialization {
namespace {

static_assert(std::endian::native == std::endian::little, "tensor files are little-endian");

using Entry = SafetensorsEntry;

const SafetensorsType* type_named(std::string_view name) {
  const auto found = std::ranges::find(kSafetensorsTypes, name, &SafetensorsType::name);
  return found == std::end(kSafetensorsTypes) ? nullptr : found;
}

/// The shape that torch gives a tensor of this entry.
std::vector<std::int64_t> torch_shape(const Entry& entry) {
  auto shape = entry.shape;
  if (entry.type->bits == 4) shape.back() /= 2;
  return shape;
}

/// Reads the header's JSON as it is parsed, so that a header of many megabytes needs no tree, and a
/// key that occurs twice is seen.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(std::string_view file, std::vector<Entry>& entries,
               std::map<std::string, std::string>& metadata)
      : file_(file), entries_(entries), metadata_(metadata) {}

  bool null() override { wrong("null"); }
  bool boolean(bool) override { wrong("a boolean"); }
  bool number_integer(number_integer_t value) override {
    wrong(fmt::format("the negative number {}", value));
  }
  bool number_float(number_float_t, const string_t& text) override {
    wrong(fmt::format("the number {}", text));
  }
  bool binary(binary_t&) override { wrong("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::kShape && place_ != Place::kOffsets)
      wrong(fmt::format("the number {}", value));
    if (place_ == Place::kShape) {
      entries_.back().shape.push_back(checked_cast<std::int64_t>(
          value, fmt::format("{}: shape of {}", file_, entries_.back().name)));
      return true;
    }
    if (++offsets_ > 2) wrong("a third number");
    (offsets_ == 1 ? entries_.back().begin : entries_.back().end) = value;
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadataValue) {
      metadata_.insert_or_assign(key_, std::move(value));
      place_ = Place::kMetadata;
    } else if (place_ == Place::kType) {
      Entry& entry = entries_.back();
      entry.type = type_named(value);
      if (!entry.type)
        fail("{}: tensor {} has the dtype {}, which torch lacks", file_, entry.name, value);
      place_ = Place::kTensor;
    } else {
      wrong(fmt::format("the text \"{}\"", value));
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::kStart) {
      place_ = Place::kRoot;
    } else if (place_ == Place::kRootValue) {
      seen_ = 0;
      place_ = key_ == kMetadataKey ? Place::kMetadata : Place::kTensor;
      if (place_ == Place::kTensor) entries_.emplace_back().name = key_;
    } else {
      wrong("an object");
    }
    return true;
  }

  bool key(string_t& value) override {
    switch (place_) {
      case Place::kRoot:
        if (!names_.insert(value).second) fail("{}: the key {} occurs twice", file_, value);
        place_ = Place::kRootValue;
        break;
      case Place::kMetadata:
        if (metadata_.contains(value)) fail("{}: the metadata key {} occurs twice", file_, value);
        place_ = Place::kMetadataValue;
        break;
      default:
        tensor_key(value);
    }
    key_ = std::move(value);
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kTensor) {
      constexpr unsigned kAll = 7;
      if (seen_ != kAll)
        fail("{}: tensor {} lacks one of dtype, shape and data_offsets", file_,
             entries_.back().name);
    }
    place_ = Place::kRoot;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::kShapeStart) {
      place_ = Place::kShape;
    } else if (place_ == Place::kOffsetsStart) {
      place_ = Place::kOffsets;
      offsets_ = 0;
    } else {
      wrong("an array");
    }
    return true;
  }

  bool end_array() override {
    if (place_ == Place::kOffsets && offsets_ != 2)
      fail("{}: tensor {} has {} data_offsets, expected 2", file_, entries_.back().name, offsets_);
    place_ = Place::kTensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    fail("{}: the header is not valid JSON (at its byte {}): {}", file_, position, error.what());
  }

 private:
  enum class Place {
    kStart,
    kRoot,
    kRootValue,
    kMetadata,
    kMetadataValue,
    kTensor,
    kType,
    kShapeStart,
    kShape,
    kOffsetsStart,
    kOffsets,
  };

  void tensor_key(const std::string& value) {
    unsigned bit = 0;
    if (value == "dtype") {
      bit = 1;
      place_ = Place::kType;
    } else if (value == "shape") {
      bit = 2;
      place_ = Place::kShapeStart;
    } else if (value == "data_offsets") {
      bit = 4;
      place_ = Place::kOffsetsStart;
    } else {
      fail("{}: tensor {} has the unknown field {}", file_, entries_.back().name, value);
    }
    if (seen_ & bit) fail("{}: tensor {}: {} occurs twice", file_, entries_.back().name, value);
    seen_ |= bit;
  }

  [[noreturn]] void wrong(std::string_view found) {
    std::string_view expected = "an object";
    std::string where = fmt::format("the header's {}", key_.empty() ? "start" : key_);
    switch (place_) {
      case Place::kMetadataValue:
        expected = "text";
        break;
      case Place::kType:
        expected = "the name of a dtype";
        break;
      case Place::kShapeStart:
      case Place::kOffsetsStart:
        expected = "a list of numbers";
        break;
      case Place::kShape:
      case Place::kOffsets:
        expected = "non-negative whole numbers of at most 64 bits";
        break;
      default:
        break;
    }
    if (place_ >= Place::kTensor) where = fmt::format("{} of {}", key_, entries_.back().name);
    fail("{}: {}: expected {}, found {}", file_, where, expected, found);
  }

  std::string_view file_;
  std::vector<Entry>& entries_;
  std::map<std::string, std::string>& metadata_;
  std::set<std::string, std::less<>> names_;
  Place place_ = Place::kStart;
  std::string key_;
  unsigned seen_ = 0;
  int offsets_ = 0;
};

/// Every byte behind the header belongs to exactly one tensor.
void check_layout(std::string_view file, const std::vector<Entry>& entries,
                  std::uint64_t data_bytes) {
  std::uint64_t position = 0;
  const Entry* previous = nullptr;
  for (const Entry& entry : entries) {
    if (entry.end < entry.begin)
      fail("{}: tensor {} ends before it begins: data_offsets [{}, {}]", file, entry.name,
           entry.begin, entry.end);
    if (entry.begin > position)
      fail("{}: {} bytes before tensor {} belong to no tensor", file, entry.begin - position,
           entry.name);
    if (entry.begin < position)
      fail("{}: tensors {} and {} overlap", file, previous->name, entry.name);
    if (const auto expected = bytes_in_file(file, entry); entry.end - entry.begin != expected)
      fail("{}: tensor {} has {} bytes, but its shape and dtype make {}", file, entry.name,
           entry.end - entry.begin, expected);
    if (entry.end > data_bytes)
      fail("{}: tensor {} ends at byte {} of {}: the file is cut off", file, entry.name, entry.end,
           data_bytes);
    position = entry.end;
    previous = &entry;
  }
  if (position != data_bytes)
    fail("{}: {} bytes behind the last tensor", file, data_bytes - position);
}

}  // namespace

struct SafetensorsFile::Contents {
  std::string path;
  std::shared_ptr<const MappedFile> file;
  std::span<const std::uint8_t> data;
  std::vector<Entry> entries;
  std::vector<std::string> names;
  std::map<std::string, std::size_t, std::less<>> index;
  std::map<std::string, std::string> metadata;

  const Entry& entry(std::string_view name) const {
    const auto found = index.find(name);
    if (found == index.end()) fail("{}: holds no tensor {}", path, name);
    return entries[found->second];
  }

  std::span<const std::uint8_t> bytes(const Entry& entry) const {
    const auto bytes = data.subspan(entry.begin, entry.end - entry.begin);
    // Any other byte would be undefined behaviour as soon as somebody reads it as a bool.
    if (entry.type->dtype == at::kBool && std::ranges::any_of(bytes, [](auto b) { return b > 1; }))
      fail("{}: tensor {} of dtype BOOL holds a byte that is neither 0 nor 1", path, entry.name);
    return bytes;
  }

  at::Tensor copy(const Entry& entry) const {
    const auto source = bytes(entry);
    at::Tensor tensor = at::empty(torch_shape(entry), at::TensorOptions(entry.type->dtype));
    if (!source.empty()) std::memcpy(tensor.mutable_data_ptr(), source.data(), source.size());
    return tensor;
  }
};

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) {
  auto contents = std::make_unique<Contents>();
  contents->path = path.string();
  contents->file = std::make_shared<const MappedFile>(path);
  const std::string& file = contents->path;
  const auto bytes = contents->file->bytes();
  if (is_git_lfs_pointer(path))
    fail("{}: is a Git LFS pointer, not the file itself; run `git lfs pull` there", file);
  if (bytes.size() < kHeaderLengthBytes)
    fail("{}: {} bytes are too few for a safetensors file: the file is cut off", file,
         bytes.size());
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), kHeaderLengthBytes);
  if (header_bytes > kMaxHeaderBytes)
    fail("{}: is no safetensors file: its header would have {} bytes, the limit is {}", file,
         header_bytes, kMaxHeaderBytes);
  if (header_bytes > bytes.size() - kHeaderLengthBytes)
    fail("{}: the header has {} bytes, the file {}: it is cut off", file, header_bytes,
         bytes.size());
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + kHeaderLengthBytes,
                                header_bytes);
  if (!header.starts_with('{'))
    fail("{}: is no safetensors file: its header does not begin with {{", file);

  HeaderReader reader(file, contents->entries, contents->metadata);
  nlohmann::json::sax_parse(header, &reader);
  std::ranges::stable_sort(contents->entries, {},
                           [](const Entry& entry) { return std::pair(entry.begin, entry.end); });
  contents->data = bytes.subspan(kHeaderLengthBytes + header_bytes);
  check_layout(file, contents->entries, contents->data.size());
  for (const Entry& entry : contents->entries) {
    contents->index.emplace(entry.name, contents->names.size());
    contents->names.push_back(entry.name);
  }
  contents_ = std::move(contents);
}

SafetensorsFile::~SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;

const std::vector<std::string>& SafetensorsFile::names() const { return contents_->names; }

bool SafetensorsFile::contains(std::string_view name) const {
  return contents_->index.contains(name);
}

const std::map<std::string, std::string>& SafetensorsFile::metadata() const {
  return contents_->metadata;
}

std::vector<std::int64_t> SafetensorsFile::shape(std::string_view name) const {
  return torch_shape(contents_->entry(name));
}

at::ScalarType SafetensorsFile::dtype(std::string_view name) const {
  return contents_->entry(name).type->dtype;
}

at::Tensor SafetensorsFile::tensor(std::string_view name) const {
  return contents_->copy(contents_->entry(name));
}

at::Tensor SafetensorsFile::view(std::string_view name) const {
  const Entry& entry = contents_->entry(name);
  const auto bytes = contents_->bytes(entry);
  const std::size_t alignment = c10::elementSize(entry.type->dtype);
  if (bytes.empty() || reinterpret_cast<std::uintptr_t>(bytes.data()) % alignment != 0)
    return contents_->copy(entry);
  return at::from_blob(
      const_cast<std::uint8_t*>(bytes.data()), torch_shape(entry),
      [file = contents_->file](void*) {}, at::TensorOptions(entry.type->dtype));
}

NamedTensors SafetensorsFile::all() const {
  NamedTensors tensors;
  tensors.reserve(contents_->entries.size());
  for (const Entry& entry : contents_->entries)
    tensors.emplace_back(entry.name, contents_->copy(entry));
  return tensors;
}

std::uint64_t bytes_in_file(std::string_view file, const SafetensorsEntry& entry) {
  const std::string what = fmt::format("{}: size of tensor {}", file, entry.name);
  std::uint64_t count = 1;
  for (const std::int64_t size : entry.shape)
    count = checked_mul(count, static_cast<std::uint64_t>(size), what);
  const std::uint64_t bits = checked_mul(count, entry.type->bits, what);
  // Half a byte exists only as one of a pair: the last dimension is what torch halves.
  if (entry.type->bits == 4 && (entry.shape.empty() || entry.shape.back() % 2 != 0))
    fail("{}: tensor {} of dtype F4 has an odd last dimension", file, entry.name);
  // at::Tensor counts elements in signed 64 bits, also for dimensions beside an empty one.
  checked_cast<std::int64_t>(bits, what);
  return bits / 8;
}

}  // namespace lerobot::serialization
