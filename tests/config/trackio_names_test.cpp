#include "lerobot/config/trackio_names.h"

#include <gtest/gtest.h>

namespace lerobot::config {
namespace {

TEST(TrackioNames, WhatIsNoLetterDigitDashOrUnderscoreIsLeftOut) {
  EXPECT_EQ(canonical_trackio_project("lerobot"), "lerobot");
  EXPECT_EQ(canonical_trackio_project("my.model"), "mymodel");
  EXPECT_EQ(canonical_trackio_project("a/b c"), "abc");
  EXPECT_EQ(canonical_trackio_project("A_1-z"), "A_1-z");
  EXPECT_EQ(canonical_trackio_project(".."), "default");
  EXPECT_EQ(canonical_trackio_project(""), "default");
}

TEST(TrackioNames, NamesThatTrackioKeepsForItselfAreRefused) {
  EXPECT_EQ(trackio_project_problem("registry-models"),
            "names that begin with registry- are trackio's own");
  // As files are named, not as they are written.
  EXPECT_EQ(trackio_project_problem("regi.stry-models"),
            "names that begin with registry- are trackio's own");
  for (const char* ending : {"_system", "_configs", "_traces", "_artifacts", "_artifact_versions",
                             "_artifact_aliases", "_run_artifact_links"}) {
    EXPECT_NE(trackio_project_problem(std::string("x") + ending), "") << ending;
    EXPECT_EQ(trackio_project_problem(ending), "") << ending;
  }
  EXPECT_NE(trackio_project_problem("x_external_run_artifact_links"), "");
  EXPECT_EQ(trackio_project_problem("my_system_2"), "");
}

TEST(TrackioNames, OtherAlphabetsAndLongNamesAreRefused) {
  EXPECT_EQ(trackio_project_problem("Größe"),
            "names of projects are ASCII letters, digits, '-' and '_'");
  EXPECT_EQ(trackio_project_problem(std::string(201, 'a')),
            "names of projects have at most 200 characters, this one has 201");
  EXPECT_EQ(trackio_project_problem(std::string(200, 'a')), "");
}

}  // namespace
}  // namespace lerobot::config
