// A Hub, a cache and a client for tests.
#pragma once

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <unistd.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lerobot/base/files.h"
#include "lerobot/hub/hub_client.h"
#include "lerobot/hub/repo.h"
#include "tests/support/hub_server.h"

namespace lerobot::hub {

class HubFixture : public ::testing::Test {
 protected:
  HubFixture() {
    ::setenv("no_proxy", "127.0.0.1,localhost", 1);
    fs::create_directories(folder_);
    environment_.endpoint = server_.endpoint();
  }
  ~HubFixture() override { fs::remove_all(folder_); }

  /// With waits that suit tests.
  HubClientOptions options() const {
    HubClientOptions options;
    options.retry.attempts = 3;
    options.retry.first_backoff = std::chrono::milliseconds(2);
    options.retry.longest_backoff = std::chrono::milliseconds(10);
    return options;
  }

  HubClient& client() {
    if (!client_) client_ = std::make_unique<HubClient>(environment_, options());
    return *client_;
  }

  const Repo repo_{RepoType::kDataset, "robot/pusht"};
  const fs::path folder_ =
      fs::temp_directory_path() /
      fmt::format("lerobot_hub_test.{}.{}", ::getpid(),
                  ::testing::UnitTest::GetInstance()->current_test_info()->name());
  const fs::path cache_ = folder_ / "cache";
  test_server::HubServer server_;
  HubEnvironment environment_;  ///< before the first client()

 private:
  std::unique_ptr<HubClient> client_;
};

/// The HubError that `function` throws; of fault kRefused with the text "no error" when none.
template <class Function>
HubError hub_error_of(const Function& function) {
  try {
    function();
  } catch (const HubError& error) {
    return error;
  }
  return {HubFault::kRefused, 0, "no error"};
}

}  // namespace lerobot::hub
