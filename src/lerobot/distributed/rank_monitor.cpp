#include "lerobot/distributed/rank_monitor.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fmt/ranges.h>

#include "lerobot/base/error.h"
#include "lerobot/base/interrupt.h"
#include "lerobot/base/log.h"

namespace lerobot::distributed {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kTick{1000};
/// A farewell waits that long for the other end to have read it.
constexpr milliseconds kFarewell{1000};
/// How long a rank that is through stays for the others.
constexpr seconds kLinger{5};
/// How long the program may take to end by itself once another rank is gone: until its operations
/// have failed, and after one of them has told it.
constexpr seconds kUntilTold{3};
constexpr seconds kOnceTold{20};
/// A failed operation waits that long for news of the rank that caused it.
constexpr seconds kUntilNews{3};
constexpr std::int64_t kTicksUntilNotice = 3;
constexpr std::int64_t kTicksBetweenNotices = 30;
constexpr std::int64_t kTicksUntilHello = 10;

std::string describe_process() {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return fmt::format("{}, process {}", host, ::getpid());
}

/// The text after a word and a blank.
std::optional<std::string> after(const std::string& line, std::string_view word) {
  if (!line.starts_with(word)) return std::nullopt;
  if (line.size() == word.size()) return std::string();
  if (line[word.size()] != ' ') return std::nullopt;
  return line.substr(word.size() + 1);
}

std::string take_word(std::string& text) {
  const std::size_t blank = std::min(text.find(' '), text.size());
  std::string word = text.substr(0, blank);
  text.erase(0, std::min(blank + 1, text.size()));
  return word;
}

}  // namespace

std::string name_ranks(const std::vector<std::int64_t>& ranks, std::int64_t world_size) {
  constexpr std::size_t kMostNamed = 16;
  const std::vector<std::int64_t> named(ranks.begin(),
                                        ranks.begin() + std::min(ranks.size(), kMostNamed));
  const std::string more = ranks.size() > kMostNamed
                               ? fmt::format(" and {} more", ranks.size() - kMostNamed)
                               : std::string();
  return fmt::format("{} {}{} of {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(named, ", "),
                     more, world_size);
}

struct RankMonitor::Peer {
  explicit Peer(UniqueFd socket) : lines(std::move(socket)) {}

  LineSocket lines;
  /// Unknown until it has greeted.
  std::int64_t rank = -1;
  std::string process;
  std::int64_t silent_ticks = 0;
  bool has_left = false;
  bool is_done = false;

  std::string name() const {
    return process.empty() ? fmt::format("rank {}", rank)
                           : fmt::format("rank {} ({})", rank, process);
  }
};

RankMonitor::RankMonitor(const Mesh& mesh, UniqueFd socket, const std::string& token,
                         milliseconds silence_limit)
    : mesh_(mesh),
      token_(token),
      silence_limit_(std::max<std::int64_t>(silence_limit / kTick, 1)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (wake_.get() < 0) fail_system(errno, "eventfd");
  present_.insert(mesh.rank);
  if (mesh.rank == 0) {
    listener_ = std::move(socket);
  } else {
    own_address_ = own_address(socket.get());
    auto first = std::make_unique<Peer>(std::move(socket));
    first->rank = 0;
    first->lines.send(fmt::format("hello {} {} {}x{} {}", token_, mesh.rank, mesh.dp_replicate,
                                  mesh.dp_shard, describe_process()));
    peers_.push_back(std::move(first));
  }
  thread_ = std::thread([this] { run(); });
}

RankMonitor::~RankMonitor() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake();
  thread_.join();
}

// --- what the program's threads call ------------------------------------------------------------

void RankMonitor::wait_for_all(milliseconds limit) {
  constexpr milliseconds kInterval{50};
  const auto end = Clock::now() + limit;
  std::unique_lock lock(mutex_);
  while (!complete_ && !verdict_) {
    throw_when_interrupted();
    // Rank 0 decides for all; it started at another time than the others.
    if (mesh_.rank == 0 && Clock::now() >= end) {
      const std::string text = fmt::format(
          "{} did not come within {} s (see their logs, or LEROBOT_START_TIMEOUT_S)",
          name_ranks(missing(), mesh_.world_size()), static_cast<double>(limit.count()) / 1e3);
      own_failure_ = text;
      lock.unlock();
      wake();
      throw Error(text);
    }
    changed_.wait_for(lock, kInterval);
  }
  if (!verdict_) return;
  deadline_ = Clock::now() + kOnceTold;
  throw Error(*verdict_);
}

std::string RankMonitor::reachable_address() const {
  std::lock_guard lock(mutex_);
  return is_loopback(own_address_) && !first_address_.empty() ? first_address_ : own_address_;
}

void RankMonitor::report_failure(const std::string& message) {
  {
    std::lock_guard lock(mutex_);
    if (verdict_ || own_failure_) return;
    own_failure_ = message;
  }
  wake();
}

void RankMonitor::leave() {
  std::unique_lock lock(mutex_);
  leaving_ = true;
  lock.unlock();
  wake();
  lock.lock();
  changed_.wait_for(lock, kLinger, [this] {
    const auto others = departed_.size() - departed_.count(mesh_.rank);
    return verdict_ || own_failure_ || static_cast<std::int64_t>(others) == mesh_.world_size() - 1;
  });
}

void RankMonitor::check(const std::string& operation) {
  const std::lock_guard lock(mutex_);
  if (!verdict_) return;
  deadline_ = Clock::now() + kOnceTold;
  fail("{} (noticed in {})", *verdict_, operation);
}

void RankMonitor::fail_operation(const std::string& operation, const std::string& reason) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kUntilNews, [&] { return verdict_ || !departed_.empty(); });
  // A farewell may be followed by worse news of somebody else.
  if (!verdict_) changed_.wait_for(lock, kTick, [&] { return verdict_.has_value(); });
  if (verdict_) {
    deadline_ = Clock::now() + kOnceTold;
    fail("{} (noticed in {})", *verdict_, operation);
  }
  if (!departed_.empty())
    fail("{} failed, and {} had already ended: {}", operation,
         name_ranks({departed_.begin(), departed_.end()}, mesh_.world_size()), reason);
  fail("{} failed, though all {} ranks are alive: {}", operation, mesh_.world_size(), reason);
}

void RankMonitor::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);
}

// --- the monitor's thread -----------------------------------------------------------------------

void RankMonitor::run() {
  auto next_tick = Clock::now() + kTick;
  while (true) {
    {
      std::lock_guard lock(mutex_);
      if (stopping_) break;
    }
    poll_once();
    if (Clock::now() >= next_tick) {
      // Ticks that were missed are not made up for: this process did not run either.
      next_tick = Clock::now() + kTick;
      tick();
    }
  }
  say_farewell();
}

void RankMonitor::poll_once() {
  std::vector<pollfd> waiting{{wake_.get(), POLLIN, 0}};
  if (listener_.get() >= 0) waiting.push_back({listener_.get(), POLLIN, 0});
  for (const auto& peer : peers_)
    waiting.push_back({peer->lines.fd(),
                       static_cast<short>(peer->lines.has_rest() ? POLLIN | POLLOUT : POLLIN), 0});
  constexpr int kMilliseconds = 200;
  if (::poll(waiting.data(), waiting.size(), kMilliseconds) < 0) return;

  if (waiting[0].revents != 0) {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto got = ::read(wake_.get(), &count, sizeof count);
    std::optional<std::string> failure;
    bool leaving = false;
    {
      std::lock_guard lock(mutex_);
      if (!std::exchange(failure_sent_, own_failure_.has_value())) failure = own_failure_;
      leaving = leaving_;
    }
    if (failure)
      tell_all(mesh_.rank == 0 ? "verdict rank 0 failed: " + *failure : "failed " + *failure);
    if (leaving) say_left();
  }
  for (const auto& peer : peers_) {
    peer->lines.send_rest();
    hear(*peer);
  }
  std::erase_if(peers_, [](const auto& peer) { return peer->is_done; });
  if (listener_.get() >= 0) accept_peers();
  end_process_when_stuck();
}

void RankMonitor::accept_peers() {
  while (true) {
    UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.get() < 0) return;
    peers_.push_back(std::make_unique<Peer>(std::move(socket)));
    hear(*peers_.back());
  }
}

void RankMonitor::hear(Peer& peer) {
  for (const std::string& line : peer.lines.receive()) {
    peer.silent_ticks = 0;
    if (mesh_.rank == 0)
      hear_from_peer(peer, line);
    else
      hear_from_first(line);
    if (peer.is_done) return;
  }
  if (peer.lines.is_closed()) notice_closed(peer);
}

void RankMonitor::hear_from_peer(Peer& peer, const std::string& line) {
  if (const auto greeting = after(line, "hello"); greeting && peer.rank < 0) {
    greet(peer, *greeting);
  } else if (peer.rank < 0) {
    peer.is_done = true;
  } else if (const auto failure = after(line, "failed")) {
    condemn(fmt::format("{} failed: {}", peer.name(), *failure));
  } else if (after(line, "left")) {
    peer.has_left = true;
    tell_all(fmt::format("left {}", peer.rank));
    std::lock_guard lock(mutex_);
    departed_.insert(peer.rank);
    changed_.notify_all();
  }
}

/// "hello TOKEN RANK REPLICASxSHARDS PROCESS"
void RankMonitor::greet(Peer& peer, const std::string& greeting) {
  std::string rest = greeting;
  peer.is_done = take_word(rest) != token_;
  if (peer.is_done) return;
  peer.rank = std::strtoll(take_word(rest).c_str(), nullptr, 10);
  const std::string shape = take_word(rest);
  peer.process = rest;
  if (const std::string mine = fmt::format("{}x{}", mesh_.dp_replicate, mesh_.dp_shard);
      shape != mine)
    return condemn(
        fmt::format("{} was started for dp_replicate x dp_shard = {}, rank 0 for {}: give all "
                    "processes the same options",
                    peer.name(), shape, mine));
  if (!admit(peer))
    return condemn(
        fmt::format("{} came although a process with that rank is here already", peer.name()));
  if (complete_ && !std::exchange(told_complete_, true)) tell_all("complete " + first_address_);
}

/// False for a rank that is here already.
bool RankMonitor::admit(const Peer& peer) {
  std::lock_guard lock(mutex_);
  const std::string address = own_address(peer.lines.fd());
  if (own_address_.empty() || (is_loopback(own_address_) && !is_loopback(address)))
    own_address_ = first_address_ = address;
  if (!present_.insert(peer.rank).second) return false;
  complete_ = static_cast<std::int64_t>(present_.size()) == mesh_.world_size();
  changed_.notify_all();
  return true;
}

void RankMonitor::hear_from_first(const std::string& line) {
  if (const auto address = after(line, "complete")) {
    std::lock_guard lock(mutex_);
    first_address_ = *address;
    complete_ = true;
    changed_.notify_all();
  } else if (const auto verdict = after(line, "verdict")) {
    condemn(*verdict);
  } else if (const auto rank = after(line, "left")) {
    const std::int64_t who = std::strtoll(rank->c_str(), nullptr, 10);
    if (who == 0) peers_.front()->has_left = true;
    std::lock_guard lock(mutex_);
    departed_.insert(who);
    changed_.notify_all();
  }
}

void RankMonitor::notice_closed(Peer& peer) {
  peer.is_done = true;
  if (peer.has_left || peer.rank < 0) return;
  condemn(fmt::format("{} is gone: its process ended without a word (killed, out of memory?)",
                      peer.name()));
}

void RankMonitor::tick() {
  ++ticks_;
  tell_all("alive");
  for (const auto& peer : peers_) {
    ++peer->silent_ticks;
    if (peer->rank < 0) {
      peer->is_done = peer->silent_ticks > kTicksUntilHello;
    } else if (peer->silent_ticks > silence_limit_ && !peer->has_left) {
      condemn(fmt::format("{} has not answered for {} s: it is stopped or out of reach",
                          peer->name(), silence_limit_ * kTick.count() / 1000));
    }
  }
  log_who_is_missing();
}

void RankMonitor::tell_all(const std::string& line) {
  for (const auto& peer : peers_)
    if (peer->rank >= 0) peer->lines.send(line);
}

/// The first verdict is the run's.
void RankMonitor::condemn(const std::string& verdict) {
  {
    std::lock_guard lock(mutex_);
    if (verdict_ || own_failure_) return;
    verdict_ = verdict;
    deadline_ = Clock::now() + kUntilTold;
    changed_.notify_all();
  }
  if (mesh_.rank == 0) tell_all("verdict " + verdict);
}

void RankMonitor::end_process_when_stuck() {
  std::optional<std::string> verdict;
  {
    std::lock_guard lock(mutex_);
    if (deadline_ && Clock::now() > *deadline_ && !stopping_) verdict = verdict_;
  }
  if (!verdict) return;
  log::error("{}; this process does not come to an end by itself", *verdict);
  ::_exit(1);
}

void RankMonitor::say_farewell() {
  std::optional<std::string> failure;
  {
    std::lock_guard lock(mutex_);
    if (!failure_sent_) failure = own_failure_;
  }
  if (failure)
    tell_all(mesh_.rank == 0 ? "verdict rank 0 failed: " + *failure : "failed " + *failure);
  say_left();
  for (const auto& peer : peers_) peer->lines.finish_sending();
  const auto end = Clock::now() + kFarewell;
  for (const auto& peer : peers_)
    if (peer->rank >= 0)
      peer->lines.await_end(std::chrono::duration_cast<milliseconds>(end - Clock::now()));
}

void RankMonitor::say_left() {
  if (!std::exchange(left_sent_, true)) tell_all(mesh_.rank == 0 ? "left 0" : "left");
}

std::vector<std::int64_t> RankMonitor::missing() const {
  std::vector<std::int64_t> ranks;
  for (std::int64_t rank = 0; rank < mesh_.world_size(); ++rank)
    if (!present_.contains(rank)) ranks.push_back(rank);
  return ranks;
}

void RankMonitor::log_who_is_missing() {
  if (mesh_.rank != 0 || ticks_ < kTicksUntilNotice) return;
  if ((ticks_ - kTicksUntilNotice) % kTicksBetweenNotices != 0) return;
  std::lock_guard lock(mutex_);
  if (!complete_ && !verdict_)
    log::info("waiting for {}", name_ranks(missing(), mesh_.world_size()));
}

}  // namespace lerobot::distributed
