#include "lerobot/serialization/pickle.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/serialization/test_files.h"

namespace lerobot::serialization {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Unpickled read(std::string_view bytes, std::vector<std::string_view> allowed = {},
               const PickleLimits& limits = {}) {
  return unpickle({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()}, "x.pkl",
                  allowed, limits);
}

std::string pickle_of(const char* name) {
  return read_text_file(test_data(fs::path("serialization") / name));
}

/// The message that protocol 2 with this body gives.
std::string refusal(std::string_view body, std::vector<std::string_view> allowed = {}) {
  return error_of([&] { read("\x80\x02" + std::string(body), allowed); });
}

template <class T>
const T& as(const PickleValue* value) {
  EXPECT_NE(value, nullptr);
  const T* content = value->get<T>();
  if (!content) throw std::runtime_error("it is " + value->describe());
  return *content;
}

TEST(PickleReader, ReadsEveryProtocolFrom2To5) {
  for (int protocol = 2; protocol <= 5; ++protocol) {
    SCOPED_TRACE(protocol);
    const Unpickled pickle = read(pickle_of(fmt::format("protocol_{}.pkl", protocol).c_str()));
    const auto& dict = as<PickleDict>(pickle.root);
    EXPECT_TRUE(dict.find("none")->is_none());
    EXPECT_TRUE(as<bool>(dict.find("true")));
    EXPECT_FALSE(as<bool>(dict.find("false")));
    EXPECT_EQ(as<double>(dict.find("float")), 0.1);
    EXPECT_EQ(as<std::string>(dict.find("text")), "café");
    EXPECT_EQ(as<std::string>(dict.find("again")), "café");
    std::vector<std::int64_t> ints;
    for (const auto* item : as<PickleList>(dict.find("ints")).items)
      ints.push_back(as<std::int64_t>(item));
    EXPECT_EQ(ints, (std::vector<std::int64_t>{0, 255, 256, 65535, 65536, -1, 2147483647,
                                               -2147483648, 2147483648, -2147483649, 1099511627776,
                                               std::numeric_limits<std::int64_t>::max(),
                                               std::numeric_limits<std::int64_t>::min()}));
    const auto& tuples = as<PickleTuple>(dict.find("tuples")).items;
    ASSERT_EQ(tuples.size(), 5U);
    for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(as<PickleTuple>(tuples[i]).items.size(), i);
    EXPECT_EQ(as<PickleBytes>(dict.find("bytes")).data, std::string("\0a\x80\xff", 4));
    EXPECT_EQ(as<PickleBigInteger>(dict.find("big")).little_endian,
              std::string("\0\0\0\0\0\0\0\0\x40", 9));
    EXPECT_EQ(as<std::int64_t>(as<PickleDict>(dict.find("ordered")).find("a")), 1);
    EXPECT_EQ(dict.find("absent"), nullptr);
  }
}

TEST(PickleReader, OtherProtocolsAndFilesAreRefused) {
  EXPECT_THAT(error_of([] { read(pickle_of("protocol_0.pkl")); }),
              HasSubstr("does not begin with a protocol"));
  EXPECT_THAT(error_of([] { read("\x80\x06."); }), HasSubstr("protocol 6 is not supported"));
  EXPECT_THAT(error_of([] { read("\x80\x01."); }), HasSubstr("protocol 1 is not supported"));
  EXPECT_THAT(error_of([] { read(""); }), HasSubstr("cut off"));
}

TEST(PickleReader, NamesAnUnknownGlobalAndRunsNothing) {
  EXPECT_THAT(refusal("cposix\nsystem\nX\x04\0\0\0true\x85R."),
              AllOf(HasSubstr("posix.system"), HasSubstr("not run")));
  // Also when it is named from the stack, as protocol 4 does.
  EXPECT_THAT(error_of([] {
                read(
                    "\x80\x04\x8c\x08"
                    "builtins\x8c\x04"
                    "eval\x93)R.");
              }),
              HasSubstr("builtins.eval"));
}

TEST(PickleReader, RecordsCallsOfWhatIsAllowed) {
  const std::string body = std::string("\x80\x02") + "cdatetime\ndate\nK\x01K\x02\x86R}X\x01" +
                           std::string("\0\0\0aK\x03s", 7) + "b.";
  const Unpickled pickle = read(body, {"datetime.date"});
  const auto& object = as<PickleObject>(pickle.root);
  EXPECT_TRUE(object.is("datetime", "date"));
  EXPECT_EQ(object.arguments.size(), 2U);
  EXPECT_EQ(as<std::int64_t>(as<PickleDict>(object.state).find("a")), 3);
}

TEST(PickleReader, ReportsWhereAPickleEnds) {
  const Unpickled pickle = read("\x80\x02K\x07.rest");
  EXPECT_EQ(as<std::int64_t>(pickle.root), 7);
  EXPECT_EQ(pickle.bytes, 5U);
}

TEST(PickleReader, DamageIsReportedWithItsPlace) {
  EXPECT_THAT(refusal("K"), HasSubstr("byte 3: it is cut off"));
  EXPECT_THAT(refusal(""), HasSubstr("cut off"));
  EXPECT_THAT(refusal("."), HasSubstr("stack is empty"));
  EXPECT_THAT(refusal("NN."), HasSubstr("values are left"));
  EXPECT_THAT(refusal("(N."), HasSubstr("values are left"));
  EXPECT_THAT(refusal("t."), HasSubstr("a mark is missing"));
  EXPECT_THAT(refusal("N(\x85."), HasSubstr("stack is empty"));
  EXPECT_THAT(refusal("h\x05."), HasSubstr("has not stored"));
  EXPECT_THAT(refusal("NNa."), HasSubstr("appends to None"));
  EXPECT_THAT(refusal("NNNs."), HasSubstr("sets items of None"));
  EXPECT_THAT(refusal("}(Nu."), HasSubstr("a key lacks its value"));
  EXPECT_THAT(refusal("NNR."), HasSubstr("calls None with None"));
  EXPECT_THAT(refusal("NNb."), HasSubstr("sets a state on None"));
  EXPECT_THAT(refusal("NN\x93."), HasSubstr("name of a global is no text"));
  EXPECT_THAT(refusal("I01\n."), HasSubstr("opcode 0x49"));
  EXPECT_THAT(refusal("X\xff\xff\xff\xff."), HasSubstr("cut off"));
  EXPECT_THAT(refusal("\x8a\xff."), HasSubstr("cut off"));
  EXPECT_THAT(refusal("\x8b\xff\xff\xff\xff."), HasSubstr("length of an int"));
  EXPECT_THAT(refusal("T\xff\xff\xff\xff."), HasSubstr("length of a str"));
  EXPECT_THAT(refusal(std::string("\x95\xff\0\0\0\0\0\0\0N.", 11)),
              HasSubstr("a frame is cut off"));
  EXPECT_THAT(refusal(std::string("\x8d\xff\xff\xff\xff\xff\xff\xff\xff", 9)),
              HasSubstr("cut off"));
  EXPECT_THAT(refusal("ccollections\nOrderedDict\nN\x85R."), HasSubstr("not made of a list"));
  EXPECT_THAT(refusal("ccollections\nOrderedDict\n]Na\x85R."), HasSubstr("not made of pairs"));
  EXPECT_THAT(refusal("c_codecs\nencode\nNN\x86R."), HasSubstr("latin1"));
  EXPECT_THAT(refusal("cmodule"), HasSubstr("cut off"));
}

TEST(PickleReader, CyclesAndBombsAreRefused) {
  EXPECT_THAT(refusal("]q\x01h\x01"
                      "a."),
              HasSubstr("contains itself"));
  // A list of two references to a list of two references to ...: 2^40 values from 200 bytes.
  std::string bomb = "]q" + std::string(1, '\0');
  for (char i = 0; i < 40; ++i)
    bomb += std::string("](h") + i + "h" + i + "eq" + static_cast<char>(i + 1);
  bomb = "(" + bomb + "t.";
  EXPECT_THAT(refusal(bomb), HasSubstr("more than 20000000 values"));
  std::string deep(300, ']');
  deep += std::string(299, 'a') + ".";
  EXPECT_THAT(refusal(deep), HasSubstr("more than 200 levels"));
  EXPECT_THAT(error_of([] { read("\x80\x02(NNNNt.", {}, {.max_values = 4}); }),
              HasSubstr("more than 4 values"));
}

// --- writing ------------------------------------------------------------------------------------

void write_int_list(PickleWriter& writer, std::size_t size, std::int64_t first) {
  writer.begin_list(size);
  for (std::size_t i = 0; i < size; ++i) writer.integer(first + static_cast<std::int64_t>(i));
  writer.end_list();
}

void write_items(PickleWriter& writer, std::size_t size) {
  for (std::size_t i = 0; i < size; ++i) {
    writer.text(std::to_string(i));
    writer.integer(static_cast<std::int64_t>(i));
  }
}

TEST(PickleWriter, WritesContainersAsCPythonDoes) {
  for (const auto& [size, first] :
       {std::pair<std::size_t, std::int64_t>{0, 7}, {1, 7}, {2, 7}, {1000, 0}, {1001, 0}}) {
    PickleWriter writer;
    write_int_list(writer, size, first);
    EXPECT_EQ(writer.finish(), pickle_of(fmt::format("list_{}.pkl", size).c_str())) << size;
  }
  for (const std::size_t size : {0, 1, 1000, 1001}) {
    PickleWriter writer;
    writer.begin_dict(size);
    write_items(writer, size);
    writer.end_dict();
    EXPECT_EQ(writer.finish(), pickle_of(fmt::format("dict_{}.pkl", size).c_str())) << size;
  }
  for (const std::size_t size : {0, 1, 1000, 1001, 1002}) {
    PickleWriter writer;
    writer.begin_object("collections", "OrderedDict");
    writer.begin_tuple(0);
    writer.end_tuple();
    writer.call();
    writer.begin_items(size);
    write_items(writer, size);
    writer.end_items();
    writer.end_object();
    EXPECT_EQ(writer.finish(), pickle_of(fmt::format("ordered_{}.pkl", size).c_str())) << size;
  }
}

TEST(PickleWriter, Protocol4IsWrittenAsCPythonDoes) {
  PickleWriter writer(PickleProtocol::k4);
  writer.begin_dict(3);
  writer.text("a");
  writer.begin_list(2);
  writer.integer(1);
  writer.text("a");
  writer.end_list();
  writer.text("b");
  writer.begin_tuple(2);
  writer.boolean(true);
  writer.none();
  writer.end_tuple();
  writer.text("c");
  writer.begin_list(2);
  for (int i = 0; i < 2; ++i) writer.global("collections", "OrderedDict");
  writer.end_list();
  writer.end_dict();
  // pickle.dumps({"a": [1, "a"], "b": (True, None), "c": [OrderedDict, OrderedDict]}, 4)
  const std::string expected(
      "\200\004\225A\000\000\000\000\000\000\000}\224(\214\001a\224]\224("
      "K\001h\001e\214\001b\224\210N\206\224\214\001c\224]\224("
      "\214\013collections\224\214\013OrderedDict\224\223\224h\011eu.",
      76);
  EXPECT_EQ(writer.finish(), expected);
}

TEST(PickleWriter, Protocol4IsCutIntoFramesThatAreReadBack) {
  PickleWriter writer(PickleProtocol::k4);
  constexpr std::size_t kSize = 40'000;
  writer.begin_list(kSize + 1);
  writer.text(std::string(300, 'x'));
  for (std::size_t i = 0; i < kSize; ++i) writer.text(fmt::format("text {}", i));
  writer.end_list();
  const std::string bytes = writer.finish();
  EXPECT_GT(bytes.size(), 4U * 64 * 1024);
  const Unpickled pickle = read(bytes);
  const auto* list = pickle.root->get<PickleList>();
  ASSERT_TRUE(list);
  ASSERT_EQ(list->items.size(), kSize + 1);
  EXPECT_EQ(*list->items.front()->get<std::string>(), std::string(300, 'x'));
  EXPECT_EQ(*list->items.back()->get<std::string>(), "text 39999");
}

TEST(PickleWriter, WhatItWritesIsReadBack) {
  PickleWriter writer;
  writer.begin_tuple(4);
  writer.begin_object("a.b", "C");
  writer.begin_tuple(1);
  writer.floating(-2.5);
  writer.end_tuple();
  writer.new_object();
  writer.none();
  writer.build();
  writer.end_object();
  writer.begin_persistent_id();
  writer.text("id");
  writer.end_persistent_id();
  writer.integer(std::numeric_limits<std::int64_t>::min());
  writer.boolean(true);
  writer.end_tuple();
  const std::string bytes = writer.finish();
  const Unpickled pickle = read(bytes, {"a.b.C"});
  const auto& items = as<PickleTuple>(pickle.root).items;
  EXPECT_EQ(as<double>(as<PickleObject>(items[0]).arguments[0]), -2.5);
  EXPECT_TRUE(as<PickleObject>(items[0]).state->is_none());
  EXPECT_EQ(as<std::string>(as<PicklePersistentId>(items[1]).id), "id");
  EXPECT_EQ(as<std::int64_t>(items[2]), std::numeric_limits<std::int64_t>::min());
  EXPECT_TRUE(as<bool>(items[3]));
}

TEST(PickleWriter, ItsOwnMisuseIsAnInternalError) {
  PickleWriter open;
  open.begin_list(1);
  EXPECT_THROW(open.finish(), InternalError);
  PickleWriter wrong_size;
  wrong_size.begin_list(2);
  wrong_size.none();
  EXPECT_THROW(wrong_size.end_list(), InternalError);
}

}  // namespace
}  // namespace lerobot::serialization
