#include "lerobot/serialization/zip_archive.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <unordered_set>
#include <utility>
#include <zlib.h>

#include <c10/util/hash.h>

#include "lerobot/base/checked.h"
#include "lerobot/base/error.h"
#include "lerobot/serialization/zip_format.h"

namespace lerobot::serialization {
namespace {

using namespace zip;

constexpr std::uint16_t kPaddingExtra = 0x4246;  // "FB"

/// Checks that [offset, offset + size) lies inside `bytes` and returns it.
std::span<const std::uint8_t> slice(std::span<const std::uint8_t> bytes, std::uint64_t offset,
                                    std::uint64_t size, const std::string& archive,
                                    std::string_view what) {
  if (offset > bytes.size() || size > bytes.size() - offset)
    fail("{}: damaged zip archive: {} at byte {} with {} bytes leaves the file's {}", archive, what,
         offset, size, bytes.size());
  return bytes.subspan(offset, size);
}

DirectoryPlace find_directory(std::span<const std::uint8_t> bytes, const std::string& archive) {
  if (bytes.size() < kEndBytes)
    fail("{}: is cut off: {} bytes are no zip archive", archive, bytes.size());
  const std::size_t last = bytes.size() - kEndBytes;
  const std::size_t first = last > k16Bits ? last - k16Bits : 0;
  std::size_t at = last;
  while (true) {
    const Fields end(bytes.subspan(at, kEndBytes));
    if (end.u32(0) == kEnd && end.u16(20) == bytes.size() - at - kEndBytes) break;
    if (at == first)
      fail("{}: is cut off or damaged: the zip archive's directory at its end is missing", archive);
    --at;
  }
  const Fields end(bytes.subspan(at, kEndBytes));
  DirectoryPlace directory{end.u32(16), end.u32(12), end.u16(10)};
  if (at < kZip64LocatorBytes) return directory;
  const Fields locator(bytes.subspan(at - kZip64LocatorBytes, kZip64LocatorBytes));
  if (locator.u32(0) != kZip64Locator) return directory;
  const Fields end64(slice(bytes, locator.u64(8), kZip64EndBytes, archive, "the ZIP64 end record"));
  if (end64.u32(0) != kZip64End) fail("{}: damaged zip archive: no ZIP64 end record", archive);
  return {end64.u64(48), end64.u64(40), end64.u64(32)};
}

/// Replaces sizes and offset of 0xFFFFFFFF by those of the ZIP64 extra field.
void read_zip64(std::span<const std::uint8_t> extra, const std::string& archive,
                const std::string& member, std::uint64_t& size, std::uint64_t& stored_size,
                std::uint64_t& offset) {
  while (extra.size() >= 4) {
    const Fields field(extra);
    const std::uint16_t id = field.u16(0);
    const std::size_t length = field.u16(2);
    if (length > extra.size() - 4) break;
    if (id == kZip64Extra) {
      std::size_t at = 4;
      for (std::uint64_t* value : {&size, &stored_size, &offset}) {
        if (*value != k32Bits) continue;
        if (at + 8 > length + 4) fail("{}: damaged ZIP64 sizes of member {}", archive, member);
        *value = field.u64(at);
        at += 8;
      }
      return;
    }
    extra = extra.subspan(4 + length);
  }
}

/// miniz, which torch writes with, leaves out the descriptor of an empty member.
std::uint16_t flags_of(std::uint64_t size) { return size > 0 ? kUtf8 | kHasDescriptor : kUtf8; }

}  // namespace

std::uint32_t crc32(std::span<const std::uint8_t> bytes, std::uint32_t crc) {
  // zlib's, several times as fast as a table of bytes. A null pointer would ask it for the start.
  if (bytes.empty()) return crc;
  return static_cast<std::uint32_t>(::crc32_z(crc, bytes.data(), bytes.size()));
}

bool ZipReader::looks_like_zip(std::span<const std::uint8_t> bytes) {
  return bytes.size() >= 4 && Fields(bytes).u32(0) == kLocalHeader;
}

std::span<const std::uint8_t> ZipReader::directory_of(std::span<const std::uint8_t> bytes,
                                                      const std::string& name) {
  const DirectoryPlace directory = find_directory(bytes, name);
  return slice(bytes, directory.offset, directory.bytes, name, "the directory");
}

ZipReader::ZipReader(std::span<const std::uint8_t> bytes, std::string name, ZipCompression allowed)
    : name_(std::move(name)) {
  const DirectoryPlace directory = find_directory(bytes, name_);
  auto headers = slice(bytes, directory.offset, directory.bytes, name_, "the directory");
  for (std::uint64_t i = 0; i < directory.entries; ++i) {
    if (headers.size() < kCentralHeaderBytes || Fields(headers).u32(0) != kCentralHeader)
      fail("{}: damaged zip archive: directory entry {} of {} is missing", name_, i,
           directory.entries);
    const Fields header(headers);
    const std::size_t name_bytes = header.u16(28), extra_bytes = header.u16(30);
    const std::size_t entry_bytes = kCentralHeaderBytes + name_bytes + extra_bytes + header.u16(32);
    if (entry_bytes > headers.size())
      fail("{}: damaged zip archive: directory entry {} is cut off", name_, i);
    Member member;
    member.name.assign(reinterpret_cast<const char*>(headers.data()) + kCentralHeaderBytes,
                       name_bytes);
    if (header.u16(8) & kEncrypted) fail("{}: member {} is encrypted", name_, member.name);
    const std::uint16_t method = header.u16(10);
    check_method(method, allowed, member.name);
    member.deflated = method == kDeflated;
    member.crc = header.u32(16);
    std::uint64_t stored_size = header.u32(20), offset = header.u32(42);
    member.size = header.u32(24);
    read_zip64(headers.subspan(kCentralHeaderBytes + name_bytes, extra_bytes), name_, member.name,
               member.size, stored_size, offset);
    check_sizes(member, stored_size);

    const Fields local(slice(bytes, offset, kLocalHeaderBytes, name_, member.name));
    if (local.u32(0) != kLocalHeader)
      fail("{}: damaged zip archive: member {} has no header", name_, member.name);
    const std::uint64_t begin = offset + kLocalHeaderBytes + local.u16(26) + local.u16(28);
    member.bytes = slice(bytes, begin, stored_size, name_, member.name);
    if (!index_.emplace(member.name, members_.size()).second)
      fail("{}: damaged zip archive: two members are named {}", name_, member.name);
    members_.push_back(std::move(member));
    headers = headers.subspan(entry_bytes);
  }
}

const ZipReader::Member* ZipReader::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &members_[found->second];
}

void ZipReader::check_method(std::uint16_t method, ZipCompression allowed,
                             const std::string& member) const {
  if (method == kStored || (method == kDeflated && allowed == ZipCompression::kDeflate)) return;
  if (allowed == ZipCompression::kStoredOnly)
    fail(
        "{}: member {} is compressed (method {}); torch.save stores members as they are: save "
        "the file again with torch",
        name_, member, method);
  fail("{}: member {} is compressed by method {}, only deflate (8) and stored (0) are supported",
       name_, member, method);
}

void ZipReader::check_sizes(const Member& member, std::uint64_t stored_size) const {
  if (!member.deflated && member.size != stored_size)
    fail("{}: member {} is stored, but its sizes differ: {} and {}", name_, member.name,
         member.size, stored_size);
  // Deflate makes at most 1,032 bytes of one (zlib's manual): a larger claim is a lie, seen before
  // memory is taken for it.
  constexpr std::uint64_t kLargestRatio = 1032;
  if (member.deflated && member.size / kLargestRatio > stored_size)
    fail(
        "{}: damaged zip archive: member {} claims {} bytes, its {} compressed ones cannot hold so "
        "many",
        name_, member.name, member.size, stored_size);
}

std::span<const std::uint8_t> ZipReader::checked_bytes(const Member& member) const {
  check_internal(!member.deflated, "a deflated zip member has to be read by ZipMemberStream");
  if (member.crc != 0 && crc32(member.bytes) != member.crc)
    fail("{}: member {} is damaged: its checksum differs", name_, member.name);
  return member.bytes;
}

// ---- Members as streams
// --------------------------------------------------------------------------------------

class ZipMemberStream::Inflater {
 public:
  Inflater() {
    // Negative: raw deflate data, without zlib's own header.
    if (::inflateInit2(&stream_, -MAX_WBITS) != Z_OK) throw std::bad_alloc();
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() { ::inflateEnd(&stream_); }

  enum class State { kMore, kEnd, kBroken };
  /// Moves bytes from `in` to `out`, shortening both to what is left, until one of them is empty.
  State inflate(std::span<const std::uint8_t>& in, std::span<std::uint8_t>& out) {
    constexpr std::size_t kStep = 1 << 30;  // zlib counts in 32 bits
    while (true) {
      stream_.next_in = const_cast<Bytef*>(in.data());
      stream_.avail_in = static_cast<uInt>(std::min(in.size(), kStep));
      stream_.next_out = out.data();
      stream_.avail_out = static_cast<uInt>(std::min(out.size(), kStep));
      const uInt in_before = stream_.avail_in, out_before = stream_.avail_out;
      const int result = ::inflate(&stream_, Z_NO_FLUSH);
      const std::size_t taken = in_before - stream_.avail_in;
      const std::size_t given = out_before - stream_.avail_out;
      in = in.subspan(taken);
      out = out.subspan(given);
      if (result == Z_STREAM_END) return State::kEnd;
      if (result != Z_OK && result != Z_BUF_ERROR) return State::kBroken;
      if (out.empty() || (taken == 0 && given == 0)) return State::kMore;
    }
  }

 private:
  z_stream stream_{};
};

ZipMemberStream::ZipMemberStream(const ZipReader& archive, const ZipReader::Member& member)
    : archive_(archive.name_), member_(member), in_(member.bytes), left_(member.size) {
  if (member.deflated) inflater_ = std::make_unique<Inflater>();
}

ZipMemberStream::~ZipMemberStream() = default;

void ZipMemberStream::read(std::span<std::uint8_t> out) {
  if (out.size() > left_)
    fail("{}: member {} is too short: {} bytes are wanted, {} are left of its {}", archive_,
         member_.name, out.size(), left_, member_.size);
  left_ -= out.size();
  if (inflater_) {
    std::span<std::uint8_t> rest = out;
    if (!rest.empty() &&
        (inflater_->inflate(in_, rest) == Inflater::State::kBroken || !rest.empty()))
      fail("{}: member {} is damaged: its compressed data breaks off after {} of {} bytes",
           archive_, member_.name, member_.size - left_ - rest.size(), member_.size);
  } else if (!out.empty()) {
    std::memcpy(out.data(), in_.data(), out.size());
    in_ = in_.subspan(out.size());
  }
  crc_ = crc32(out, crc_);
}

void ZipMemberStream::finish() {
  if (left_ != 0)
    fail("{}: member {} has {} bytes more than its content needs", archive_, member_.name, left_);
  if (inflater_) {
    // The declared size is the limit: one byte more is a lie.
    std::uint8_t more = 0;
    std::span<std::uint8_t> rest(&more, 1);
    if (inflater_->inflate(in_, rest) != Inflater::State::kEnd || rest.empty())
      fail("{}: member {} is damaged: its compressed data does not end after {} bytes", archive_,
           member_.name, member_.size);
  }
  if (crc_ != member_.crc)
    fail("{}: member {} is damaged: its checksum differs", archive_, member_.name);
}

ZipWriter::ZipWriter(ByteSink sink) : sink_(std::move(sink)) {}

void ZipWriter::emit(std::string_view bytes) {
  sink_({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
  offset_ += bytes.size();
}

void ZipWriter::add(std::string name, std::string_view text) {
  add(std::move(name), std::span(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()));
}

void ZipWriter::add(std::string name, std::span<const std::uint8_t> bytes) {
  Entry entry{std::move(name), crc32(bytes), bytes.size(), offset_};
  const bool large = entry.size >= k32Bits;
  const bool far = entry.header_offset >= k32Bits;

  // Local sizes are zero: they stand in the descriptor behind the data, and in the directory.
  std::string extra;
  if (large) {
    append(extra, kZip64Extra, 2);
    append(extra, 16, 2);
    append(extra, 0, 8);
    append(extra, 0, 8);
  }
  const std::uint64_t unpadded = offset_ + kLocalHeaderBytes + entry.name.size() + extra.size() + 4;
  const std::uint64_t padding = (kAlignment - unpadded % kAlignment) % kAlignment;
  append(extra, kPaddingExtra, 2);
  append(extra, padding, 2);
  extra.append(padding, 'Z');

  std::string header;
  append(header, kLocalHeader, 4);
  append(header, 0, 2);  // version needed
  append(header, flags_of(entry.size), 2);
  append(header, 0, 2);  // stored
  append(header, 0, 4);  // time and date
  append(header, 0, 4);  // CRC
  append(header, large ? k32Bits : 0, 4);
  append(header, large ? k32Bits : 0, 4);
  append(header, checked_cast<std::uint16_t>(entry.name.size(), "length of a zip member's name"),
         2);
  append(header, extra.size(), 2);
  header += entry.name;
  header += extra;
  emit(header);
  if (entry.size > 0) {
    sink_(bytes);
    offset_ += entry.size;
    std::string descriptor;
    append(descriptor, kDataDescriptor, 4);
    append(descriptor, entry.crc, 4);
    // As miniz does: 64 bits as soon as anything is beyond 32.
    const int width = (large || far) ? 8 : 4;
    append(descriptor, entry.size, width);
    append(descriptor, entry.size, width);
    emit(descriptor);
    combined_crc_ = c10::hash_combine(combined_crc_, entry.crc);
  }
  entries_.push_back(std::move(entry));
}

std::string ZipWriter::serialization_id() const {
  // torch keeps the names in an unordered set and hashes them in its order; names lack the root.
  std::unordered_set<std::string> names;
  for (const Entry& entry : entries_) names.insert(entry.name.substr(entry.name.find('/') + 1));
  std::uint64_t names_hash = 0;
  for (const std::string& name : names)
    names_hash = c10::hash_combine(names_hash, c10::hash<std::string>{}(name));
  return fmt::format("{:020}{:020}", names_hash, combined_crc_);
}

void ZipWriter::finish() {
  const std::uint64_t begin = offset_;
  for (const Entry& entry : entries_) {
    const bool large = entry.size >= k32Bits;
    const bool far = entry.header_offset >= k32Bits;
    const std::string extra = directory_zip64_extra(entry.size, entry.size, entry.header_offset);
    std::string header;
    append(header, kCentralHeader, 4);
    append(header, 0, 2);  // version made by
    append(header, 0, 2);  // version needed
    append(header, flags_of(entry.size), 2);
    append(header, 0, 2);  // stored
    append(header, 0, 4);  // time and date
    append(header, entry.crc, 4);
    append(header, large ? k32Bits : entry.size, 4);
    append(header, large ? k32Bits : entry.size, 4);
    append(header, entry.name.size(), 2);
    append(header, extra.size(), 2);
    append(header, 0, 2);  // comment
    append(header, 0, 2);  // disk
    append(header, 0, 2);  // internal attributes
    append(header, 0, 4);  // external attributes
    append(header, far ? k32Bits : entry.header_offset, 4);
    header += entry.name;
    header += extra;
    emit(header);
  }
  const DirectoryPlace directory{begin, offset_ - begin, entries_.size()};
  std::string end;
  append_zip64_end(end, directory);
  append_end(end, directory);
  emit(end);
}

}  // namespace lerobot::serialization
