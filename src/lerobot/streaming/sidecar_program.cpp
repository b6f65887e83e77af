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
#include "lerobot/hub/home.h"
#include "lerobot/hub/range_client.h"
#include "lerobot/streaming/http_payload.h"
#include "lerobot/streaming/local_payload.h"
#include "lerobot/streaming/location.h"
#include "lerobot/streaming/remote_metadata.h"
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
                            version, v3.0)
  --data-root=ROOT          a directory, or an http(s):// URL with meta/ and videos/ below it
  --output=FILE             the sidecar to write
  --episodes=N              index only the videos of the first N episodes; such a sidecar can't be
                            published (default: all)
  --workers=N               files indexed at the same time (default: 8)
  --range-backend=BACKEND   fsspec or native-http (default: by root). Local directories are read as
                            files, everything else by the native HTTP reader
  --max-probe-mb=N          MiB of a file that are read in search of its index (default: 64)
  --push                    publish the sidecar (default: off)
  --help                    show this text
)";

struct Source {
  dataset::DatasetFiles files;
  std::shared_ptr<Payload> payload;
  std::string data_root;  // as the sidecar records it
};

Source open_local(const SidecarArguments& arguments) {
  Source source;
  source.data_root = local_data_root(arguments.data_root);
  source.files = dataset::DatasetFiles::open(source.data_root, arguments.repo_id);
  source.payload = std::make_shared<LocalPayload>(source.data_root);
  return source;
}

Source open_http(const SidecarArguments& arguments, const Location& location) {
  hub::RangeClientOptions options;
  options.connections = std::max(options.connections, static_cast<std::size_t>(arguments.workers));
  auto client = std::make_shared<hub::RangeClient>(options);
  Source source;
  source.data_root = location.root;
  MetadataMirrorOptions mirror_options;
  mirror_options.lerobot_home = hub::lerobot_home();
  mirror_options.waiting = throw_when_interrupted;
  const MetadataMirror mirror = mirror_metadata(location.root, *client, mirror_options);
  source.files = dataset::DatasetFiles::open(mirror.root, arguments.repo_id);
  source.payload = std::make_shared<HttpPayload>(location.root, std::move(client));
  return source;
}

Source open_source(const SidecarArguments& arguments) {
  const Location location = classify_location(arguments.data_root);
  switch (location.kind) {
    case LocationKind::kLocal:
      return open_local(arguments);
    case LocationKind::kHttp:
      return open_http(arguments, location);
    case LocationKind::kHfBucket:
    case LocationKind::kHfDataset:
    case LocationKind::kHfOther:
      fail(
          "--data-root={}: reading from the Hub is not supported yet; download the dataset and "
          "give "
          "its directory",
          arguments.data_root);
    case LocationKind::kOther:
      break;
  }
  fail("--data-root={}: expected a directory or an http(s):// URL", arguments.data_root);
}

/// What can be refused before anything is read.
void check_push(const SidecarArguments& arguments) {
  if (!arguments.push) return;
  if (!arguments.data_root.starts_with("hf://"))
    fail("--push currently supports only hf:// data roots, found {}", arguments.data_root);
  if (arguments.episodes)
    fail(
        "Only a complete dataset sidecar can be published: leave out --episodes={}, or leave out "
        "--push",
        *arguments.episodes);
  fail("--push is not supported yet: publishing comes with the Hub; upload the file yourself");
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
  if (arguments.repo_type == "bucket")
    fail("--repo-type=bucket is not supported yet: reading Buckets comes with the Hub");
  const InterruptGuard interrupts(
      "\nStopping; nothing will be written. Once more to stop at once.\n");
  const Source source = open_source(arguments);
  if (arguments.range_backend == "fsspec" && source.data_root.find("://") != std::string::npos)
    log::info("--range-backend=fsspec: {} is read by the native HTTP reader", source.data_root);

  const std::vector<std::string> paths = video_paths(source.files, arguments.episodes);
  if (paths.empty())
    fail("dataset {}: it has no video features, so there is nothing to index", arguments.repo_id);
  SidecarBuildOptions options;
  options.workers = arguments.workers;
  options.probe.max_bytes = static_cast<std::uint64_t>(arguments.max_probe_mb) << 20;
  options.progress = log_progress();
  options.poll = throw_when_interrupted;
  const SidecarIdentity identity = expected_identity(
      arguments.repo_id, arguments.revision.value_or(source.files.info().codebase_version),
      source.data_root, paths, *source.payload, arguments.workers);
  log::info("Indexing {} MP4 files of {}", paths.size(), source.data_root);
  write_sidecar(identity, *source.payload, arguments.output, options);

  const std::int64_t all = source.files.episodes().size();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  fmt::print("Wrote {}\n", arguments.output);
  fmt::print("{} episodes, {} files, {:.1f} s\n", std::min(arguments.episodes.value_or(all), all),
             paths.size(), elapsed.count());
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
