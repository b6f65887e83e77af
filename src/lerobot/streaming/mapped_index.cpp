#include "lerobot/streaming/mapped_index.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <sys/stat.h>
#include <utility>

#include "lerobot/base/digest.h"
#include "lerobot/base/log.h"
#include "lerobot/serialization/zip_archive.h"
#include "lerobot/streaming/side_by_side.h"

namespace lerobot::streaming {
namespace {

// ---- Names
// ----------------------------------------------------------------------------------------

std::string hex_of(std::string_view text, std::size_t digits) {
  return sha256_hex({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()})
      .substr(0, digits);
}

std::int64_t nanoseconds(const timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

/// Which file and which content a sidecar is at this moment.
struct Generation {
  std::string key;
  std::string content_digest;
};

Generation generation_of(const fs::path& sidecar) {
  struct stat before {
  }, after{};
  if (::stat(sidecar.c_str(), &before) != 0)
    fail_system(errno, "{}: cannot open", sidecar.string());
  const std::string digest = content_digest(sidecar);
  if (::stat(sidecar.c_str(), &after) != 0 || before.st_ino != after.st_ino ||
      nanoseconds(before.st_ctim) != nanoseconds(after.st_ctim))
    fail("{}: the MP4 sidecar changed while it was opened; start again", sidecar.string());
  constexpr std::size_t kKeyDigits = 24;
  return {hex_of(fmt::format("{} {} {} {} {} {}", before.st_dev, before.st_ino, before.st_size,
                             nanoseconds(before.st_mtim), nanoseconds(before.st_ctim), digest),
                 kKeyDigits),
          digest};
}

/// Where the indexes of one sidecar are.
class IndexFolder {
 public:
  IndexFolder(const fs::path& sidecar, const fs::path& lerobot_home)
      : folder_(lerobot_home / "streaming-indexes") {
    constexpr std::size_t kSidecarDigits = 16;
    const std::string place = fs::absolute(sidecar).lexically_normal().string();
    prefix_ = fmt::format("mp4-native-{}", hex_of(place, kSidecarDigits));
  }

  fs::path path(const Generation& generation) const {
    return folder_ / fmt::format("{}-{}.bin", prefix_, generation.key);
  }

  FileLock lock(const IndexOptions& options) const {
    make_directories(folder_);
    const fs::path path = folder_ / (prefix_ + ".lock");
    auto lock = FileLock::acquire(path, options.lock_timeout, options.poll);
    if (!lock)
      fail(
          "timed out waiting {} s for another process to convert an MP4 sidecar: {}; check that it "
          "is alive, and start again",
          options.lock_timeout.count(), path.string());
    return *std::move(lock);
  }

  /// Removes other generations that nobody uses. The lock is held.
  void remove_unused(const fs::path& except) const {
    std::error_code ignored;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_, ignored)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with(prefix_ + "-") && name.ends_with(".bin") && entry.path() != except)
        UseLock::remove_unused(entry.path());
    }
  }

 private:
  fs::path folder_;
  std::string prefix_;
};

/// Null when there is none or a damaged one.
std::shared_ptr<const IndexFile> open_generation(const fs::path& path,
                                                 const Generation& generation) {
  try {
    auto file = std::make_shared<const IndexFile>(path);
    if (file->content_digest() == generation.content_digest) return file;
    log::warning("{}: the index belongs to another sidecar; it is made again", path.string());
  } catch (const SystemError& error) {
    if (error.error_number() != ENOENT) throw;
  } catch (const IndexDamaged& error) {
    log::warning("{}", error.what());
  }
  return nullptr;
}

// ---- Conversion
// -----------------------------------------------------------------------------------

template <class T>
std::span<const std::uint8_t> object_bytes(const T& object) {
  return {reinterpret_cast<const std::uint8_t*>(&object), sizeof object};
}

class Conversion {
 public:
  Conversion(const SidecarFile& sidecar, const fs::path& output)
      : sidecar_(sidecar), writer_(output), records_(sidecar.manifest().videos.size()) {}

  void run(const IndexOptions& options) {
    side_by_side(
        records_.size(), options.workers, "sidecar-index", [&](std::size_t i) { add_video(i); },
        options.poll);
    for (std::size_t i = 0; i < records_.size(); ++i) {
      const SidecarVideo& video = sidecar_.manifest().videos[i];
      records_[i].path =
          add_text({reinterpret_cast<const std::uint8_t*>(video.path.data()), video.path.size()});
      records_[i].sample_description = add_text(video.sample_description);
      records_[i].crc = checksum(records_[i]);
    }
    align();
    write_end();
  }

 private:
  void add_video(std::size_t i) {
    EncodedVideo encoded = encode(sidecar_.manifest().videos[i], sidecar_.arrays(i));
    const std::lock_guard lock(mutex_);
    align();
    encoded.record.data_offset = writer_.written();
    writer_.write(encoded.data);
    records_[i] = encoded.record;
  }

  /// The files of a camera mostly have the same sample description.
  IndexText add_text(std::span<const std::uint8_t> bytes) {
    const auto [found, is_new] = texts_.try_emplace(std::string(bytes.begin(), bytes.end()));
    if (is_new) {
      found->second = {writer_.written(), static_cast<std::uint32_t>(bytes.size()),
                       serialization::crc32(bytes)};
      writer_.write(bytes);
    }
    return found->second;
  }

  void align() {
    constexpr std::uint64_t kAlignment = alignof(IndexRecord);
    constexpr std::array<std::uint8_t, kAlignment> kZeros{};
    const std::uint64_t padding = (kAlignment - writer_.written() % kAlignment) % kAlignment;
    writer_.write(std::span(kZeros).first(padding));
  }

  void write_end() {
    IndexFooter footer;
    footer.records_offset = writer_.written();
    footer.video_count = records_.size();
    for (const IndexRecord& record : records_) writer_.write(object_bytes(record));
    footer.file_bytes = writer_.written() + sizeof footer;
    const std::string content = content_digest(sidecar_.path());
    const std::string identity = streaming::identity_digest(sidecar_.manifest().identity);
    std::copy(content.begin(), content.end(), footer.content_digest.begin());
    std::copy(identity.begin(), identity.end(), footer.identity_digest.begin());
    footer.crc = checksum(footer);
    writer_.write(object_bytes(footer));
    writer_.commit();
  }

  const SidecarFile& sidecar_;
  FileWriter writer_;
  std::mutex mutex_;
  std::vector<IndexRecord> records_;
  std::map<std::string, IndexText> texts_;
};

/// Moves a converted index to its name. The folder's lock is held.
std::shared_ptr<const IndexFile> move_into_place(const fs::path& converted, const fs::path& sidecar,
                                                 const IndexFolder& folder) {
  const Generation generation = generation_of(sidecar);
  if (IndexFile(converted).content_digest() != generation.content_digest)
    fail("{}: the MP4 sidecar changed while its index was made; start again", sidecar.string());
  const fs::path path = folder.path(generation);
  std::error_code error;
  fs::rename(converted, path, error);
  if (error) fail_system(error.value(), "{}: cannot be replaced", path.string());
  sync_directory(path.parent_path());
  auto file = std::make_shared<const IndexFile>(path);
  folder.remove_unused(path);
  return file;
}

/// A file that is removed unless it has been moved away.
struct Temporary {
  fs::path path;
  ~Temporary() {
    std::error_code ignored;
    fs::remove(path, ignored);
  }
};

std::shared_ptr<const IndexFile> convert_generation(const fs::path& sidecar,
                                                    const IndexFolder& folder,
                                                    const IndexOptions& options) {
  const Temporary converted{MappedIndex::convert(SidecarFile(sidecar), options)};
  return move_into_place(converted.path, sidecar, folder);
}

// ---- Samples of a part
// ---------------------------------------------------------------------------------

/// The decode time of a sample of the whole file, ticks. Back from its presentation time, so that
/// the durations before it need not be summed.
std::int64_t decode_time(const TrackSamples& samples, std::size_t sample) {
  return std::llround((samples.pts[sample] - samples.pts[0]) * samples.time_scale) +
         samples.composition_offsets[0] - samples.composition_offsets[sample];
}

video::SampleTable table_of(const TrackSamples& source, std::size_t first, std::size_t last) {
  const std::size_t count = last - first + 1;
  video::SampleTable table;
  table.offsets.resize(count);
  table.sizes.resize(count);
  table.decode_times.resize(count + 1);
  if (source.reordered) table.composition_offsets.resize(count);
  std::int64_t time = decode_time(source, first);
  for (std::size_t i = 0; i < count; ++i) {
    table.offsets[i] = static_cast<std::uint64_t>(source.offsets[first + i]);
    table.sizes[i] = static_cast<std::uint32_t>(source.sizes[first + i]);
    table.decode_times[i] = time;
    time += source.durations[first + i];
    if (source.reordered)
      table.composition_offsets[i] =
          static_cast<std::int32_t>(source.composition_offsets[first + i]);
  }
  table.decode_times[count] = time;
  table.all_sync = source.sync_samples.size() == source.size();
  if (table.all_sync) return table;
  std::size_t low = 0, high = source.sync_samples.size();
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (source.sync_samples[middle] < static_cast<std::int64_t>(first))
      low = middle + 1;
    else
      high = middle;
  }
  for (; low < source.sync_samples.size(); ++low) {
    const auto sync = static_cast<std::size_t>(source.sync_samples[low]);
    if (sync > last) break;
    table.sync_samples.push_back(static_cast<std::uint32_t>(sync - first));
  }
  return table;
}

/// Seconds from composition to presentation time by the sidecar's pts.
double pts_shift_s(const TrackSamples& samples) {
  return samples.pts[0] - static_cast<double>(samples.composition_offsets[0]) / samples.time_scale;
}

video::Presentation presentation_of(const IndexRecord& record, const TrackSamples& samples) {
  if ((record.flags & kHasPresentation) != 0)
    return {record.presentation_begin, record.presentation_end, record.presentation_shift, 0.0};
  constexpr double kRoundingS = 1e-9;
  const double shift_s = pts_shift_s(samples);
  video::Presentation presentation;
  presentation.shift = std::llround(shift_s * samples.time_scale);
  const double rest_s = shift_s - static_cast<double>(presentation.shift) / samples.time_scale;
  if (std::abs(rest_s) > kRoundingS) presentation.shift_s = rest_s;
  return presentation;
}

/// How much later the video is presented than its pts say. Below a millisecond it is rounding,
/// which a slice's padding covers a hundredfold; LeRobot's choice of samples then stays untouched.
double presentation_delay_s(const IndexRecord& record, const TrackSamples& samples) {
  if ((record.flags & kHasPresentation) == 0) return 0.0;
  constexpr double kNegligibleS = 1e-3;
  const double delay_s =
      static_cast<double>(record.presentation_shift) / record.time_scale - pts_shift_s(samples);
  return std::abs(delay_s) > kNegligibleS ? delay_s : 0.0;
}

}  // namespace

// ---- MappedIndex
// ---------------------------------------------------------------------------------

MappedIndex::MappedIndex(fs::path sidecar, IndexOptions options,
                         std::shared_ptr<const IndexFile> file)
    : sidecar_(std::move(sidecar)), options_(std::move(options)) {
  files_.push_back(std::move(file));
}

std::shared_ptr<const MappedIndex> MappedIndex::open_existing(const fs::path& sidecar,
                                                              const IndexOptions& options) {
  const Generation generation = generation_of(sidecar);
  auto file =
      open_generation(IndexFolder(sidecar, options.lerobot_home).path(generation), generation);
  if (!file) return nullptr;
  return std::shared_ptr<const MappedIndex>(new MappedIndex(sidecar, options, std::move(file)));
}

std::shared_ptr<const MappedIndex> MappedIndex::open(const fs::path& sidecar,
                                                     const IndexOptions& options) {
  if (auto index = open_existing(sidecar, options)) return index;
  const IndexFolder folder(sidecar, options.lerobot_home);
  const FileLock lock = folder.lock(options);
  if (auto index = open_existing(sidecar, options)) return index;
  return std::shared_ptr<const MappedIndex>(
      new MappedIndex(sidecar, options, convert_generation(sidecar, folder, options)));
}

fs::path MappedIndex::convert(const SidecarFile& sidecar, const IndexOptions& options) {
  const fs::path folder = options.lerobot_home / "streaming-indexes";
  make_directories(folder);
  std::random_device random;
  fs::path path = folder / fmt::format(".{:08x}{:08x}.index.tmp", random(), random());
  Conversion(sidecar, path).run(options);
  return path;
}

std::shared_ptr<const MappedIndex> MappedIndex::install(const fs::path& converted,
                                                        const fs::path& sidecar,
                                                        const IndexOptions& options) {
  const IndexFolder folder(sidecar, options.lerobot_home);
  const FileLock lock = folder.lock(options);
  return std::shared_ptr<const MappedIndex>(
      new MappedIndex(sidecar, options, move_into_place(converted, sidecar, folder)));
}

std::shared_ptr<const IndexFile> MappedIndex::current() const {
  const std::lock_guard lock(mutex_);
  return files_.back();
}

std::shared_ptr<const IndexFile> MappedIndex::convert_again(const IndexFile& damaged,
                                                            const std::string& why) const {
  const std::lock_guard guard(mutex_);
  if (files_.back().get() != &damaged) return files_.back();  // another thread has done it
  if (files_.size() > 1) throw IndexDamaged(why);
  log::warning("{}", why);
  const IndexFolder folder(sidecar_, options_.lerobot_home);
  const FileLock lock = folder.lock(options_);
  auto file = convert_generation(sidecar_, folder, options_);
  if (file->content_digest() != damaged.content_digest())
    fail("{}: the MP4 sidecar changed during the run; start again", sidecar_.string());
  files_.push_back(file);
  return file;
}

template <class Use>
auto MappedIndex::use(const Use& use) const {
  const std::shared_ptr<const IndexFile> file = current();
  try {
    return use(*file);
  } catch (const IndexDamaged& error) {
    return use(*convert_again(*file, error.what()));
  }
}

std::size_t MappedIndex::file(std::string_view path) const {
  const auto found = use([&](const IndexFile& file) { return file.find(path); });
  if (!found)
    fail("{}: the sidecar has no video {}; it was made for other videos: remove it and start again",
         sidecar_.string(), path);
  return *found;
}

std::string_view MappedIndex::path(std::size_t file) const {
  return use([&](const IndexFile& index) { return index.video_path(file); });
}

std::uint64_t MappedIndex::file_bytes(std::size_t file) const {
  return use([&](const IndexFile& index) { return index.record(file).file_bytes; });
}

std::uint64_t MappedIndex::reserved_bytes_bound(std::size_t file) const {
  return use([&](const IndexFile& index) {
    const IndexRecord& record = index.record(file);
    return synthesized_bytes_bound(record.sample_count, record.file_bytes, record.file_type_bytes,
                                   record.sample_description.bytes);
  });
}

EpisodeSlice MappedIndex::slice(std::size_t file, double from_s, double to_s) const {
  return use([&](const IndexFile& index) {
    const TrackSamples samples = index.samples(file);
    const double delay_s = presentation_delay_s(index.record(file), samples);
    EpisodeSlice slice =
        slice_of(samples, from_s - delay_s, to_s - delay_s, index.video_path(file));
    slice.file = file;
    return slice;
  });
}

video::Mp4Index MappedIndex::samples(std::size_t file, std::size_t first, std::size_t last) const {
  return use([&](const IndexFile& index) {
    const IndexRecord& record = index.record(file);
    const TrackSamples samples = index.samples(file);
    if (first > last || last >= samples.size())
      fail("{}: samples {} to {} are no range, it has {}", index.video_path(file), first, last,
           samples.size());
    const auto description = index.sample_description(file);
    video::Mp4Part part;
    part.name = index.video_path(file);
    part.track_id = record.track_id;
    part.time_scale = record.time_scale;
    part.sample_description.assign(description.begin(), description.end());
    part.samples = table_of(samples, first, last);
    part.reorder_depth = record.reorder_depth;
    part.presentation = presentation_of(record, samples);
    return video::Mp4Index::of_part(std::move(part));
  });
}

}  // namespace lerobot::streaming
