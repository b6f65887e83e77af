#include "lerobot/hub/environment.h"

#include <cstdlib>
#include <filesystem>
#include <string>
#include <unistd.h>

#include <gmock/gmock.h>

#include "lerobot/base/files.h"
#include "tests/support/error_of.h"

namespace lerobot::hub {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Environment : public ::testing::Test {
 protected:
  Environment() {
    for (const char* name :
         {"HF_ENDPOINT", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "HF_HUB_OFFLINE",
          "TRANSFORMERS_OFFLINE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE",
          "HF_HUB_DISABLE_SYMLINKS", "HF_HUB_ETAG_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT",
          "HF_HUB_DISABLE_IMPLICIT_TOKEN"})
      ::unsetenv(name);
    fs::create_directories(home_);
    ::setenv("HF_HOME", home_.c_str(), 1);
  }
  ~Environment() override { fs::remove_all(home_); }

  static std::string error_with(const char* name, const char* value) {
    ::setenv(name, value, 1);
    const std::string error = error_of([] { HubEnvironment::read(); });
    ::unsetenv(name);
    return error;
  }

  const fs::path home_ =
      fs::temp_directory_path() / fmt::format("lerobot_environment_test.{}", ::getpid());
};

TEST_F(Environment, SaysWhatTheClientTakesWhenNothingIsSet) {
  const HubEnvironment found = HubEnvironment::read();
  EXPECT_EQ(found.endpoint, "https://huggingface.co");
  EXPECT_FALSE(found.offline);
  EXPECT_EQ(found.cache, home_ / "hub");
  EXPECT_TRUE(found.symlinks);
  EXPECT_EQ(found.etag_timeout.count(), 10);
  EXPECT_EQ(found.download_timeout.count(), 10);
  EXPECT_FALSE(found.credentials.token);
  EXPECT_THAT(found.credentials.describe(),
              AllOf(HasSubstr("no token was sent"), HasSubstr((home_ / "token").string())));
}

TEST_F(Environment, LosesTheSlashesAtTheEndOfAnEndpoint) {
  ::setenv("HF_ENDPOINT", "https://hub.example/mirror//", 1);
  EXPECT_EQ(HubEnvironment::read().endpoint, "https://hub.example/mirror");
}

TEST_F(Environment, RefusesAnEndpointThatIsNone) {
  for (const char* text : {"hub.example", "ftp://hub.example", "https://hub.example?x=1"})
    EXPECT_THAT(error_with("HF_ENDPOINT", text), HasSubstr("HF_ENDPOINT=")) << text;
  EXPECT_THAT(error_with("HF_ENDPOINT", "ftp://user:secret@hub"), Not(HasSubstr("secret")));
}

TEST_F(Environment, TakesTheFirstTokenInTheOrderOfTheClient) {
  write_file_atomic(home_ / "token", " hf_file\r\n");
  EXPECT_EQ(find_credentials().token, "hf_file");
  EXPECT_EQ(find_credentials().origin, (home_ / "token").string());
  write_file_atomic(home_ / "other", "hf_other");
  ::setenv("HF_TOKEN_PATH", (home_ / "other").c_str(), 1);
  EXPECT_EQ(find_credentials().token, "hf_other");
  ::setenv("HUGGING_FACE_HUB_TOKEN", "hf_old", 1);
  EXPECT_EQ(find_credentials().token, "hf_old");
  ::setenv("HF_TOKEN", "  hf_new\n", 1);
  EXPECT_EQ(find_credentials().token, "hf_new");
  ::setenv("HF_TOKEN", " \n", 1);
  EXPECT_EQ(find_credentials().token, "hf_old") << "an empty one is none";
  ::setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1", 1);
  EXPECT_FALSE(find_credentials().token);
  EXPECT_THAT(find_credentials().describe(), HasSubstr("HF_HUB_DISABLE_IMPLICIT_TOKEN"));
}

TEST_F(Environment, SaysThatAVariableGoesBeforeALogin) {
  write_file_atomic(home_ / "token", "hf_file");
  ::setenv("HF_TOKEN", "hf_variable", 1);
  EXPECT_EQ(find_credentials().origin,
            "HF_TOKEN (which goes before the login in " + (home_ / "token").string() + ")");
  ::setenv("HF_TOKEN", "hf_file", 1);
  EXPECT_EQ(find_credentials().origin, "HF_TOKEN") << "the same token";
}

TEST_F(Environment, NamesTheSourceOfABrokenTokenAndNeverTheToken) {
  for (const char* token : {"hf_a b", "hf_\tb", "hf_\xc3\xa9"})
    EXPECT_THAT(error_with("HF_TOKEN", token),
                AllOf(HasSubstr("the token from HF_TOKEN"), Not(HasSubstr("hf_"))));
  EXPECT_EQ(error_with("HF_TOKEN", "hf_a\r\nb"), "no error") << "line breaks don't count";
}

TEST_F(Environment, IsOfflineForTheWordsThatTheClientKnows) {
  for (const char* name : {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}) {
    for (const char* value : {"1", "true", "Yes", "ON"}) {
      ::setenv(name, value, 1);
      EXPECT_TRUE(HubEnvironment::read().offline) << name << "=" << value;
    }
    ::setenv(name, "0", 1);
    EXPECT_FALSE(HubEnvironment::read().offline);
    ::unsetenv(name);
  }
}

TEST_F(Environment, FindsTheCacheInTheOrderOfTheClient) {
  ::setenv("HUGGINGFACE_HUB_CACHE", "/old", 1);
  EXPECT_EQ(HubEnvironment::read().cache, "/old");
  ::setenv("HF_HUB_CACHE", "$HF_HOME/new", 1);
  EXPECT_EQ(HubEnvironment::read().cache, home_ / "new");
}

TEST_F(Environment, ReadsTimeoutsInWholeSeconds) {
  ::setenv("HF_HUB_ETAG_TIMEOUT", "3", 1);
  ::setenv("HF_HUB_DOWNLOAD_TIMEOUT", "0", 1);
  EXPECT_EQ(HubEnvironment::read().etag_timeout.count(), 3);
  EXPECT_EQ(HubEnvironment::read().download_timeout.count(), 10) << "0 means the default";
  for (const char* value : {"1.5", "soon", "-1", "99999999999"})
    EXPECT_THAT(error_with("HF_HUB_ETAG_TIMEOUT", value),
                HasSubstr("expected a whole number of seconds"));
}

TEST_F(Environment, TurnsSymbolicLinksOff) {
  ::setenv("HF_HUB_DISABLE_SYMLINKS", "1", 1);
  EXPECT_FALSE(HubEnvironment::read().symlinks);
}

}  // namespace
}  // namespace lerobot::hub
