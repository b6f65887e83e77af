// What the tests of serialization/ and checkpoint/ share: a scratch folder, whole files.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

#include <gtest/gtest.h>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "tests/support/error_of.h"

namespace lerobot {

/// A folder of its own for each test, removed at its end.
class TestFolder : public ::testing::Test {
 protected:
  TestFolder() {
    std::string pattern = (fs::temp_directory_path() / "lerobot-test-XXXXXX").string();
    if (!::mkdtemp(pattern.data())) fail_system(errno, "{}: cannot be created", pattern);
    folder_ = pattern;
  }
  ~TestFolder() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  fs::path write(const fs::path& name, std::string_view content) const {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    fs::remove(path);  // overwriting in place makes some file systems flush
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }

  fs::path folder_;
};

inline fs::path test_data(const fs::path& name) { return fs::path(LEROBOT_TEST_DATA) / name; }

}  // namespace lerobot
