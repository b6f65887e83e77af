// Which files of a repository: patterns as huggingface_hub takes them, and paths that may be used.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lerobot::hub {

/// True for a path that one of the patterns matches as Python's fnmatchcase does: `*` matches '/',
/// too, `?` one character, `[abc]`, `[a-z]` and `[!abc]` one of a set; a pattern that ends in '/'
/// means everything below it.
bool matches_any(std::string_view path, const std::vector<std::string>& patterns);

/// True for a path from a repository's root that stays below it: no absolute one, no empty segment,
/// "." or "..", no control character.
bool is_repo_path(std::string_view path);

}  // namespace lerobot::hub
