#include "lerobot/base/trace.h"

#include <algorithm>
#include <optional>
#include <pthread.h>
#include <string>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

namespace lerobot::trace {
namespace {

TEST(Trace, RecordsNothingWhileItIsOff) {
  { const Span span("before"); }
  start();
  const auto tracks = stop();
  { const Span span("after"); }
  EXPECT_TRUE(tracks.empty());
  start();
  EXPECT_TRUE(stop().empty());
}

TEST(Trace, TellsThreadsApartByTheirNames) {
  start();
  const std::int64_t begin = now_ns();
  std::thread([] {
    ::pthread_setname_np(::pthread_self(), "decode");
    const Span outer("outer");
    const Span inner("inner");
  }).join();
  { const Span span("here"); }
  const std::int64_t end = now_ns();
  const auto tracks = stop();
  ASSERT_EQ(tracks.size(), 2U);
  const auto decode = std::ranges::find(tracks, "decode", &Track::name);
  ASSERT_NE(decode, tracks.end());
  ASSERT_EQ(decode->events.size(), 2U);
  // The inner one ends first, and lies within the outer one.
  const Event &inner = decode->events[0], &outer = decode->events[1];
  EXPECT_STREQ(inner.name, "inner");
  EXPECT_STREQ(outer.name, "outer");
  EXPECT_GE(inner.begin_ns, outer.begin_ns);
  EXPECT_LE(inner.end_ns, outer.end_ns);
  EXPECT_GE(outer.begin_ns, begin);
  EXPECT_LE(outer.end_ns, end);
  EXPECT_NE(tracks[0].thread, tracks[1].thread);
}

TEST(Trace, EndsASpanThatIsStillOpen) {
  start();
  std::optional<Span> span(std::in_place, "open");
  const auto tracks = stop();
  ASSERT_EQ(tracks.size(), 1U);
  ASSERT_EQ(tracks[0].events.size(), 1U);
  EXPECT_STREQ(tracks[0].events[0].name, "open");
  EXPECT_GE(tracks[0].events[0].end_ns, tracks[0].events[0].begin_ns);
  span.reset();
  start();
  EXPECT_TRUE(stop().empty()) << "its end is no event of another recording";
}

}  // namespace
}  // namespace lerobot::trace
