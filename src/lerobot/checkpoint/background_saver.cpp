#include "lerobot/checkpoint/background_saver.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <pthread.h>
#include <sys/mman.h>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>

#include "lerobot/base/error.h"
#include "lerobot/base/log.h"
#include "lerobot/base/trace.h"

namespace lerobot::checkpoint {
namespace {

constexpr std::size_t kAlignment = 64;

/// Part of a plain copy.
struct Piece {
  const char* source;
  char* target;
  std::size_t bytes;
};

void append_pieces(const at::Tensor& source, at::Tensor& target, std::vector<Piece>& pieces) {
  // Two huge pages: few enough pieces to hand out, small enough to share evenly.
  constexpr std::size_t kPieceBytes = 4 << 20;
  const auto* from = static_cast<const char*>(source.const_data_ptr());
  auto* to = static_cast<char*>(target.mutable_data_ptr());
  for (std::size_t begin = 0, end = source.nbytes(); begin < end; begin += kPieceBytes)
    pieces.push_back({from + begin, to + begin, std::min(kPieceBytes, end - begin)});
}

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// One block of host memory, page-locked where copies come from a GPU. Elsewhere it asks for huge
/// pages: touching hundreds of megabytes for the first time costs more than copying them otherwise.
class HostBlock {
 public:
  HostBlock(std::size_t bytes, bool page_locked) : bytes_(bytes) {
    if (bytes == 0) return;
    if (page_locked) {
      pinned_ = at::empty({static_cast<std::int64_t>(bytes)},
                          at::TensorOptions(at::kByte).pinned_memory(true));
      data_ = pinned_.mutable_data_ptr();
      return;
    }
    data_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) {
      data_ = nullptr;
      fail_system(errno, "cannot get {} bytes of memory for a copy of the training state", bytes);
    }
    ::madvise(data_, bytes, MADV_HUGEPAGE);
  }
  HostBlock(const HostBlock&) = delete;
  HostBlock& operator=(const HostBlock&) = delete;
  ~HostBlock() {
    if (data_ && !pinned_.defined()) ::munmap(data_, bytes_);
  }

  void touch() const {
    if (!data_ || pinned_.defined()) return;
    if (::madvise(data_, bytes_, MADV_POPULATE_WRITE) == 0) return;
    // Before Linux 5.14: a byte a page.
    constexpr std::size_t kPageBytes = 4096;
    for (std::size_t i = 0; i < bytes_; i += kPageBytes) static_cast<volatile char*>(data_)[i] = 0;
  }

  void* at(std::size_t offset) const { return static_cast<char*>(data_) + offset; }

 private:
  std::size_t bytes_;
  at::Tensor pinned_;
  void* data_ = nullptr;
};

}  // namespace

struct HostCopies::Set {
  serialization::NamedTensors tensors;  // in `block`, which they keep alive
  std::shared_ptr<const HostBlock> block;
  bool touched = false;
  std::size_t bytes = 0;

  /// Whether the copies of last time have the shapes and types of `sources`.
  bool fits(const serialization::NamedTensors& sources) const {
    if (sources.size() != tensors.size()) return false;
    for (std::size_t i = 0; i < sources.size(); ++i)
      if (sources[i].second.sizes() != tensors[i].second.sizes() ||
          sources[i].second.scalar_type() != tensors[i].second.scalar_type())
        return false;
    return true;
  }

  void allocate(const serialization::NamedTensors& sources) {
    tensors.clear();
    bytes = 0;
    bool from_gpu = false;
    for (const auto& [name, source] : sources) {
      bytes += aligned(source.nbytes());
      from_gpu |= source.is_cuda();
    }
    block = std::make_shared<const HostBlock>(bytes, from_gpu);
    touched = false;
    std::size_t offset = 0;
    for (const auto& [name, source] : sources) {
      const auto options = at::TensorOptions(source.scalar_type());
      tensors.emplace_back(name, source.numel() == 0 ? at::empty(source.sizes(), options)
                                                     : at::from_blob(
                                                           block->at(offset), source.sizes(),
                                                           [held = block](void*) {}, options));
      offset += aligned(source.nbytes());
    }
  }
};

HostCopies::HostCopies() = default;
HostCopies::~HostCopies() = default;

HostCopies::Set& HostCopies::fitting_set(const std::string& set_name,
                                         const serialization::NamedTensors& tensors) {
  auto& set = sets_[set_name];
  if (!set) set = std::make_unique<Set>();
  if (!set->fits(tensors)) set->allocate(tensors);
  return *set;
}

void HostCopies::reserve(const std::string& set_name, const serialization::NamedTensors& tensors) {
  fitting_set(set_name, tensors);
}

void HostCopies::touch() {
  for (auto& [name, set] : sets_)
    if (set->block && !std::exchange(set->touched, true)) set->block->touch();
}

serialization::NamedTensors HostCopies::copy(const std::string& set_name,
                                             const serialization::NamedTensors& tensors) {
  const c10::NoGradGuard no_grad;
  Set& set = fitting_set(set_name, tensors);
  set.touched = true;
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& source = tensors[i].second;
    at::Tensor& target = set.tensors[i].second;
    set.tensors[i].first = tensors[i].first;
    if (source.is_cpu() && source.is_contiguous() && !source.is_conj() && !source.is_neg())
      append_pieces(source, target, pieces);
    else
      target.copy_(source);
  }
  loop_.run(at::get_num_threads(), static_cast<std::int64_t>(pieces.size()), [&](std::int64_t i) {
    const Piece& piece = pieces[static_cast<std::size_t>(i)];
    std::memcpy(piece.target, piece.source, piece.bytes);
  });
  return set.tensors;
}

std::uint64_t HostCopies::bytes() const {
  std::uint64_t total = 0;
  for (const auto& [name, set] : sets_) total += set->bytes;
  return total;
}

BackgroundSaver::BackgroundSaver(CheckpointWriter writer,
                                 std::function<void(const fs::path&)> saved)
    : writer_(std::move(writer)), on_saved_(std::move(saved)) {
  thread_ = std::thread([this] { run(); });
  pthread_setname_np(thread_.native_handle(), "checkpoint");
}

BackgroundSaver::~BackgroundSaver() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  if (!failure_) return;
  try {
    std::rethrow_exception(failure_);
  } catch (const std::exception& error) {
    log::error("{}", error.what());
  }
}

void BackgroundSaver::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return job_ || stopping_; });
    if (!job_) return;
    lock.unlock();
    std::exception_ptr failure;
    try {
      job_();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    job_ = nullptr;
    failure_ = failure;
    changed_.notify_all();
  }
}

void BackgroundSaver::start(std::function<void()> job) {
  {
    std::lock_guard lock(mutex_);
    job_ = std::move(job);
  }
  changed_.notify_all();
}

void BackgroundSaver::write(std::int64_t step, const std::vector<FileEntry>& files) {
  const trace::Span span("write checkpoint");
  fs::path saved = writer_.save(step, files);
  if (on_saved_) on_saved_(saved);
  std::lock_guard lock(mutex_);
  saved_ = std::move(saved);
}

void BackgroundSaver::check() {
  std::exception_ptr failure;
  {
    std::lock_guard lock(mutex_);
    failure = std::exchange(failure_, nullptr);
  }
  if (failure) std::rethrow_exception(failure);
}

std::optional<fs::path> BackgroundSaver::wait() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !job_; });
  }
  check();
  return saved_;
}

void BackgroundSaver::prepare(
    const std::vector<std::pair<std::string, serialization::NamedTensors>>& sets) {
  wait();
  for (const auto& [name, tensors] : sets) copies_.reserve(name, tensors);
  start([this] {
    const trace::Span span("get memory");
    copies_.touch();
  });
}

void BackgroundSaver::save(std::int64_t step,
                           const std::function<std::vector<FileEntry>(HostCopies&)>& contents) {
  wait();
  start([this, step, files = contents(copies_)] { write(step, files); });
}

}  // namespace lerobot::checkpoint
