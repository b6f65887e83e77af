// lerobot-build-mp4-sidecar, as its users call it.
#include "lerobot/streaming/sidecar_program.h"

#include <csignal>
#include <cstdlib>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "tests/streaming/sidecar_fixture.h"
#include "tests/support/range_server.h"

namespace lerobot::streaming {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SidecarProgramTest : public SidecarTest {
 protected:
  struct Result {
    int status;
    std::string out, errors;
  };
  static Result run(const std::vector<std::string>& arguments) {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int status = sidecar_program(arguments);
    std::fflush(stdout);
    return {status, ::testing::internal::GetCapturedStdout(),
            ::testing::internal::GetCapturedStderr()};
  }
};

TEST_F(SidecarProgramTest, ItWritesASidecarAndSaysSo) {
  const fs::path output = folder_ / "a folder" / "side car.npz";
  const Result result = run({"--repo-id=owner/dataset", "--data-root", toy().string() + "/",
                             "--output", output.string(), "--workers=3", "--revision", "main"});
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.out, AllOf(HasSubstr("Wrote " + output.string() + "\n"),
                                HasSubstr("4 episodes, 2 files, "), HasSubstr("needs --push")));
  EXPECT_THAT(result.errors, HasSubstr("Indexed 2/2 MP4 files"));
  const SidecarIdentity identity = SidecarFile(output).manifest().identity;
  EXPECT_EQ(identity.revision, "main");
  EXPECT_EQ(identity.data_root, local_data_root(toy()));
  EXPECT_THAT(files_below(output.parent_path()), ElementsAre("side car.npz"));
}

TEST_F(SidecarProgramTest, ADatasetBehindHttpIsIndexedByRanges) {
  const test_server::RangeServer server(toy());
  ::setenv("HF_LEROBOT_HOME", (folder_ / "home").c_str(), 1);
  const Result result = run({"--repo-id=owner/dataset", "--data-root=" + server.url() + "/",
                             "--output=" + (folder_ / "a.npz").string(), "--range-backend=fsspec"});
  ::unsetenv("HF_LEROBOT_HOME");
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("read by the native HTTP reader"));
  const SidecarFile ours(folder_ / "a.npz"), theirs(toy_sidecar());
  EXPECT_EQ(ours.manifest().identity.data_root, server.url());
  EXPECT_EQ(ours.manifest().identity.fingerprints.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(ours.arrays(i).pts, theirs.arrays(i).pts);
    EXPECT_EQ(ours.arrays(i).offsets, theirs.arrays(i).offsets);
  }
}

TEST_F(SidecarProgramTest, ASubsetHasTheVideosOfTheFirstEpisodes) {
  const fs::path output = folder_ / "a.npz";
  const Result result =
      run({"--repo-id=owner/dataset", "--data-root=" + test_data("datasets/toy_split").string(),
           "--output=" + output.string(), "--episodes=1"});
  EXPECT_EQ(result.status, 0) << result.errors;
  EXPECT_THAT(result.out, HasSubstr("1 episodes, 1 files"));
  EXPECT_EQ(SidecarFile(output).manifest().videos.size(), 1U);
}

TEST_F(SidecarProgramTest, HelpNamesEveryOptionWithItsDefault) {
  const Result result = run({"--help"});
  EXPECT_EQ(result.status, 0);
  for (const char* text : {"--repo-id", "--repo-type", "default: dataset", "--revision",
                           "--data-root", "--output", "--episodes", "--workers", "default: 8",
                           "--range-backend", "--max-probe-mb", "default: 64", "--push"})
    EXPECT_THAT(result.out, HasSubstr(text));
}

TEST_F(SidecarProgramTest, AWrongCommandLineIsListedAtOnceAndEndsWith2) {
  const Result result = run({"--repo-type=model", "--workers=0", "--max-probe-mb=x", "extra",
                             "--episodes=-1", "--push=yes", "--colour", "--range-backend", "ftp"});
  EXPECT_EQ(result.status, 2);
  for (const char* text :
       {"--repo-id is required", "--data-root is required", "--output is required",
        "--repo-type=model: expected one of dataset, bucket", "--workers=0", "--max-probe-mb=x",
        "unknown argument extra", "--episodes=-1", "--push takes no value",
        "unknown argument --colour", "--range-backend=ftp: expected one of fsspec, native-http"})
    EXPECT_THAT(result.errors, HasSubstr(text));
  EXPECT_THAT(run({"--repo-id"}).errors, HasSubstr("--repo-id needs a value"));
  EXPECT_EQ(
      run({"--repo-id=a/b", "--data-root=/x", "--output=y", "--range-backend=native-http"}).status,
      2);
}

TEST_F(SidecarProgramTest, WhatMustNotBePublishedIsRefusedBeforeAnyWork) {
  const std::vector<std::string> local = {"--repo-id=a/b", "--data-root=" + toy().string(),
                                          "--output=" + (folder_ / "a.npz").string(), "--push"};
  EXPECT_THAT(run(local).errors, HasSubstr("--push currently supports only hf:// data roots"));
  const std::vector<std::string> hub = {"--repo-id=a/b", "--data-root=hf://datasets/a/b",
                                        "--output=" + (folder_ / "a.npz").string(), "--push",
                                        "--episodes=2"};
  EXPECT_THAT(run(hub).errors, HasSubstr("Only a complete dataset sidecar can be published"));
  EXPECT_EQ(run(hub).status, 2);
}

TEST_F(SidecarProgramTest, PlacesThatCannotBeReadAreRefusedWithTheReason) {
  const auto error = [&](const std::string& root, int status = 1) {
    const Result result =
        run({"--repo-id=a/b", "--data-root=" + root, "--output=" + (folder_ / "a.npz").string()});
    EXPECT_EQ(result.status, status) << root;
    return result.errors;
  };
  ::setenv("HF_HUB_OFFLINE", "1", 1);
  EXPECT_THAT(error("hf://datasets/a/b"), HasSubstr("offline mode is on"));
  EXPECT_THAT(error("hf://buckets/a/b"), HasSubstr("offline mode is on"));
  ::unsetenv("HF_HUB_OFFLINE");
  EXPECT_THAT(error("s3://bucket/x", 2), HasSubstr("expected a folder, http(s)://, hf://datasets"));
  EXPECT_THAT(error((folder_ / "nothing").string()), HasSubstr("is not a folder"));
  EXPECT_THAT(error(test_data("datasets/toy_state").string()), HasSubstr("no video features"));
  EXPECT_FALSE(fs::exists(folder_ / "a.npz"));
}

TEST_F(SidecarProgramTest, ABrokenVideoLeavesTheOldSidecar) {
  const fs::path root = copy_dataset(toy());
  const fs::path output = folder_ / "out" / "a.npz";
  fs::create_directories(output.parent_path());
  std::ofstream(output) << "the old one";
  const fs::path video = root / "videos/observation.images.wrist/chunk-000/file-000.mp4";
  fs::resize_file(video, 500);
  const Result result =
      run({"--repo-id=a/b", "--data-root=" + root.string(), "--output=" + output.string()});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.errors, HasSubstr(video.string()));
  EXPECT_EQ(read_text_file(output), "the old one");
  EXPECT_THAT(files_below(output.parent_path()), ElementsAre("a.npz"));
}

TEST_F(SidecarProgramTest, CtrlCLeavesNothingBehind) {
  // Enough videos that the build takes a while.
  const fs::path root = copy_dataset(test_data("datasets/toy_split"));
  const fs::path output = folder_ / "out" / "a.npz";
  const pid_t child = ::fork();
  if (child == 0) {
    // One that comes when a build is through already is without effect.
    std::thread([] {
      while (true) {
        std::this_thread::sleep_for(std::chrono::milliseconds(150));
        ::kill(::getpid(), SIGINT);
      }
    }).detach();
    int status = 0;
    while (status == 0)  // until the signal falls into a build
      status = sidecar_program(std::vector<std::string>{
          "--repo-id=a/b", "--data-root=" + root.string(), "--output=" + output.string()});
    ::_exit(status);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) ? WEXITSTATUS(status) == 130 : WTERMSIG(status) == SIGINT)
      << status;
  for (const std::string& name : files_below(output.parent_path())) EXPECT_EQ(name, "a.npz");
}

}  // namespace
}  // namespace lerobot::streaming
