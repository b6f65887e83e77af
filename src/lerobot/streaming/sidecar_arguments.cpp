#include <algorithm>
#include <charconv>
#include <set>
#include <vector>

#include "lerobot/base/error.h"
#include "lerobot/hub/location.h"
#include "lerobot/streaming/sidecar_program.h"

namespace lerobot::streaming {
namespace {

/// Collects mistakes, so that the user sees all of them at once.
class Parser {
 public:
  explicit Parser(std::span<const std::string> arguments) : arguments_(arguments) {}

  SidecarArguments parse() {
    while (at_ < arguments_.size()) parse_one(arguments_[at_++]);
    if (result_.help) return result_;
    for (const char* required : {"--repo-id", "--data-root", "--output"})
      if (!given_.contains(required)) mistake(fmt::format("{} is required", required));
    if (mistakes_.empty()) check_root();
    if (!mistakes_.empty()) throw UsageError(fmt::format("{}", fmt::join(mistakes_, "\n")));
    return result_;
  }

 private:
  void mistake(std::string text) { mistakes_.push_back(std::move(text)); }

  void parse_one(const std::string& argument) {
    const std::size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    const bool has_value = equals != std::string::npos;
    if (name == "--help" || name == "-h") {
      result_.help = true;
      return;
    }
    if (name == "--push") {
      if (has_value) return mistake("--push takes no value");
      result_.push = true;
      return;
    }
    static const std::set<std::string> kWithValue = {
        "--repo-id",  "--repo-type", "--revision",      "--data-root",   "--output",
        "--episodes", "--workers",   "--range-backend", "--max-probe-mb"};
    if (!kWithValue.contains(name)) return mistake(fmt::format("unknown argument {}", argument));
    if (!has_value && at_ == arguments_.size()) return mistake(name + " needs a value");
    take(name, has_value ? argument.substr(equals + 1) : arguments_[at_++]);
  }

  void take(const std::string& name, const std::string& value) {
    given_.insert(name);
    if (value.empty()) return mistake(name + " is empty");
    if (name == "--repo-id") result_.repo_id = value;
    if (name == "--repo-type") result_.repo_type = choice(name, value, {"dataset", "bucket"});
    if (name == "--revision") result_.revision = value;
    if (name == "--data-root") result_.data_root = value;
    if (name == "--output") result_.output = value;
    if (name == "--episodes") result_.episodes = positive(name, value);
    if (name == "--workers") result_.workers = static_cast<int>(positive(name, value, 1024));
    if (name == "--range-backend")
      result_.range_backend = choice(name, value, {"fsspec", "native-http"});
    if (name == "--max-probe-mb") result_.max_probe_mb = positive(name, value, 1 << 20);
  }

  std::string choice(const std::string& name, const std::string& value,
                     std::initializer_list<const char*> allowed) {
    if (std::find(allowed.begin(), allowed.end(), value) == allowed.end())
      mistake(fmt::format("{}={}: expected one of {}", name, value, fmt::join(allowed, ", ")));
    return value;
  }

  std::int64_t positive(const std::string& name, const std::string& value,
                        std::int64_t largest = 1'000'000'000) {
    std::int64_t number = 0;
    const char* end = value.data() + value.size();
    const auto parsed = std::from_chars(value.data(), end, number);
    if (parsed.ec != std::errc() || parsed.ptr != end || number < 1 || number > largest) {
      mistake(fmt::format("{}={}: expected a whole number from 1 to {}", name, value, largest));
      return 1;
    }
    return number;
  }

  void check_root() {
    try {
      const hub::LocationKind kind = hub::classify_location(result_.data_root).kind;
      if (kind == hub::LocationKind::kLocal && result_.range_backend == "native-http")
        mistake("--range-backend=native-http needs a remote --data-root; leave it out");
    } catch (const UsageError& error) {
      mistake(fmt::format("--data-root: {}", error.what()));
    }
  }

  std::span<const std::string> arguments_;
  std::size_t at_ = 0;
  SidecarArguments result_;
  std::set<std::string> given_;
  std::vector<std::string> mistakes_;
};

}  // namespace

SidecarArguments parse_sidecar_arguments(std::span<const std::string> arguments) {
  return Parser(arguments).parse();
}

}  // namespace lerobot::streaming
