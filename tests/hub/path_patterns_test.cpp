#include "lerobot/hub/path_patterns.h"

#include <gtest/gtest.h>

namespace lerobot::hub {
namespace {

struct Case {
  const char* pattern;
  const char* path;
  bool matches;
};

// Expected values: Python 3.11, fnmatch.fnmatchcase(path, pattern).
TEST(PathPatterns, MatchAsPythonsFnmatchDoes) {
  const Case cases[] = {
      {"*", "a/b/c.txt", true},
      {"*.txt", "a/b/c.txt", true},
      {"a/*.txt", "a/b/c.txt", true},
      {"a/*/c.txt", "a/b/d/c.txt", true},
      {"a/**/c.txt", "a/c.txt", false},
      {"?.txt", "a.txt", true},
      {"?.txt", "\xc3\xa9.txt", true},
      {"??.txt", "a.txt", false},
      {"a?b", "a/b", true},
      {"[abc].txt", "b.txt", true},
      {"[!abc].txt", "b.txt", false},
      {"[!abc].txt", "d.txt", true},
      {"[a-c]x", "bx", true},
      {"[a-c]x", "dx", false},
      {"[a-]x", "-x", true},
      {"[-a]x", "-x", true},
      {"[]]x", "]x", true},
      {"[!]]x", "]x", false},
      {"[ab", "[ab", true},
      {"[ab", "a", false},
      {"a[1].txt", "a[1].txt", false},
      {"a[1].txt", "a1.txt", true},
      {"a[[]1].txt", "a[1].txt", true},
      {"data", "data/x", false},
      {"", "", true},
      {"", "a", false},
      {"***a***", "bab", true},
      {"*a*b*c", "xxaxxbxxcxxc", true},
      {"*a*b*c", "xxaxxbxxcxx", false},
      {"A.txt", "a.txt", false},
      {"a.txt", "a.txt\n", false},
      {"[\xc3\xa0-\xc3\xbc]", "\xc3\xa9", true},
  };
  for (const Case& it : cases)
    EXPECT_EQ(matches_any(it.path, {it.pattern}), it.matches) << it.pattern << " " << it.path;
}

TEST(PathPatterns, EndingInASlashMeanEverythingBelow) {
  EXPECT_TRUE(matches_any("data/a/b", {"data/"}));
  EXPECT_FALSE(matches_any("data", {"data/"}));
  EXPECT_FALSE(matches_any("datax/a", {"data/"}));
}

TEST(PathPatterns, AnyOfSeveralSuffices) {
  EXPECT_TRUE(matches_any("b", {"a", "b"}));
  EXPECT_FALSE(matches_any("b", {}));
}

TEST(PathPatterns, TakeNoLongerForNastyOnes) {
  EXPECT_FALSE(matches_any(std::string(5000, 'a'), {"*a*a*a*a*a*a*a*a*a*a*a*a*a*b"}));
}

TEST(RepoPath, StaysInItsFolder) {
  for (const char* path : {"a", "a/b", "..a/b", "a/b..", ".hidden", "a b/[c]#\\"})
    EXPECT_TRUE(is_repo_path(path)) << path;
  for (const char* path :
       {"", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", "a\nb", "a\x7f", "a/.."})
    EXPECT_FALSE(is_repo_path(path)) << path;
}

}  // namespace
}  // namespace lerobot::hub
