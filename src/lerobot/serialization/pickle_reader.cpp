#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "lerobot/base/checked.h"
#include "lerobot/base/error.h"
#include "lerobot/serialization/pickle.h"
#include "lerobot/serialization/pickle_tree.h"

namespace lerobot::serialization {
namespace {

enum Opcode : std::uint8_t {
  kMark = '(',
  kEmptyTuple = ')',
  kStop = '.',
  kPop = '0',
  kPopMark = '1',
  kDup = '2',
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kBinFloat = 'G',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinPersistentId = 'Q',
  kReduce = 'R',
  kBinString = 'T',
  kShortBinString = 'U',
  kBinUnicode = 'X',
  kEmptyList = ']',
  kAppend = 'a',
  kBuild = 'b',
  kGlobal = 'c',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kSetItems = 'u',
  kEmptyDict = '}',
  kProtocol = 0x80,
  kNewObject = 0x81,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kLong4 = 0x8b,
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kBinBytes8 = 0x8e,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
  kByteArray8 = 0x96,
};

constexpr std::string_view kOrderedDict = "collections.OrderedDict";
constexpr std::string_view kEncode = "_codecs.encode";

class Reader {
 public:
  Reader(std::span<const std::uint8_t> bytes, std::string_view name,
         std::span<const std::string_view> allowed, const PickleLimits& limits)
      : bytes_(bytes), name_(name), allowed_(allowed), limits_(limits) {}

  Unpickled read() {
    if (byte() != kProtocol) damaged("it does not begin with a protocol");
    if (const auto protocol = byte(); protocol < 2 || protocol > 5)
      fail("{}: pickle protocol {} is not supported, only 2 to 5", name_, protocol);
    for (std::uint8_t opcode = byte(); opcode != kStop; opcode = byte()) execute(opcode);
    result_.root = pop();
    if (!stack_.empty() || !marks_.empty()) damaged("values are left on its stack");
    result_.bytes = position_;
    check_pickle_tree(*result_.root, name_, limits_);
    return std::move(result_);
  }

 private:
  [[noreturn]] void damaged(std::string_view what) const {
    fail("{}: damaged pickle: at byte {}: {}", name_, position_, what);
  }

  // --- bytes ------------------------------------------------------------------------------------

  std::span<const std::uint8_t> take(std::uint64_t count) {
    if (count > bytes_.size() - position_) damaged("it is cut off");
    const auto taken = bytes_.subspan(position_, count);
    position_ += count;
    return taken;
  }

  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }

  std::uint8_t byte() { return number<std::uint8_t>(); }

  std::string text(std::uint64_t length) {
    const auto taken = take(length);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }

  std::string line() {
    const auto rest = bytes_.subspan(position_);
    const auto end = std::ranges::find(rest, '\n');
    if (end == rest.end()) damaged("it is cut off");
    std::string result = text(static_cast<std::uint64_t>(end - rest.begin()));
    ++position_;
    return result;
  }

  // --- the stack --------------------------------------------------------------------------------

  PickleValue* make(PickleValue::Content content) {
    if (result_.values.size() >= limits_.max_values)
      fail("{}: pickle of more than {} values", name_, limits_.max_values);
    return &result_.values.emplace_back(std::move(content));
  }

  void push(PickleValue* value) { stack_.push_back(value); }
  void push(PickleValue::Content content) { push(make(std::move(content))); }

  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }

  PickleValue* top() const {
    if (stack_.size() <= floor()) damaged("its stack is empty");
    return stack_.back();
  }

  PickleValue* pop() {
    PickleValue* value = top();
    stack_.pop_back();
    return value;
  }

  std::vector<const PickleValue*> pop_to_mark() {
    if (marks_.empty()) damaged("a mark is missing");
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<const PickleValue*> items(begin, stack_.end());
    stack_.erase(begin, stack_.end());
    marks_.pop_back();
    return items;
  }

  void push_tuple(std::size_t size) {
    PickleTuple tuple;
    tuple.items.resize(size);
    for (std::size_t i = size; i-- > 0;) tuple.items[i] = pop();
    push(std::move(tuple));
  }

  void remember(std::uint32_t slot) { memo_.insert_or_assign(slot, top()); }

  void recall(std::uint32_t slot) {
    const auto found = memo_.find(slot);
    if (found == memo_.end()) damaged("it refers to a value that it has not stored");
    push(found->second);
  }

  // --- opcodes ----------------------------------------------------------------------------------

  void execute(std::uint8_t opcode) {
    switch (opcode) {
      case kFrame:
        take_frame();
        break;
      case kMark:
        marks_.push_back(stack_.size());
        break;
      case kPop:
        // CPython's POP also drops a mark that lies on top.
        if (!marks_.empty() && marks_.back() == stack_.size())
          marks_.pop_back();
        else
          pop();
        break;
      case kPopMark:
        pop_to_mark();
        break;
      case kDup:
        push(top());
        break;

      case kNone:
        push(PickleNone{});
        break;
      case kNewTrue:
        push(true);
        break;
      case kNewFalse:
        push(false);
        break;
      case kBinInt:
        push(std::int64_t{number<std::int32_t>()});
        break;
      case kBinInt1:
        push(std::int64_t{number<std::uint8_t>()});
        break;
      case kBinInt2:
        push(std::int64_t{number<std::uint16_t>()});
        break;
      case kLong1:
        push_long(text(number<std::uint8_t>()));
        break;
      case kLong4:
        push_long(text(checked_cast<std::uint32_t>(
            number<std::int32_t>(), fmt::format("{}: length of an int in a pickle", name_))));
        break;
      case kBinFloat:
        push_float();
        break;
      case kBinString:
        push(text(checked_cast<std::uint32_t>(
            number<std::int32_t>(), fmt::format("{}: length of a str in a pickle", name_))));
        break;
      case kShortBinString:
        push(text(number<std::uint8_t>()));
        break;
      case kBinUnicode:
        push(text(number<std::uint32_t>()));
        break;
      case kShortBinUnicode:
        push(text(number<std::uint8_t>()));
        break;
      case kBinUnicode8:
        push(text(number<std::uint64_t>()));
        break;
      case kBinBytes:
        push(PickleBytes{text(number<std::uint32_t>())});
        break;
      case kShortBinBytes:
        push(PickleBytes{text(number<std::uint8_t>())});
        break;
      case kBinBytes8:
      case kByteArray8:
        push(PickleBytes{text(number<std::uint64_t>())});
        break;

      case kEmptyTuple:
        push(PickleTuple{});
        break;
      case kTuple:
        push(PickleTuple{pop_to_mark()});
        break;
      case kTuple1:
        push_tuple(1);
        break;
      case kTuple2:
        push_tuple(2);
        break;
      case kTuple3:
        push_tuple(3);
        break;
      case kEmptyList:
        push(PickleList{});
        break;
      case kAppend: {
        const PickleValue* item = pop();
        append({item});
        break;
      }
      case kAppends:
        append(pop_to_mark());
        break;
      case kEmptyDict:
        push(PickleDict{});
        break;
      case kSetItem: {
        const PickleValue* value = pop();
        const PickleValue* key = pop();
        set_items({key, value});
        break;
      }
      case kSetItems:
        set_items(pop_to_mark());
        break;

      case kGlobal: {
        std::string module = line();
        push_global(std::move(module), line());
        break;
      }
      case kStackGlobal: {
        const auto* name = pop()->get<std::string>();
        const auto* module = pop()->get<std::string>();
        if (!name || !module) damaged("the name of a global is no text");
        push_global(*module, *name);
        break;
      }
      case kReduce:
      case kNewObject:
        call();
        break;
      case kBuild:
        build();
        break;
      case kBinPersistentId: {
        const PickleValue* id = pop();
        push(PicklePersistentId{id});
        break;
      }

      case kBinPut:
        remember(number<std::uint8_t>());
        break;
      case kLongBinPut:
        remember(number<std::uint32_t>());
        break;
      case kMemoize:
        remember(checked_cast<std::uint32_t>(memo_.size(), "number of values in a pickle's memo"));
        break;
      case kBinGet:
        recall(number<std::uint8_t>());
        break;
      case kLongBinGet:
        recall(number<std::uint32_t>());
        break;

      default:
        --position_;
        damaged(fmt::format("the opcode 0x{:02x} does not belong into a file of tensors", opcode));
    }
  }

  void take_frame() {
    // A frame only groups opcodes for buffered reading.
    if (number<std::uint64_t>() > bytes_.size() - position_) damaged("a frame is cut off");
  }

  void push_long(std::string little_endian) {
    if (little_endian.size() > 8) {
      push(PickleBigInteger{std::move(little_endian)});
      return;
    }
    const bool negative = !little_endian.empty() && (little_endian.back() & 0x80);
    std::uint64_t value = negative ? ~std::uint64_t{0} : 0;
    std::memcpy(&value, little_endian.data(), little_endian.size());
    push(static_cast<std::int64_t>(value));
  }

  void push_float() {
    std::uint64_t bits = 0;
    for (const std::uint8_t next : take(8)) bits = bits << 8 | next;
    push(std::bit_cast<double>(bits));
  }

  void push_global(std::string module, std::string name) {
    PickleGlobal global{std::move(module), std::move(name)};
    const std::string qualified = global.qualified();
    if (qualified != kOrderedDict && qualified != kEncode &&
        std::ranges::find(allowed_, qualified) == allowed_.end())
      fail(
          "{}: the pickle names {}, which is not among the functions and classes that a file of "
          "this kind needs; it was not run",
          name_, qualified);
    push(std::move(global));
  }

  void append(std::vector<const PickleValue*> items) {
    auto* list = top()->get<PickleList>();
    if (!list) damaged(fmt::format("it appends to {}", top()->describe()));
    list->items.insert(list->items.end(), items.begin(), items.end());
  }

  void set_items(std::vector<const PickleValue*> items) {
    auto* dict = top()->get<PickleDict>();
    if (!dict) damaged(fmt::format("it sets items of {}", top()->describe()));
    if (items.size() % 2 != 0) damaged("a key lacks its value");
    for (std::size_t i = 0; i < items.size(); i += 2)
      dict->items.emplace_back(items[i], items[i + 1]);
  }

  void call() {
    const PickleValue* arguments_value = pop();
    const auto* arguments = arguments_value->get<PickleTuple>();
    const PickleValue* callable_value = pop();
    const auto* callable = callable_value->get<PickleGlobal>();
    if (!callable || !arguments)
      damaged(fmt::format("it calls {} with {}", callable_value->describe(),
                          arguments_value->describe()));
    const std::string qualified = callable->qualified();
    if (qualified == kOrderedDict) {
      push(ordered_dict(arguments->items));
    } else if (qualified == kEncode) {
      push(encoded(arguments->items));
    } else {
      push(PickleObject{callable, arguments->items, nullptr});
    }
  }

  /// OrderedDict() or OrderedDict([[key, value], ...]).
  PickleDict ordered_dict(const std::vector<const PickleValue*>& arguments) const {
    PickleDict dict;
    if (arguments.empty()) return dict;
    const auto* pairs = arguments[0]->get<PickleList>();
    if (!pairs || arguments.size() != 1) damaged("an OrderedDict is not made of a list");
    for (const PickleValue* pair : pairs->items) {
      const std::vector<const PickleValue*>* items = nullptr;
      if (const auto* list = pair->get<PickleList>()) items = &list->items;
      if (const auto* tuple = pair->get<PickleTuple>()) items = &tuple->items;
      if (!items || items->size() != 2) damaged("an OrderedDict is not made of pairs");
      dict.items.emplace_back((*items)[0], (*items)[1]);
    }
    return dict;
  }

  /// _codecs.encode(text, "latin1"): bytes whose values are the text's code points.
  PickleBytes encoded(const std::vector<const PickleValue*>& arguments) const {
    const auto* source = arguments.size() == 2 ? arguments[0]->get<std::string>() : nullptr;
    const auto* encoding = arguments.size() == 2 ? arguments[1]->get<std::string>() : nullptr;
    if (!source || !encoding || *encoding != "latin1") damaged("bytes are not written as latin1");
    PickleBytes bytes;
    for (std::size_t i = 0; i < source->size(); ++i) {
      const auto first = static_cast<std::uint8_t>((*source)[i]);
      if (first < 0x80) {
        bytes.data += static_cast<char>(first);
        continue;
      }
      // Code points 0x80 to 0xFF are two bytes in UTF-8, the first 0xC2 or 0xC3.
      if ((first != 0xC2 && first != 0xC3) || i + 1 == source->size())
        damaged("bytes are not written as latin1");
      bytes.data +=
          static_cast<char>((first & 3) << 6 | (static_cast<std::uint8_t>((*source)[++i]) & 0x3F));
    }
    return bytes;
  }

  void build() {
    const PickleValue* state = pop();
    if (auto* object = top()->get<PickleObject>()) {
      object->state = state;
    } else if (auto* dict = top()->get<PickleDict>()) {
      dict->state = state;
    } else {
      damaged(fmt::format("it sets a state on {}", top()->describe()));
    }
  }

  std::span<const std::uint8_t> bytes_;
  std::string_view name_;
  std::span<const std::string_view> allowed_;
  PickleLimits limits_;
  std::size_t position_ = 0;
  Unpickled result_;
  std::vector<PickleValue*> stack_;
  std::vector<std::size_t> marks_;  // heights of the stack
  std::unordered_map<std::uint32_t, PickleValue*> memo_;
};

}  // namespace

Unpickled unpickle(std::span<const std::uint8_t> bytes, std::string_view name,
                   std::span<const std::string_view> allowed, const PickleLimits& limits) {
  return Reader(bytes, name, allowed, limits).read();
}

}  // namespace lerobot::serialization
