// The steps from a command line to a TrainConfig. Part of command_line.h's implementation.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lerobot/config/arguments.h"
#include "lerobot/config/command_line.h"
#include "lerobot/config/reflection.h"
#include "lerobot/config/text_value.h"
#include "lerobot/config/train_options.h"

namespace lerobot::config {

/// Collects everything that is wrong before it throws. For one command line.
class TrainParser {
 public:
  TrainParser(const PolicyTypes& policies, const HubFiles& hub)
      : policies_(policies), hub_(hub), options_(train_options(policies)) {}

  TrainCommandLine parse(std::span<const std::string> arguments);

 private:
  // In the order in which they run; each reads what the command line says about its part.
  void open_config_file();
  std::filesystem::path bring_config_file(const std::string& path) const;
  std::filesystem::path bring_policy(const std::string& path) const;
  void read_policy();
  void read_policy_file(const std::string& path, const Json* overrides);
  void read_rest_of_file();
  void apply_policy_arguments();
  void apply_arguments();
  void take_hub_root();
  void resume();
  void read_optimizer_and_scheduler();
  void choose_publishing();
  void check();
  [[noreturn]] void throw_problems();

  void problem(const std::string& option, std::string message) {
    problems_.push_back({option, std::move(message)});
  }
  Reader file_reader();
  /// Notes where the options came from that a file gave.
  void note_file(const Reader& reader, const std::string& prefix, const std::string& file);
  void apply(const Argument& argument);
  void report_unknown(const Argument& argument);
  bool may_be_in_unread_file(const Problem& problem) const;
  const Argument* last_argument(std::string_view name) const;
  const Option* find_option(std::string_view name) const;
  void choose_types();
  void choose_policy(const std::string& type);
  void know_names();
  void complete_types(Json& content) const;
  template <class T>
  void start_from_preset(std::optional<T>& value, const std::optional<T>& preset,
                         const std::optional<T>& file_preset);
  void report_missing(const std::string& group);

  const PolicyTypes& policies_;
  const HubFiles& hub_;
  const std::vector<Option> options_;
  std::vector<std::string> known_names_;  // of the chosen types
  ChosenTypes types_;
  std::vector<Argument> arguments_;
  std::vector<Problem> problems_;
  TrainCommandLine result_;
  ConfigFile file_;
  std::string file_name_;                         // as messages name it
  std::map<std::string, std::string> from_file_;  // option -> file that gave it
  std::shared_ptr<PolicyConfig> policy_of_file_;  // before the command line changed it
};

}  // namespace lerobot::config
