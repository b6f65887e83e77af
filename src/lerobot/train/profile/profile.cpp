#include "lerobot/train/profile/profile.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <optional>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

#include <ATen/ops/empty.h>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "lerobot/base/log.h"
#include "lerobot/base/process.h"
#include "lerobot/base/trace.h"
#include "lerobot/train/profile/chrome_trace.h"
#include "lerobot/train/profile/torch_profiler.h"
#include "lerobot/train/torch_errors.h"

namespace lerobot::train {
namespace {

constexpr std::int32_t kSizeTag = 1;
constexpr std::int32_t kTextTag = 2;

/// What processes with one clock have in common: the kernel that they run on.
std::string clock_name() {
  std::ifstream stream("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(stream, id);
  return id.empty() ? host_name() : id;
}

/// What has to be added to this rank's clock to have rank 0's. Collective. Clocks of several hosts
/// are compared as all leave a barrier: good to a fraction of a millisecond.
std::int64_t offset_to_first_rank(const distributed::Communicator& ranks) {
  const std::vector<std::string> clocks = ranks.all_gather_text(clock_name());
  constexpr int kLooks = 5;
  std::vector<std::int64_t> offsets;
  for (int i = 0; i < kLooks; ++i) {
    ranks.barrier();
    const std::int64_t now = trace::now_ns();
    const std::int64_t first = std::stoll(ranks.broadcast_text(std::to_string(now)));
    offsets.push_back(first - now);
  }
  std::ranges::sort(offsets);
  return clocks.at(static_cast<std::size_t>(ranks.rank())) == clocks.front() ? 0
                                                                             : offsets[kLooks / 2];
}

void send_text(const distributed::Communicator& ranks, const std::string& text) {
  const at::Tensor size = at::empty({1}, at::kLong);
  *size.mutable_data_ptr<std::int64_t>() = static_cast<std::int64_t>(text.size());
  ranks.send(size, 0, kSizeTag).wait();
  const at::Tensor bytes = at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
  if (!text.empty()) std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  ranks.send(bytes, 0, kTextTag).wait();
}

std::string receive_text(const distributed::Communicator& ranks, std::int64_t from) {
  const at::Tensor size = at::empty({1}, at::kLong);
  ranks.receive(size, from, kSizeTag).wait();
  const at::Tensor bytes = at::empty({*size.const_data_ptr<std::int64_t>()}, at::kByte);
  ranks.receive(bytes, from, kTextTag).wait();
  return {static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()};
}

}  // namespace

Profile::Profile(const Session& session)
    : session_(session), range_(*config::parse_step_range(*session.config.profile.steps)) {
  if (range_.first <= session.start.step && session.start.step < session.config.steps)
    fail_usage("--profile.steps={}: the run goes on after step {}, and its first step is {}",
               *session.config.profile.steps, session.start.step, session.start.step + 1);
}

void Profile::begin_step(std::int64_t step) {
  if (step == range_.first && !is_recording_) start();
}

void Profile::end_step(std::int64_t done) {
  if (!is_recording_) return;
  done_ = done;
  if (done == range_.last) write(done);
}

void Profile::finish() {
  if (is_recording_) write(done_);
}

void Profile::start() {
  const distributed::Communicator& ranks = session_.world->all();
  clock_offset_ns_ = offset_to_first_rank(ranks);
  origin_ns_ = std::stoll(ranks.broadcast_text(std::to_string(trace::now_ns())));
  done_ = range_.first - 1;
  start_torch_profiler(session_.device);
  trace::start();
  is_recording_ = true;
}

/// A rank that can't say anything says nothing: the others' part is still worth having.
std::string Profile::own_events() {
  try {
    const std::vector<trace::Track> tracks = trace::stop();
    return rank_events(stop_torch_profiler(), tracks,
                       {.rank = session_.world->rank(),
                        .host = host_name(),
                        .process = ::getpid(),
                        .training_thread = ::syscall(SYS_gettid),
                        .origin_ns = origin_ns_,
                        .clock_offset_ns = clock_offset_ns_});
  } catch (const std::exception& error) {
    log::warning("The profile lacks this rank: {}", message_of(error));
    return "";
  }
}

void Profile::write(std::int64_t last) {
  is_recording_ = false;
  const std::string own = own_events();
  if (last < range_.first) return;  // stopped while it waited for its first batch
  const fs::path folder = session_.output_dir / "profile";
  gather(folder / fmt::format("steps_{}_{}.json.gz", range_.first, last), own);
}

/// Rank 0 takes the others' events one rank at a time: a large run's don't fit into its memory
/// together. A file that can't be written doesn't end the training, nor the exchange.
void Profile::gather(const fs::path& path, const std::string& own) const {
  const distributed::Communicator& ranks = session_.world->all();
  if (ranks.rank() != 0) return send_text(ranks, own);
  std::optional<TraceFile> file;
  std::string failure;
  const auto attempt = [&](const auto& work) {
    if (!failure.empty()) return;
    try {
      work();
    } catch (const Error& error) {
      failure = error.what();
    }
  };
  attempt([&] {
    make_directories(path.parent_path());
    file.emplace(path);
    file->add(own);
  });
  for (std::int64_t rank = 1; rank < ranks.size(); ++rank) {
    const std::string events = receive_text(ranks, rank);
    attempt([&] { file->add(events); });
  }
  attempt([&] { file->commit(); });
  if (failure.empty())
    log::info("Profile: {} (open it with https://ui.perfetto.dev or chrome://tracing)",
              path.string());
  else
    log::warning("The profile can't be written: {}", failure);
}

}  // namespace lerobot::train
