#include "lerobot/train/profile/torch_profiler.h"

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <unistd.h>

#include <torch/csrc/autograd/profiler_kineto.h>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"

namespace lerobot::train {
namespace {

namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;
using torch::profiler::impl::ProfilerConfig;
using torch::profiler::impl::ProfilerState;

/// A file of our own that goes with the object.
class TemporaryFile {
 public:
  TemporaryFile() : path_((fs::temp_directory_path() / "lerobot-profile-XXXXXX").string()) {
    const UniqueFd created(::mkstemp(path_.data()));
    if (created.get() < 0) fail_system(errno, "{}: cannot be created", path_);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() { ::unlink(path_.c_str()); }

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

void keep_torch_profiler_quiet() {
  constexpr const char* kNothing = "5";
  ::setenv("KINETO_LOG_LEVEL", kNothing, /*overwrite=*/0);
}

void start_torch_profiler(at::Device device) {
  const ProfilerConfig config(ProfilerState::KINETO);
  std::set<ActivityType> activities{ActivityType::CPU};
  if (device.is_cuda()) activities.insert(ActivityType::CUDA);
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
}

Json stop_torch_profiler() {
  const TemporaryFile file;
  profiler::disableProfiler()->save(file.path());
  return read_json_file(file.path());
}

}  // namespace lerobot::train
