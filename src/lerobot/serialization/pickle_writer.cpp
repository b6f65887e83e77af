#include <bit>
#include <limits>

#include "lerobot/base/checked.h"
#include "lerobot/base/error.h"
#include "lerobot/serialization/pickle.h"

namespace lerobot::serialization {
namespace {

/// CPython's pickler sends items of lists and dicts in groups of this many.
constexpr std::size_t kBatch = 1000;
/// It ends a frame as soon as it is so large.
constexpr std::size_t kFrameBytes = 64 << 10;

}  // namespace

PickleWriter::PickleWriter(PickleProtocol protocol) : protocol_(protocol), out_("\x80") {
  opcode(static_cast<unsigned char>(protocol));
  begin_frame();
}

void PickleWriter::begin_frame() {
  if (protocol_ == PickleProtocol::k2) return;
  opcode(0x95);
  little_endian(0, 8);  // the length, known at the end
  frame_ = out_.size();
}

void PickleWriter::end_frame() {
  if (protocol_ == PickleProtocol::k2) return;
  const std::size_t length = out_.size() - frame_;
  for (std::size_t i = 0; i < 8; ++i)
    out_[frame_ - 8 + i] = static_cast<char>(static_cast<std::uint64_t>(length) >> (8 * i));
}

void PickleWriter::little_endian(std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out_ += static_cast<char>(value >> (8 * i));
}

void PickleWriter::memoize() {
  const std::uint32_t slot = memo_size_++;
  if (protocol_ == PickleProtocol::k4) {
    opcode(0x94);  // the slot is implied
  } else if (slot < 256) {
    opcode('q');
    little_endian(slot, 1);
  } else {
    opcode('r');
    little_endian(slot, 4);
  }
}

bool PickleWriter::recall(const std::string& key) {
  const auto found = memo_.find(key);
  if (found == memo_.end()) {
    memo_.emplace(key, memo_size_);
    return false;
  }
  if (found->second < 256) {
    opcode('h');
    little_endian(found->second, 1);
  } else {
    opcode('j');
    little_endian(found->second, 4);
  }
  return true;
}

void PickleWriter::before_value() {
  if (protocol_ == PickleProtocol::k4 && out_.size() - frame_ >= kFrameBytes) {
    end_frame();
    begin_frame();
  }
  if (open_.empty()) return;
  const Container& container = open_.back();
  switch (container.kind) {
    case Kind::kTuple:
    case Kind::kObject:
    case Kind::kPersistentId:
      return;
    case Kind::kList:
      if (container.size > 1 && container.count % kBatch == 0) opcode('(');
      return;
    case Kind::kDict:
      if (container.size > 2 && container.count % (2 * kBatch) == 0) opcode('(');
      return;
    case Kind::kItems:
      if (container.size - container.count > 2 && container.count % (2 * kBatch) == 0) opcode('(');
      return;
  }
}

void PickleWriter::after_value() {
  if (open_.empty()) return;
  Container& container = open_.back();
  ++container.count;
  // A full group is closed at once; the last, smaller one at the end.
  if (container.kind == Kind::kList && container.size > 1 && container.count % kBatch == 0)
    opcode('e');
  if ((container.kind == Kind::kDict || container.kind == Kind::kItems) && container.size > 2 &&
      container.count % (2 * kBatch) == 0)
    opcode('u');
}

PickleWriter::Container PickleWriter::close(Kind kind) {
  check_internal(!open_.empty() && open_.back().kind == kind, "a pickle's begin and end differ");
  const Container container = open_.back();
  check_internal(kind == Kind::kObject || container.count == container.size,
                 "a container of a pickle has not the announced size");
  open_.pop_back();
  return container;
}

void PickleWriter::none() {
  before_value();
  opcode('N');
  after_value();
}

void PickleWriter::boolean(bool value) {
  before_value();
  opcode(value ? 0x88 : 0x89);
  after_value();
}

void PickleWriter::integer(std::int64_t value) {
  before_value();
  if (value >= 0 && value <= 0xFF) {
    opcode('K');
    little_endian(static_cast<std::uint64_t>(value), 1);
  } else if (value >= 0 && value <= 0xFFFF) {
    opcode('M');
    little_endian(static_cast<std::uint64_t>(value), 2);
  } else if (std::in_range<std::int32_t>(value)) {
    opcode('J');
    little_endian(static_cast<std::uint64_t>(value), 4);
  } else {
    int bytes = 8;
    // Drop leading bytes that only repeat the sign.
    while (bytes > 1) {
      const std::int64_t shorter = value << (64 - 8 * (bytes - 1)) >> (64 - 8 * (bytes - 1));
      if (shorter != value) break;
      --bytes;
    }
    opcode(0x8a);
    little_endian(static_cast<std::uint64_t>(bytes), 1);
    little_endian(static_cast<std::uint64_t>(value), bytes);
  }
  after_value();
}

void PickleWriter::floating(double value) {
  before_value();
  opcode('G');
  const auto bits = std::bit_cast<std::uint64_t>(value);
  for (int i = 7; i >= 0; --i) out_ += static_cast<char>(bits >> (8 * i));
  after_value();
}

void PickleWriter::put_text(std::string_view value) {
  if (recall("X" + std::string(value))) return;
  if (protocol_ == PickleProtocol::k4 && value.size() < 256) {
    opcode(0x8c);
    little_endian(value.size(), 1);
  } else {
    opcode('X');
    little_endian(checked_cast<std::uint32_t>(value.size(), "length of a text in a pickle"), 4);
  }
  out_ += value;
  memoize();
}

void PickleWriter::text(std::string_view value) {
  before_value();
  put_text(value);
  after_value();
}

void PickleWriter::global(std::string_view module, std::string_view name) {
  before_value();
  const std::string key = fmt::format("c{}\n{}\n", module, name);
  if (protocol_ == PickleProtocol::k2) {
    if (!recall(key)) {
      out_ += key;
      memoize();
    }
  } else if (memo_.contains(key)) {
    recall(key);
  } else {
    // Its names are values of their own, remembered before it.
    put_text(module);
    put_text(name);
    opcode(0x93);
    memo_.emplace(key, memo_size_);
    memoize();
  }
  after_value();
}

void PickleWriter::begin_tuple(std::size_t size) {
  before_value();
  if (size > 3) opcode('(');
  open_.push_back({Kind::kTuple, size, 0});
}

void PickleWriter::end_tuple() {
  const std::size_t size = close(Kind::kTuple).size;
  constexpr unsigned char kOpcodes[] = {')', 0x85, 0x86, 0x87};
  opcode(size <= 3 ? kOpcodes[size] : 't');
  // The empty tuple is one constant in Python and never remembered.
  if (size > 0) memoize();
  after_value();
}

void PickleWriter::begin_list(std::size_t size) {
  before_value();
  opcode(']');
  memoize();
  open_.push_back({Kind::kList, size, 0});
}

void PickleWriter::end_list() {
  const std::size_t size = close(Kind::kList).size;
  if (size == 1)
    opcode('a');
  else if (size % kBatch != 0)
    opcode('e');
  after_value();
}

void PickleWriter::begin_dict(std::size_t size) {
  before_value();
  opcode('}');
  memoize();
  open_.push_back({Kind::kDict, 2 * size, 0});
}

void PickleWriter::end_dict() {
  const std::size_t items = close(Kind::kDict).size / 2;
  if (items == 1)
    opcode('s');
  else if (items % kBatch != 0)
    opcode('u');
  else if (items > 0)
    out_ += "(u";  // CPython looks for one more group
  after_value();
}

void PickleWriter::begin_object(std::string_view module, std::string_view name) {
  before_value();
  open_.push_back({Kind::kObject, 0, 0});
  global(module, name);
}

void PickleWriter::call() {
  opcode('R');
  memoize();
}

void PickleWriter::new_object() {
  opcode(0x81);
  memoize();
}

void PickleWriter::begin_items(std::size_t size) { open_.push_back({Kind::kItems, 2 * size, 0}); }

void PickleWriter::end_items() {
  // Unlike a plain dict's, a last group of one item goes without a mark.
  const std::size_t left = close(Kind::kItems).size / 2 % kBatch;
  if (left == 1)
    opcode('s');
  else if (left > 1)
    opcode('u');
}

void PickleWriter::build() { opcode('b'); }

void PickleWriter::end_object() {
  close(Kind::kObject);
  after_value();
}

void PickleWriter::begin_persistent_id() {
  before_value();
  open_.push_back({Kind::kPersistentId, 1, 0});
}

void PickleWriter::end_persistent_id() {
  close(Kind::kPersistentId);
  opcode('Q');
  after_value();
}

std::string PickleWriter::finish() {
  check_internal(open_.empty(), "a container of a pickle is still open");
  opcode('.');
  end_frame();
  return std::move(out_);
}

}  // namespace lerobot::serialization
