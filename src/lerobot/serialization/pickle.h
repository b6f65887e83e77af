// Python pickles, protocols 2 to 5, read into a plain tree of values and written from calls.
//
// The reader runs nothing: a class or function that a pickle names becomes a PickleGlobal, and only
// those on a list that the caller gives are accepted; a call becomes a PickleObject that records
// the callable, its arguments and its state. What a call means is up to the caller. The opcodes are
// documented in CPython's Lib/pickletools.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace lerobot::serialization {

class PickleValue;

struct PickleNone {};
/// bytes, or bytearray.
struct PickleBytes {
  std::string data;
};
/// An int beyond 64 bits, as two's complement in little-endian order.
struct PickleBigInteger {
  std::string little_endian;
};
struct PickleTuple {
  std::vector<const PickleValue*> items;
};
struct PickleList {
  std::vector<const PickleValue*> items;
};
/// dict or OrderedDict, in order of insertion; a key that was set twice is there twice.
struct PickleDict {
  std::vector<std::pair<const PickleValue*, const PickleValue*>> items;
  /// Attributes of an OrderedDict (torch puts `_metadata` there), or null.
  const PickleValue* state = nullptr;

  /// Value of the last item whose key is this str; null when there is none.
  const PickleValue* find(std::string_view key) const;
};
/// A class, function or constant by its name.
struct PickleGlobal {
  std::string module;
  std::string name;
  /// "module.name".
  std::string qualified() const { return module + "." + name; }
};
/// callable(*arguments), or an instance of a class made with them; `state` from BUILD, or null.
struct PickleObject {
  const PickleGlobal* callable = nullptr;
  std::vector<const PickleValue*> arguments;
  const PickleValue* state = nullptr;

  bool is(std::string_view module, std::string_view name) const {
    return callable->module == module && callable->name == name;
  }
};
/// A reference to something stored outside the pickle.
struct PicklePersistentId {
  const PickleValue* id = nullptr;
};

/// One value of an Unpickled, which owns it.
class PickleValue {
 public:
  using Content = std::variant<PickleNone, bool, std::int64_t, double, std::string, PickleBytes,
                               PickleBigInteger, PickleTuple, PickleList, PickleDict, PickleGlobal,
                               PickleObject, PicklePersistentId>;

  explicit PickleValue(Content content) : content_(std::move(content)) {}

  /// The value as T, one of Content's alternatives; null when it is something else.
  template <class T>
  const T* get() const {
    return std::get_if<T>(&content_);
  }
  template <class T>
  T* get() {
    return std::get_if<T>(&content_);
  }
  bool is_none() const { return std::holds_alternative<PickleNone>(content_); }
  /// What it is, for messages: "a str", "an int", "a call of torch._utils._rebuild_tensor_v2".
  std::string describe() const;

 private:
  Content content_;
};

/// The values of one pickle. Moving it keeps their addresses.
struct Unpickled {
  std::deque<PickleValue> values;  // in order of creation
  const PickleValue* root = nullptr;
  std::size_t bytes = 0;  // length of the pickle, STOP included
};

struct PickleLimits {
  std::size_t max_values = 20'000'000;
  /// Nesting of containers and calls; also bounds the recursion of whoever walks the tree.
  std::size_t max_depth = 200;
};

/// Reads one pickle from the start of `bytes`. `allowed` lists the globals ("module.name") that may
/// occur besides collections.OrderedDict, which becomes a PickleDict, and _codecs.encode, which is
/// how protocol 2 writes bytes. `name` stands for the file in messages. Throws Error for everything
/// else: an unknown global (named), an opcode of other protocols, a cycle, a tree that is too deep
/// or would be too large when written out, truncation.
Unpickled unpickle(std::span<const std::uint8_t> bytes, std::string_view name,
                   std::span<const std::string_view> allowed, const PickleLimits& limits = {});

/// The protocols that PickleWriter writes: torch.save uses 2, pickle.dump without a choice 4.
enum class PickleProtocol : std::uint8_t { k2 = 2, k4 = 4 };

/// Writes one pickle with the opcodes, frames and the memo of CPython's pickler, so that equal
/// calls give equal bytes. A value is one call, or a begin, values, and the matching end.
class PickleWriter {
 public:
  explicit PickleWriter(PickleProtocol protocol = PickleProtocol::k2);

  void none();
  void boolean(bool value);
  void integer(std::int64_t value);
  void floating(double value);
  /// str; written once, later by reference.
  void text(std::string_view value);
  /// A class, function or constant; written once, later by reference.
  void global(std::string_view module, std::string_view name);

  void begin_tuple(std::size_t size);
  void end_tuple();
  void begin_list(std::size_t size);
  void end_list();
  /// `size` items, each a key and a value.
  void begin_dict(std::size_t size);
  void end_dict();

  /// Something made by a call. In between: the arguments as one tuple, then call() or new_object();
  /// then, if wanted, begin_items() to end_items() (an OrderedDict's), and a state and build().
  void begin_object(std::string_view module, std::string_view name);
  void call();
  void new_object();
  void begin_items(std::size_t size);
  void end_items();
  void build();
  void end_object();

  /// A reference to something outside; in between one value, the id.
  void begin_persistent_id();
  void end_persistent_id();

  /// The pickle, ended by STOP. Throws InternalError when a begin lacks its end.
  std::string finish();

 private:
  enum class Kind { kTuple, kList, kDict, kItems, kObject, kPersistentId };
  struct Container {
    Kind kind;
    std::size_t size;   // announced values: a dict item has two
    std::size_t count;  // values written so far
  };
  void before_value();
  void after_value();
  Container close(Kind kind);
  void memoize();
  /// A text as an operand: neither counted as a value nor a place for a new frame.
  void put_text(std::string_view value);
  void begin_frame();
  void end_frame();
  bool recall(const std::string& key);
  void opcode(unsigned char code) { out_ += static_cast<char>(code); }
  void little_endian(std::uint64_t value, int bytes);

  PickleProtocol protocol_;
  std::string out_;
  std::size_t frame_ = 0;  // where the content of the frame that is open begins (protocol 4)
  std::vector<Container> open_;
  std::unordered_map<std::string, std::uint32_t>
      memo_;  // strings and globals, by their opcode bytes
  std::uint32_t memo_size_ = 0;
};

}  // namespace lerobot::serialization
