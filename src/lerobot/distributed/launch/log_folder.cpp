#include "lerobot/distributed/launch/log_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <utility>

#include "lerobot/base/error.h"

namespace lerobot::distributed {

LogFolder::LogFolder(const LaunchPlan& plan) {
  if (plan.redirects.empty() && plan.tee.empty()) return;
  make_directories(plan.log_dir);
  std::string name = plan.run_id;
  std::replace(name.begin(), name.end(), '/', '_');
  std::string pattern = (fs::path(plan.log_dir) / (name + "_XXXXXX")).string();
  if (::mkdtemp(pattern.data()) == nullptr)
    fail_system(errno, "--log-dir={}: a folder cannot be made in it", plan.log_dir);
  path_ = pattern;
}

StreamRoute LogFolder::route(const LaunchPlan& plan, int local_rank, int restart, Stream stream,
                             UniqueFd pipe) const {
  const int bit = stream == Stream::kOutput ? 1 : 2;
  const bool teed = (plan.tee.bits(local_rank) & bit) != 0;
  const bool redirected = (plan.redirects.bits(local_rank) & bit) != 0;
  StreamRoute route;
  route.pipe = std::move(pipe);
  route.shown = plan.shows(local_rank) && (teed || !redirected);
  if (!teed && !redirected) return route;
  const fs::path folder = path_ / fmt::format("attempt_{}", restart) / std::to_string(local_rank);
  make_directories(folder);
  route.file_name = folder / (stream == Stream::kOutput ? "stdout.log" : "stderr.log");
  route.file = UniqueFd(
      ::open(route.file_name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644));
  if (route.file.get() < 0) fail_system(errno, "{}: cannot create", route.file_name);
  return route;
}

}  // namespace lerobot::distributed
