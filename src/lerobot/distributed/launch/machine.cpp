#include "lerobot/distributed/launch/machine.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <set>
#include <unistd.h>

#include "lerobot/base/threads.h"

namespace lerobot::distributed {
namespace {

namespace fs = std::filesystem;

int entries(const fs::path& folder) {
  std::error_code error;
  int count = 0;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    ++count;
  return count;
}

/// /dev/nvidia0, /dev/nvidia1, ... but not /dev/nvidiactl or /dev/nvidia-uvm.
int device_nodes() {
  std::error_code error;
  int count = 0;
  for (fs::directory_iterator at("/dev", error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    constexpr std::string_view kPrefix = "nvidia";
    if (name.size() > kPrefix.size() && name.starts_with(kPrefix) &&
        std::all_of(name.begin() + kPrefix.size(), name.end(),
                    [](unsigned char c) { return std::isdigit(c) != 0; }))
      ++count;
  }
  return count;
}

}  // namespace

int visible_devices(const std::string& cuda_visible_devices, int present) {
  std::set<std::string> seen;
  std::size_t begin = 0;
  while (begin <= cuda_visible_devices.size()) {
    std::size_t end = cuda_visible_devices.find(',', begin);
    if (end == std::string::npos) end = cuda_visible_devices.size();
    std::string entry = cuda_visible_devices.substr(begin, end - begin);
    std::erase_if(entry, [](unsigned char c) { return std::isspace(c) != 0; });
    if (entry.empty()) break;
    int number = 0;
    const char* const last = entry.data() + entry.size();
    const auto parsed = std::from_chars(entry.data(), last, number);
    // Anything but a number is a device's UUID ("GPU-...", "MIG-...").
    const bool is_number = parsed.ec == std::errc() && parsed.ptr == last;
    if (is_number && (number < 0 || number >= present)) break;
    if (!seen.insert(entry).second) return 0;  // CUDA refuses a list with repetitions
    begin = end + 1;
  }
  return static_cast<int>(seen.size());
}

Machine this_machine(const Environment& environment) {
  Machine machine;
  machine.cpus = available_cpus();
  // A container often sees all GPUs in /proc and only its own as device nodes.
  const int listed = entries("/proc/driver/nvidia/gpus");
  const int nodes = device_nodes();
  const int present = listed > 0 && nodes > 0 ? std::min(listed, nodes) : std::max(listed, nodes);
  const std::string* const visible = find_variable(environment, "CUDA_VISIBLE_DEVICES");
  machine.cuda_devices =
      visible == nullptr || present == 0 ? present : visible_devices(*visible, present);
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) == 0) machine.host_name = name.data();
  return machine;
}

}  // namespace lerobot::distributed
