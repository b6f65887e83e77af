#include "lerobot/streaming/sidecar_program.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <random>
#include <vector>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "lerobot/base/interrupt.h"
#include "lerobot/base/log.h"
#include "lerobot/base/program.h"
#include "lerobot/dataset/dataset_files.h"
#include "lerobot/hub/account.h"
#include "lerobot/hub/environment.h"
#include "lerobot/hub/home.h"
#include "lerobot/hub/hub_client.h"
#include "lerobot/streaming/dataset_place.h"
#include "lerobot/streaming/sidecar_builder.h"
#include "lerobot/streaming/sidecar_file.h"

namespace lerobot::streaming {
namespace {

constexpr const char* kHelp =
    R"(usage: lerobot-build-mp4-sidecar --repo-id=ID --data-root=ROOT --output=FILE.npz [options]

Indexes the MP4 files of a LeRobotDataset v3, so that streaming training need not do it first.

  --repo-id=OWNER/NAME      the dataset's id, which the sidecar records
  --repo-type=TYPE          dataset or bucket (default: dataset)
  --revision=REVISION       tag, branch or commit that the sidecar records (default: the dataset's
                            version, v3.0); read where --data-root names none
  --data-root=ROOT          with meta/ and videos/ below it: a directory, an http(s):// URL,
                            hf://datasets/OWNER/NAME[@REVISION] or hf://buckets/OWNER/NAME
  --output=FILE             the sidecar to write
  --episodes=N              index only the videos of the first N episodes; such a sidecar can't be
                            published (default: all)
  --workers=N               files indexed at the same time (default: 8)
  --range-backend=BACKEND   fsspec or native-http (default: by root). Local directories are read as
                            files, everything else by the native HTTP reader
  --max-probe-mb=N          MiB of a file that are read in search of its index (default: 64)
  --push                    publish the sidecar: on the branch lerobot-sidecars of a dataset, in
                            meta/mp4-sidecars/ of a Bucket; a token with write permission is needed
                            (default: off)
  --help                    show this text
)";

DatasetAddress address_of(const SidecarArguments& arguments) {
  return {
      .repo_id = arguments.repo_id,
      .type = arguments.repo_type == "bucket" ? hub::RepoType::kBucket : hub::RepoType::kDataset,
      .root = arguments.data_root,
      .revision = arguments.revision,
      .pinned = {}};
}

std::unique_ptr<DatasetPlace> open_source(const SidecarArguments& arguments) {
  PlaceOptions options;
  options.hub = hub::HubEnvironment::read();
  options.lerobot_home = hub::lerobot_home();
  options.connections = std::max(options.connections, static_cast<std::size_t>(arguments.workers));
  options.waiting = throw_when_interrupted;
  return open_place(address_of(arguments), options);
}

dataset::DatasetFiles open_files(DatasetPlace& place) {
  dataset::DatasetFiles files;
  place.with_metadata(
      [&](const fs::path& root) { files = dataset::DatasetFiles::open(root, place.repo_id()); });
  return files;
}

/// What can be refused before anything is read.
void check_push(const SidecarArguments& arguments) {
  if (!arguments.push) return;
  if (!arguments.data_root.starts_with("hf://"))
    fail_usage("--push currently supports only hf:// data roots, found {}", arguments.data_root);
  if (arguments.episodes)
    fail_usage(
        "Only a complete dataset sidecar can be published: leave out --episodes={}, or leave out "
        "--push",
        *arguments.episodes);
}

/// Before the work: the Hub is asked whether the token may publish there.
void check_may_push(const DatasetPlace& place, const SidecarArguments& arguments) {
  if (!arguments.push) return;
  const bool is_bucket = place.data_root().starts_with("hf://buckets/");
  hub::HubClient client(hub::HubEnvironment::read());
  hub::check_may_publish(
      client, hub::make_repo(is_bucket ? hub::RepoType::kBucket : hub::RepoType::kDataset,
                             place.repo_id()));
}

/// The sidecar stays where it is when it can't be published.
void publish(DatasetPlace& place, const SidecarIdentity& identity,
             const SidecarArguments& arguments) {
  try {
    fmt::print("Pushed to {}\n", place.publish(identity, arguments.output));
  } catch (const Interrupted&) {
    throw;
  } catch (const Error& error) {
    fail("the sidecar is complete in {}, but is not published: {}", arguments.output, error.what());
  }
}

/// Writes the archive beside its name and moves it there when it is complete and valid.
void write_sidecar(const SidecarIdentity& identity, Payload& payload, const fs::path& output,
                   const SidecarBuildOptions& options) {
  const fs::path folder = output.has_parent_path() ? output.parent_path() : fs::path(".");
  make_directories(folder);
  std::random_device random;
  const fs::path temporary = folder / fmt::format(".{}.{:08x}{:08x}.tmp.npz",
                                                  output.filename().string(), random(), random());
  struct Remove {
    const fs::path& path;
    ~Remove() {
      std::error_code ignored;
      fs::remove(path, ignored);
    }
  } const remove{temporary};
  build_sidecar(identity, payload, temporary, options);
  if (const auto reason = stale_reason(SidecarFile(temporary).manifest().identity, identity))
    fail("the sidecar does not describe its dataset after it was built: {}; start again", *reason);
  std::error_code error;
  fs::rename(temporary, output, error);
  if (error) fail_system(error.value(), "{}: cannot be replaced", output.string());
  sync_directory(folder);
}

int run(std::span<const std::string> command_line) {
  const auto begin = std::chrono::steady_clock::now();
  const SidecarArguments arguments = parse_sidecar_arguments(command_line);
  if (arguments.help) {
    std::fputs(kHelp, stdout);
    return 0;
  }
  check_push(arguments);
  const InterruptGuard interrupts(
      "\nStopping; nothing will be written. Once more to stop at once.\n");
  const auto place = open_source(arguments);
  check_may_push(*place, arguments);
  if (arguments.range_backend == "fsspec" && place->is_remote())
    log::info("--range-backend=fsspec: {} is read by the native HTTP reader", place->data_root());
  const dataset::DatasetFiles files = open_files(*place);

  const std::vector<std::string> paths = video_paths(files, arguments.episodes);
  if (paths.empty())
    fail("dataset {}: it has no video features, so there is nothing to index", arguments.repo_id);
  SidecarBuildOptions options;
  options.workers = arguments.workers;
  options.probe.max_bytes = static_cast<std::uint64_t>(arguments.max_probe_mb) << 20;
  options.progress = log_progress();
  options.poll = throw_when_interrupted;
  const SidecarIdentity identity = expected_identity(
      place->repo_id(), arguments.revision.value_or(files.info().codebase_version),
      place->data_root(), paths, *place->payload(), arguments.workers);
  log::info("Indexing {} MP4 files of {}", paths.size(), place->data_root());
  write_sidecar(identity, *place->payload(), arguments.output, options);

  const std::int64_t all = files.episodes().size();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  fmt::print("Wrote {}\n", arguments.output);
  fmt::print("{} episodes, {} files, {:.1f} s\n", std::min(arguments.episodes.value_or(all), all),
             paths.size(), elapsed.count());
  if (arguments.push)
    publish(*place, identity, arguments);
  else
    fmt::print("Not published; publishing needs --push\n");
  return 0;
}

}  // namespace

int sidecar_program(std::span<const std::string> arguments) {
  const auto run_until_interrupted = [&] {
    try {
      return run(arguments);
    } catch (const Interrupted&) {
      throw;
    } catch (const UsageError&) {
      throw;
    } catch (const Error&) {
      // Reads that were broken off fail in their own words.
      if (const int signal = InterruptGuard::received()) return 128 + signal;
      throw;
    }
  };
  return run_program("lerobot-build-mp4-sidecar", run_until_interrupted, "; nothing was written");
}

}  // namespace lerobot::streaming
