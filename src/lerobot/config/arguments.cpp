#include "lerobot/config/arguments.h"

#include <fmt/format.h>

namespace lerobot::config {

Arguments split_arguments(std::span<const std::string> words) {
  Arguments result;
  const auto is_help = [](const std::string& word) { return word == "--help" || word == "-h"; };
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (is_help(word)) {
      result.help = true;
      continue;
    }
    if (!word.starts_with("--") || word.size() == 2 || word[2] == '=') {
      result.problems.push_back(
          {word, fmt::format("{}: unexpected; options are --name=value", word)});
      continue;
    }
    const std::size_t equals = word.find('=');
    if (equals != word.npos) {
      result.arguments.push_back({word.substr(2, equals - 2), word.substr(equals + 1)});
    } else if (i + 1 < words.size() && !words[i + 1].starts_with("--") && !is_help(words[i + 1])) {
      result.arguments.push_back({word.substr(2), words[++i]});
    } else {
      result.problems.push_back(
          {word.substr(2), fmt::format("{}: needs a value: {}=VALUE", word, word)});
    }
  }
  return result;
}

void drop_legacy_fields(Json& content) {
  const bool used = content.contains("use_rabc") && content["use_rabc"] == true;
  if (used && (!content.contains("sample_weighting") || content["sample_weighting"].is_null()))
    content["sample_weighting"] = Json{{"type", "rabc"}};
  for (const char* name :
       {"use_rabc", "rabc_progress_path", "rabc_kappa", "rabc_epsilon", "rabc_head_mode"})
    content.erase(name);
}

}  // namespace lerobot::config
