// A Hub, its files, and downloads of them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "lerobot/hub/repo_cache.h"
#include "lerobot/hub/snapshot.h"
#include "tests/hub/hub_fixture.h"

namespace lerobot::hub {

using test_server::Behaviour;
using test_server::HubFiles;
using test_server::Request;

constexpr std::size_t kMegabyte = 1 << 20;
/// Three parts of a large file.
constexpr std::size_t kLarge = 150 * kMegabyte + 4321;

inline std::string random_bytes(std::size_t size, unsigned seed = 1) {
  std::mt19937_64 generator(seed);
  std::string bytes(size, '\0');
  for (std::size_t at = 0; at + 8 <= size; at += 8) {
    const std::uint64_t word = generator();
    std::memcpy(bytes.data() + at, &word, 8);
  }
  return bytes;
}

inline std::span<const std::uint8_t> bytes(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

class SnapshotTest : public HubFixture {
 protected:
  Snapshot download(const std::string& revision = "main", const SnapshotOptions& options = {}) {
    return download_snapshot(client(), repo_, revision, cache_, options);
  }

  HubError error(const std::string& revision = "main") {
    return hub_error_of([&] { download(revision); });
  }

  /// What a client with other settings gets from the same cache.
  HubError error_with(HubEnvironment environment, const std::string& revision = "main",
                      const SnapshotOptions& options = {}) {
    HubClient other(std::move(environment), HubFixture::options());
    return hub_error_of([&] { download_snapshot(other, repo_, revision, cache_, options); });
  }

  HubEnvironment offline() const {
    HubEnvironment environment = environment_;
    environment.offline = true;
    return environment;
  }

  HubEnvironment unreachable() const {
    HubEnvironment environment = environment_;
    environment.endpoint = "http://127.0.0.1:1";
    return environment;
  }

  /// GETs of the bytes, wherever, whose path contains `part` or whose server is the storage.
  std::size_t file_requests() const {
    const auto all = server_.requests();
    return static_cast<std::size_t>(std::count_if(all.begin(), all.end(), [](const Request& it) {
      return it.server == "storage" || it.path.find("/resolve/") != std::string::npos;
    }));
  }

  /// Behaviour of the GETs of file bytes that come from the storage; the first `times` of them.
  void on_storage(Behaviour behaviour, int times = 1'000'000) {
    on([](const Request& request) { return request.server == "storage"; }, std::move(behaviour),
       times);
  }

  void on(std::function<bool(const Request&)> which, Behaviour behaviour, int times = 1'000'000) {
    server_.set_hook([this, which = std::move(which), behaviour = std::move(behaviour),
                      times](const Request& request) -> std::optional<Behaviour> {
      if (which(request) && hits_++ < times) return behaviour;
      return std::nullopt;
    });
  }

  fs::path repo_folder() const { return cache_ / cache_folder_name(repo_); }

  std::size_t incomplete_files() const {
    std::size_t count = 0;
    for (const auto& entry : fs::directory_iterator(repo_folder() / "blobs"))
      count += entry.path().extension() == ".incomplete";
    return count;
  }

  static SnapshotOptions only(std::vector<std::string> patterns) {
    return {
        .wanted = [patterns = std::move(patterns)](
                      std::string_view path) { return matches_any(path, patterns); },
    };
  }

  const HubFiles files_ = {{"README.md", "# a dataset"},
                           {"meta/info.json", R"({"fps": 10})"},
                           {"data/chunk-000/file 0.parquet", random_bytes(70'000)},
                           {"videos/cam#1/a[1].mp4", random_bytes(6 * kMegabyte, 2)}};
  std::atomic<int> hits_ = 0;
};

}  // namespace lerobot::hub
