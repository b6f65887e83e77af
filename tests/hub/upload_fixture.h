// A test Hub and a client of it, for tests of publishing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>

#include "lerobot/base/digest.h"
#include "lerobot/base/files.h"
#include "lerobot/base/json.h"
#include "lerobot/hub/hub_client.h"
#include "lerobot/hub/upload.h"
#include "tests/support/error_of.h"
#include "tests/support/hub_server.h"

namespace lerobot::hub {

class UploadTest : public testing::Test {
 protected:
  using Behaviour = test_server::Behaviour;
  using Request = test_server::Request;

  UploadTest()
      : folder_(fs::temp_directory_path() /
                fmt::format("lerobot_upload_test {} {}", ::getpid(),
                            testing::UnitTest::GetInstance()->current_test_info()->name())) {
    for (const char* name : {"no_proxy", "NO_PROXY"}) ::setenv(name, "127.0.0.1,localhost", 1);
    fs::create_directories(folder_);
    server_.add_repo(repo_);
  }
  ~UploadTest() override { fs::remove_all(folder_); }

  static HubClientOptions quick() {
    HubClientOptions options;
    options.retry.first_backoff = std::chrono::milliseconds(2);
    options.retry.longest_backoff = std::chrono::milliseconds(10);
    return options;
  }

  HubEnvironment environment() const {
    HubEnvironment out;
    out.endpoint = server_.endpoint();
    out.credentials = {.token = "hf_test", .origin = "HF_TOKEN"};
    return out;
  }

  fs::path write(const std::string& name, const std::string& text) const {
    fs::create_directories((folder_ / name).parent_path());
    write_file_atomic(folder_ / name, text);
    return folder_ / name;
  }

  /// The requests of a method whose path holds `part`.
  std::vector<Request> sent(const std::string& method, const std::string& part) const {
    std::vector<Request> out;
    for (const Request& request : server_.requests())
      if (request.method == method && request.path.find(part) != std::string::npos)
        out.push_back(request);
    return out;
  }

  /// Lets `behave` decide about the requests of a method whose path holds `part`; it is given how
  /// many of them came before.
  void on(const std::string& method, const std::string& part,
          std::function<std::optional<Behaviour>(int number)> behave) {
    server_.set_hook([method, part, behave = std::move(behave),
                      number = 0](const Request& request) mutable -> std::optional<Behaviour> {
      if (request.method != method || request.path.find(part) == std::string::npos)
        return std::nullopt;
      return behave(number++);
    });
  }
  /// The first of them, or every one of them.
  void once(const std::string& method, const std::string& part, Behaviour behaviour) {
    on(method, part,
       [behaviour](int number) { return number == 0 ? std::optional(behaviour) : std::nullopt; });
  }
  void always(const std::string& method, const std::string& part, Behaviour behaviour) {
    on(method, part, [behaviour](int) { return std::optional(behaviour); });
  }

  static Behaviour json(int status, const std::string& body) {
    Behaviour behaviour = Behaviour::answer(status, {{"Content-Type", "application/json"}});
    behaviour.body = body;
    return behaviour;
  }

  CommitResult upload(std::vector<UploadFile> files, const UploadOptions& options = {}) {
    return upload_commit(client_, repo_, {.message = "Upload", .files = std::move(files)}, options);
  }

  HubFault fault_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const HubError& error) {
      return error.fault();
    }
    ADD_FAILURE() << "no HubError";
    return HubFault::kMisbehaved;
  }

  const Repo repo_{RepoType::kDataset, "tester/data"};
  const fs::path folder_;
  test_server::HubServer server_;
  HubClient client_{environment(), quick()};
};

}  // namespace lerobot::hub
