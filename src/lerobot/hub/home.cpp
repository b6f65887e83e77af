#include "lerobot/hub/home.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <pwd.h>
#include <unistd.h>
#include <vector>

namespace lerobot::hub {
namespace {

namespace fs = std::filesystem;

std::string variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value ? value : "";
}

/// Empty when the user database doesn't know `name` (empty: whoever runs this).
std::string home_of_user(const std::string& name) {
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> buffer(16 << 10);
  if (name.empty())
    ::getpwuid_r(::getuid(), &entry, buffer.data(), buffer.size(), &found);
  else
    ::getpwnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found);
  return found && found->pw_dir ? found->pw_dir : "";
}

/// $NAME and ${NAME}; unknown ones stay as they are (os.path.expandvars).
std::string expand_variables(const std::string& text) {
  const auto in_name = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
  };
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i + 1;
    std::string name;
    if (text[i] == '$' && end < text.size() && text[end] == '{') {
      end = text.find('}', end);
      if (end != std::string::npos) name = text.substr(i + 2, end++ - i - 2);
    } else if (text[i] == '$') {
      while (end < text.size() && in_name(text[end])) ++end;
      name = text.substr(i + 1, end - i - 1);
    }
    const char* value = name.empty() ? nullptr : std::getenv(name.c_str());
    if (value) {
      out += value;
      i = end;
    } else {
      out += text[i++];
    }
  }
  return out;
}

}  // namespace

fs::path expand_user(const std::string& text) {
  if (!text.starts_with('~')) return text;
  const std::size_t slash = std::min(text.find('/'), text.size());
  const std::string name = text.substr(1, slash - 1);
  std::string home = name.empty() ? variable("HOME") : "";
  if (home.empty()) home = home_of_user(name);
  if (home.empty()) return text;
  return home + text.substr(slash);
}

fs::path expand_path(const std::string& text) {
  return expand_variables(expand_user(text).string());
}

bool is_set(const char* name) {
  std::string text = variable(name);
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text == "1" || text == "ON" || text == "YES" || text == "TRUE";
}

bool offline_requested() { return is_set("HF_HUB_OFFLINE") || is_set("TRANSFORMERS_OFFLINE"); }

fs::path hf_home() {
  std::string text = variable("HF_HOME");
  if (text.empty()) {
    const std::string cache = variable("XDG_CACHE_HOME");
    text = (cache.empty() ? "~/.cache" : cache) + "/huggingface";
  }
  return expand_path(text);
}

fs::path lerobot_home() {
  if (const std::string text = variable("HF_LEROBOT_HOME"); !text.empty()) return expand_user(text);
  return hf_home() / "lerobot";
}

}  // namespace lerobot::hub
