#include "lerobot/streaming/sidecar_builder.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <mutex>
#include <unistd.h>
#include <utility>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "lerobot/base/log.h"
#include "lerobot/serialization/deflated_zip_writer.h"
#include "lerobot/serialization/npy.h"
#include "lerobot/streaming/side_by_side.h"
#include "lerobot/streaming/sidecar_file.h"

namespace lerobot::streaming {
namespace {

/// A temporary file without a name: it is gone with its descriptor, however the process ends.
class SpillFile {
 public:
  explicit SpillFile(const fs::path& folder) : folder_(folder.empty() ? "." : folder) {
    fd_ = UniqueFd(::open(folder_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    if (fd_.get() >= 0) return;
    if (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT && errno != EINVAL)
      fail_system(errno, "{}: cannot create a temporary file", folder_.string());
    std::string name = (folder_ / ".sidecar-spill.XXXXXX").string();
    fd_ = UniqueFd(::mkostemp(name.data(), O_CLOEXEC));
    if (fd_.get() < 0) fail_system(errno, "{}: cannot create", name);
    ::unlink(name.c_str());
  }

  /// Appends; the place where the bytes went. Thread-safe.
  std::uint64_t append(std::span<const std::uint8_t> bytes) {
    const std::lock_guard lock(mutex_);
    const std::uint64_t place = size_;
    while (!bytes.empty()) {
      const ssize_t n = ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(size_));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail_system(errno, "{}: cannot write a temporary file", folder_.string());
      bytes = bytes.subspan(static_cast<std::size_t>(n));
      size_ += static_cast<std::uint64_t>(n);
    }
    return place;
  }

  void read(std::uint64_t place, std::span<std::uint8_t> out) const {
    while (!out.empty()) {
      const ssize_t n = ::pread(fd_.get(), out.data(), out.size(), static_cast<off_t>(place));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0)
        fail_system(n < 0 ? errno : EIO, "{}: cannot read a temporary file", folder_.string());
      out = out.subspan(static_cast<std::size_t>(n));
      place += static_cast<std::uint64_t>(n);
    }
  }

 private:
  fs::path folder_;
  UniqueFd fd_;
  std::mutex mutex_;
  std::uint64_t size_ = 0;
};

/// A member that lies compressed in the spill file.
struct SpilledMember {
  std::string name;
  std::uint32_t crc = 0;
  std::uint64_t size = 0;
  std::uint64_t place = 0;
  std::uint64_t compressed_size = 0;
};

class Build {
 public:
  Build(const SidecarIdentity& identity, Payload& payload, const fs::path& output,
        const SidecarBuildOptions& options)
      : payload_(payload),
        output_(output),
        options_(options),
        probe_(options.probe),
        spill_(output.parent_path()) {
    // On a disk a second read costs next to nothing, unneeded bytes do.
    constexpr std::uint64_t kLocalBlockBytes = 64 << 10;
    if (identity.data_root.find("://") == std::string::npos)
      probe_.block_bytes = std::min(probe_.block_bytes, kLocalBlockBytes);
    manifest_.identity = identity;
    manifest_.videos.resize(identity.sources.size());
    members_.resize(identity.sources.size());
  }

  void run() {
    side_by_side(
        members_.size(), options_.workers, "sidecar-build", [&](std::size_t i) { index(i); },
        options_.poll, [&] { payload_.cancel(); });
    write();
  }

 private:
  void index(std::size_t i) {
    SourceFile& source = manifest_.identity.sources[i];
    const CompressedArrays arrays = read_source(i, source);
    for (const CompressedArrays::Member& member : arrays.members) {
      const serialization::DeflatedContent& content = member.content;
      members_[i].push_back({fmt::format("{}/{}", i, member.name), content.crc, content.size,
                             spill_.append(content.bytes), content.bytes.size()});
    }
    const std::lock_guard lock(progress_mutex_);
    ++done_;
    if (options_.progress) options_.progress(done_, members_.size());
  }

  CompressedArrays read_source(std::size_t i, SourceFile& source) try {
    PayloadReader reader(payload_, source.path, probe_);
    if (source.size && *source.size != reader.size())
      fail("{}: had {} bytes when the sidecar was begun, now {}: it changed meanwhile; start again",
           reader.name(), *source.size, reader.size());
    const video::Mp4Index index = video::Mp4Index::parse(reader, video::Mp4Use::kIndex);
    manifest_.videos[i] = sidecar_video(index, source.path, reader.size());
    check_unchanged(source.path, reader.name());
    source.size = reader.size();
    return compress(sidecar_arrays(index));
  } catch (const SystemError& error) {
    // What the system refuses about a source is not about the place where the sidecar goes.
    throw Error(error.what());
  }

  /// A file that was replaced while it was read must not be recorded under its old fingerprint.
  void check_unchanged(const std::string& path, std::string_view name) {
    const auto expected = manifest_.identity.fingerprints.find(path);
    if (expected == manifest_.identity.fingerprints.end()) return;
    const std::optional<std::string> now = payload_.fingerprint(path);
    if (now && *now != expected->second)
      fail("{}: changed while its sidecar was made; start again", name);
  }

  void write() {
    FileWriter file(output_);
    serialization::DeflatedZipWriter zip(
        [&](std::span<const std::uint8_t> bytes) { file.write(bytes); });
    zip.add("manifest_json.npy",
            serialization::deflate(serialization::npy_of_text(to_json_text(manifest_))));
    std::vector<std::uint8_t> compressed;
    for (const std::vector<SpilledMember>& members : members_) {
      if (options_.poll) options_.poll();
      for (const SpilledMember& member : members) {
        compressed.resize(member.compressed_size);
        spill_.read(member.place, compressed);
        zip.add(member.name, member.crc, member.size, compressed);
      }
    }
    zip.finish();
    file.commit();
  }

  Payload& payload_;
  const fs::path output_;
  const SidecarBuildOptions& options_;
  ProbeOptions probe_;
  SpillFile spill_;
  SidecarManifest manifest_;
  std::vector<std::vector<SpilledMember>> members_;  // by video
  std::mutex progress_mutex_;
  std::size_t done_ = 0;
};

}  // namespace

std::function<void(std::size_t, std::size_t)> log_progress() {
  return [](std::size_t done, std::size_t total) {
    constexpr std::size_t kLines = 20;
    const std::size_t before = (done - 1) * kLines / total;
    if (done * kLines / total != before || done == total)
      log::info("Indexed {}/{} MP4 files", done, total);
  };
}

void build_sidecar(const SidecarIdentity& identity, Payload& payload, const fs::path& output,
                   const SidecarBuildOptions& options) {
  if (identity.sources.empty())
    fail("dataset {}: it has no video files, so there is nothing to index", identity.repo_id);
  Build(identity, payload, output, options).run();
}

}  // namespace lerobot::streaming
