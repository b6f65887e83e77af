// Every parser of this room against files that are cut or changed at every place: it answers or
// throws Error, and nothing else happens (run it under AddressSanitizer as well).
#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "lerobot/serialization/pickle.h"
#include "lerobot/serialization/safetensors.h"
#include "lerobot/serialization/torch_archive.h"
#include "tests/serialization/test_files.h"

namespace lerobot::serialization {
namespace {

std::span<const std::uint8_t> as_bytes(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

/// Calls `parse` with every prefix and with every byte replaced by several values. Returns how many
/// were refused; anything but Error fails the test.
int count_refusals(const std::string& content,
                   const std::function<void(const std::string&)>& parse) {
  int refused = 0;
  const auto attempt = [&](const std::string& damaged) {
    try {
      parse(damaged);
    } catch (const Error&) {
      ++refused;
    }
  };
  for (std::size_t length = 0; length < content.size(); ++length)
    attempt(std::string(content.data(), length));
  for (std::size_t i = 0; i < content.size(); ++i) {
    const auto original = static_cast<unsigned char>(content[i]);
    for (const int value : {0x00, 0x01, 0x7f, 0x80, 0xff, original ^ 0x01, original ^ 0x80,
                            static_cast<int>('('), static_cast<int>('.')}) {
      if (value == original) continue;
      std::string damaged = content;
      damaged[i] = static_cast<char>(value);
      attempt(damaged);
    }
  }
  return refused;
}

class Damage : public TestFolder {};

TEST_F(Damage, SafetensorsNeverCrash) {
  const std::string content = read_text_file(test_data("serialization/state_dict.safetensors"));
  const fs::path path = folder_ / "x.safetensors";
  const int refused = count_refusals(content, [&](const std::string& damaged) {
    write("x.safetensors", damaged);
    SafetensorsFile(path).all();
  });
  EXPECT_GT(refused, static_cast<int>(content.size()));
}

TEST_F(Damage, TorchArchivesNeverCrash) {
  for (const char* name :
       {"state_dict_zip.pt", "state_dict_legacy.pt", "state_dict_parameters.pt", "values.pt"}) {
    const std::string content = read_text_file(test_data(fs::path("serialization") / name));
    const int refused = count_refusals(content, [](const std::string& damaged) {
      const TorchArchive archive(as_bytes(damaged), "x.pt");
      const auto* dict = archive.root().get<PickleDict>();
      if (!dict) return;
      for (const auto& [key, value] : dict->items)
        if (TorchArchive::is_tensor(*value)) archive.tensor(*value);
    });
    EXPECT_GE(refused, static_cast<int>(content.size())) << name;  // every truncation at least
  }
}

TEST_F(Damage, PicklesNeverCrash) {
  for (const char* name :
       {"protocol_2.pkl", "protocol_3.pkl", "protocol_4.pkl", "protocol_5.pkl"}) {
    const std::string content = read_text_file(test_data(fs::path("serialization") / name));
    const int refused = count_refusals(content, [](const std::string& damaged) {
      unpickle(as_bytes(damaged), "x.pkl", {}, {.max_values = 100'000});
    });
    EXPECT_GE(refused, static_cast<int>(content.size())) << name;
  }
}

}  // namespace
}  // namespace lerobot::serialization
