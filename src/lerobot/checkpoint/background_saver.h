// Saving while training goes on: tensors are copied into host buffers, a thread writes them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lerobot/base/parallel_loop.h"
#include "lerobot/checkpoint/checkpoint_writer.h"
#include "lerobot/serialization/safetensors.h"

namespace lerobot::checkpoint {

/// Copies of tensors in host memory that is kept from one save to the next. Costs the size of what
/// is copied, once: with Adam three times the weights.
class HostCopies {
 public:
  HostCopies();
  ~HostCopies();

  /// Copies of `tensors` (any device, made contiguous), under the same names. The memory belongs to
  /// `set` (such as "model") and is reused by the next copy() of that set, so the returned tensors
  /// hold these values until then. Copies on as many threads as torch uses.
  serialization::NamedTensors copy(const std::string& set,
                                   const serialization::NamedTensors& tensors);

  /// Gets the memory for a later copy() of such tensors, untouched yet.
  void reserve(const std::string& set, const serialization::NamedTensors& tensors);
  /// Touches what was reserved. A system hands out memory page by page at the first touch, which
  /// takes longer than the copy itself.
  void touch();

  /// Host memory held, in bytes.
  std::uint64_t bytes() const;

 private:
  struct Set;
  Set& fitting_set(const std::string& set, const serialization::NamedTensors& tensors);

  std::map<std::string, std::unique_ptr<Set>> sets_;
  ParallelLoop loop_{"checkpoint copy"};
};

/// At most one save is in flight. A failed save ends the run: save(), check() or wait() throws its
/// Error (once), and the previous checkpoint is intact. Call from the training thread only.
class BackgroundSaver {
 public:
  /// `saved` is called with every complete checkpoint, in the writing thread; it must not throw.
  explicit BackgroundSaver(CheckpointWriter writer,
                           std::function<void(const fs::path&)> saved = {});
  BackgroundSaver(const BackgroundSaver&) = delete;
  BackgroundSaver& operator=(const BackgroundSaver&) = delete;
  /// Waits for the save in flight; a failure that nobody has asked for is logged.
  ~BackgroundSaver();

  /// Gets the memory for these sets in the background, so that the first save stands still no
  /// longer than the others. To be called once when the shapes are known, that is after the first
  /// step.
  void prepare(const std::vector<std::pair<std::string, serialization::NamedTensors>>& sets);

  /// Waits for the previous save, calls `contents` in this thread (it copies what training will
  /// change through the HostCopies and returns the files), and writes them in the background.
  /// Training stands still for `contents` and for what was left of the previous save.
  void save(std::int64_t step, const std::function<std::vector<FileEntry>(HostCopies&)>& contents);

  /// Throws the failure of a finished save; returns at once otherwise. For every training step.
  void check();

  /// Waits until nothing is in flight. Returns the checkpoint that was saved last by this object,
  /// if any; throws the save's failure.
  std::optional<fs::path> wait();

  const CheckpointWriter& writer() const { return writer_; }

 private:
  void start(std::function<void()> job);
  void run();
  void write(std::int64_t step, const std::vector<FileEntry>& files);

  CheckpointWriter writer_;
  const std::function<void(const fs::path&)> on_saved_;
  HostCopies copies_;  // of the training thread, or of the job while one is in flight
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::function<void()> job_;  // set while one is in flight
  std::exception_ptr failure_;
  std::optional<fs::path> saved_;
  std::thread thread_;
};

}  // namespace lerobot::checkpoint
