#include "lerobot/distributed/launch/options.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>

#include "lerobot/base/error.h"
#include "lerobot/config/nearest_name.h"

namespace lerobot::distributed {
namespace {

/// One value and the name under which its giver knows it ("--nnodes" or "PET_NNODES").
struct Given {
  const std::string& source;
  const std::string& value;

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail_usage("{}={}: {}", source, value, fmt::format(format, std::forward<Args>(args)...));
  }
};

int whole_number(const Given& given, int smallest,
                 int largest = std::numeric_limits<int>::max() - 1) {
  int number = 0;
  const char* const end = given.value.data() + given.value.size();
  const auto parsed = std::from_chars(given.value.data(), end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end || number < smallest || number > largest)
    given.refuse("expected a whole number from {} to {}", smallest, largest);
  return number;
}

double seconds(const Given& given) {
  double number = 0;
  const char* const end = given.value.data() + given.value.size();
  const auto parsed = std::from_chars(given.value.data(), end, number);
  constexpr double kYear = 365.0 * 24 * 3600;
  if (parsed.ec != std::errc() || parsed.ptr != end || !(number >= 0) || number > kYear)
    given.refuse("expected a number of seconds, at least 0");
  return number;
}

std::vector<std::string> parts(const std::string& text, char separator) {
  std::vector<std::string> result;
  std::size_t begin = 0;
  while (true) {
    const std::size_t end = text.find(separator, begin);
    result.push_back(text.substr(begin, end - begin));
    if (end == std::string::npos) return result;
    begin = end + 1;
  }
}

int node_count(const Given& given) {
  constexpr int kMostNodes = 65536;
  const std::vector<std::string> range = parts(given.value, ':');
  if (range.size() == 2 && range[0] != range[1])
    given.refuse(
        "a number of machines that changes during the run is not supported; give one number, and "
        "start the job again when it changes: a checkpoint resumes on any number of processes");
  return whole_number({given.source, range.size() == 2 ? range[0] : given.value}, 1, kMostNodes);
}

std::string worker_count(const Given& given) {
  if (given.value == "auto" || given.value == "cpu" || given.value == "gpu") return given.value;
  constexpr int kMostWorkers = 4096;
  if (given.value.find_first_not_of("0123456789") != std::string::npos)
    given.refuse("expected a number, auto, cpu or gpu");
  whole_number(given, 1, kMostWorkers);
  return given.value;
}

StreamSelection streams(const Given& given) {
  StreamSelection selection;
  const auto bits = [&](const std::string& text) {
    if (text.size() != 1 || text[0] < '0' || text[0] > '3')
      given.refuse("expected 0, 1, 2 or 3, or LOCAL_RANK:STREAMS,... as in 0:3,1:2");
    return text[0] - '0';
  };
  if (given.value.find(':') == std::string::npos) {
    selection.of_all = bits(given.value);
    return selection;
  }
  for (const std::string& entry : parts(given.value, ',')) {
    const std::vector<std::string> pair = parts(entry, ':');
    if (pair.size() != 2) bits("");
    selection.by_local_rank[whole_number({given.source, pair[0]}, 0)] = bits(pair[1]);
  }
  return selection;
}

std::set<int> local_ranks(const Given& given) {
  std::set<int> ranks;
  for (const std::string& rank : parts(given.value, ','))
    ranks.insert(whole_number({given.source, rank}, 0));
  return ranks;
}

std::string backend(const Given& given) {
  if (given.value != "static" && given.value != "c10d")
    given.refuse("expected static or c10d; both need no other service");
  return given.value;
}

struct Option {
  const char* name;
  char letter;  // 0: none
  bool takes_value;
  void (*take)(LaunchOptions& options, const Given& given);
};

using Options = LaunchOptions;
// clang-format off
constexpr std::array kOptions = {
    Option{"help", 'h', false, [](Options& o, const Given&) { o.help = true; }},
    Option{"nproc-per-node", 0, true, [](Options& o, const Given& g) { o.nproc_per_node = worker_count(g); }},
    Option{"nnodes", 0, true, [](Options& o, const Given& g) { o.nnodes = node_count(g); }},
    Option{"node-rank", 0, true, [](Options& o, const Given& g) { o.node_rank = whole_number(g, 0); }},
    Option{"rdzv-backend", 0, true, [](Options& o, const Given& g) { o.rdzv_backend = backend(g); }},
    Option{"rdzv-endpoint", 0, true, [](Options& o, const Given& g) { o.rdzv_endpoint = g.value; }},
    Option{"rdzv-id", 0, true, [](Options& o, const Given& g) { o.rdzv_id = g.value; }},
    Option{"standalone", 0, false, [](Options& o, const Given&) { o.standalone = true; }},
    Option{"master-addr", 0, true, [](Options& o, const Given& g) { o.master_addr = g.value; }},
    Option{"master-port", 0, true, [](Options& o, const Given& g) { o.master_port = whole_number(g, 0, 65535); }},
    Option{"max-restarts", 0, true, [](Options& o, const Given& g) { o.max_restarts = whole_number(g, 0); }},
    Option{"shutdown-grace-s", 0, true, [](Options& o, const Given& g) { o.shutdown_grace_s = seconds(g); }},
    Option{"monitor-interval", 0, true, [](Options&, const Given& g) { seconds(g); }},
    Option{"role", 0, true, [](Options& o, const Given& g) { o.role = g.value; }},
    Option{"log-dir", 0, true, [](Options& o, const Given& g) { o.log_dir = g.value; }},
    Option{"redirects", 'r', true, [](Options& o, const Given& g) { o.redirects = streams(g); }},
    Option{"tee", 't', true, [](Options& o, const Given& g) { o.tee = streams(g); }},
    Option{"local-ranks-filter", 0, true, [](Options& o, const Given& g) { o.local_ranks_filter = local_ranks(g); }},
    Option{"module", 'm', false, [](Options& o, const Given&) { o.module = true; }},
    Option{"no-python", 0, false, [](Options& o, const Given&) { o.no_python = true; }},
};

/// Options of torchrun that are refused, and why.
struct Refused { const char* name; const char* reason; };
constexpr std::array kRefused = {
    Refused{"rdzv-conf", "there is no rendezvous service to configure; leave it out"},
    Refused{"start-method", "workers are always programs of their own; leave it out"},
    Refused{"event-log-handler", "events are not recorded; leave it out"},
    Refused{"run-path", "there is no Python interpreter here to run a script in; leave it out"},
    Refused{"duplicate-stdout-filters", "filtered copies are not supported; use --tee and grep"},
    Refused{"duplicate-stderr-filters", "filtered copies are not supported; use --tee and grep"},
    Refused{"local-addr", "addresses are not looked up; give --rdzv-endpoint on every machine"},
    Refused{"logs-specs", "Python plug-ins are not supported; use --log-dir"},
    Refused{"numa-binding", "not supported; start the program through numactl"},
    Refused{"signals-to-handle", "SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are passed on always; leave it out"},
    Refused{"virtual-local-rank", "not supported; workers find their device by LOCAL_RANK"},
};
// clang-format on

std::string environment_name(const char* option) {
  std::string name = fmt::format("PET_{}", option);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
    return c == '-' ? '_' : static_cast<char>(std::toupper(c));
  });
  return name;
}

/// Collects mistakes, so that the user sees all of them at once.
class Parser {
 public:
  explicit Parser(std::span<const std::string> arguments) : arguments_(arguments) {}

  LaunchOptions parse(const Environment& environment) {
    while (at_ < arguments_.size() && is_option(arguments_[at_])) {
      const std::string& argument = arguments_[at_++];
      if (argument == "--") break;
      if (argument.starts_with("--"))
        take_long(argument);
      else
        take_short(argument);
    }
    result_.command.assign(arguments_.begin() + static_cast<std::ptrdiff_t>(at_), arguments_.end());
    if (result_.help) return result_;
    take_environment(environment);
    if (result_.command.empty() || result_.command.front().empty())
      mistakes_.emplace_back("the program to start is missing");
    if (!mistakes_.empty()) throw UsageError(fmt::format("{}", fmt::join(mistakes_, "\n")));
    return result_;
  }

 private:
  static bool is_option(const std::string& argument) {
    return argument.size() > 1 && argument.front() == '-';
  }

  void take_long(const std::string& argument) {
    const std::size_t equals = argument.find('=');
    std::string name = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
    std::replace(name.begin(), name.end(), '_', '-');
    const auto option = std::find_if(kOptions.begin(), kOptions.end(),
                                     [&](const Option& known) { return name == known.name; });
    if (option == kOptions.end()) return unknown(name, argument);
    if (equals == std::string::npos) return take_next(*option, argument);
    if (!option->takes_value)
      return mistakes_.push_back(fmt::format("{}: takes no value", argument));
    take(*option, argument.substr(0, equals), argument.substr(equals + 1));
  }

  /// "-m", "-r 3" and "-r3".
  void take_short(const std::string& argument) {
    const auto option = std::find_if(kOptions.begin(), kOptions.end(), [&](const Option& known) {
      return known.letter != 0 && argument[1] == known.letter;
    });
    if (option == kOptions.end() || (argument.size() > 2 && !option->takes_value))
      return mistakes_.push_back(fmt::format("{}: unknown option", argument));
    if (argument.size() == 2) return take_next(*option, argument);
    const std::size_t value = argument[2] == '=' ? 3 : 2;
    take(*option, argument.substr(0, 2), argument.substr(value));
  }

  /// An option whose value, if it takes one, is the next argument.
  void take_next(const Option& option, const std::string& argument) {
    if (!option.takes_value) return take(option, argument, "1");
    if (at_ == arguments_.size())
      return mistakes_.push_back(fmt::format("{}: needs a value", argument));
    take(option, argument, arguments_[at_++]);
  }

  void take(const Option& option, const std::string& source, const std::string& value) {
    given_.insert(option.name);
    if (value.empty()) return mistakes_.push_back(fmt::format("{}: is empty", source));
    try {
      option.take(result_, {source, value});
    } catch (const UsageError& error) {
      mistakes_.emplace_back(error.what());
    }
  }

  void take_environment(const Environment& environment) {
    for (const Option& option : kOptions) {
      const std::string name = environment_name(option.name);
      const std::string* const value = find_variable(environment, name);
      if (value == nullptr || value->empty() || given_.contains(option.name)) continue;
      if (std::string_view(option.name) == "help" || (!option.takes_value && *value == "0"))
        continue;
      take(option, name, *value);
    }
    for (const Refused& refused : kRefused) {
      const std::string name = environment_name(refused.name);
      const std::string* const value = find_variable(environment, name);
      if (value != nullptr && !value->empty())
        mistakes_.push_back(fmt::format("{}={}: {}", name, *value, refused.reason));
    }
  }

  void unknown(const std::string& name, const std::string& argument) {
    for (const Refused& refused : kRefused)
      if (name == refused.name)
        return mistakes_.push_back(fmt::format("{}: {}", argument, refused.reason));
    std::vector<std::string> names;
    for (const Option& option : kOptions) names.emplace_back(option.name);
    const std::string nearest = config::nearest_name(name, names);
    mistakes_.push_back(fmt::format(
        "{}: unknown option{}", argument,
        nearest.empty() ? std::string() : fmt::format("; did you mean --{}?", nearest)));
  }

  std::span<const std::string> arguments_;
  std::size_t at_ = 0;
  LaunchOptions result_;
  std::set<std::string_view> given_;
  std::vector<std::string> mistakes_;
};

}  // namespace

int StreamSelection::bits(int local_rank) const {
  const auto found = by_local_rank.find(local_rank);
  if (found != by_local_rank.end()) return found->second;
  return by_local_rank.empty() ? of_all : 0;
}

LaunchOptions parse_launch_options(std::span<const std::string> arguments,
                                   const Environment& environment) {
  return Parser(arguments).parse(environment);
}

}  // namespace lerobot::distributed
