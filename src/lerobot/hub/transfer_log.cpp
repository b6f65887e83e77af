#include "lerobot/hub/transfer_log.h"

#include <algorithm>
#include <utility>

#include "lerobot/base/log.h"

namespace lerobot::hub {
namespace {

constexpr std::chrono::seconds kEvery{2};
constexpr double kMegabyte = 1e6;

}  // namespace

std::string describe_bytes(std::uint64_t part, std::uint64_t all) {
  constexpr double kStep = 1000.0;
  double divisor = 1.0;
  const char* unit = "B";
  for (const char* larger : {"kB", "MB", "GB", "TB"}) {
    if (static_cast<double>(all) < kStep * divisor) break;
    divisor *= kStep;
    unit = larger;
  }
  const int digits = divisor > 1.0 ? 1 : 0;
  return fmt::format("{:.{}f}/{:.{}f} {}", static_cast<double>(part) / divisor, digits,
                     static_cast<double>(all) / divisor, digits, unit);
}

TransferLog::TransferLog(std::string verb, std::string name)
    : verb_(std::move(verb)), name_(std::move(name)), last_(Clock::now()) {}

void TransferLog::report(const TransferProgress& state) {
  const bool complete = state.files == state.all_files;
  const std::chrono::duration<double> passed = Clock::now() - last_;
  if (state.all_files == 0 || (complete ? !told_ : passed < kEvery)) return;
  // Bytes of a broken attempt are taken back.
  const std::uint64_t moved = state.bytes - std::min(state.bytes, last_bytes_);
  log::info("{} {}: {}/{} files, {}, {:.1f} MB/s", verb_, name_, state.files, state.all_files,
            describe_bytes(state.bytes, state.all_bytes),
            static_cast<double>(moved) / kMegabyte / passed.count());
  last_ = Clock::now();
  last_bytes_ = state.bytes;
  told_ = !complete;
}

}  // namespace lerobot::hub
