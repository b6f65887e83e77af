#include "lerobot/distributed/communicator.h"

#include <cmath>
#include <thread>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "lerobot/base/error.h"
#include "tests/support/error_of.h"
#include "tests/support/ranks.h"

namespace lerobot::distributed {
namespace {

using ::testing::ElementsAre;

/// Small integers, so that every dtype adds them exactly: element i of rank r is r + 1 + i % 5.
at::Tensor values_of(std::int64_t rank, std::int64_t count, at::ScalarType dtype) {
  return at::arange(count, at::kLong).remainder(5).add(rank + 1).to(dtype);
}

/// What the ranks' values add up to.
at::Tensor sum_of_ranks(std::int64_t ranks, std::int64_t count, at::ScalarType dtype) {
  at::Tensor sum = at::zeros({count}, at::kLong);
  for (std::int64_t r = 0; r < ranks; ++r) sum.add_(values_of(r, count, at::kLong));
  return sum.to(dtype);
}

TEST(Communicator, AGroupOfOneCopies) {
  const Communicator alone;
  EXPECT_EQ(alone.rank(), 0);
  EXPECT_EQ(alone.size(), 1);
  EXPECT_EQ(alone.process_group(), nullptr);
  const at::Tensor x = values_of(0, 7, at::kFloat), gathered = at::empty({7}),
                   reduced = at::empty({7}), same = x.clone();
  alone.all_gather(gathered, x).wait();
  alone.reduce_scatter(reduced, x, Reduction::kAverage).wait();
  alone.all_reduce(same, Reduction::kAverage).wait();
  alone.broadcast(same, 0).wait();
  alone.barrier();
  for (const at::Tensor& y : {gathered, reduced, same}) EXPECT_TRUE(at::equal(x, y));
  EXPECT_THAT(alone.all_gather_text("a"), ElementsAre("a"));
  EXPECT_EQ(alone.broadcast_text("b"), "b");
}

TEST(Communicator, EveryDtypeIsGatheredAndBroadcast) {
  run_ranks(3, [](const World& world) {
    const Communicator& all = world.all();
    for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong, at::kInt,
                             at::kByte, at::kBool})
      for (const std::int64_t count : {0, 1, 1001}) {
        const at::Tensor mine = values_of(all.rank(), count, dtype);
        const at::Tensor gathered = at::empty({all.size(), count}, dtype);
        all.all_gather(gathered, mine).wait();
        for (std::int64_t r = 0; r < all.size(); ++r)
          EXPECT_TRUE(at::equal(gathered.select(0, r), values_of(r, count, dtype))) << dtype;
        all.broadcast(mine, 2).wait();
        EXPECT_TRUE(at::equal(mine, values_of(2, count, dtype))) << dtype << " of " << count;
      }
  });
}

TEST(Communicator, ARanksPartMayLieInTheGatheredTensor) {
  run_ranks(3, [](const World& world) {
    const Communicator& all = world.all();
    const at::Tensor gathered = at::zeros({3, 5000});
    gathered.select(0, all.rank()).fill_(static_cast<float>(all.rank() + 1));
    all.all_gather(gathered, gathered.select(0, all.rank())).wait();
    for (std::int64_t r = 0; r < 3; ++r)
      EXPECT_TRUE(at::equal(gathered.select(0, r), at::full({5000}, static_cast<float>(r + 1))));
  });
}

TEST(Communicator, SumsAveragesAndMaximaAreThoseOfAllRanks) {
  for (const std::int64_t ranks : {2, 3, 4})
    run_ranks(ranks, [](const World& world) {
      const Communicator& all = world.all();
      const std::int64_t n = all.size();
      for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong})
        for (const std::int64_t part : {0, 1, 3, 2048, 5000}) {
          const std::int64_t count = part * n;
          const at::Tensor sum = sum_of_ranks(n, count, dtype);
          const auto expect = [&](const at::Tensor& expected, Reduction reduction) {
            const at::Tensor whole = values_of(all.rank(), count, dtype);
            const at::Tensor mine = at::empty({part}, dtype);
            all.reduce_scatter(mine, whole.clone(), reduction).wait();
            all.all_reduce(whole, reduction).wait();
            EXPECT_TRUE(at::equal(whole, expected)) << dtype << " of " << count;
            EXPECT_TRUE(at::equal(mine, expected.narrow(0, all.rank() * part, part)))
                << dtype << " of " << count;
          };
          expect(sum, Reduction::kSum);
          expect(values_of(n - 1, count, dtype), Reduction::kMax);
          if (dtype != at::kLong) expect(sum.to(at::kDouble).div(n).to(dtype), Reduction::kAverage);
        }
    });
}

TEST(Communicator, LowPrecisionIsSummedInFloatAndRoundedOnce) {
  run_ranks(4, [](const World& world) {
    // 256 + 1 + 1 + 1: bfloat16 has no 257, so that rounding at every step would stay at 256.
    const at::Tensor mine =
        at::full({4}, world.rank() == 0 ? 256.F : 1.F, at::TensorOptions(at::kBFloat16));
    const at::Tensor sum = at::empty({1}, at::kBFloat16);
    world.all().reduce_scatter(sum, mine, Reduction::kSum).wait();
    EXPECT_EQ(sum.item<float>(), 260.F);  // 259 lies between 258 and 260: to the even one
  });
}

TEST(Communicator, AnInfinityOrNanOfOneRankReachesAll) {
  run_ranks(3, [](const World& world) {
    const at::Tensor x = at::zeros({3});
    if (world.rank() == 1) x.fill_(std::nanf(""));
    const at::Tensor part = at::empty({1});
    world.all().reduce_scatter(part, x.clone(), Reduction::kMax).wait();
    EXPECT_TRUE(std::isnan(part.item<float>()));
    world.all().reduce_scatter(part, x.clone(), Reduction::kSum).wait();
    EXPECT_TRUE(std::isnan(part.item<float>()));
  });
}

TEST(Communicator, ResultsAreTheSameBitsOnEveryRun) {
  run_ranks(4, [](const World& world) {
    const Communicator& all = world.all();
    const at::Tensor mine =
        at::arange(400'000, at::kDouble).mul(0.37 + all.rank()).sin().to(at::kFloat);
    at::Tensor first;
    for (int round = 0; round < 5; ++round) {
      const at::Tensor part = at::empty({100'000});
      all.reduce_scatter(part, mine.clone(), Reduction::kAverage).wait();
      if (round == 0) first = part;
      EXPECT_TRUE(at::equal(first, part));
    }
    // And the same as one process that adds in the order of ranks.
    at::Tensor sum = at::zeros({100'000});
    for (std::int64_t r = 0; r < all.size(); ++r)
      sum += at::arange(400'000, at::kDouble)
                 .mul(0.37 + r)
                 .sin()
                 .to(at::kFloat)
                 .narrow(0, all.rank() * 100'000, 100'000);
    EXPECT_TRUE(at::equal(first, sum.div(4)));
  });
}

TEST(Communicator, OperationsOfManySizesRunAtOnce) {
  run_ranks(4, [](const World& world) {
    const Communicator& all = world.all();
    constexpr std::int64_t kOperations = 24;
    std::vector<Pending> pending;
    std::vector<at::Tensor> gathered, reduced;
    for (std::int64_t i = 0; i < kOperations; ++i) {
      const std::int64_t count = 1 + i * 997;
      gathered.push_back(at::empty({all.size() * count}));
      reduced.push_back(at::empty({count}));
      pending.push_back(all.all_gather(gathered.back(), values_of(all.rank(), count, at::kFloat)));
      pending.push_back(all.reduce_scatter(
          reduced.back(), values_of(all.rank(), all.size() * count, at::kFloat), Reduction::kSum));
    }
    for (Pending& operation : pending) operation.wait();
    for (std::int64_t i = 0; i < kOperations; ++i) {
      const std::int64_t count = 1 + i * 997;
      const auto index = static_cast<std::size_t>(i);
      EXPECT_TRUE(
          at::equal(gathered[index].narrow(0, 3 * count, count), values_of(3, count, at::kFloat)));
      EXPECT_TRUE(
          at::equal(reduced[index],
                    sum_of_ranks(4, 4 * count, at::kFloat).narrow(0, all.rank() * count, count)));
    }
  });
}

TEST(Communicator, ADroppedOperationIsWaitedFor) {
  run_ranks(2, [](const World& world) {
    const at::Tensor x = values_of(world.rank(), 100'000, at::kFloat);
    { const Pending dropped = world.all().all_reduce(x, Reduction::kSum); }
    EXPECT_TRUE(at::equal(x, sum_of_ranks(2, 100'000, at::kFloat)));
    Pending replaced = world.all().all_reduce(x, Reduction::kAverage);
    EXPECT_TRUE(replaced);
    replaced = Pending();
    EXPECT_FALSE(replaced);
    EXPECT_TRUE(at::equal(x, sum_of_ranks(2, 100'000, at::kFloat)));
  });
}

TEST(Communicator, TensorsAndTextsGoFromRankToRank) {
  run_ranks(3, [](const World& world) {
    const Communicator& all = world.all();
    // Two messages to each, asked for in the other order.
    const std::int64_t to = (all.rank() + 1) % 3, from = (all.rank() + 2) % 3;
    const at::Tensor a = at::empty({5}, at::kLong), b = at::empty({7}, at::kBFloat16);
    std::vector<Pending> pending;
    pending.push_back(all.send(values_of(all.rank(), 5, at::kLong), to, 1));
    pending.push_back(all.send(values_of(all.rank(), 7, at::kBFloat16), to, 2));
    pending.push_back(all.receive(b, from, 2));
    pending.push_back(all.receive(a, from, 1));
    for (Pending& operation : pending) operation.wait();
    EXPECT_TRUE(at::equal(a, values_of(from, 5, at::kLong)));
    EXPECT_TRUE(at::equal(b, values_of(from, 7, at::kBFloat16)));

    EXPECT_THAT(all.all_gather_text(all.rank() == 1 ? "" : std::string(3, 'x') + '\0'),
                ElementsAre(std::string("xxx\0", 4), "", std::string("xxx\0", 4)));
    EXPECT_EQ(all.broadcast_text(all.rank() == 2 ? "from 2" : "ignored", 2), "from 2");
    EXPECT_EQ(all.broadcast_text("", 0), "");
    all.barrier();
  });
}

TEST(Communicator, ShardsAndReplicasAreGroupsOfTheMesh) {
  run_ranks({2, 2}, [](const World& world) {
    const auto ranks_of = [&](const Communicator& group) {
      return group.all_gather_text(std::to_string(world.rank()));
    };
    const std::int64_t r = world.rank();
    EXPECT_EQ(world.shards().rank(), r % 2);
    EXPECT_EQ(world.replicas().rank(), r / 2);
    EXPECT_THAT(ranks_of(world.shards()),
                ElementsAre(std::to_string(r / 2 * 2), std::to_string(r / 2 * 2 + 1)));
    EXPECT_THAT(ranks_of(world.replicas()),
                ElementsAre(std::to_string(r % 2), std::to_string(r % 2 + 2)));
    EXPECT_THAT(ranks_of(world.background()), ElementsAre("0", "1", "2", "3"));
  });
}

TEST(Communicator, AGroupThatIsAllRanksIsNotBuiltTwice) {
  run_ranks({1, 2}, [](const World& world) {
    EXPECT_EQ(world.shards().state(), world.all().state());
    EXPECT_EQ(world.replicas().size(), 1);
    EXPECT_NE(world.background().state(), world.all().state());
  });
  run_ranks({2, 1}, [](const World& world) {
    EXPECT_EQ(world.replicas().state(), world.all().state());
    EXPECT_EQ(world.shards().size(), 1);
  });
}

TEST(Communicator, AThreadInTheBackgroundTalksBesideTheTrainingThread) {
  run_ranks(2, [](const World& world) {
    std::thread checkpoint([&] {
      for (int i = 0; i < 200; ++i)
        EXPECT_EQ(world.background().all_gather_text("checkpoint").size(), 2U);
    });
    const at::Tensor x = at::full({2000}, 1.F);
    for (int i = 0; i < 200; ++i) world.all().all_reduce(x, Reduction::kAverage).wait();
    checkpoint.join();
    EXPECT_EQ(x[0].item<float>(), 1.F);
  });
}

TEST(Communicator, TorchsOwnProcessGroupReducesThroughIt) {
  run_ranks(2, [](const World& world) {
    std::vector<at::Tensor> tensors{values_of(world.rank(), 10, at::kFloat)};
    world.all().process_group()->allreduce(tensors)->wait();
    EXPECT_TRUE(at::equal(tensors[0], sum_of_ranks(2, 10, at::kFloat)));
  });
}

TEST(Communicator, ShapesThatDoNotFitAreOurOwnFault) {
  const Communicator alone;
  EXPECT_THROW(alone.all_gather(at::empty({3}), at::empty({2})), InternalError);
  EXPECT_THROW(alone.reduce_scatter(at::empty({2}), at::empty({3}), Reduction::kSum),
               InternalError);
  EXPECT_THROW(alone.send(at::empty({1}), 0, 0), InternalError);
}

}  // namespace
}  // namespace lerobot::distributed
