// Deflated zip archives and npy files, against numpy's own in tests/data/sidecars.
#include "lerobot/serialization/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lerobot/base/files.h"
#include "lerobot/serialization/deflated_zip_writer.h"
#include "tests/serialization/test_files.h"

namespace lerobot::serialization {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Bytes = std::vector<std::uint8_t>;

Bytes bytes_of(std::string_view text) { return {text.begin(), text.end()}; }

/// An archive of named contents, as numpy.savez_compressed would make it.
Bytes archive_of(const std::vector<std::pair<std::string, Bytes>>& members) {
  Bytes archive;
  DeflatedZipWriter writer([&](std::span<const std::uint8_t> part) {
    archive.insert(archive.end(), part.begin(), part.end());
  });
  for (const auto& [name, content] : members) writer.add(name, deflate(content));
  writer.finish();
  return archive;
}

ZipReader open(const Bytes& archive) { return {archive, "a.npz", ZipCompression::kDeflate}; }

Bytes content_of(const ZipReader& zip, std::string_view name) {
  const ZipReader::Member* member = zip.find(name);
  if (!member) fail("{}: no member {}", zip.name(), name);
  ZipMemberStream stream(zip, *member);
  Bytes content(member->size);
  stream.read(content);
  stream.finish();
  return content;
}

Bytes npy(std::string_view type, std::string_view shape, const Bytes& data, char version = 1) {
  std::string file("\x93NUMPY", 6);
  file += {version, '\0'};
  const std::string dict =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}\n", type, shape);
  file += static_cast<char>(dict.size());
  file += '\0';
  if (version > 1) file += {'\0', '\0'};
  file += dict;
  Bytes bytes = bytes_of(file);
  bytes.insert(bytes.end(), data.begin(), data.end());
  return bytes;
}

std::vector<std::int64_t> integers(const Bytes& file) {
  const Bytes archive = archive_of({{"a.npy", file}});
  return read_npy_integers(open(archive), "a.npy");
}
std::vector<double> floats(const Bytes& file) {
  const Bytes archive = archive_of({{"a.npy", file}});
  return read_npy_floats(open(archive), "a.npy");
}
std::string text(const Bytes& file) {
  const Bytes archive = archive_of({{"a.npy", file}});
  return read_npy_text(open(archive), "a.npy");
}

TEST(NpzTest, NumpysCompressedAndStoredArchivesReadEqually) {
  const MappedFile compressed(test_data("sidecars/toy_h264.npz"));
  const MappedFile stored(test_data("sidecars/stored.npz"));
  const ZipReader a(compressed.bytes(), "toy_h264.npz", ZipCompression::kDeflate);
  const ZipReader b(stored.bytes(), "stored.npz", ZipCompression::kDeflate);
  ASSERT_EQ(a.members().size(), 13U);
  for (const ZipReader::Member& member : a.members()) {
    EXPECT_TRUE(member.deflated) << member.name;
    ASSERT_NE(b.find(member.name), nullptr) << member.name;
    EXPECT_FALSE(b.find(member.name)->deflated);
  }
  for (const char* name : {"0/sample_sizes.npy", "1/sync_samples.npy"})
    EXPECT_EQ(read_npy_integers(a, name), read_npy_integers(b, name));
  EXPECT_EQ(read_npy_floats(a, "0/sample_pts.npy"), read_npy_floats(b, "0/sample_pts.npy"));
  EXPECT_EQ(read_npy_text(a, "manifest_json.npy"), read_npy_text(b, "manifest_json.npy"));
}

TEST(NpzTest, EveryDtypeAndByteOrderOfNumpyGivesTheSameNumbers) {
  const MappedFile canonical(test_data("sidecars/toy_h264.npz"));
  const MappedFile other(test_data("sidecars/other_types.npz"));
  const ZipReader a(canonical.bytes(), "toy_h264.npz", ZipCompression::kDeflate);
  const ZipReader b(other.bytes(), "other_types.npz", ZipCompression::kDeflate);
  for (const ZipReader::Member& member : a.members()) {
    if (member.name == "manifest_json.npy")
      EXPECT_EQ(read_npy_text(a, member.name), read_npy_text(b, member.name));
    else if (member.name.ends_with("pts.npy"))
      EXPECT_EQ(read_npy_floats(a, member.name), read_npy_floats(b, member.name));
    else
      EXPECT_EQ(read_npy_integers(a, member.name), read_npy_integers(b, member.name));
  }
}

TEST(NpzTest, WhatIsWrittenIsByteForByteWhatNumpyWrote) {
  const MappedFile file(test_data("sidecars/toy_h264.npz"));
  const ZipReader zip(file.bytes(), "toy_h264.npz", ZipCompression::kDeflate);
  EXPECT_EQ(npy_of_integers(read_npy_integers(zip, "0/sample_sizes.npy")),
            content_of(zip, "0/sample_sizes.npy"));
  EXPECT_EQ(npy_of_floats(read_npy_floats(zip, "0/sample_pts.npy")),
            content_of(zip, "0/sample_pts.npy"));
  EXPECT_EQ(npy_of_text(read_npy_text(zip, "manifest_json.npy")),
            content_of(zip, "manifest_json.npy"));
}

TEST(NpyTest, AllVersionsAndNumberTypes) {
  EXPECT_THAT(integers(npy("|i1", "(3,)", {0xff, 0x01, 0x80})), ElementsAre(-1, 1, -128));
  EXPECT_THAT(integers(npy("|u1", "(2,)", {0xff, 0x01})), ElementsAre(255, 1));
  EXPECT_THAT(integers(npy(">i2", "(2,)", {0xff, 0xfe, 0x01, 0x00}, 2)), ElementsAre(-2, 256));
  EXPECT_THAT(integers(npy("<u4", "(1,)", {0xff, 0xff, 0xff, 0xff}, 3)), ElementsAre(4294967295));
  EXPECT_THAT(integers(npy("<i8", "(0,)", {})), ElementsAre());
  EXPECT_THAT(floats(npy("<f4", "(1,)", {0x00, 0x00, 0x20, 0xc0})), ElementsAre(-2.5));
  EXPECT_THAT(floats(npy(">f8", "(1,)", {0x3f, 0xf8, 0, 0, 0, 0, 0, 0})), ElementsAre(1.5));
  // numpy.array([1.5, -2 ** -24, 65504], '<f2')
  EXPECT_THAT(floats(npy("<f2", "(3,)", {0x00, 0x3e, 0x01, 0x80, 0xff, 0x7b})),
              ElementsAre(1.5, -5.9604644775390625e-08, 65504.0));
  EXPECT_THAT(integers(npy("<f2", "(1,)", {0x00, 0x40})), ElementsAre(2));
}

TEST(NpyTest, TextsInBothForms) {
  EXPECT_EQ(text(npy("|S5", "()", bytes_of("hello"))), "hello");
  EXPECT_EQ(text(npy("|S8", "()", bytes_of(std::string("hello\0\0\0", 8)))), "hello");
  EXPECT_EQ(text(npy("|u1", "(5,)", bytes_of("hello"))), "hello");
}

TEST(NpyTest, WhatIsNoPlainArrayOfNumbersIsRefusedByName) {
  EXPECT_THAT(error_of([] { integers(npy("|O", "(1,)", Bytes(8))); }),
              ::testing::AllOf(HasSubstr("a.npz: a.npy"), HasSubstr("pickle")));
  EXPECT_THAT(error_of([] { integers(npy("<u8", "(1,)", Bytes(8, 0xff))); }),
              HasSubstr("item 0 is out of range: 18446744073709551615"));
  EXPECT_THAT(error_of([] { integers(npy("<i8", "(2,)", Bytes(8))); }),
              HasSubstr("needs 16 bytes, it has 8"));
  EXPECT_THAT(error_of([] { integers(npy("<i8", "()", Bytes(8))); }), HasSubstr("one-dimensional"));
  EXPECT_THAT(error_of([] { text(npy("<i8", "(1,)", Bytes(8))); }), HasSubstr("byte string"));
  EXPECT_THAT(error_of([] {
                integers(npy("<f8", "(1,)", {0, 0, 0, 0, 0, 0, 0xf0, 0x7f}));
              }),
              HasSubstr("whole number"));
  EXPECT_THAT(error_of([] { integers(npy("<M8", "(1,)", Bytes(8))); }),
              HasSubstr("'<M8' is not supported"));
}

TEST(DeflatedZipTest, ManySmallMembersNeedAndGetZip64Records) {
  std::vector<std::pair<std::string, Bytes>> members;
  for (int i = 0; i < 66'000; ++i) members.emplace_back(fmt::format("{}", i), Bytes{});
  members[65'999].second = bytes_of("the last one");
  const Bytes archive = archive_of(members);
  const ZipReader zip = open(archive);
  ASSERT_EQ(zip.members().size(), 66'000U);
  EXPECT_EQ(content_of(zip, "65999"), bytes_of("the last one"));
}

TEST(DeflatedZipTest, AMemberBeyondItsDeclaredSizeIsNotInflated) {
  Bytes archive = archive_of({{"a", Bytes(1000, 7)}});
  const std::string_view all(reinterpret_cast<const char*>(archive.data()), archive.size());
  const std::size_t directory = all.find("PK\x01\x02");
  archive[directory + 24] = 100;  // the declared size
  archive[directory + 25] = 0;
  EXPECT_THAT(error_of([&] { content_of(open(archive), "a"); }),
              HasSubstr("does not end after 100 bytes"));
  archive[directory + 25] = 8;
  EXPECT_THAT(error_of([&] { content_of(open(archive), "a"); }), HasSubstr("breaks off after"));
}

TEST(DeflatedZipTest, EveryFlippedByteIsAnErrorOrHarmless) {
  const Bytes content = bytes_of("some content, some more content, some content again");
  const Bytes archive = archive_of({{"a", content}, {"b", content}});
  for (std::size_t at = 0; at < archive.size(); ++at)
    for (const std::uint8_t flip : {0x01, 0x80, 0xff}) {
      Bytes broken = archive;
      broken[at] ^= flip;
      try {
        const ZipReader zip = open(broken);
        for (const ZipReader::Member& member : zip.members())
          EXPECT_EQ(content_of(zip, member.name), content) << "byte " << at;
      } catch (const Error&) {
      }
    }
  for (std::size_t size = 0; size < archive.size(); ++size) {
    const Bytes cut(archive.begin(), archive.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_THROW(open(cut), Error) << size;
  }
}

TEST(DeflatedZipTest, ATorchArchiveStillRefusesCompression) {
  const Bytes archive = archive_of({{"data.pkl", Bytes(10)}});
  EXPECT_THAT(error_of([&] { ZipReader(archive, "a.pt"); }), HasSubstr("compressed (method 8)"));
}

}  // namespace
}  // namespace lerobot::serialization
