// Where values come from while they are read, and what was found wrong with them.
#pragma once

#include <cstddef>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lerobot/base/json.h"
#include "lerobot/config/policy_types.h"

namespace lerobot::config {

/// One line of what is wrong, and the option's dotted name.
struct Problem {
  std::string option;
  std::string message;
};

/// Goes with the values of one source, a file or one argument, while Codec<T> (reflection.h) reads
/// them. Nothing here throws: a value that can't be read is reported and its member keeps what it
/// had.
class Reader {
 public:
  /// `file` names the file in messages; empty for the command line.
  Reader(const PolicyTypes* policies, std::vector<Problem>* problems, std::string file = "")
      : policies_(policies), problems_(problems), file_(std::move(file)) {}

  /// While it lives, path() is one name longer.
  class Scope {
   public:
    Scope(Reader& reader, std::string_view suffix) : reader_(reader), size_(reader.path_.size()) {
      reader.path_ += suffix;
    }
    ~Scope() { reader_.path_.resize(size_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Reader& reader_;
    std::size_t size_;
  };
  [[nodiscard]] Scope enter_field(std::string_view name) {
    return Scope(*this, path_.empty() ? std::string(name) : "." + std::string(name));
  }
  [[nodiscard]] Scope enter_item(std::size_t index) {
    return Scope(*this, "[" + std::to_string(index) + "]");
  }
  [[nodiscard]] Scope enter_key(std::string_view key) {
    return Scope(*this, "['" + std::string(key) + "']");
  }

  /// Reports that the value at path() should have been `what`.
  void expected(std::string_view what, const Json& found);
  /// Reports that path() has no field `key`, but `siblings`.
  void unknown(std::string_view key, const std::vector<std::string>& siblings);
  /// Reports `text` about the value at path().
  void problem(std::string_view text);
  /// Notes that the option at path() was given a value.
  void mark_seen() { seen_.insert(path_); }

  const std::string& path() const { return path_; }
  const PolicyTypes* policies() const { return policies_; }
  const std::set<std::string>& seen() const { return seen_; }
  std::size_t problem_count() const { return problems_->size(); }

  /// The text of one command-line value, for the option `name`: text options take it as it stands.
  void set_text(std::string name, std::string text) {
    text_name_ = std::move(name);
    text_ = std::move(text);
  }
  const std::string* text() const { return path_ == text_name_ ? &text_ : nullptr; }

  /// YAML and the command line do not quote text, so that a number may stand for text there.
  bool plain_scalars = false;
  /// Maps keep entries that they have (a value that overrides a file) instead of being replaced.
  bool merge_maps = false;
  /// All names that a wrong one is compared with; without them the group's own fields.
  std::span<const std::string> known_names;

 private:
  void add(std::string message);

  const PolicyTypes* policies_;
  std::vector<Problem>* problems_;
  std::string file_;
  std::string path_;
  std::set<std::string> seen_;
  std::string text_name_ = "\n";  // no option's name
  std::string text_;
};

/// One line of JSON, shortened, as messages and --help show values.
std::string short_json(const Json& value);

}  // namespace lerobot::config
