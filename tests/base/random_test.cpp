#include "lerobot/base/random.h"

#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lerobot/base/error.h"
#include "lerobot/base/json.h"

namespace lerobot {
namespace {

using ::testing::ElementsAre;
using Words = std::vector<std::uint32_t>;

struct SeedCase {
  std::vector<std::uint64_t> entropy;
  Words state;  // numpy.random.SeedSequence(entropy).generate_state(6)
  std::uint64_t first;
};

TEST(Random, SeedSequenceGivesNumpysWords) {
  const SeedCase cases[] = {
      {{0},
       {2968811710, 3677149159, 745650761, 2884920346, 2642120001, 549907821},
       15793235383387715774u},
      {{1},
       {1835504127, 1731038949, 1320224556, 2330041505, 321059914, 1226144109},
       7434755675892716031u},
      {{1000, 0},
       {2989689681, 4191542321, 2529548519, 3619692248, 327553172, 2898895421},
       18002537191484623697u},
      {{2147483653, 7},
       {1038549916, 1240085030, 1524536509, 3432557527, 4339961, 1966676325},
       5326124649147728796u},
      {{1099511627783, 1},
       {2803427941, 2776009154, 4101157631, 2474223908, 3738472425, 808975123},
       11922868532630055525u},
      {{18446744073709551615u, 18446744073709551615u},
       {819991049, 2207585912, 3432630979, 2227233661, 4152944705, 3544128466},
       9481509295970325001u},
      {{1, 2, 3, 4, 5, 6},
       {488360481, 3956080669, 2986500235, 3488252836, 3841783222, 2602687873},
       16991237094181161505u},
  };
  for (const SeedCase& c : cases) {
    const SeedSequence sequence(c.entropy);
    EXPECT_EQ(sequence.generate_state(6), c.state);
    EXPECT_EQ(sequence.generate_uint64(), c.first);
  }
}

TEST(Random, Mt19937GivesNumpysWordsAcrossARefill) {
  // numpy.random.RandomState(seed).randint(0, 2**32, dtype=uint32)
  Mt19937 generator(12345);
  EXPECT_EQ(generator.position(), Mt19937::kWords);
  Words words(2000);
  for (auto& word : words) word = generator.next();
  EXPECT_THAT(Words(words.begin(), words.begin() + 5),
              ElementsAre(3992670690u, 3823185381u, 1358822685u, 561383553u, 789925284u));
  EXPECT_THAT(Words(words.begin() + 623, words.begin() + 626),
              ElementsAre(2940097750u, 3957348375u, 3514278914u));
  EXPECT_EQ(words.back(), 3374551203u);
  EXPECT_EQ(generator.position(), 2000 % Mt19937::kWords);

  Mt19937 largest(0xffffffff);
  EXPECT_EQ(largest.next(), 419326371u);
  EXPECT_EQ(largest.next(), 479346978u);
}

TEST(Random, EpochSeedsAndPermutationsAreThoseOfLeRobot) {
  const Json oracle = read_json_file(LEROBOT_TEST_DATA "/oracles/sampler_oracle.json");
  ASSERT_FALSE(oracle["permutations"].empty());
  for (const Json& c : oracle["permutations"]) {
    const auto seed = epoch_seed(c["seed"].get<std::uint64_t>(), c["epoch"].get<std::uint64_t>());
    EXPECT_EQ(std::to_string(seed), c["epoch_seed_u64"].get<std::string>());
    EXPECT_EQ(torch_randperm(c["n"].get<std::int64_t>(), seed),
              c["perm"].get<std::vector<std::int64_t>>());
  }
}

TEST(Random, LongerPermutationsAreThoseOfTorch) {
  const std::uint64_t seed = (std::uint64_t{1} << 40) + 7;
  const auto dot = [](const std::vector<std::int64_t>& order) {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < order.size(); ++i) sum += order[i] * static_cast<std::int64_t>(i);
    return sum;
  };
  auto order = torch_randperm(1000, seed);
  EXPECT_EQ(dot(order), 251046965);
  order.resize(6);
  EXPECT_THAT(order, ElementsAre(615, 284, 599, 580, 347, 92));

  order = torch_randperm(100003, seed);
  EXPECT_EQ(dot(order), 249696369754885);
  order.resize(6);
  EXPECT_THAT(order, ElementsAre(31784, 94367, 92227, 75289, 72116, 19382));
}

TEST(Random, ShuffleAppliesThePermutationToAnyValues) {
  std::vector<std::int64_t> values(43);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = 1000 - 7 * static_cast<std::int64_t>(i);
  const auto before = values;
  torch_shuffle(values, 5);
  const auto order = torch_randperm(43, 5);
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(values[i], before[static_cast<std::size_t>(order[i])]);
}

TEST(Random, PermutationsOfNothingAndOfANegativeLength) {
  EXPECT_TRUE(torch_randperm(0, 1).empty());
  EXPECT_THAT(torch_randperm(1, 1), ElementsAre(0));
  EXPECT_THROW(torch_randperm(-1, 1), Error);
}

// From 2^32 / 20 values on torch draws 64 bits a value. 1.7 GB and half a minute: by hand, with
// --gtest_also_run_disabled_tests. Expected: torch.randperm(214748364,
// generator=torch.Generator().manual_seed(18002537191484623697)).
TEST(Random, DISABLED_PermutationsOfHugeDatasetsAreThoseOfTorch) {
  const std::uint64_t seed = epoch_seed(1000, 0);
  std::int64_t n = (std::int64_t{1} << 32) / 20 - 1;
  auto order = torch_randperm(n, seed);
  EXPECT_THAT(std::vector<std::int64_t>(order.begin(), order.begin() + 4),
              ElementsAre(54559374, 178515925, 199110126, 74571113));
  EXPECT_THAT(std::vector<std::int64_t>(order.end() - 3, order.end()),
              ElementsAre(194287870, 210514391, 12561397));
  order = torch_randperm(n + 1, seed);
  EXPECT_THAT(std::vector<std::int64_t>(order.begin(), order.begin() + 4),
              ElementsAre(183549788, 87741380, 209714366, 80958157));
  EXPECT_THAT(std::vector<std::int64_t>(order.end() - 3, order.end()),
              ElementsAre(39958313, 85901936, 123297207));
}

}  // namespace
}  // namespace lerobot
