#include "lerobot/hub/retry_policy.h"

#include <gtest/gtest.h>

namespace lerobot::hub {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;
using std::chrono::system_clock;

TEST(RetryPolicy, ReadsRetryAfterAsSecondsOrDate) {
  const auto now = system_clock::from_time_t(1'136'214'245);  // Mon, 02 Jan 2006 15:04:05 GMT
  EXPECT_EQ(parse_retry_after("120", now), 120s);
  EXPECT_EQ(parse_retry_after(" 0 ", now), 0s);
  EXPECT_EQ(parse_retry_after("Mon, 02 Jan 2006 15:05:05 GMT", now), 60s);
  EXPECT_EQ(parse_retry_after("Mon, 02 Jan 2006 15:00:00 GMT", now), 0s) << "in the past";
  for (const char* text : {"", "-5", "soon", "5 minutes maybe"})
    EXPECT_EQ(parse_retry_after(text, now), std::nullopt) << text;
  EXPECT_TRUE(parse_retry_after("99999999999999999999999", now)) << "huge is capped, not ignored";
}

// facts: "RateLimit" with r=0 asks for t + 1 seconds, with r > 0 for nothing.
TEST(RetryPolicy, ReadsTheHubsRateLimit) {
  EXPECT_EQ(parse_rate_limit("\"api\";r=0;t=55"), 56s);
  EXPECT_EQ(parse_rate_limit("\"resolvers\"; t=3; r=0"), 4s);
  EXPECT_EQ(parse_rate_limit("\"api\";r=12;t=55"), std::nullopt);
  EXPECT_EQ(parse_rate_limit("\"api\";r=0"), std::nullopt);
  EXPECT_EQ(parse_rate_limit(""), std::nullopt);
  EXPECT_EQ(describe_rate_limit("\"api\";r=0;t=55"),
            "the limit of \"api\" requests is used up for 56 s");
  EXPECT_EQ(describe_rate_limit("\"api\";r=12;t=55"), std::nullopt);
}

TEST(RetryPolicy, DoublesTheWaitUpToTheLongest) {
  const RetryPolicy policy;  // 0.5 s, at most 5 s
  const milliseconds expected[] = {500ms, 1000ms, 2000ms, 4000ms, 5000ms, 5000ms};
  for (int failure = 1; failure <= 6; ++failure) {
    EXPECT_EQ(policy.wait(failure, {}, 0.0), expected[failure - 1] / 2) << failure;
    EXPECT_LE(policy.wait(failure, {}, 0.999999), expected[failure - 1]) << failure;
    EXPECT_GE(policy.wait(failure, {}, 0.999999), expected[failure - 1] - 2ms) << failure;
  }
  EXPECT_EQ(policy.wait(1'000'000, {}, 0.0), 2500ms);
}

TEST(RetryPolicy, DoesWhatTheServerAsksUpToACap) {
  const RetryPolicy policy;
  EXPECT_EQ(policy.wait(1, 7s, 0.0), 7s);
  EXPECT_EQ(policy.wait(1, 7s, 0.5), 7s + 250ms) << "never earlier than asked";
  EXPECT_EQ(policy.wait(1, 24h, 0.0), 300s);
}

TEST(RetryPolicy, KnowsTheStatusesThatSayLater) {
  for (const long status : {408, 425, 429, 500, 502, 503, 504})
    EXPECT_TRUE(is_retryable_status(status)) << status;
  for (const long status : {200, 206, 302, 400, 401, 403, 404, 416, 501})
    EXPECT_FALSE(is_retryable_status(status)) << status;
}

}  // namespace
}  // namespace lerobot::hub
