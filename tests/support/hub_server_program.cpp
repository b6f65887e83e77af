// A Hub on this machine: for tests in Python, for benchmarks, and for trying things out.
//
//   hub_server [--dataset=ID=FOLDER]... [--model=ID=FOLDER]... [--bucket=ID=FOLDER]...
//              [--tag=ID=NAME]... [--private=TYPE:ID]... [--token=TOKEN:USER:rw|ro]...
//              [--latency_ms=N] [--large_from=BYTES] [--page_size=N] [--multipart=BYTES]
//              [--link_lifetime_ms=N] [--xet=true]
//
// Options take effect in their order: folders after --xet=true lie in Xet storage, a tag is put on
// what main is then. Prints its endpoint (HF_ENDPOINT) as the first line, and ends on SIGTERM,
// SIGINT, or when its standard input does. hub_faults.h tells how it is made to misbehave.
#include <charconv>
#include <csignal>
#include <cstdio>
#include <functional>
#include <map>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <fmt/format.h>

#include "lerobot/base/error.h"
#include "lerobot/base/files.h"
#include "lerobot/base/program.h"
#include "tests/support/hub_faults.h"
#include "tests/support/hub_server.h"

namespace lerobot::test_server {
namespace {

using hub::Repo;
using hub::RepoType;

/// "A=B" or "A:B" in two.
std::pair<std::string, std::string> split(const std::string& text, char separator) {
  const std::size_t at = text.find(separator);
  if (at == std::string::npos) fail_usage("{}: expected a '{}' in it", text, separator);
  return {text.substr(0, at), text.substr(at + 1)};
}

std::uint64_t number(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size())
    fail_usage("{}: is no whole number", text);
  return value;
}

RepoType type_named(const std::string& name) {
  if (name == "model") return RepoType::kModel;
  if (name == "dataset") return RepoType::kDataset;
  if (name == "bucket") return RepoType::kBucket;
  fail_usage("{}: expected model, dataset or bucket", name);
}

class Program {
 public:
  void take(const std::string& argument) {
    if (!argument.starts_with("--")) fail_usage("{}: options begin with --", argument);
    const auto [name, value] = split(argument.substr(2), '=');
    const auto option = options_.find(name);
    if (option == options_.end()) fail_usage("unknown option --{}", name);
    option->second(value);
  }

  int run() {
    server_.set_hook([this](const Request& request) { return faults_(request); });
    fmt::print("{}\n", server_.endpoint());
    std::fflush(stdout);
    wait();
    return 0;
  }

 private:
  using Option = std::function<void(const std::string&)>;

  Option with_folder(RepoType type) {
    return [this, type](const std::string& value) {
      const auto [id, folder] = split(value, '=');
      const Repo repo = hub::make_repo(type, id);
      types_[id] = type;
      if (type == RepoType::kBucket)
        server_.put_folder(repo, folder);
      else
        server_.commit_folder(repo, folder);
    };
  }

  void tag(const std::string& value) {
    const auto [id, name] = split(value, '=');
    if (!types_.contains(id)) fail_usage("--tag={}: {} was not added before", value, id);
    const Repo repo{types_[id], id};
    server_.tag(repo, name, server_.history(repo, "main").at(0).first);
  }

  void add_account(const std::string& value) {
    const auto [token, rest] = split(value, ':');
    const auto [user, right] = split(rest, ':');
    if (right != "rw" && right != "ro") fail_usage("--token={}: expected rw or ro", value);
    server_.add_account({token, user, right == "rw"});
  }

  /// Until a signal comes or standard input ends. The signals are blocked in every thread.
  static void wait() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    const UniqueFd signal(::signalfd(-1, &signals, SFD_CLOEXEC));
    while (true) {
      pollfd events[] = {{signal.get(), POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
      if (::poll(events, 2, -1) < 0) continue;
      char byte;
      if (events[0].revents || (events[1].revents && ::read(STDIN_FILENO, &byte, 1) <= 0)) return;
    }
  }

  HubServer server_;
  HubFaults faults_{server_};
  std::map<std::string, RepoType> types_;
  const std::map<std::string, Option> options_ = {
      {"dataset", with_folder(RepoType::kDataset)},
      {"model", with_folder(RepoType::kModel)},
      {"bucket", with_folder(RepoType::kBucket)},
      {"tag", [this](const std::string& value) { tag(value); }},
      {"private",
       [this](const std::string& value) {
         const auto [type, id] = split(value, ':');
         server_.add_repo(hub::make_repo(type_named(type), id), true);
       }},
      {"token", [this](const std::string& value) { add_account(value); }},
      {"latency_ms",
       [this](const std::string& value) {
         server_.set_latency(std::chrono::milliseconds(number(value)));
       }},
      {"large_from", [this](const std::string& value) { server_.set_large_from(number(value)); }},
      {"page_size", [this](const std::string& value) { server_.set_page_size(number(value)); }},
      {"multipart", [this](const std::string& value) { server_.set_multipart(number(value)); }},
      {"link_lifetime_ms",
       [this](const std::string& value) {
         server_.set_link_lifetime(std::chrono::milliseconds(number(value)));
       }},
      {"xet", [this](const std::string& value) { server_.set_xet(value == "true"); }},
  };
};

int run(int argc, char** argv) {
  // Before any thread is there: the servers' threads inherit it.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  Program program;
  for (int i = 1; i < argc; ++i) program.take(argv[i]);
  return program.run();
}

}  // namespace
}  // namespace lerobot::test_server

int main(int argc, char** argv) {
  return lerobot::run_program("hub_server", [&] { return lerobot::test_server::run(argc, argv); });
}
