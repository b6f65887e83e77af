#include "lerobot/hub/hub_error.h"

#include <string>

#include <gmock/gmock.h>

#include "tests/hub/hub_fixture.h"

namespace lerobot::hub {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kHub = "https://huggingface.co";
using Headers = std::vector<std::pair<std::string, std::string>>;

const Subject kFile{
    .repo = {RepoType::kDataset, "robot/pusht"}, .revision = "v3.0", .path = "meta/info.json"};
const Subject kRevision{.repo = {RepoType::kDataset, "robot/pusht"}, .revision = "v9.9"};
const Credentials kNone{.token = {}, .origin = "HF_TOKEN or /home/robot/token"};
const Credentials kToken{.token = "hf_secret", .origin = "HF_TOKEN"};

HubError error_for(long status, const Headers& headers, const std::string& body = "",
                   const Subject& subject = kFile, const Credentials& credentials = kToken) {
  return hub_error_of([&] { fail_hub(subject, {status, headers}, body, kHub, credentials); });
}

// Statuses, codes and texts of the live Hub.
TEST(HubErrorText, OfAMissingRepositoryNamesItAndTheToken) {
  const HubError error = error_for(404, {{"x-error-code", "RepoNotFound"}},
                                   R"({"error": "Repository not found"})", kRevision);
  EXPECT_EQ(error.fault(), HubFault::kRepoNotFound);
  EXPECT_EQ(error.status(), 404);
  EXPECT_THAT(
      error.what(),
      AllOf(HasSubstr("dataset robot/pusht is not on https://huggingface.co, or is private"),
            HasSubstr("Repository not found"), HasSubstr("check the spelling"),
            HasSubstr("the token from HF_TOKEN was sent"), Not(HasSubstr("hf_secret"))));
}

TEST(HubErrorText, OfAnAnonymousQuestionTellsWhereATokenWasLookedFor) {
  const HubError error =
      error_for(401, {{"x-error-message", "Invalid username or password."}},
                R"({"error": "Invalid username or password."})", kRevision, kNone);
  EXPECT_EQ(error.fault(), HubFault::kUnauthorized);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("is missing on https://huggingface.co, or is private"),
                                  HasSubstr("none in HF_TOKEN or /home/robot/token"),
                                  HasSubstr("hf auth login")));
  EXPECT_EQ(std::string(error.what()).find("Invalid username"),
            std::string(error.what()).rfind("Invalid username"))
      << "said once";
}

TEST(HubErrorText, OfAnInvalidTokenNamesItsSource) {
  const HubError error =
      error_for(401, {}, R"({"error": "Invalid credentials in Authorization header"})", kRevision,
                {.token = "hf_secret", .origin = "HF_TOKEN (which goes before the login in /t)"});
  EXPECT_EQ(error.fault(), HubFault::kUnauthorized);
  EXPECT_THAT(
      error.what(),
      AllOf(HasSubstr("Invalid credentials in Authorization header"),
            HasSubstr("the token from HF_TOKEN (which goes before the login in /t) was sent "
                      "and isn't valid")));
}

TEST(HubErrorText, OfAGatedRepositorySaysWhereToAsk) {
  const HubError error = error_for(403, {{"x-error-code", "GatedRepo"}});
  EXPECT_EQ(error.fault(), HubFault::kGated);
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr("meta/info.json of dataset robot/pusht at v3.0 is gated"),
                    HasSubstr("ask for access at https://huggingface.co/datasets/robot/pusht")));
}

TEST(HubErrorText, OfAMissingRevisionNamesItAndWhereTheOthersAre) {
  const HubError error = error_for(404, {{"x-error-code", "RevisionNotFound"}},
                                   R"({"error": "Invalid rev id: v9.9"})", kRevision);
  EXPECT_EQ(error.fault(), HubFault::kRevisionNotFound);
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr("dataset robot/pusht has no revision \"v9.9\""),
                    HasSubstr("Invalid rev id: v9.9"), HasSubstr("datasets/robot/pusht/refs")));
}

TEST(HubErrorText, OfAMissingFileNamesItRepositoryAndRevision) {
  for (const Headers& headers : {Headers{{"x-error-code", "EntryNotFound"}}, Headers{}}) {
    const HubError error = error_for(404, headers);
    EXPECT_EQ(error.fault(), HubFault::kEntryNotFound);
    EXPECT_THAT(error.what(),
                HasSubstr("there is no meta/info.json of dataset robot/pusht at v3.0"));
  }
}

TEST(HubErrorText, OfADisabledRepositorySaysSo) {
  const HubError error =
      error_for(403, {{"x-error-message", "Access to this resource is disabled."}});
  EXPECT_EQ(error.fault(), HubFault::kDisabled);
  EXPECT_THAT(error.what(), HasSubstr("has been disabled"));
}

TEST(HubErrorText, OfAForbiddenActionRepeatsTheServersWordsAndNamesTheToken) {
  Subject subject = kRevision;
  subject.action = "create the branch lerobot-sidecars";
  const HubError error =
      error_for(403, {{"x-error-message", "You have read access but not the required permissions"}},
                "", subject);
  EXPECT_EQ(error.fault(), HubFault::kForbidden);
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr("cannot create the branch lerobot-sidecars: "),
                    HasSubstr("You have read access but not the required permissions"),
                    HasSubstr("may write to it")));
}

TEST(HubErrorText, OfARateLimitNamesItAndTheSeconds) {
  const HubError error = error_for(429, {{"ratelimit", "\"resolvers\";r=0;t=55"}});
  EXPECT_EQ(error.fault(), HubFault::kUnreachable);
  EXPECT_THAT(error.what(), HasSubstr("the limit of \"resolvers\" requests is used up for 56 s"));
}

TEST(HubErrorText, OfAnAddressThatNoHubLacksDoubtsTheEndpoint) {
  const HubError error = error_for(404, {}, "<html>not found</html>", kRevision);
  EXPECT_EQ(error.fault(), HubFault::kRefused);
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr("does HF_ENDPOINT name a Hub?"), Not(HasSubstr("<html>"))));
}

TEST(HubErrorText, HasTheServersWordsInEveryFormThatTheHubUses) {
  for (const char* body : {R"({"error": "wrong words"})", R"({"error": ["wrong words"]})",
                           R"({"errors": [{"message": "wrong words"}]})",
                           R"({"error_description": "wrong words"})", "wrong words"})
    EXPECT_THAT(error_for(400, {}, body).what(), HasSubstr("status 400, wrong words")) << body;
  EXPECT_THAT(error_for(400, {}, "bad\x1b[2Jwords").what(), HasSubstr("bad [2Jwords"));
  EXPECT_THAT(error_for(500, {{"x-request-id", "Root=1-2"}}).what(), HasSubstr("request Root=1-2"));
}

TEST(HubErrorText, ClassifiesConflictsAndStaleParents) {
  EXPECT_EQ(error_for(409, {}).fault(), HubFault::kConflict);
  EXPECT_EQ(error_for(412, {}).fault(), HubFault::kStaleParent);
  EXPECT_EQ(error_for(503, {}).fault(), HubFault::kUnreachable);
  EXPECT_EQ(error_for(400, {}).fault(), HubFault::kRefused);
}

TEST(HubErrorText, OfOfflineModeSaysHowToLeaveIt) {
  const HubError error = hub_error_of([] { fail_offline(kRevision); });
  EXPECT_EQ(error.fault(), HubFault::kOffline);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("dataset robot/pusht at v9.9 is not asked for"),
                                  HasSubstr("unset HF_HUB_OFFLINE")));
}

}  // namespace
}  // namespace lerobot::hub
